"""Composition for hosts over HTTP: the port, what stands behind it, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from mcp_workbench.app import FLUSH, Ending, open_log, run
from mcp_workbench.config.port import port_wish
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.spec import HttpWish, NamedToken, Snapshot
from mcp_workbench.follow import following
from mcp_workbench.gateway.gateway import Gateway
from mcp_workbench.surface.http_access import Access, is_loopback, names_of
from mcp_workbench.surface.http_front import HttpFront
from mcp_workbench.surface.http_principals import Principals
from mcp_workbench.wire.http_server import HttpServer, NotListening, listening
from mcp_workbench.wire.own_memory import close_to_others
from mcp_workbench.wire.tasks import task_scope

_OTHER_PORT = "end what listens there, or name another port with --http"
_REMEDIES = {
    errno.EADDRINUSE: _OTHER_PORT,
    errno.EACCES: "this port needs rights that we do not have: name one above 1023 with --http",
}
_OTHER_HOST = "name an address of this machine with --http, such as 127.0.0.1:7411"
POLL = 0.02  # seconds between two looks at what is still under way, at the end only


class PortRefused(WorkbenchError):
    """The system does not let us listen there."""

    code = "port_refused"

    def __init__(self, host: str, port: int, error: OSError) -> None:
        number = error.errno or 0
        # The loops tell the same number in sentences of their own; a name's has none but its own.
        why = os.strerror(number).lower() if number > 0 else error.strerror or str(error)
        hint = _REMEDIES.get(number, _OTHER_HOST)
        super().__init__(f"can't listen on {_address(host, port)}: {why}", hint=hint)


def serve_http(
    snapshot: Snapshot,
    address: tuple[str, int],
    *,
    toolboxes: tuple[str, ...] = (),
    verbose: bool = False,
    log_calls: str = "",
) -> int:
    """Serve hosts on a port until a signal ends it; the exit status.

    Of a file that changes, the named toolboxes are taken, or all.
    """
    host, port = address
    close_to_others()  # before any server is started: its environment is not all that it could read
    wish = port_wish(snapshot, os.environ, loopback=is_loopback(host))
    open_log(logging.DEBUG if verbose else logging.WARNING)
    gateway = Gateway(snapshot, log_calls=log_calls)
    return run(_serve(gateway, host, port, wish, toolboxes))


async def _serve(
    gateway: Gateway, host: str, port: int, wish: HttpWish, toolboxes: tuple[str, ...]
) -> int:
    snapshot = gateway.snapshot
    end = Ending(0, 1, 2)
    end.on_signals()
    async with gateway, port_of(gateway, host, port, wish) as (front, server):
        _say(snapshot, host, server.port, wish)
        gc.freeze()  # what is here now stays: it need not be searched again and again
        with following(front.gateway, toolboxes, brief=True) as end.reload:
            await end.host_left.wait()
            await drain_port(front, server, end, snapshot.limits.drain)
    return end.status


@asynccontextmanager
async def port_of(
    gateway: Gateway, host: str, port: int, wish: HttpWish
) -> AsyncGenerator[tuple[HttpFront, HttpServer]]:
    """Hosts of an open gateway are served for the length of the block; 0 is any free port."""
    most = gateway.snapshot.limits.message_bytes
    try:
        async with task_scope() as requests:
            front = HttpFront(gateway.view, requests)
            async with listening(front, host, port, most) as server:
                names = names_of(host, server.port, wish.allowed_hosts)
                principals = Principals(wish.token, wish.tokens)
                front.access = Access(names, wish.allowed_origins, principals)
                try:
                    yield front, server
                finally:
                    front.close()
    except NotListening as error:
        raise PortRefused(host, port, error.why) from None


def _say(snapshot: Snapshot, host: str, port: int, wish: HttpWish) -> None:
    boxes = " ".join(f"/mcp/{name}" for name in snapshot.toolboxes)
    line = f"listening on http://{_address(host, port)}/mcp   one toolbox: {boxes}   stop with Ctrl-C\n"
    if wish.tokens:
        line += f"tokens: {', '.join(_told(one, snapshot) for one in wish.tokens)}\n"
    elif not wish.token:
        line += "no token is set: every process of this machine may call (http.token ends that)\n"
    sys.stderr.write(line)
    sys.stderr.flush()


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _told(token: NamedToken, snapshot: Snapshot) -> str:
    """A token's name and what it opens here: --toolbox may leave less of it."""
    if token.toolboxes is None:
        return f"{token.name} (all toolboxes)"
    boxes = [name for name in token.toolboxes if name in snapshot.toolboxes]
    return f"{token.name} ({' '.join(boxes) or 'nothing'})"


async def drain_port(front: HttpFront, server: HttpServer, end: Ending, limit: float) -> None:
    """What is under way gets its time; a second signal cuts it short.

    Until then the port stays open, so that whoever comes is told that we are ending.
    """
    front.stop()
    await _until(lambda: not front.busy or end.at_once.is_set(), min(limit, end.patience))
    if not front.busy:
        server.stop()
        await _until(lambda: not server.connections or end.at_once.is_set(), FLUSH)


async def _until(true: Callable[[], bool], seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not true():  # noqa: ASYNC110 - at the end only
                await asyncio.sleep(POLL)
