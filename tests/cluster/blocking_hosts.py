"""Hosts of single replicas that block, for scenes of few requests."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from tests.cluster.scenes import TOKENS, Cluster
from tests.kit.blocking_http_host import HttpHost


class Hosts:
    """Makes hosts of the replicas of one cluster."""

    def __init__(self, running: Cluster, stack: contextlib.ExitStack) -> None:
        self._running = running
        self._stack = stack

    def modern(self, replica: int, who: str = "alice", **more: Any) -> HttpHost:
        return self._open(replica, who, modern=True, **more)

    def legacy(self, replica: int, who: str = "alice", **more: Any) -> HttpHost:
        return self._open(replica, who, modern=False, **more)

    def _open(self, replica: int, who: str, **more: Any) -> HttpHost:
        host = HttpHost(self._running.replicas[replica].url, token=TOKENS[who], **more)
        self._stack.callback(host.close)
        return host

    def move(self, host: HttpHost, replica: int) -> None:
        """Let this host go on at another replica."""
        host.move_to(f"127.0.0.1:{self._running.replicas[replica].port}")


@contextlib.contextmanager
def hosts_of(running: Cluster) -> Generator[Hosts]:
    with contextlib.ExitStack() as stack:
        yield Hosts(running, stack)
