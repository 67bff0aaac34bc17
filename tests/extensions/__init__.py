"""Apps, extensions and hints for hosts, through the real command."""
