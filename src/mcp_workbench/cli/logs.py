"""`logs`: shows the log of the workbench in the background and of its servers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import click

from mcp_workbench.cli.completion import complete_server
from mcp_workbench.cli.settings import DONE, Settings, global_options, variable
from mcp_workbench.cli.terminal import plain, say, say_json
from mcp_workbench.cli.up import place_for
from mcp_workbench.daemon.log import OWN_SOURCE, ROTATED
from mcp_workbench.timing import pause

LINES = 100  # shown by default
POLL = pause(0.2)  # seconds between two reads of a file that is followed


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
    path = place_for(settings).log
    shown = [line for line in _last(path) if _is_of(line, who)]
    if not shown:
        _require(settings, who)  # lines of a server that was removed since are shown
    for line in shown[max(len(shown) - lines, 0) :]:
        _print(settings, line)
    if not shown and settings.talkative:
        say("nothing was logged", err=True)
    for line in _coming(path) if follow else ():
        if _is_of(line, who):
            _print(settings, line)
    return DONE


def _require(settings: Settings, who: str) -> None:
    """Fails for an unknown toolbox or server, as every other command does."""
    if who in ("", OWN_SOURCE):
        return
    toolbox, _, server = who.removesuffix("/").partition("/")
    box = settings.snapshot().toolbox(toolbox)
    if server:
        box.server(server)


def _last(path: str) -> list[str]:
    """Returns all lines, those of the older file first."""
    return [line for file in (path + ROTATED, path) for line in _read(file, 0)[0]]


def _read(path: str, start: int) -> tuple[list[str], int]:
    """Returns the complete lines from there on, and their end."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            file.seek(start)
            data = file.read()
    except OSError:
        return [], start
    end = data.rfind(b"\n") + 1
    return data[:end].decode("utf-8", "replace").splitlines(), start + end


def _coming(path: str) -> Iterator[str]:
    """Yields lines as they are written; reads a rotated file from its start."""
    was, at = _identity(path), _size(path)
    while True:
        time.sleep(POLL)
        now = _identity(path)
        if now != was:
            yield from _read(path + ROTATED, at)[0]
            was, at = now, 0
        elif _size(path) < at:
            at = 0
        lines, at = _read(path, at)
        yield from lines


def _identity(path: str) -> int:
    try:
        return os.stat(path).st_ino  # noqa: PTH116
    except OSError:
        return 0


def _size(path: str) -> int:
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


def _print(settings: Settings, line: str) -> None:
    if settings.json:
        moment, who, text = _parts(line)
        say_json({"time": moment, "who": who, "text": text})
    else:
        say(plain(line))
