"""Puts the page together, and has it measured what an open page shows."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mcp_workbench.server.http.access import NOT_FOUND, Access
from mcp_workbench.timing import pause
from mcp_workbench.ui.page_api import PageApi
from mcp_workbench.ui.page_documents import Documents
from mcp_workbench.ui.page_events import PageEvents
from mcp_workbench.ui.page_log import server_log
from mcp_workbench.ui.page_routes import PageRoutes
from mcp_workbench.ui.page_sessions import page_key

if TYPE_CHECKING:
    from mcp_workbench.gateway.workbench import Gateway
    from mcp_workbench.transport.http.messages import HttpRequest, Reply, ResponseWriter
    from mcp_workbench.transport.tasks import TaskScope

KEPT = pause(600.0)  # seconds for which calls are still measured after the last page was closed


@contextmanager
def page_routes(
    gateway: Gateway,
    scope: TaskScope,
    access: Callable[[], Access],
    *,
    url: str = "",
    has_login: bool = False,
) -> Generator[PageRoutes]:
    """The page of this gateway for the length of the block. Raises OSError if its key can't be kept."""
    key = page_key(os.environ, gateway.snapshot.origin, starts=True)
    with server_log() as log:
        documents = Documents(gateway, log, url)
        events = PageEvents(documents, log, scope)
        looking = Looking(gateway)
        events.on_first, events.on_last = looking.begin, looking.end
        api = PageApi(documents, events, scope)
        try:
            yield PageRoutes(api, key, access, has_login=has_login)
        finally:
            api.close()
            looking.stop()


class Looking:
    """Has calls measured while a page is open, and for a while after: a page that is reloaded shows them again."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._end_look: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self._cancel_timer()
        if self._end_look is None:
            self._end_look = self._gateway.meter.look(calls=True)

    def end(self) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(KEPT, self.stop)

    def stop(self) -> None:
        self._cancel_timer()
        if self._end_look is not None:
            self._end_look()
            self._end_look = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class PageFront:
    """A port that serves the page and nothing else."""

    def __init__(self) -> None:
        self.access = Access(frozenset())  # allows nothing until the port is known
        self.page: PageRoutes | None = None

    def admit(self, request: HttpRequest) -> Reply | None:
        if (foreign := self.access.foreign(request)) is not None:
            return foreign
        if self.page is None or not self.page.owns(request.path()):
            return NOT_FOUND
        return self.page.admit(request)

    def still_admits(self, request: HttpRequest) -> bool:
        return False

    def read_ahead(self, request: HttpRequest) -> Iterator[None]:
        """Nothing: the page takes no messages of hosts."""
        return iter(())

    def handle(self, request: HttpRequest, response: ResponseWriter) -> None:
        if self.page is not None:
            self.page.handle(request, response)

    def tick(self, now: float) -> None:
        if self.page is not None:
            self.page.tick(now)
