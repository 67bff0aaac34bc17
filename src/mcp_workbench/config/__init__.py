"""The configuration file: keys, variables, errors; and the files we read and keep."""
