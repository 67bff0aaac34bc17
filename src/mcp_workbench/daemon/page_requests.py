"""The web page of the shared workbench: served from the first time that somebody asks for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

from mcp_workbench.daemon import control

if TYPE_CHECKING:
    from mcp_workbench.daemon.control import ControlConnection
    from mcp_workbench.daemon.joined_hosts import HostRegistry
    from mcp_workbench.gateway.workbench import Gateway
    from mcp_workbench.server.http.front import HttpFront
    from mcp_workbench.transport.tasks import TaskScope

HOST = "127.0.0.1"
# The port of a page depends on its file, so that a page that is open finds it again after a restart. These are below
# those that systems give to clients.
FIRST_PORT, PORTS = 20_000, 10_000


class Page(Protocol):
    """The part of the page that gives addresses."""

    @property
    def address(self) -> str: ...


class PageRequests:
    """Takes requests of clients: those for the page, and the others for the registry of hosts."""

    def __init__(
        self, registry: HostRegistry, gateway: Gateway, scope: TaskScope, config: str
    ) -> None:
        self._registry = registry
        self._gateway = gateway
        self._scope = scope
        self._config = config
        self.front: HttpFront | None = None  # of the port for hosts, if there is one
        self.url = ""  # of that port
        self._base = ""  # where the page is, once it is served
        self._page: Page | None = None
        self._opening = asyncio.Lock()

    def handle(self, connection: ControlConnection, request: bytes, fields: list[bytes]) -> None:
        if request == control.PAGE:
            self._scope.start(self._answer(connection), "page")
        else:
            self._registry.handle(connection, request, fields)

    def receive_pipes(self, connection: ControlConnection, fds: list[int]) -> None:
        self._registry.receive_pipes(connection, fds)

    def reload(self) -> None:
        self._registry.reload()

    async def _answer(self, connection: ControlConnection) -> None:
        try:
            async with self._opening:
                page = self._page or await self._serve()
        except OSError as error:
            reason = error.strerror or str(error)
            connection.send(control.REFUSED, control.LOUDLY, reason.encode())
            return
        connection.send(control.REPORT, f"{self._base}{page.address}".encode())

    async def _serve(self) -> Page:
        """Serve the page from now on: on the port for hosts, or on one of its own."""
        ready: asyncio.Future[Page] = asyncio.get_running_loop().create_future()
        work = self._on_own_port(ready) if self.front is None else self._beside(self.front, ready)
        self._scope.start(work, "page port")
        self._page = await ready
        return self._page

    async def _beside(self, front: HttpFront, ready: asyncio.Future[Page]) -> None:
        from mcp_workbench.ui.page_serving import page_routes  # the page: only where it is served

        access = front.access
        try:
            with page_routes(
                self._gateway,
                self._scope,
                lambda: front.access,
                url=self.url,
                has_login=access.has_login,
            ) as page:
                front.page = page
                self._base = self.url.removesuffix("/mcp")
                ready.set_result(page)
                await asyncio.Event().wait()  # until the workbench ends
        except OSError as error:
            _fail(ready, error)

    async def _on_own_port(self, ready: asyncio.Future[Page]) -> None:
        from mcp_workbench.server.http.access import Access, names_of
        from mcp_workbench.transport.http.server import NotListening, listening
        from mcp_workbench.ui.page_routes import LARGEST
        from mcp_workbench.ui.page_serving import PageFront, page_routes

        front = PageFront()
        usual = FIRST_PORT + crc32(self._config.encode("utf-8", "surrogateescape")) % PORTS
        for port in (usual, 0):
            with suppress(NotListening):
                async with listening(front, HOST, port, LARGEST) as server:
                    front.access = Access(names_of(HOST, server.port, ()))
                    front.access.port = server.port
                    self._base = f"http://{HOST}:{server.port}"
                    try:
                        with page_routes(self._gateway, self._scope, lambda: front.access) as page:
                            front.page = page
                            ready.set_result(page)
                            await asyncio.Event().wait()
                    except OSError as error:
                        _fail(ready, error)
                    return
        _fail(ready, OSError("no port is free"))


def _fail(ready: asyncio.Future[Page], error: OSError) -> None:
    if not ready.done():
        ready.set_exception(error)
