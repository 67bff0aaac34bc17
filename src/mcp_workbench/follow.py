"""Follows the configuration file while serving: applies valid changes, reports invalid ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from mcp_workbench.config.file_access import OWNERSHIP_CODES
from mcp_workbench.config.load import FILE_NAME
from mcp_workbench.config.watch import FileWatch, LoadResult
from mcp_workbench.core.errors import ConfigError
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.gateway.gateway import Gateway
from mcp_workbench.gateway.views import narrowed_to

log = logging.getLogger(__name__)

_KEPT = "The configuration file has changed and can't be used; the previous configuration stays in effect."
_CHECK = "`mcp-workbench check` tells what is wrong."


@contextmanager
def following(
    gateway: Gateway,
    toolboxes: tuple[str, ...],
    *,
    brief: bool = False,
    adapted: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot,
) -> Generator[Callable[[], None]]:
    """Follow the configuration file for the length of the block; yields a function that reads it at once.

    `toolboxes` are those that are served, or all. `brief` hides the file's problems from hosts, which
    may be any user's; `adapted` changes each configuration before it is applied. Without a file the
    demo is served, until one is written.
    """
    origin = gateway.snapshot.origin
    follower = _Follower(gateway, toolboxes, brief=brief)
    follower.adapted = adapted
    loop = asyncio.get_running_loop()

    def on_change(outcome: LoadResult) -> None:
        with suppress(RuntimeError):  # the loop has closed meanwhile
            loop.call_soon_threadsafe(follower.apply, outcome)

    accepted = any(problem.code in OWNERSHIP_CODES for problem in gateway.snapshot.warnings)
    watch = FileWatch(origin or FILE_NAME, on_change, optional=not origin, accepted=accepted)
    watch.start()
    try:
        yield watch.look
    finally:
        watch.end()


class _Follower:
    """Applies each version of the file to the gateway, and logs the outcome."""

    def __init__(self, gateway: Gateway, toolboxes: tuple[str, ...], *, brief: bool) -> None:
        self._gateway = gateway
        self._toolboxes = toolboxes
        self._brief = brief
        self._refused = ""  # why the file was refused when it was last read
        self._later: tuple[str, ...] = ()
        self.adapted: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot

    def apply(self, outcome: LoadResult) -> None:
        if isinstance(outcome, ConfigError):
            self._refuse(outcome)
        else:
            self._reload(outcome)

    def _refuse(self, error: ConfigError) -> None:
        problem = str(error)
        detail = _CHECK if self._brief else problem
        self._gateway.warn(f"{_KEPT} {detail}")
        if problem != self._refused:
            self._refused = problem
            log.warning("the previous configuration stays in effect: %s", problem)

    def _reload(self, wanted: Snapshot) -> None:
        wanted = narrowed_to(self.adapted(wanted), self._toolboxes)
        if not self._refused and wanted == self._gateway.snapshot:
            self._later = ()
            return  # as shortly after every start: nothing is loaded for it
        change = self._gateway.reload(wanted)
        for name in self._toolboxes:
            if name in change.before.toolboxes and name not in change.after.toolboxes:
                log.warning("the toolbox %s is served, but no longer in the file", name)
        if change.later and change.later != self._later:
            log.warning(
                "changed in the file, takes effect at the next start: %s", _words(change.later)
            )
        self._later = change.later
        if self._refused:
            self._refused = ""
            log.warning("the configuration file is valid again: %s", change)
        elif change.anything:
            log.info("the configuration was reloaded: %s", change)


def _words(keys: tuple[str, ...]) -> str:
    return ", ".join(keys)
