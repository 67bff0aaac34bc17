"""The configuration file: its words, its variables, its problems."""
