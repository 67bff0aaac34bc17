"""`up` and `down`: the workbench in the background."""

from __future__ import annotations

import os
import signal
import time

import click

from mcp_workbench import __version__
from mcp_workbench.cli.serve import read_address
from mcp_workbench.cli.settings import DONE, Settings, global_options, variable
from mcp_workbench.cli.terminal import say, say_json
from mcp_workbench.core.errors import InvalidCall, WorkbenchError
from mcp_workbench.daemon import control_protocol
from mcp_workbench.daemon.control_client import NoAnswer, connect, peer_credentials, request
from mcp_workbench.daemon.paths import DaemonPaths, daemon_paths, lock_holder
from mcp_workbench.daemon.start import OTHER_HOME, NotStarted, Started, running, start
from mcp_workbench.timing import deadline

ANSWER = deadline(5.0)  # seconds for an answer
MARGIN = deadline(
    10.0
)  # seconds beyond `limits.drain` until a workbench that does not exit is killed


class DaemonFailed(WorkbenchError):
    """The workbench in the background could not be started, reached or stopped."""

    code = "daemon_failed"


@click.command()
@click.option(
    "--http",
    "address",
    metavar="[HOST:]PORT",
    callback=read_address,
    help="Serve hosts on this port, too.",
    **variable("UP_HTTP"),
)
@click.option(
    "--log-calls",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    default="",
    help="Append one JSON line per call to this file.",
    **variable("UP_LOG_CALLS"),
)
@global_options
@click.pass_obj
def up(settings: Settings, *, address: tuple[str, int] | None, log_calls: str) -> int:
    """Start a workbench in the background, which the hosts of this file share.

    Every `serve` of the same configuration file joins it: one process per server, however many
    windows there are. If it runs already, prints its pid and starts nothing.

    \b
    Examples:
      mcp-workbench up
      mcp-workbench up --config PATH
      mcp-workbench up --http 7411
    """
    place = place_for(settings)
    settings.snapshot()  # reports the problems of the configuration
    try:
        daemon = running(place) or start(place, address=address, log_calls=log_calls)
    except NotStarted as error:
        message = f"the workbench could not be started: {error}"
        raise DaemonFailed(message, hint=error.fix) from None
    if settings.json:
        document = {"pid": daemon.pid, "url": daemon.url, "started": daemon.is_new}
        say_json({**document, "version": daemon.version})
        return DONE
    _print_up(daemon, address, quiet=settings.quiet)
    return DONE


def _print_up(daemon: Started, address: tuple[str, int] | None, *, quiet: bool) -> None:
    where = f"   {daemon.url}" if daemon.url else ""
    already = "" if daemon.is_new else "already "
    say(f"{already}running (pid {daemon.pid}){where}   stop: mcp-workbench down")
    if daemon.version != __version__:
        message = f"it is version {daemon.version}, this is {__version__}; hosts of this one do not join it"
        say(f"{message}\nmcp-workbench down, then up, renews it", err=True)
    if address is not None and not daemon.is_new and not daemon.url and not quiet:
        say("it has no port; mcp-workbench down, then up with --http, opens one", err=True)


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
    place = place_for(settings)
    pid = _send_down(place)
    if pid:
        pid = _await_end(settings, place, pid)
    if settings.json:
        say_json({"pid": pid})
    else:
        say(f"ended (pid {pid})" if pid else "not running")
    return DONE


def _send_down(place: DaemonPaths) -> int:
    """Asks it to exit; returns its pid, or 0 if it is not running."""
    try:
        door = connect(place)
        if door is not None:
            with door:
                request(door, ANSWER, control_protocol.DOWN)
                return peer_credentials(door)[0] or lock_holder(place)
    except NoAnswer:
        pass  # it hangs
    pid = lock_holder(place)
    if pid > 0:
        os.kill(pid, signal.SIGTERM)
    return pid


def _await_end(settings: Settings, place: DaemonPaths, pid: int) -> int:
    until = time.monotonic() + settings.snapshot().limits.drain + MARGIN
    while lock_holder(place):
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            say(f"it did not end, and was killed (pid {pid})", err=True)
            until += MARGIN
        time.sleep(0.02)
    return pid


def place_for(settings: Settings) -> DaemonPaths:
    """Returns the place of the configuration file that these options name."""
    place = daemon_paths(settings.config)
    if place is None:
        settings.snapshot()  # reports a given path that does not exist
        raise InvalidCall(
            "there is no configuration file that hosts could share",
            hint="write workbench-config.json here, or name one with --config",
        )
    if not place.home:
        raise DaemonFailed(
            "the state folder can't be used: neither $MCP_WORKBENCH_HOME nor $HOME is set",
            hint=OTHER_HOME,
        )
    return place
