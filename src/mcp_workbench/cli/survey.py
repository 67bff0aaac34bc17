"""Ask servers, all at once, what they are and what they offer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from mcp_workbench.cli.progress import PATIENCE, ProgressLine
from mcp_workbench.cli.render import say
from mcp_workbench.cli.running import run
from mcp_workbench.cli.settings import Settings
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.reports import ServerReport
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.gateway.gateway import Gateway
from mcp_workbench.upstream import context as pool_context


def survey(
    settings: Settings,
    snapshot: Snapshot,
    addresses: Sequence[ServerAddress],
    environ: Mapping[str, str] | None = None,
) -> list[ServerReport]:
    """A report of each server, in the order asked for; meanwhile stderr tells how it goes."""
    settings.open_log()
    if not settings.verbose:  # why a server is not there stands in its report
        logging.getLogger(pool_context.__name__).setLevel("ERROR")
    progress = SurveyProgress(settings, addresses)
    try:
        return run(_survey(Gateway(snapshot, environ=environ), addresses, progress))
    finally:
        progress.line.clear()


class SurveyProgress:
    """On a terminal one line that says who is waited for; elsewhere a line per finished server."""

    def __init__(self, settings: Settings, addresses: Sequence[ServerAddress]) -> None:
        self.line = ProgressLine(wanted=settings.talkative)
        self._wanted = settings.talkative
        self._waiting = list(addresses)

    def arrived(self, report: ServerReport) -> None:
        self._waiting.remove(report.address)
        if self._wanted and not self.line.live:
            outcome = "not available" if report.reason else "ready"
            say(f"{report.address}: {outcome} ({report.seconds:.1f} s)", err=True)

    def tick(self) -> None:
        if self.line.live and self._waiting:
            self.line.show(f"waiting for {', '.join(map(str, self._waiting))}")


async def _survey(
    gateway: Gateway, addresses: Sequence[ServerAddress], progress: SurveyProgress
) -> list[ServerReport]:
    async def ask(address: ServerAddress) -> ServerReport:
        report = await gateway.view.survey(address)
        progress.arrived(report)
        return report

    async with gateway, asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(address)) for address in addresses]
        while any(not task.done() for task in asked):
            await asyncio.wait(asked, timeout=PATIENCE)
            progress.tick()
    return [task.result() for task in asked]
