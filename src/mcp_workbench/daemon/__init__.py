"""The daemon: one workbench in the background, shared by the hosts of a configuration file.

`attach` runs in every `serve`: `attached` hands the host's pipes to a running daemon, and `resume` continues
the session if that daemon ends. Everything else runs in the daemon or asks it something.
"""
