"""Hosts on a pipe: what they say is the subject here, not the process that they talk to."""

from tests.kit.pipe_host import forked_hosts

__all__ = ["forked_hosts"]
