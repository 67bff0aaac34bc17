"""`ui`: opens the web page of the workbench."""

from __future__ import annotations

import os
import sys

import click

from mcp_workbench.cli.daemon_commands import ANSWER, DaemonFailed, paths_for
from mcp_workbench.cli.settings import DONE, Settings, global_options, variable
from mcp_workbench.cli.terminal import say, say_json
from mcp_workbench.daemon import control
from mcp_workbench.daemon.control import NoAnswer, connect, request
from mcp_workbench.daemon.paths import DaemonPaths
from mcp_workbench.daemon.start import NotStarted, running, start

_OLDER = "it is of a version without a page: mcp-workbench down, then mcp-workbench ui, renews it"


@click.command(name="ui")
@click.option(
    "--no-open",
    is_flag=True,
    help="Print the address, and open no browser.",
    **variable("UI_NO_OPEN"),
)
@global_options
@click.pass_obj
def ui(settings: Settings, *, no_open: bool) -> int:
    """Open the web page of the workbench: what is broken and why, tools, calls, figures.

    It is the page of the workbench in the background; if none runs, one is started as `up` does. The
    address opens the page once, within two minutes, and only on this machine; then the browser has a
    cookie for twelve hours. `serve --http PORT --ui` serves the same page beside /mcp, and prints its
    address.

    \b
    Examples:
      mcp-workbench ui
      mcp-workbench ui --no-open
      mcp-workbench ui --json
    """
    paths = paths_for(settings)
    settings.snapshot()  # reports the problems of the configuration
    try:
        daemon = running(paths) or start(paths)
    except NotStarted as error:
        message = f"the workbench could not be started: {error}"
        raise DaemonFailed(message, hint=error.fix) from None
    address = _address(paths)
    opened = not (no_open or settings.json or settings.no_input) and _open(address)
    if settings.json:
        say_json({"url": address, "pid": daemon.pid, "started": daemon.is_new})
        return DONE
    say(address)
    if settings.talkative:
        where = "opened in the browser" if opened else "open it in a browser of this machine"
        say(f"{where}; it opens the page once, within two minutes", err=True)
    return DONE


def _address(paths: DaemonPaths) -> str:
    """Returns an address that opens the page once."""
    try:
        connection = connect(paths)
        if connection is None:
            raise DaemonFailed("the workbench has ended", hint="mcp-workbench ui starts another")
        with connection:
            response = request(connection, ANSWER, control.PAGE)
    except NoAnswer as error:
        hint = "mcp-workbench down ends it"
        raise DaemonFailed(f"the workbench hangs: {error}", hint=hint) from None
    if response and response[0] == control.REPORT:
        return response[1].decode()
    reason = response[-1].decode("utf-8", "replace") if response else "it does not answer"
    if reason.startswith("it does not know this request"):
        raise DaemonFailed("the workbench has no page", hint=_OLDER)
    raise DaemonFailed(f"the page can't be served: {reason}")


def _open(address: str) -> bool:
    """Opens a browser, where there is a person with a screen. Whether that was possible."""
    if not sys.stdout.isatty() or not _has_screen():
        return False
    import webbrowser  # seldom used, and slow to load

    try:
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False


def _has_screen() -> bool:
    if sys.platform in ("darwin", "win32") or os.environ.get("BROWSER"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
