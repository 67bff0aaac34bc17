"""The daemon: one workbench in the background, shared by the hosts of a configuration file.

`attach` runs in every `serve`: it hands the host's pipes to a running daemon, and `crash_journal` continues
the session if that daemon ends. Everything else runs in the daemon, starts it, or asks it something.
"""
