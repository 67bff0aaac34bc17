"""How a host is connected: the command for each host that we know, and the address for others."""

from __future__ import annotations

from shlex import quote

import msgspec

from mcp_workbench.core.spec import Snapshot
from mcp_workbench.hosts.table import HOSTS


class HostCommand(msgspec.Struct, frozen=True):
    """One host, and what connects it."""

    id: str
    title: str
    command: str


class Connections(msgspec.Struct, frozen=True, rename="camel"):
    """All ways to connect a host."""

    hosts: list[HostCommand]
    stdio: str  # the command that any other host starts
    url: str  # for hosts over HTTP; empty if there is no such port
    needs_token: bool


def connections(snapshot: Snapshot, url: str, *, needs_token: bool = False) -> Connections:
    config = f" --config {quote(snapshot.origin)}" if snapshot.origin else ""
    hosts = [
        HostCommand(host.id, host.title, f"mcp-workbench install {host.id}{config}")
        for host in HOSTS.values()
        if not host.import_only
    ]
    return Connections(hosts, f"mcp-workbench serve{config}", url, needs_token)
