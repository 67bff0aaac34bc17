"""Whether `serve` joins a running workbench. Most starts find none, and must not notice the question."""

from __future__ import annotations

import os
import stat
import sys

from mcp_workbench.daemon.folder import Place, place_of

TYPE_CHECKING = False  # `typing` itself is four milliseconds that a joiner does without
if TYPE_CHECKING:
    from mcp_workbench.daemon.handing import Takeover

VARIABLE = "MCP_WORKBENCH_SERVE_ATTACH"
AUTO, ALWAYS, NEVER = CHOICES = ("auto", "always", "never")
FAILED = 1


class NotJoined(Exception):
    """Why this host can't be one of those who share."""


def join(config: str | None, toolboxes: tuple[str, ...], attach: str) -> int | Takeover | None:
    """The exit status of a host that was served by the shared workbench; None: serve it alone.

    A `Takeover` is served alone from where the shared workbench has left it.
    """
    wish = attach or os.environ.get(VARIABLE) or AUTO
    if wish == NEVER:
        return None
    try:
        if wish not in CHOICES:
            raise NotJoined(f"{VARIABLE} is '{wish}', not {', '.join(CHOICES)}")  # noqa: TRY301
        place = place_of(config)
        if wish == ALWAYS:
            return _join_or_start(place, toolboxes)
        if place is None or not place.home or not os.path.exists(place.socket) or not _on_pipes():  # noqa: PTH110
            return None
        from mcp_workbench.daemon.handing import joined  # sockets: not before there is one

        return joined(place, toolboxes)
    except NotJoined as error:
        return _told(error, wish)


def _join_or_start(place: Place | None, toolboxes: tuple[str, ...]) -> int | Takeover:
    if place is None:
        raise NotJoined("there is no configuration file that could be shared")
    if not _on_pipes():
        raise NotJoined("stdin and stdout must be pipes")
    from mcp_workbench.daemon.handing import joined

    outcome = joined(place, toolboxes)
    if outcome is None:
        from mcp_workbench.daemon.start import LINGER, NotStarted, start  # only who starts one

        try:
            start(place, linger=LINGER)
        except NotStarted as error:
            raise NotJoined(f"none could be started: {error}") from None
        _tell_owner(place)
        outcome = joined(place, toolboxes)
    if outcome is None:
        raise NotJoined("it ended at once; see mcp-workbench logs")
    return outcome


def _tell_owner(place: Place) -> None:
    """Tell whoever has named a file that another user could have written."""
    from mcp_workbench.config.ownership import doubts_of, notice

    if line := notice(place.config, doubts_of(place.config, os.stat(place.config))):  # noqa: PTH116
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _on_pipes() -> bool:
    """Only pipes and sockets are handed over: a terminal or a file is not ours to give away."""
    modes = [os.fstat(fd).st_mode for fd in (0, 1)]
    return all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes)


def _told(error: NotJoined, wish: str) -> int | None:
    """One line: hosts show what stands on stderr. Who insists on joining is not served otherwise."""
    alone = "" if wish == ALWAYS else "; this host is served by itself"
    sys.stderr.write(f"mcp-workbench: the shared workbench was not joined: {error}{alone}\n")
    sys.stderr.flush()
    return FAILED if wish == ALWAYS else None
