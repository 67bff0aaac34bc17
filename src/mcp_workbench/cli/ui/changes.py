"""Changes of host files: previewed, confirmed, applied."""

import os
import shlex

import click
import msgspec

from mcp_workbench.cli.settings import Decorated, Settings, stdin_is_terminal, variable
from mcp_workbench.cli.terminal import plain, say
from mcp_workbench.hosts.files import HostUsage, Machine, shown
from mcp_workbench.hosts.journal import apply_changes, own_journal
from mcp_workbench.hosts.plan import Change, diff

_COLORS = {"+": "green", "-": "red", "@": "cyan"}


class ChangeLine(msgspec.Struct, frozen=True):
    """What `--json` says of one file."""

    host: str
    file: str
    new: bool
    command: tuple[str, ...]  # the host's own, if that writes the file
    diff: list[str]


class Agreement(msgspec.Struct, frozen=True):
    """What the command line says about confirmation."""

    yes: bool
    dry_run: bool


def agreement_options(function: Decorated) -> Decorated:
    yes, dry_run = "Do it without asking.", "Show what would be done, and stop."
    function = click.option("--yes", "-y", is_flag=True, help=yes, **variable("YES"))(function)
    return click.option("--dry-run", is_flag=True, help=dry_run, **variable("DRY_RUN"))(function)


def lines_of(changes: list[Change]) -> list[ChangeLine]:
    return [ChangeLine(c.host, str(c.path), c.before is None, c.own, diff(c)) for c in changes]


def show(changes: list[Change], machine: Machine, settings: Settings) -> None:
    """Prints the preview of all changes."""
    for change in changes:
        new = " (new)" if change.before is None else ""
        say(f"\n{plain(shown(change.path, machine))}{new}", color=settings.color)
        if change.own:
            say(f"$ {plain(shlex.join(change.own))}", color=settings.color)
        for line in diff(change):
            color = _COLORS.get(line[:1])
            say(click.style(plain(line), fg=color) if color else plain(line), color=settings.color)


def apply_if_confirmed(
    settings: Settings, command: str, changes: list[Change], agreed: Agreement
) -> int | None:
    """Applies the changes after confirmation; returns the number for `undo`, or None."""
    if agreed.dry_run or not changes:
        return None
    if not agreed.yes and not _confirmed(settings):
        say("nothing was changed", err=True)
        return None

    def starting(change: Change) -> None:
        if change.own and settings.talkative:
            say(f"running {change.own[0]} …", err=True)

    return apply_changes(own_journal(os.environ), command, changes, starting).id


def _confirmed(settings: Settings) -> bool:
    if settings.no_input or settings.json or not stdin_is_terminal():
        raise HostUsage(
            "needs_yes",
            "confirmation required; rerun with --yes",
            hint="nothing was changed; --dry-run shows what would be",
        )
    return click.confirm("\nwrite this?", default=False, err=True)
