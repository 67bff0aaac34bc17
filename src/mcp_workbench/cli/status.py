"""`status`: shows the state of the workbench in the background."""

from __future__ import annotations

import click
import msgspec
from msgspec import UNSET, UnsetType

from mcp_workbench.cli.settings import DONE, Settings, global_options
from mcp_workbench.cli.terminal import glyph, nearby, plain, say, say_json, table
from mcp_workbench.cli.up import ANSWER, DaemonFailed, place_for
from mcp_workbench.daemon import control_protocol
from mcp_workbench.daemon.control_client import NoAnswer, connect, request
from mcp_workbench.daemon.paths import DaemonPaths, lock_holder
from mcp_workbench.daemon.status import HostLine, ServerStatus, Status, with_memory

_MARKS = {"ready": "good", "idle": "good", "starting": "doubtful", "degraded": "doubtful"}


@click.command()
@global_options
@click.pass_obj
def status(settings: Settings) -> int:
    """Show the workbench in the background: its servers, hosts, calls and memory.

    Starts nothing. Without --json, calls are those since a server was last connected.

    \b
    Examples:
      mcp-workbench status
      mcp-workbench status --json
    """
    place = place_for(settings)
    report = _report(place)
    if settings.json:
        say_json(report or Status(running=False, config=place.config))
    elif report is None:
        say(f"not running for {nearby(place.config)}   start: mcp-workbench up")
    else:
        _print(report)
    return DONE


def _report(place: DaemonPaths) -> Status | None:
    try:
        door = connect(place)
        if door is not None:
            with door:
                answer = request(door, ANSWER, control_protocol.STATUS)
            if answer and answer[0] == control_protocol.REPORT:
                return with_memory(msgspec.json.decode(answer[1], type=Status))
    except NoAnswer as error:
        pid = lock_holder(place)
        raise DaemonFailed(
            f"the workbench (pid {pid}) hangs: {error}", hint="mcp-workbench down ends it"
        ) from None
    return None


def _print(report: Status) -> None:
    url = f"   {report.url}" if report.url else ""
    ending = "   ending" if report.is_ending else ""
    say(
        f"running (pid {report.pid}, version {report.version}, {_ago(report.seconds)}){url}{ending}"
    )
    say(
        f"config {nearby(report.config)}   memory {_size(report.memory)}   log {nearby(report.log)}"
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
            s.state,
            str(s.connections),
            "-" if s.processes is UNSET else str(s.processes),
            _size(s.memory),
            str(s.calls),
            str(s.calls_in_flight),
        )
        for s in servers
    ]
    head, *lines = table(rows, right=frozenset({2, 3, 4, 5, 6}))
    say(f"  {head}")
    for server, line in zip(servers, lines, strict=True):
        say(f"{glyph(_MARKS.get(server.state, 'bad'))} {line}")
        if server.reason and server.state not in ("ready", "idle"):
            say(f"    {plain(server.reason)}")


def _print_hosts(hosts: tuple[HostLine, ...]) -> None:
    if not hosts:
        say("no host has joined")
        return
    rows = [("HOST", "REVISION", "FOR", "MEMORY", "IN FLIGHT", "TOOLBOXES")]
    rows += [
        (
            f"pid {h.pid}",
            h.revision or "-",
            _ago(h.seconds),
            _size(h.memory),
            str(h.calls_in_flight),
            _boxes(h),
        )
        for h in hosts
    ]
    for line in table(rows, right=frozenset({3, 4})):
        say(f"  {line}")


def _boxes(host: HostLine) -> str:
    return ", ".join(host.toolboxes) or "all"


def _size(memory: int | UnsetType) -> str:
    return f"{memory / 1e6:.0f} MB" if isinstance(memory, int) else "-"


def _ago(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{rest} s"
