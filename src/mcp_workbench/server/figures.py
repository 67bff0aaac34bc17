"""Figures of a running workbench, for `/metrics` and `top`: servers, hosts, memory, tokens and calls.

What the event loop knows is read there, which costs little. Memory and tokens need files of the system and the
text of every definition, so they are added in a thread, and kept while a server's list is the same.
"""

import asyncio
import os
import time
from collections.abc import Callable

import msgspec

from mcp_workbench import __version__
from mcp_workbench.core.apps import is_for_model
from mcp_workbench.core.catalogue import (
    Definition,
    OpenedServer,
    definition_tokens,
    estimate_tokens,
    listed_tokens,
)
from mcp_workbench.core.figures import Figures, Hosts, RequestTokens, ServerFigures
from mcp_workbench.core.spec import ServerAddress, Snapshot
from mcp_workbench.gateway.server_figures import listed_servers, server_figures
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.server.own_definitions import own_definitions
from mcp_workbench.server.text import instructions
from mcp_workbench.transport.process_table import list_processes

ProcessTable = dict[int, tuple[int, int]]  # group and resident pages, by pid


class FiguresReader:
    """Reads the figures of one gateway, for everybody who asks."""

    def __init__(self, gateway: Gateway, hosts: Callable[[], Hosts]) -> None:
        self._gateway = gateway
        self._hosts = hosts
        self._since = time.monotonic()
        self._counted: dict[ServerAddress, tuple[tuple[Definition, ...], int, int]] = {}

    async def read(self) -> Figures:
        """The figures of now. Starts nothing, and asks no server."""
        gateway, times = self._gateway, os.times()
        figures = Figures(
            version=__version__,
            pid=os.getpid(),
            mode=gateway.snapshot.tool_mode,
            seconds=time.monotonic() - self._since,
            cpu=times.user + times.system,
            servers=server_figures(gateway),
            hosts=self._hosts(),
            stats=gateway.meter.snapshot(),
        )
        listed, snapshot = listed_servers(gateway), gateway.snapshot
        return await asyncio.to_thread(self._completed, figures, listed, snapshot)

    def _completed(
        self, figures: Figures, listed: list[OpenedServer], snapshot: Snapshot
    ) -> Figures:
        counts = {server.address: self._count(server) for server in listed}
        table = list_processes()
        servers = tuple(
            _completed_server(server, table, counts.get(server.address, (0, 0)))
            for server in figures.servers
        )
        direct = sum(server.tokens for server in servers)
        return msgspec.structs.replace(
            figures,
            servers=servers,
            tokens=RequestTokens(direct, shown_tokens(snapshot)),
            memory=table[figures.pid][1] * _page_bytes() if figures.pid in table else 0,
            descriptors=_descriptors(),
        )

    def _count(self, server: OpenedServer) -> tuple[int, int]:
        """How many tools a model sees, and their tokens; counted again only if they have changed."""
        known = self._counted.get(server.address)
        if known is None or known[0] != server.tools:
            tools = [tool for tool in server.tools if is_for_model(tool.raw)]
            tokens = sum(definition_tokens(tool.raw) for tool in tools)
            known = self._counted[server.address] = (server.tools, len(tools), tokens)
        return known[1:]


def shown_tokens(snapshot: Snapshot) -> int:
    """What a model reads in every request: our tools, and the instructions."""
    menu = sum(map(listed_tokens, own_definitions(snapshot)))
    return menu + estimate_tokens(instructions(snapshot))


def _completed_server(
    server: ServerFigures, table: ProcessTable, counts: tuple[int, int]
) -> ServerFigures:
    pages = [pages for group, pages in table.values() if group in server.groups]
    return msgspec.structs.replace(
        server,
        processes=len(pages),
        memory=sum(pages) * _page_bytes() if pages else 0,
        tools=counts[0],
        tokens=counts[1],
    )


def _page_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE")


def _descriptors() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    except OSError:
        return 0
