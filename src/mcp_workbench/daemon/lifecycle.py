"""The daemon process: what it is composed of, how it starts and stops, and its log."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.app import Ending, following, run
from mcp_workbench.config.load import load_config, owner_notice
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.spec import ServerSpec, Snapshot, ToolboxSpec
from mcp_workbench.daemon.control import ControlConnection, control_server
from mcp_workbench.daemon.joined_hosts import HostRegistry
from mcp_workbench.daemon.page_requests import PageRequests
from mcp_workbench.daemon.paths import (
    OWN_SOURCE,
    ROTATED,
    AlreadyRunning,
    DaemonPaths,
    daemon_lock,
    daemon_paths,
)
from mcp_workbench.daemon.start import FIX, FOUND, TAKEN
from mcp_workbench.daemon.status import DaemonInfo
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.transport.process import close_to_others
from mcp_workbench.transport.tasks import task_scope

if TYPE_CHECKING:
    from mcp_workbench.daemon.figures_reports import FiguresReports
    from mcp_workbench.server.http.front import HttpFront
    from mcp_workbench.transport.http.server import HttpServer

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 20  # of a log file; there are two, the current and the rotated one
IDLE = 600.0  # seconds; servers without an `idleTimeout` are stopped after so long without a call


class DaemonSettings(msgspec.Struct, frozen=True):
    """What the command line of the process says."""

    address: tuple[str, int] | None = None  # of a port, for hosts over HTTP
    linger: float = 0.0  # seconds without a host after which it stops; 0: never
    log_calls: str = ""  # a file for one line per call


def main(argv: list[str]) -> int:
    """Run `[--found] CONFIG LINGER CALLS [HOST PORT]` in a process of its own."""
    if os.fork():
        os._exit(0)  # the process that started us has no child to wait for
    named = argv[0] != FOUND
    config, linger, log_calls, *address = argv if named else argv[1:]
    paths = daemon_paths(config)
    if paths is None:
        sys.stderr.write(f"there is no file {config}\n")
        return 2
    paths.named = named
    host = (address[0], int(address[1])) if address else None
    try:
        return run_daemon(paths, DaemonSettings(host, float(linger), log_calls))
    except WorkbenchError as error:
        fix = f"{FIX}{error.hint}" if error.hint else ""
        sys.stderr.write(f"{error.message}{fix}\n")
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        sys.stderr.write(f"{error.strerror or error}{where}\n")
    return 1


def run_daemon(paths: DaemonPaths, settings: DaemonSettings) -> int:
    """Serve in the background until asked to stop; the exit status."""
    close_to_others()
    paths.create_folder()
    os.chdir(os.path.dirname(paths.config))  # noqa: PTH120 - servers start in their file's folder
    try:
        with daemon_lock(paths):
            log_file = BoundedLog(paths.log)
            logging.basicConfig(handlers=[log_file], level=logging.INFO)
            snapshot = with_idle_timeouts(load_config(paths.config, named=paths.named))
            if notice := owner_notice(snapshot):
                log.warning("%s", notice)
            return run(_serve(paths, snapshot, settings, log_file))
    except AlreadyRunning:
        sys.stdout.write(f"{TAKEN}\n")
        return 0


async def _serve(
    paths: DaemonPaths, snapshot: Snapshot, settings: DaemonSettings, log_file: BoundedLog
) -> int:
    end = Ending()
    end.on_signals()
    info = DaemonInfo(paths.config, paths.log, time.monotonic())
    async with Gateway(snapshot, log_calls=settings.log_calls) as gateway, task_scope() as hosts:
        registry = HostRegistry(info, gateway, hosts, log_file)
        registry.down = end.asked
        handler = PageRequests(registry, gateway, hosts, paths.config)
        async with _port(gateway, settings) as port, control_server(paths, handler):
            handler.front = None if port is None else port[0]
            info.url = _url(settings, port)
            handler.url = info.url
            registry.send_figures = _figures_sender(gateway, registry, port)
            _report_ready(info)
            log.info("started (pid %d) for %s", os.getpid(), paths.config)
            gc.freeze()  # the objects that exist now stay
            _stop_without_hosts(registry, end, settings.linger)
            brief = port is not None
            with following(gateway, (), brief=brief, adapted=with_idle_timeouts) as end.reload:
                registry.reload = end.reload
                await end.host_left.wait()
                log.info("stopping (%d hosts connected)", len(registry.hosts))
                await _drain(registry, port, end, snapshot.limits.drain)
    log.info("stopped")
    return 0


async def _drain(
    registry: HostRegistry, port: tuple[HttpFront, HttpServer] | None, end: Ending, limit: float
) -> None:
    seconds = min(limit, end.patience)
    async with task_scope() as tasks:
        released = tasks.start(registry.release_all(seconds, end.at_once), "release hosts")
        if port is not None:
            from mcp_workbench.http_app import drain_port  # loaded with the port

            await drain_port(*port, end, limit)
        await released


def with_idle_timeouts(snapshot: Snapshot) -> Snapshot:
    """The same configuration, with an idle timeout for servers whose entry has none."""

    def server(spec: ServerSpec) -> ServerSpec:
        return msgspec.structs.replace(spec, idle_timeout=spec.idle_timeout or IDLE)

    def toolbox(spec: ToolboxSpec) -> ToolboxSpec:
        servers = {name: server(entry) for name, entry in spec.servers.items()}
        return msgspec.structs.replace(spec, servers=servers)

    boxes = {name: toolbox(box) for name, box in snapshot.toolboxes.items()}
    return msgspec.structs.replace(snapshot, toolboxes=boxes)


@asynccontextmanager
async def _port(
    gateway: Gateway, settings: DaemonSettings
) -> AsyncGenerator[tuple[HttpFront, HttpServer] | None]:
    if settings.address is None:
        yield None
        return
    # They load the HTTP parser and more, which only `up --http` needs.
    from mcp_workbench.config.http_settings import resolve_http
    from mcp_workbench.http_app import port_of
    from mcp_workbench.server.http.access import is_loopback

    host, _ = settings.address
    # In a thread: it may ask a keyring.
    http = await asyncio.to_thread(
        resolve_http, gateway.snapshot, os.environ, loopback=is_loopback(host)
    )
    async with port_of(gateway, *settings.address, http) as opened:
        yield opened


def _figures_sender(
    gateway: Gateway, registry: HostRegistry, port: tuple[HttpFront, HttpServer] | None
) -> Callable[[ControlConnection], Coroutine[Any, Any, None]]:
    reports: FiguresReports | None = None

    async def send(connection: ControlConnection) -> None:
        nonlocal reports
        if reports is None:
            from mcp_workbench.daemon.figures_reports import FiguresReports  # for `top` only

            reports = FiguresReports(gateway, registry, port)
        await reports.send(connection)

    return send


def _url(settings: DaemonSettings, port: tuple[HttpFront, HttpServer] | None) -> str:
    if settings.address is None or port is None:
        return ""
    host = settings.address[0]
    return f"http://{f'[{host}]' if ':' in host else host}:{port[1].port}/mcp"


def _report_ready(info: DaemonInfo) -> None:
    """Tell the process that started us, and close its streams."""
    sys.stdout.write(f"ready {os.getpid()} {info.url}\n")
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def _stop_without_hosts(registry: HostRegistry, end: Ending, linger: float) -> None:
    """Stop a daemon that a host has started, after so many seconds without a host."""
    if not linger:
        return
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def check() -> None:
        if not registry.is_used:
            log.info("no host for %g seconds", linger)
            end.asked()

    def wait() -> None:
        nonlocal timer
        if timer is not None:
            timer.cancel()
        timer = loop.call_later(linger, check)

    registry.on_empty = wait
    wait()


# The log


class BoundedLog(logging.Handler):
    """A file of bounded size, rotated once: lines with their time and source.

    A line that can't be written is dropped, without blocking.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._fd = -1
        self._size = 0
        self.trouble = ""  # why the last line could not be written
        self._open()

    def emit(self, record: logging.LogRecord) -> None:
        source = getattr(record, "server", OWN_SOURCE)
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + logging.Formatter().formatException(record.exc_info)
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        lines = [f"{moment} {source}: {line}\n" for line in text.splitlines() or [""]]
        self._write("".join(lines).encode("utf-8", "backslashreplace"))

    def _write(self, data: bytes) -> None:
        try:
            if self._size + len(data) > MOST_BYTES or self._fd < 0:
                self._rotate()
            self._size += os.write(self._fd, data)
            self.trouble = ""
        except OSError as error:  # a full disk, a folder that was made read-only
            self.trouble = error.strerror or str(error)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            self._fd = os.open(self._path, flags, 0o600)
            self._size = os.fstat(self._fd).st_size
        except OSError as error:
            self.trouble = error.strerror or str(error)

    def _rotate(self) -> None:
        """Start a new file; if that fails, truncate the old one."""
        if self._fd >= 0:
            try:
                os.replace(self._path, self._path + ROTATED)  # noqa: PTH105
            except OSError:
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1
        self._open()
        if self._fd < 0:
            raise OSError(self.trouble)
