"""Servers that could not be reached, told beside what the others have answered."""

from __future__ import annotations

from mcp_workbench.cli.render import Trouble, say, told
from mcp_workbench.cli.settings import DONE, UNREACHABLE, Settings
from mcp_workbench.core.reports import ServerReport


def tell_unreached(settings: Settings, reports: list[ServerReport]) -> int:
    """Tell which servers are missing from the answer."""
    unreached = [report for report in reports if report.reason]
    for report in unreached if not settings.json else ():
        message = f"server '{report.address.server}' in toolbox '{report.address.toolbox}' is not available"
        fix = f"mcp-workbench doctor {report.address}"
        trouble = Trouble("WB-CONN-101", message, cause=(report.reason,), fix=fix)
        say(told(trouble), err=True, color=settings.color)
    return UNREACHABLE if unreached else DONE
