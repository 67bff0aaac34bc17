"""Reports of servers: from the cache if they are fresh, else from the servers themselves.

The event loop and the gateway are loaded only to start a server.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from mcp_workbench.cli.error_reports import ErrorReport, format_error
from mcp_workbench.cli.settings import DONE, UNREACHABLE, Decorated, Settings, variable
from mcp_workbench.cli.sign_in_reports import code_and_fix
from mcp_workbench.cli.terminal import QUIET_TIME, ProgressLine, say
from mcp_workbench.core.catalogue import ServerReport
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.spec import ServerAddress, Snapshot
from mcp_workbench.timing import deadline
from mcp_workbench.upstream.cache import CatalogueCache

if TYPE_CHECKING:
    from mcp_workbench.cli.backends import Backend

FRESH = 86_400.0  # seconds; a day later, the servers are asked again
NEWS = 86_400.0  # seconds for which a change of tools is shown
READ_WAIT = deadline(60.0)  # seconds for all servers of an import; a first `npx` or `uvx` downloads


def refresh_option(command: str) -> Callable[[Decorated], Decorated]:
    """Returns `--refresh`, for a command that can use the cache."""
    help = "Ask the servers, whatever is known of them."
    return click.option("--refresh", is_flag=True, help=help, **variable(f"{command}_REFRESH"))


def cached_or_asked(
    settings: Settings, snapshot: Snapshot, addresses: Sequence[ServerAddress], *, refresh: bool
) -> list[ServerReport]:
    """Returns a report of each server, in this order; with `refresh`, all from the servers."""
    settings.open_log()
    reports = {} if refresh else cached_reports(snapshot, addresses)
    unknown = [address for address in addresses if address not in reports]
    if unknown:
        asked = survey(settings, snapshot, unknown, fresh=refresh)
        reports |= {report.address: report for report in _with_changes(snapshot, asked)}
    return [reports[address] for address in addresses]


def locked_cache(snapshot: Snapshot) -> CatalogueCache:
    """Returns the cache, without what the lock file does not let through."""
    cache = CatalogueCache(os.environ)
    if snapshot.lock is not None:
        from mcp_workbench.config.expand import environment
        from mcp_workbench.upstream.definition_locks import DefinitionLocks  # only with a file

        cache.locks = DefinitionLocks(snapshot.lock, environment(os.environ))
    return cache


def cached_reports(
    snapshot: Snapshot, addresses: Sequence[ServerAddress]
) -> dict[ServerAddress, ServerReport]:
    """Returns the reports of these servers that are in the cache and fresh."""
    memory, now = locked_cache(snapshot), time.time()
    reports: dict[ServerAddress, ServerReport] = {}
    for address in addresses:
        spec = snapshot.toolbox(address.toolbox).server(address.server)
        known = memory.recall(spec)
        if known is not None and known.age(now) < FRESH:
            reports[address] = known.report(spec, now)
    return reports


def with_last_lists(snapshot: Snapshot, reports: list[ServerReport]) -> list[ServerReport]:
    """Returns the reports with the last known tools of servers that can't be reached."""
    memory, now = locked_cache(snapshot), time.time()
    shown: list[ServerReport] = []
    for report in reports:
        spec = snapshot.toolbox(report.address.toolbox).server(report.address.server)
        known = memory.recall(spec) if report.reason else None
        if known is not None:
            last = known.report(spec, now)
            last = msgspec.structs.replace(last, reason=report.reason, seconds=report.seconds)
            shown.append(last)
        else:
            shown.append(report)
    return shown


def last_lists(
    snapshot: Snapshot, addresses: Sequence[ServerAddress]
) -> dict[ServerAddress, tuple[str, ...]]:
    """Returns the names of the tools of those servers that are in the cache, however old."""
    memory, now = locked_cache(snapshot), time.time()
    lists: dict[ServerAddress, tuple[str, ...]] = {}
    for address in addresses:
        spec = snapshot.toolbox(address.toolbox).server(address.server)
        known = memory.recall(spec)
        if known is not None:
            lists[address] = tuple(tool.name for tool in known.opened(spec, now, "").tools)
    return lists


def _with_changes(snapshot: Snapshot, asked: list[ServerReport]) -> list[ServerReport]:
    """Adds the changes of tools that were recorded while these servers were asked."""
    kept = cached_reports(snapshot, [report.address for report in asked if not report.reason])
    return [
        msgspec.structs.replace(report, change=kept[report.address].change)
        if report.address in kept
        else report
        for report in asked
    ]


def observed(snapshot: Snapshot) -> Snapshot:
    """Returns the configuration for a command that writes nothing to the lock file."""
    if snapshot.lock is None:
        return snapshot
    lock = msgspec.structs.replace(snapshot.lock, is_read_only=True)
    return msgspec.structs.replace(snapshot, lock=lock)


# Asking the servers


def survey(  # noqa: PLR0913 - what one survey is made of
    settings: Settings,
    snapshot: Snapshot,
    addresses: Sequence[ServerAddress],
    environ: Mapping[str, str] | None = None,
    *,
    wait: float | None = None,
    fresh: bool = True,
) -> list[ServerReport]:
    """Returns a report of each server, in this order; shows progress on stderr meanwhile.

    `wait` are the seconds for all of them together; without it, each has its own `connectTimeout`.
    `fresh`: also of those that have just failed. With an `environ` of its own, the servers are started
    for this command, even if the workbench of the configuration is running.
    """
    from mcp_workbench.cli.backends import BackendOptions, with_backend

    settings.open_log(reports_servers=True)

    async def asked(backend: Backend) -> list[ServerReport]:
        progress = SurveyProgress(settings, addresses)
        try:
            return await survey_with(backend, addresses, progress, fresh=fresh, wait=wait)
        finally:
            progress.line.clear()

    return with_backend(settings, snapshot, asked, BackendOptions(environ=environ))


def read_catalogues(
    settings: Settings,
    snapshot: Snapshot,
    addresses: Sequence[ServerAddress],
    environ: Mapping[str, str],
) -> list[ServerReport]:
    """Connects to these servers once, so that a search knows their tools; waits `READ_WAIT` at most."""
    if not addresses:
        return []
    if settings.talkative:
        count = "1 server" if len(addresses) == 1 else f"{len(addresses)} servers"
        say(f"reading the tools of {count}, for at most {READ_WAIT:g} s …", err=True)
    return survey(settings, snapshot, addresses, environ, wait=READ_WAIT)


async def survey_with(
    backend: Backend,
    addresses: Sequence[ServerAddress],
    progress: SurveyProgress,
    *,
    fresh: bool,
    wait: float | None = None,
) -> list[ServerReport]:
    """Asks all these servers at once. Raises a WorkbenchError if the running workbench does."""
    import asyncio

    until = math.inf if wait is None else time.monotonic() + wait

    async def ask(address: ServerAddress) -> ServerReport | WorkbenchError:
        try:
            report = await backend.survey(address, fresh=fresh)
        except WorkbenchError as error:
            return error  # raised below, outside of the group
        progress.arrived(report)
        return report

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(address)) for address in addresses]
        while any(not task.done() for task in asked) and time.monotonic() < until:
            await asyncio.wait(asked, timeout=min(QUIET_TIME, until - time.monotonic()))
            progress.tick()
        for task in asked:
            task.cancel()
    return [
        _too_slow(address, wait or 0.0) if task.cancelled() else _reported(task.result())
        for address, task in zip(addresses, asked, strict=True)
    ]


def _too_slow(address: ServerAddress, seconds: float) -> ServerReport:
    return ServerReport(address, f"it has not answered within {seconds:g} s", seconds=seconds)


def _reported(outcome: ServerReport | WorkbenchError) -> ServerReport:
    if isinstance(outcome, WorkbenchError):
        raise outcome
    return outcome


class SurveyProgress:
    """Shows on a terminal one line with the servers that are still waited for; elsewhere a line per
    finished server, if `lines` are wanted.
    """

    def __init__(
        self, settings: Settings, addresses: Sequence[ServerAddress], *, lines: bool = True
    ) -> None:
        self.line = ProgressLine(wanted=settings.talkative)
        self._wanted = settings.talkative and lines
        self._waiting = list(addresses)

    def arrived(self, report: ServerReport) -> None:
        self._waiting.remove(report.address)
        if self._wanted and not self.line.live:
            outcome = "not available" if report.reason else "ready"
            say(f"{report.address}: {outcome} ({report.seconds:.1f} s)", err=True)

    def tick(self) -> None:
        if self.line.live and self._waiting:
            self.line.show(f"waiting for {', '.join(map(str, self._waiting))}")


# Remarks on stderr


def show_cached(settings: Settings, reports: list[ServerReport]) -> None:
    """Prints to stderr which servers have changed tools, and which reports are from the cache."""
    if not settings.talkative:
        return
    now = time.time()
    for report in news(reports):
        if report.change is not None:
            ago = age_text(now - report.change.at)
            say(f"{report.address}: tools changed {ago}: {report.change}", err=True)
    cached = [report for report in reports if report.age is not None]
    for report in cached:
        ago = age_text(report.age or 0.0)
        state = f"not available, listed as it was {ago}" if report.reason else None
        say(f"{report.address}: {state or f'from the cache, asked {ago}'}", err=True)
    if any(not report.reason for report in cached):
        say("--refresh asks the servers now", err=True)


def news(reports: list[ServerReport]) -> list[ServerReport]:
    """Returns the reports of servers whose tools have changed lately."""
    now = time.time()
    return [r for r in reports if r.change is not None and now - r.change.at < NEWS]


def age_text(seconds: float) -> str:
    """`just now`, `5 min ago`, `3 h ago`."""
    if seconds < 60:
        return "just now"
    return f"{seconds / 60:.0f} min ago" if seconds < 3600 else f"{seconds / 3600:.0f} h ago"


def show_unreached(settings: Settings, reports: list[ServerReport]) -> int:
    """Prints which servers are missing from the output; returns the exit status."""
    unreached = [report for report in reports if report.reason]
    for report in unreached if not settings.json else ():
        message = f"server '{report.address.server}' in toolbox '{report.address.toolbox}' is not available"
        code, fix = code_and_fix(report.reason, report.address)
        error = ErrorReport(code, message, cause=(report.reason,), fix=fix)
        say(format_error(error), err=True, color=settings.color)
    return UNREACHABLE if unreached else DONE
