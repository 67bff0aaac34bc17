"""Commands about the workbench in the background: `up`, `down`, `status` and `logs`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

import click
import msgspec
from msgspec import UNSET, UnsetType

from mcp_workbench import __version__
from mcp_workbench.cli.completion import complete_server
from mcp_workbench.cli.serve import address_callback
from mcp_workbench.cli.settings import DONE, Settings, global_options, log_calls_option, variable
from mcp_workbench.cli.terminal import cut, glyph, nearby, number, plain, say, say_json, table
from mcp_workbench.config.state_home import has_credentials
from mcp_workbench.core.errors import ConfigError, InvalidCall, WorkbenchError
from mcp_workbench.core.spec import UNCONFINED, Snapshot
from mcp_workbench.daemon import control
from mcp_workbench.daemon.control import NoAnswer, connect, peer_credentials, request
from mcp_workbench.daemon.paths import OWN_SOURCE, ROTATED, DaemonPaths, daemon_paths, lock_holder
from mcp_workbench.daemon.start import OTHER_HOME, NotStarted, Started, running, start
from mcp_workbench.daemon.status import HostLine, ServerStatus, Status, with_memory
from mcp_workbench.timing import deadline, pause

ANSWER = deadline(5.0)  # seconds for an answer
# Seconds beyond `limits.drain` until a workbench that does not exit is killed.
MARGIN = deadline(10.0)
LINES = 100  # shown by default
LONGEST_NAME = 40  # columns of a host's name and version
POLL = pause(0.2)  # seconds between two reads of a file that is followed
_PER_HOST = "each host has its own, in the host's folder"
_CHOICE = 'a "cwd" or "scope": "shared" in its entry shares it'
_NOT_LOGGED = 'not logged; "audit": true in the configuration, or up --log-calls FILE, logs them'
_NOT_STARTED = "not started"
_MARKS = {"ready": "good", "idle": "good", "starting": "doubtful", "degraded": "doubtful"}


class DaemonFailed(WorkbenchError):
    """The workbench in the background could not be started, reached or stopped."""

    code = "daemon_failed"


def paths_for(settings: Settings) -> DaemonPaths:
    """Returns the files of the workbench for the configuration file that these options name."""
    paths = daemon_paths(settings.config)
    if paths is None:
        settings.snapshot()  # reports a given path that does not exist
        raise InvalidCall(
            "there is no configuration file that hosts could share",
            hint="write workbench-config.json here, or name one with --config",
        )
    if not paths.home:
        raise DaemonFailed(
            "the state folder can't be used: neither $MCP_WORKBENCH_HOME nor $HOME is set",
            hint=OTHER_HOME,
        )
    return paths


# `up` and `down`


@click.command()
@click.option(
    "--http",
    "address",
    metavar="[HOST:]PORT",
    callback=address_callback,
    help="Serve hosts on this port, too.",
    **variable("UP_HTTP"),
)
@log_calls_option("UP")
@global_options
@click.pass_obj
def up(settings: Settings, *, address: tuple[str, int] | None, log_calls: str) -> int:
    """Start a workbench in the background, which the hosts of this file share.

    Every `serve` of the same configuration file joins it: one process per server, however many
    windows there are. If it runs already, prints its pid and starts nothing; --http and --log-calls
    are ignored then.

    \b
    Examples:
      mcp-workbench up
      mcp-workbench up --config PATH
      mcp-workbench up --http 7411
    """
    paths = paths_for(settings)
    snapshot = settings.snapshot()  # reports the problems of the configuration
    try:
        daemon = running(paths) or start(paths, address=address, log_calls=log_calls)
    except NotStarted as error:
        message = f"the workbench could not be started: {error}"
        raise DaemonFailed(message, hint=error.fix) from None
    if settings.json:
        document = {"pid": daemon.pid, "url": daemon.url, "started": daemon.is_new}
        say_json({**document, "version": daemon.version})
        return DONE
    _print_up(daemon)
    if not settings.quiet:
        _print_per_host(snapshot)
    if not daemon.is_new and not settings.quiet:
        _print_ignored(daemon, http=address is not None, log_calls=bool(log_calls))
    return DONE


def _print_up(daemon: Started) -> None:
    where = f"   {daemon.url}" if daemon.url else ""
    already = "" if daemon.is_new else "already "
    say(f"{already}running (pid {daemon.pid}){where}   stop: mcp-workbench down")
    if daemon.version != __version__:
        message = f"it is version {daemon.version}, this is {__version__}; hosts of this one do not join it"
        say(f"{message}\nmcp-workbench down, then up, renews it", err=True)


def _print_per_host(snapshot: Snapshot) -> None:
    """Prints which servers depend on the folder of their host, so that hosts do not share them."""
    for box in snapshot.toolboxes.values():
        for spec in box.servers.values():
            if why := spec.follows_hosts:
                say(f"{spec.address} is not shared: {_PER_HOST} ({plain(why)}); {_CHOICE}")


def _print_ignored(daemon: Started, *, http: bool, log_calls: bool) -> None:
    """Prints which options of `up` have no effect on a workbench that was running already."""
    if http and not daemon.url:
        say("it has no port; mcp-workbench down, then up with --http, opens one", err=True)
    if log_calls:
        message = "it runs already, so --log-calls is ignored; mcp-workbench down, then up with"
        say(f"{message} --log-calls, opens that log", err=True)


@click.command()
@global_options
@click.pass_obj
def down(settings: Settings) -> int:
    """Stop the workbench in the background.

    Calls in flight may finish (limits.drain). Its hosts continue on their own.

    \b
    Examples:
      mcp-workbench down
      mcp-workbench down --config PATH
    """
    paths = paths_for(settings)
    pid = _send_down(paths)
    if pid:
        pid = _await_end(settings, paths, pid)
    if settings.json:
        say_json({"pid": pid})
    else:
        say(f"ended (pid {pid})" if pid else "not running")
    return DONE


def _send_down(paths: DaemonPaths) -> int:
    """Asks it to exit; returns its pid, or 0 if it is not running."""
    try:
        connection = connect(paths)
        if connection is not None:
            with connection:
                request(connection, ANSWER, control.DOWN)
                return peer_credentials(connection)[0] or lock_holder(paths)
    except NoAnswer:
        pass  # it hangs
    pid = lock_holder(paths)
    if pid > 0:
        os.kill(pid, signal.SIGTERM)
    return pid


def _await_end(settings: Settings, paths: DaemonPaths, pid: int) -> int:
    until = time.monotonic() + settings.snapshot().limits.drain + MARGIN
    while lock_holder(paths):
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            say(f"it did not end, and was killed (pid {pid})", err=True)
            until += MARGIN
        time.sleep(0.02)
    return pid


# `status`


@click.command()
@global_options
@click.pass_obj
def status(settings: Settings) -> int:
    """Show the workbench in the background: its servers, hosts, calls and memory.

    Starts nothing. Servers that nobody has used yet are not started, and have no tick. Hosts have the
    names that they call themselves. Without --json, calls are those since a server was last connected.

    \b
    Examples:
      mcp-workbench status
      mcp-workbench status --json
    """
    paths = paths_for(settings)
    report = _report(paths)
    if settings.json:
        say_json(report or Status(running=False, config=paths.config))
    elif report is None:
        say(f"not running for {nearby(paths.config)}   start: mcp-workbench up")
    else:
        _print_status(report)
        _print_sign_ins(settings)
    return DONE


def _print_sign_ins(settings: Settings) -> None:
    if not has_credentials(os.environ):
        return
    from mcp_workbench.cli.sign_in_reports import print_sign_ins, sign_ins

    with suppress(ConfigError):  # the file may have been broken since
        if found := sign_ins(settings.snapshot(silent=True, shows_demo=True)):
            say("")
            print_sign_ins(found)


def _report(paths: DaemonPaths) -> Status | None:
    try:
        connection = connect(paths)
        if connection is not None:
            with connection:
                answer = request(connection, ANSWER, control.STATUS)
            if answer and answer[0] == control.REPORT:
                return with_memory(msgspec.json.decode(answer[1], type=Status))
    except NoAnswer as error:
        pid = lock_holder(paths)
        raise DaemonFailed(
            f"the workbench (pid {pid}) hangs: {error}", hint="mcp-workbench down ends it"
        ) from None
    return None


def _print_status(report: Status) -> None:
    url = f"   {report.url}" if report.url else ""
    ending = "   ending" if report.is_ending else ""
    say(
        f"running (pid {report.pid}, version {report.version}, {_ago(report.seconds)}){url}{ending}"
    )
    say(
        f"config {nearby(report.config)}   memory {_megabytes(report.memory)}   log {nearby(report.log)}"
    )
    calls = f"logged in {nearby(report.log_calls)}" if report.log_calls else _NOT_LOGGED
    say(f"calls are {calls}")
    if report.log_calls_trouble or report.calls_not_logged:
        why = f": {report.log_calls_trouble}" if report.log_calls_trouble else ""
        lost = f"{number(report.calls_not_logged)} calls could not be logged"
        say(
            f"{glyph('doubtful')} {lost if report.calls_not_logged else 'calls can not be logged now'}{why}"
        )
    if report.log_trouble:
        say(f"{glyph('doubtful')} the log can't be written: {report.log_trouble}")
    for warning in report.warnings:
        say(f"{glyph('doubtful')} {plain(warning)}")
    say("")
    _print_servers(report.servers)
    say("")
    _print_hosts(report.hosts)


def _print_servers(servers: tuple[ServerStatus, ...]) -> None:
    rows = [("SERVER", "STATE", "CONNECTIONS", "PROCESSES", "MEMORY", "CALLS", "IN FLIGHT")]
    rows += [
        (
            f"{s.toolbox}/{s.server}",
            _state(s),
            str(s.connections),
            "-" if s.processes is UNSET else str(s.processes),
            _megabytes(s.memory),
            number(s.calls),
            str(s.calls_in_flight),
        )
        for s in servers
    ]
    head, *lines = table(rows, right=frozenset({2, 3, 4, 5, 6}))
    say(f"  {head}")
    for server, line in zip(servers, lines, strict=True):
        say(f"{_mark(server)} {line}")
        if server.box not in ("", UNCONFINED):
            say(f"    sandbox: {server.box}")
        if server.scope == "folder":
            say(f"    {_PER_HOST}; {_CHOICE}")
        if server.reason and (server.state not in ("ready", "idle") or not server.started):
            say(f"    {plain(server.reason)}")


def _state(server: ServerStatus) -> str:
    return _NOT_STARTED if server.state == "idle" and not server.started else server.state


def _mark(server: ServerStatus) -> str:
    """Returns no tick for a server that was never connected."""
    if _state(server) == _NOT_STARTED:
        return glyph("doubtful") if server.reason else "-"
    return glyph(_MARKS.get(server.state, "bad"))


def _print_hosts(hosts: tuple[HostLine, ...]) -> None:
    if not hosts:
        say("no host has joined")
        return
    rows = [("HOST", "REVISION", "FOR", "MEMORY", "IN FLIGHT", "TOOLBOXES")]
    rows += [
        (
            _host(h),
            h.revision or "-",
            _ago(h.seconds),
            _megabytes(h.memory),
            str(h.calls_in_flight),
            _boxes(h),
        )
        for h in hosts
    ]
    for line in table(rows, right=frozenset({3, 4})):
        say(f"  {line}")


def _host(host: HostLine) -> str:
    name = cut(" ".join(filter(None, (host.name, host.version))), LONGEST_NAME)
    return f"{name} (pid {host.pid})" if name else f"pid {host.pid}"


def _boxes(host: HostLine) -> str:
    return ", ".join(host.toolboxes) or "all"


def _megabytes(memory: int | UnsetType) -> str:
    return f"{memory / 1e6:.0f} MB" if isinstance(memory, int) else "-"


def _ago(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{rest} s"


# `logs`


@click.command()
@click.argument("who", metavar="[TOOLBOX/SERVER]", default="", shell_complete=complete_server)
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Follow the log until Ctrl-C.",
    **variable("LOGS_FOLLOW"),
)
@click.option(
    "-n",
    "--lines",
    default=LINES,
    show_default=True,
    help="How many of the last lines.",
    **variable("LOGS_LINES"),
)
@global_options
@click.pass_obj
def logs(settings: Settings, who: str, *, follow: bool, lines: int) -> int:
    """Show the log of the workbench in the background.

    Includes what servers write to stderr, which hosts hide, with their address and with secrets
    masked. Only a workbench that `up` (or `serve --attach always`) has started has a log.

    \b
    Examples:
      mcp-workbench logs
      mcp-workbench logs demo/basics -n 20
      mcp-workbench logs -f
    """
    path = paths_for(settings).log
    shown = [line for line in _written(path) if _is_of(line, who)]
    if not shown:
        _require_known(settings, who)  # lines of a server that was removed since are shown
    for line in shown[max(len(shown) - lines, 0) :]:
        _print_line(settings, line)
    if not shown and settings.talkative:
        say("nothing was logged", err=True)
    for line in _followed(path) if follow else ():
        if _is_of(line, who):
            _print_line(settings, line)
    return DONE


def _require_known(settings: Settings, who: str) -> None:
    """Fails for an unknown toolbox or server, as every other command does."""
    if who in ("", OWN_SOURCE):
        return
    toolbox, _, server = who.removesuffix("/").partition("/")
    box = settings.snapshot().toolbox(toolbox)
    if server:
        box.server(server)


def _written(path: str) -> list[str]:
    """Returns all lines, those of the older file first."""
    return [line for file in (path + ROTATED, path) for line in _read_lines(file, 0)[0]]


def _read_lines(path: str, start: int) -> tuple[list[str], int]:
    """Returns the complete lines from there on, and their end."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            file.seek(start)
            data = file.read()
    except OSError:
        return [], start
    end = data.rfind(b"\n") + 1
    return data[:end].decode("utf-8", "replace").splitlines(), start + end


def _followed(path: str) -> Iterator[str]:
    """Yields lines as they are written; reads a rotated file from its start."""
    was, at = _identity(path), _length(path)
    while True:
        time.sleep(POLL)
        now = _identity(path)
        if now != was:
            yield from _read_lines(path + ROTATED, at)[0]
            was, at = now, 0
        elif _length(path) < at:
            at = 0
        lines, at = _read_lines(path, at)
        yield from lines


def _identity(path: str) -> int:
    try:
        return os.stat(path).st_ino  # noqa: PTH116
    except OSError:
        return 0


def _length(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return 0


def _parts(line: str) -> tuple[str, str, str]:
    """Returns time, source and text of a line."""
    moment, _, rest = line.partition(" ")
    who, _, text = rest.partition(": ")
    return moment, who, text


def _is_of(line: str, who: str) -> bool:
    return not who or _parts(line)[1] == who


def _print_line(settings: Settings, line: str) -> None:
    if settings.json:
        moment, who, text = _parts(line)
        say_json({"time": moment, "who": who, "text": text})
    else:
        say(plain(line))
