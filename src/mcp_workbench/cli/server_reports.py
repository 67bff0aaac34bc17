"""Reports of servers: from the cache if they are fresh, else from the servers themselves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import click
import msgspec

from mcp_workbench.cli.settings import DONE, UNREACHABLE, Decorated, Settings, variable
from mcp_workbench.cli.ui.render import Trouble, say, told
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.reports import ServerReport
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.downstream.memory import Memory

FRESH = 86_400.0  # seconds; a person who looks a day later wants to see what there is now
NEWS = 86_400.0  # seconds for which a change of tools is told


def refresh_option(command: str) -> Callable[[Decorated], Decorated]:
    """`--refresh`, for a command that can do without the servers."""
    help = "Ask the servers, whatever is known of them."
    return click.option("--refresh", is_flag=True, help=help, **variable(f"{command}_REFRESH"))


def recalled_or_asked(
    settings: Settings, snapshot: Snapshot, addresses: Sequence[ServerAddress], *, refresh: bool
) -> list[ServerReport]:
    """A report of each server, in the order asked for. `refresh`: from the servers, all of them."""
    settings.open_log()
    found = {} if refresh else recalled(snapshot, addresses)
    unknown = [address for address in addresses if address not in found]
    if unknown:
        from mcp_workbench.cli.servers import survey  # the whole program: only to start servers

        asked = survey(settings, snapshot, unknown)
        found |= {report.address: report for report in _with_changes(snapshot, asked)}
    return [found[address] for address in addresses]


def recalled(
    snapshot: Snapshot, addresses: Sequence[ServerAddress]
) -> dict[ServerAddress, ServerReport]:
    """What is known of these servers, as far as that is not old."""
    memory, now = Memory(os.environ), time.time()
    found: dict[ServerAddress, ServerReport] = {}
    for address in addresses:
        spec = snapshot.toolbox(address.toolbox).server(address.server)
        known = memory.recall(spec)
        if known is not None and known.age(now) < FRESH:
            found[address] = known.report(spec, now)
    return found


def with_last_lists(snapshot: Snapshot, reports: list[ServerReport]) -> list[ServerReport]:
    """Those that can't be reached with the tools that they had, however long ago that was."""
    memory, now = Memory(os.environ), time.time()
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


def _with_changes(snapshot: Snapshot, asked: list[ServerReport]) -> list[ServerReport]:
    """What was noticed while these were asked has been written down by now."""
    kept = recalled(snapshot, [report.address for report in asked if not report.reason])
    return [
        msgspec.structs.replace(report, change=kept[report.address].change)
        if report.address in kept
        else report
        for report in asked
    ]


def news(reports: list[ServerReport]) -> list[ServerReport]:
    """Those whose tools have changed of late."""
    now = time.time()
    return [r for r in reports if r.change is not None and now - r.change.at < NEWS]


def tell_recalled(settings: Settings, reports: list[ServerReport]) -> None:
    """On stderr: which servers have other tools than before, and which were not asked."""
    if not settings.talkative:
        return
    now = time.time()
    for report in news(reports):
        if report.change is not None:
            ago = told_age(now - report.change.at)
            say(f"{report.address}: tools changed {ago}: {report.change}", err=True)
    recalled = [report for report in reports if report.age is not None]
    for report in recalled:
        ago = told_age(report.age or 0.0)
        told = f"not available, listed as it was {ago}" if report.reason else None
        say(f"{report.address}: {told or f'from the cache, asked {ago}'}", err=True)
    if any(not report.reason for report in recalled):
        say("--refresh asks the servers now", err=True)


def told_age(seconds: float) -> str:
    """`just now`, `5 min ago`, `3 h ago`."""
    if seconds < 60:
        return "just now"
    return f"{seconds / 60:.0f} min ago" if seconds < 3600 else f"{seconds / 3600:.0f} h ago"


def tell_unreached(settings: Settings, reports: list[ServerReport]) -> int:
    """Tell which servers are missing from the answer."""
    unreached = [report for report in reports if report.reason]
    for report in unreached if not settings.json else ():
        message = f"server '{report.address.server}' in toolbox '{report.address.toolbox}' is not available"
        fix = f"mcp-workbench doctor {report.address}"
        trouble = Trouble("WB-CONN-101", message, cause=(report.reason,), fix=fix)
        say(told(trouble), err=True, color=settings.color)
    return UNREACHABLE if unreached else DONE
