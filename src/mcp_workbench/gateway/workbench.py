"""The Python API of MCP Workbench."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.call import CallRequest
from mcp_workbench.core.catalogue import (
    OpenToolboxResult,
    ServerHealth,
    ServerReport,
    toolbox_result,
)
from mcp_workbench.core.errors import empty_component
from mcp_workbench.core.spec import ServerAddress, Snapshot, ToolIdentifier
from mcp_workbench.gateway.calls import PythonCall
from mcp_workbench.gateway.gateway import Gateway
from mcp_workbench.gateway.interceptors import Interceptor
from mcp_workbench.transport.tasks import Lifetime

if TYPE_CHECKING:
    from mcp_workbench.gateway.reload import Reloaded
    from mcp_workbench.search.queries import SearchResult


class Workbench(Lifetime):
    """The servers of one configuration. Use it with `async with`.

    `interceptors` look at every call; see `Interceptor`.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        environ: Mapping[str, str] | None = None,
        interceptors: Iterable[Interceptor] = (),
    ) -> None:
        self._gateway = Gateway(snapshot, environ=environ, interceptors=interceptors)

    def _life(self) -> AbstractAsyncContextManager[None]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None]:
        async with self._gateway:
            yield

    @property
    def snapshot(self) -> Snapshot:
        """The current configuration."""
        return self._gateway.snapshot

    async def open_toolbox(self, name: str) -> OpenToolboxResult:
        """Connect to every server of a toolbox and say what it offers."""
        return toolbox_result(await self._gateway.view.open(name))

    async def use_tool(
        self,
        tool: ToolIdentifier,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """The server's own result. Raises a WorkbenchError where there is none."""
        for field in ("toolbox", "server", "tool"):
            if not getattr(tool, field):
                raise ValueError(empty_component(field))
        params = {"arguments": msgspec.Raw(msgspec.json.encode(arguments or {}))}
        meta = {} if on_progress is None else {"progressToken": msgspec.Raw(b"0")}
        request = CallRequest(tool, params, meta)
        return await PythonCall(self._gateway.view, request, on_progress).result()

    async def search(
        self, words: str, *, toolbox: str = "", server: str = "", limit: int = 5
    ) -> SearchResult:
        """Tools that do what these words say, best first, of those that are known."""
        from mcp_workbench.gateway.search import find  # an index: not before somebody searches
        from mcp_workbench.search.queries import Query

        return await find(self._gateway.view, Query(words, toolbox, server, limit))

    async def survey(self, address: ServerAddress) -> ServerReport:
        """Look at one server closely; trouble with it is part of the report."""
        return await self._gateway.view.survey(address)

    def health(self) -> list[ServerHealth]:
        """The health of every server of the configuration, without starting any."""
        return self._gateway.health()

    def reload(self, snapshot: Snapshot) -> Reloaded:
        """Replace the configuration in one step. Returns what that changed. Calls in flight finish."""
        return self._gateway.reload(snapshot)

    def on_change(self, listener: Callable[[ServerAddress], None]) -> Callable[[], None]:
        """Call `listener` when a connected server's tools have changed. Returns what ends that."""
        return self._gateway.on_change(listener)
