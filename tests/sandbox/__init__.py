"""Sandboxes and resource limits of servers: what they keep from a server, and what they promise."""
