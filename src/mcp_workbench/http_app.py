"""Composition of `serve --http`: the port, what it is built from, and how it shuts down."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from mcp_workbench.app import FLUSH, Ending, following, open_log, run
from mcp_workbench.config.http_settings import resolve_http
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.spec import (
    ALL_TOOLBOXES,
    HttpSettings,
    IssuerSettings,
    NamedToken,
    Snapshot,
)
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.server.http.access import Access, Principals, is_loopback, names_of
from mcp_workbench.server.http.front import HttpFront
from mcp_workbench.transport.http.server import HttpServer, NotListening, listening
from mcp_workbench.transport.process import close_to_others
from mcp_workbench.transport.tasks import TaskScope, task_scope

if TYPE_CHECKING:
    from mcp_workbench.config.cluster_settings import ClusterConfig
    from mcp_workbench.server.http.metrics_route import MetricsRoute
    from mcp_workbench.server.http.resource_server import ResourceServer

_OTHER_PORT = "end what listens there, or name another port with --http"
_REMEDIES = {
    errno.EADDRINUSE: _OTHER_PORT,
    errno.EACCES: "this port needs rights that we do not have: name one above 1023 with --http",
}
_OTHER_HOST = "name an address of this machine with --http, such as 127.0.0.1:7411"
POLL = 0.02  # seconds between two checks for calls in flight, during shutdown only


class PortRefused(WorkbenchError):
    """The system refuses to listen on this address."""

    code = "port_refused"

    def __init__(self, host: str, port: int, error: OSError) -> None:
        number = error.errno or 0
        # asyncio and uvloop word the same number differently; a failed name lookup has its own text.
        reason = os.strerror(number).lower() if number > 0 else error.strerror or str(error)
        hint = _REMEDIES.get(number, _OTHER_HOST)
        super().__init__(f"can't listen on {_address(host, port)}: {reason}", hint=hint)


def serve_http(  # noqa: PLR0913 - what the command line says
    snapshot: Snapshot,
    address: tuple[str, int],
    *,
    toolboxes: tuple[str, ...] = (),
    verbose: bool = False,
    log_calls: str = "",
    ui: bool = False,
) -> int:
    """Serve hosts on a port until a signal; returns the exit status.

    `toolboxes` are those that are served, or all, also after the file has changed. `ui`: with the web page.
    """
    host, _ = address
    close_to_others()  # before any server starts: it could read our memory, not only our environment
    http = resolve_http(snapshot, os.environ, loopback=is_loopback(host))
    open_log(logging.DEBUG if verbose else logging.WARNING)
    cluster = _cluster(snapshot) if snapshot.cluster is not None else None
    gateway = Gateway(snapshot, log_calls=log_calls)
    return run(_serve(gateway, address, http, toolboxes, cluster, ui=ui))


def _cluster(snapshot: Snapshot) -> ClusterConfig | None:
    from mcp_workbench.config.cluster_settings import resolve_cluster  # few have one

    return resolve_cluster(snapshot, os.environ)


async def _serve(  # noqa: PLR0913 - what the command line says
    gateway: Gateway,
    address: tuple[str, int],
    http: HttpSettings,
    toolboxes: tuple[str, ...],
    cluster: ClusterConfig | None,
    *,
    ui: bool,
) -> int:
    snapshot = gateway.snapshot
    end = Ending(0, 1, 2)
    end.on_signals()
    host = address[0]
    async with gateway, port_of(gateway, *address, http, cluster, ui=ui) as (front, server):
        _announce(snapshot, host, server.port, http)
        if ui:
            _announce_page(front, host, server.port)
        gc.freeze()  # the objects that exist now stay: the collector need not scan them
        with following(front.gateway, toolboxes, brief=True) as end.reload:
            await end.host_left.wait()
            await drain_port(front, server, end, snapshot.limits.drain)
    return end.status


@asynccontextmanager
async def port_of(  # noqa: PLR0913 - what a port is made of
    gateway: Gateway,
    host: str,
    port: int,
    http: HttpSettings,
    cluster: ClusterConfig | None = None,
    *,
    ui: bool = False,
) -> AsyncGenerator[tuple[HttpFront, HttpServer]]:
    """Serve hosts on this port for the length of the block; 0 is any free port. `ui`: with the web page."""
    most = gateway.snapshot.limits.message_bytes
    try:
        async with (
            task_scope() as requests,
            _front_of(gateway, requests, cluster) as front,
            listening(front, host, port, most) as server,
        ):
            names = names_of(host, server.port, http.allowed_hosts)
            beside = http.auth is not None
            principals = Principals(http.token, http.tokens, beside_issuer=beside)
            issuer = None if http.auth is None else _issuer(http.auth, requests)
            access = Access(names, http.allowed_origins, principals, issuer)
            access.port = server.port
            front.access = access
            if gateway.is_traced:
                _read_trace_headers(front, requests)
            if http.metrics:
                front.metrics = _metrics(front, server, http.metrics_token)
            if front.serves is not None:
                front.serves(server)
            url = f"http://{_address(host, server.port)}/mcp"
            try:
                with _page(gateway, front, requests, url, http, wanted=ui):
                    yield front, server
            finally:
                front.close()
    except NotListening as error:
        raise PortRefused(host, port, error.why) from None


@asynccontextmanager
async def _front_of(
    gateway: Gateway, scope: TaskScope, cluster: ClusterConfig | None
) -> AsyncGenerator[HttpFront]:
    if cluster is None:
        yield HttpFront(gateway.view, scope)
        return
    from mcp_workbench.cluster.front import ClusterFront  # few have one
    from mcp_workbench.cluster.placed_servers import placed_servers
    from mcp_workbench.cluster.replica import replica_of
    from mcp_workbench.cluster.shared_limits import SharedLimits
    from mcp_workbench.cluster.shared_state import share_state

    most = gateway.snapshot.limits.message_bytes
    async with replica_of(cluster, scope, most) as replica, placed_servers(gateway, replica):
        limits = SharedLimits(replica.engine, replica.me.id, scope.start)
        scope.start(limits.run(gateway), "limits of principals")
        await share_state(gateway, replica)
        yield ClusterFront(gateway.view, scope, replica)


@contextmanager
def _page(  # noqa: PLR0913 - what the page is made of
    gateway: Gateway,
    front: HttpFront,
    scope: TaskScope,
    url: str,
    http: HttpSettings,
    *,
    wanted: bool,
) -> Generator[None]:
    """Serve the web page on the port for the length of the block, if that is wanted."""
    if not wanted:
        yield
        return
    from mcp_workbench.ui.page_serving import page_routes  # the page: only where it is served

    has_login = bool(http.token or http.tokens or http.auth)
    with page_routes(gateway, scope, lambda: front.access, url=url, has_login=has_login) as page:
        front.page = page
        yield


def _announce_page(front: HttpFront, host: str, port: int) -> None:
    address = getattr(front.page, "address", "")
    sys.stderr.write(
        f"page: http://{_address(host, port)}{address}   opens once, within two minutes\n"
    )
    sys.stderr.flush()


def _issuer(settings: IssuerSettings, scope: TaskScope) -> ResourceServer:
    from mcp_workbench.server.http.resource_server import ResourceServer  # loads cryptography

    issuer = ResourceServer(settings, scope, os.environ)
    issuer.prepare()
    return issuer


def _read_trace_headers(front: HttpFront, requests: TaskScope) -> None:
    """Note the trace context in the headers of each request, also for the task that handles it."""
    from mcp_workbench.server.http.trace_headers import keep_trace  # only if calls are traced

    keep_trace(front, requests)


def _metrics(front: HttpFront, server: HttpServer, token: str) -> MetricsRoute:
    from mcp_workbench.core.figures import Hosts  # only if they are configured
    from mcp_workbench.server.http.metrics_route import MetricsRoute

    def hosts() -> Hosts:
        return Hosts(front.sessions, 0, len(server.connections))

    return MetricsRoute(front.gateway, token, hosts)


def _announce(snapshot: Snapshot, host: str, port: int, http: HttpSettings) -> None:
    boxes = " ".join(f"/mcp/{name}" for name in snapshot.toolboxes)
    line = f"listening on http://{_address(host, port)}/mcp   one toolbox: {boxes}   stop with Ctrl-C\n"
    if http.tokens:
        tokens = [_described(token, snapshot) for token in http.tokens]
        line += f"tokens: {', '.join(tokens)}\n"
    if http.auth is not None:
        line += f"sign-in: {_sign_in(http.auth)}\n"
    elif not http.token and not http.tokens:
        line += "no token is set: every process of this machine may call (http.token ends that)\n"
    if http.metrics:
        who = "with its token" if http.metrics_token else "for every process of this machine"
        line += f"metrics: http://{_address(host, port)}/metrics, {who}\n"
    sys.stderr.write(line)
    sys.stderr.flush()


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _described(token: NamedToken, snapshot: Snapshot) -> str:
    """A token's name and the toolboxes that it grants, of those that are served."""
    if token.toolboxes is None:
        return f"{token.name} (all toolboxes)"
    boxes = [name for name in token.toolboxes if name in snapshot.toolboxes]
    return f"{token.name} ({' '.join(boxes) or 'nothing'})"


def _sign_in(settings: IssuerSettings) -> str:
    """Returns where people sign in and what that opens, in a few words."""
    if ALL_TOOLBOXES in settings.toolboxes:
        return f"{settings.issuer} (all toolboxes)"
    words = [" ".join(settings.toolboxes)] if settings.toolboxes else []
    words += ["by scope"] if settings.scopes else []
    words += ["by claim"] if settings.claims else []
    return f"{settings.issuer} ({', '.join(words) or 'nothing'})"


async def drain_port(front: HttpFront, server: HttpServer, end: Ending, limit: float) -> None:
    """Let calls in flight finish; a second signal cuts it short.

    Until then the port stays open, so that new requests are answered with a refusal.
    """
    front.stop()
    await _until(lambda: not front.busy or end.at_once.is_set(), min(limit, end.patience))
    if not front.busy:
        server.stop()
        await _until(lambda: not server.connections or end.at_once.is_set(), FLUSH)


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - during shutdown only
                await asyncio.sleep(POLL)
