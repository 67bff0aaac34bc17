"""Composition of the background workbench: what it is made of, how it begins and how it ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.app import Ending, run
from mcp_workbench.config.chosen import owner_notice
from mcp_workbench.config.load import load_config
from mcp_workbench.core.spec import ServerSpec, Snapshot, ToolboxSpec
from mcp_workbench.daemon.folder import Place
from mcp_workbench.daemon.gate import open_gate
from mcp_workbench.daemon.keeper import Keeper
from mcp_workbench.daemon.lock import Taken, holding_lock
from mcp_workbench.daemon.log import BoundedLog
from mcp_workbench.daemon.report import About
from mcp_workbench.daemon.start import TAKEN
from mcp_workbench.follow import following
from mcp_workbench.gateway.gateway import Gateway
from mcp_workbench.wire.own_memory import close_to_others
from mcp_workbench.wire.tasks import task_scope

if TYPE_CHECKING:
    from mcp_workbench.surface.http_front import HttpFront
    from mcp_workbench.wire.http_server import HttpServer

log = logging.getLogger(__name__)

IDLE = 600.0  # seconds; servers whose entry says nothing are stopped when nobody used them so long


class Wish(msgspec.Struct, frozen=True):
    """What is to be served, and until when."""

    address: tuple[str, int] | None = None  # of a port, for hosts over HTTP
    linger: float = 0.0  # seconds without a host after which it ends; 0: never
    log_calls: str = ""  # a file for one line per call


def run_daemon(place: Place, wish: Wish) -> int:
    """Serve in the background until told to end. What goes wrong before that is told on stderr."""
    close_to_others()
    place.make()
    os.chdir(os.path.dirname(place.config))  # noqa: PTH120 - servers start where their file lies
    try:
        with holding_lock(place):
            book = BoundedLog(place.log)
            logging.basicConfig(handlers=[book], level=logging.INFO)
            snapshot = rested(load_config(place.config, named=place.named))
            if notice := owner_notice(snapshot):
                log.warning("%s", notice)
            return run(_serve(place, snapshot, wish, book))
    except Taken:
        sys.stdout.write(f"{TAKEN}\n")
        return 0


async def _serve(place: Place, snapshot: Snapshot, wish: Wish, book: BoundedLog) -> int:
    end = Ending()
    end.on_signals()
    about = About(place.config, place.log, time.monotonic())
    calls = wish.log_calls
    async with Gateway(snapshot, log_calls=calls) as gateway, task_scope() as hosts:
        keeper = Keeper(about, gateway, hosts, book)
        keeper.down = end.asked
        async with _port(gateway, wish) as port, open_gate(place, keeper):
            about.url = _url(wish, port)
            _ready(about)
            log.info("begun (pid %d) for %s", os.getpid(), place.config)
            gc.freeze()  # what is here now stays
            _watch_hosts(keeper, end, wish.linger)
            brief = port is not None
            with following(gateway, (), brief=brief, adapted=rested) as end.reload:
                keeper.reload = end.reload
                await end.host_left.wait()
                log.info("ending; %d hosts go on by themselves", len(keeper.hosts))
                await _drain(keeper, port, end, snapshot.limits.drain)
    log.info("ended")
    return 0


async def _drain(
    keeper: Keeper, port: tuple[HttpFront, HttpServer] | None, end: Ending, limit: float
) -> None:
    seconds = min(limit, end.patience)
    async with task_scope() as leaving:
        back = leaving.start(keeper.hand_all_back(seconds, end.at_once), "hand back")
        if port is not None:
            from mcp_workbench.http_app import drain_port  # loaded with the port

            await drain_port(*port, end, limit)
        await back


def rested(snapshot: Snapshot) -> Snapshot:
    """The same configuration, with a time for servers to rest where their entry says nothing."""

    def server(spec: ServerSpec) -> ServerSpec:
        return msgspec.structs.replace(spec, idle_timeout=spec.idle_timeout or IDLE)

    def toolbox(spec: ToolboxSpec) -> ToolboxSpec:
        servers = {name: server(one) for name, one in spec.servers.items()}
        return msgspec.structs.replace(spec, servers=servers)

    boxes = {name: toolbox(box) for name, box in snapshot.toolboxes.items()}
    return msgspec.structs.replace(snapshot, toolboxes=boxes)


@asynccontextmanager
async def _port(
    gateway: Gateway, wish: Wish
) -> AsyncGenerator[tuple[HttpFront, HttpServer] | None]:
    if wish.address is None:
        yield None
        return
    # A parser of HTTP and more: only for those who asked for a port.
    from mcp_workbench.config.port import port_wish
    from mcp_workbench.http_app import port_of
    from mcp_workbench.surface.http_access import is_loopback

    host, _ = wish.address
    told = port_wish(gateway.snapshot, os.environ, loopback=is_loopback(host))
    async with port_of(gateway, *wish.address, told) as opened:
        yield opened


def _url(wish: Wish, port: tuple[HttpFront, HttpServer] | None) -> str:
    if wish.address is None or port is None:
        return ""
    host = wish.address[0]
    return f"http://{f'[{host}]' if ':' in host else host}:{port[1].port}/mcp"


def _ready(about: About) -> None:
    """Tell whoever started us, and let go of its terminal."""
    sys.stdout.write(f"ready {os.getpid()} {about.url}\n")
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def _watch_hosts(keeper: Keeper, end: Ending, linger: float) -> None:
    """Without a host for so long, one that was started by a host ends."""
    if not linger:
        return
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        if not keeper.hosts:
            log.info("no host for %g seconds", linger)
            end.asked()

    def wait() -> None:
        nonlocal timer
        if timer is not None:
            timer.cancel()
        timer = loop.call_later(linger, look)

    keeper.emptied = wait
    wait()
