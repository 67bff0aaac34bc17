"""Attach: decides whether `serve` hands its host to a running daemon.

Every `serve` over stdio loads this first, and most find no daemon: then looking for its socket is all that
happens, and nothing else is loaded.
"""

from __future__ import annotations

import os
import stat
import sys

from mcp_workbench.daemon.paths import DaemonPaths, daemon_paths

TYPE_CHECKING = False  # `typing` takes four milliseconds, which an attached process does not need
if TYPE_CHECKING:
    from mcp_workbench.daemon.attached import Takeover

VARIABLE = "MCP_WORKBENCH_SERVE_ATTACH"
AUTO, ALWAYS, NEVER = CHOICES = ("auto", "always", "never")
FAILED = 1  # exit status


class AttachFailed(Exception):
    """Why this host can't be served by the daemon."""


def attach_host(
    config: str | None, toolboxes: tuple[str, ...], attach: str
) -> int | Takeover | None:
    """The exit status of a host that the daemon has served; None: serve it in this process.

    A `Takeover` is served in this process as well, from where the daemon has left it.
    """
    mode = attach or os.environ.get(VARIABLE) or AUTO
    if mode == NEVER:
        return None
    try:
        if mode not in CHOICES:
            raise AttachFailed(f"{VARIABLE} is '{mode}', not {', '.join(CHOICES)}")  # noqa: TRY301
        paths = daemon_paths(config)
        if mode == ALWAYS:
            return _attach_or_start(paths, toolboxes)
        if paths is None or not paths.home or not os.path.exists(paths.socket) or not _on_pipes():  # noqa: PTH110
            return None
        from mcp_workbench.daemon.attached import serve_attached  # loads sockets

        return serve_attached(paths, toolboxes)
    except AttachFailed as error:
        return _report(error, mode)


def _attach_or_start(paths: DaemonPaths | None, toolboxes: tuple[str, ...]) -> int | Takeover:
    if paths is None:
        raise AttachFailed("there is no configuration file that could be shared")
    if not _on_pipes():
        raise AttachFailed("stdin and stdout must be pipes")
    from mcp_workbench.daemon.attached import serve_attached

    outcome = serve_attached(paths, toolboxes)
    if outcome is None:
        from mcp_workbench.daemon.start import LINGER, NotStarted, start  # loads `subprocess`

        try:
            start(paths, linger=LINGER)
        except NotStarted as error:
            raise AttachFailed(f"none could be started: {error}") from None
        _warn_of_owner(paths)
        outcome = serve_attached(paths, toolboxes)
    if outcome is None:
        raise AttachFailed("it ended at once; see mcp-workbench logs")
    return outcome


def _warn_of_owner(paths: DaemonPaths) -> None:
    """Warn the user who has named a file that another user could have written."""
    from mcp_workbench.config.file_access import check_ownership, ownership_notice

    if line := ownership_notice(paths.config, check_ownership(paths.config, os.stat(paths.config))):  # noqa: PTH116
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _on_pipes() -> bool:
    """Only pipes and sockets are handed over; others may use the same terminal or file."""
    modes = [os.fstat(fd).st_mode for fd in (0, 1)]
    return all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes)


def _report(error: AttachFailed, mode: str) -> int | None:
    """Report in one line, because hosts show stderr. With `always` the host is not served otherwise."""
    alone = "" if mode == ALWAYS else "; this host is served by itself"
    sys.stderr.write(f"mcp-workbench: the shared workbench was not joined: {error}{alone}\n")
    sys.stderr.flush()
    return FAILED if mode == ALWAYS else None
