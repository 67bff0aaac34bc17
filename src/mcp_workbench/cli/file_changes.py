"""Changes of files that commands make: previewed, confirmed, applied, and recorded for `undo`."""

import os
import shlex
from collections.abc import Iterable

import click
import msgspec

from mcp_workbench.cli.settings import Decorated, Settings, stdin_is_terminal, variable
from mcp_workbench.cli.terminal import glyph, plain, say
from mcp_workbench.hosts.files import HostUsage, Machine, shown
from mcp_workbench.hosts.journal import apply_changes, own_journal
from mcp_workbench.hosts.plan import Change, diff
from mcp_workbench.hosts.secrets import ExtractedSecret

_COLORS = {"+": "green", "-": "red", "@": "cyan"}


class ChangeLine(msgspec.Struct, frozen=True):
    """One change in the JSON of `install`, `uninstall` and `import`."""

    host: str
    file: str
    new: bool
    command: tuple[str, ...]  # the host's own, if that writes the file
    diff: list[str]


class Agreement(msgspec.Struct, frozen=True):
    """The options about confirmation."""

    yes: bool
    dry_run: bool


def agreement_options(function: Decorated) -> Decorated:
    yes, dry_run = "Do it without asking.", "Show what would be done, and stop."
    function = click.option("--yes", "-y", is_flag=True, help=yes, **variable("YES"))(function)
    return click.option("--dry-run", is_flag=True, help=dry_run, **variable("DRY_RUN"))(function)


def say_secrets(
    settings: Settings, taken: Iterable[ExtractedSecret], *, stored: bool = False
) -> None:
    """Names the literal secrets that a variable replaces in the file to be written."""
    where = ", and its value goes into the encrypted store" if stored else ""
    for secret in taken:
        blanks = "; it has blanks around it" if secret.blanks else ""
        say(
            f"{glyph('doubtful')} {plain(secret.server)}: {plain(secret.place)} is a literal secret, "
            f"so ${{{secret.variable}}} stands there instead{where}{blanks}",
            color=settings.color,
        )


def preview(changes: list[Change], machine: Machine, settings: Settings) -> None:
    """Prints the preview of all changes."""
    for change in changes:
        new = " (new)" if change.before is None else ""
        say(f"\n{plain(shown(change.path, machine))}{new}", color=settings.color)
        if change.own:
            say(f"$ {plain(shlex.join(change.own))}", color=settings.color)
        for line in diff(change):
            color = _COLORS.get(line[:1])
            say(click.style(plain(line), fg=color) if color else plain(line), color=settings.color)


def lines_of(changes: list[Change]) -> list[ChangeLine]:
    return [ChangeLine(c.host, str(c.path), c.before is None, c.own, diff(c)) for c in changes]


def apply_if_confirmed(
    settings: Settings, command: str, changes: list[Change], agreed: Agreement
) -> int | None:
    """Applies the changes after confirmation; returns the number for `undo`, or None."""
    return apply(settings, command, changes) if confirmed(settings, changes, agreed) else None


def confirmed(settings: Settings, changes: list[Change], agreed: Agreement) -> bool:
    """Asks whether to apply these changes; without any, and in a dry run, they are not."""
    if agreed.dry_run or not changes:
        return False
    if agreed.yes or _confirmed(settings):
        return True
    say("nothing was changed", err=True)
    return False


def apply(settings: Settings, command: str, changes: list[Change]) -> int:
    """Applies the changes; returns the number for `undo`."""

    def starting(change: Change) -> None:
        if change.own and settings.talkative:
            say(f"running {change.own[0]} …", err=True)

    return apply_changes(own_journal(os.environ), command, changes, starting).id


def can_ask(settings: Settings) -> bool:
    return not (settings.no_input or settings.json) and stdin_is_terminal()


def _confirmed(settings: Settings) -> bool:
    if not can_ask(settings):
        raise HostUsage(
            "needs_yes",
            "confirmation required; rerun with --yes",
            hint="nothing was changed; --dry-run shows what would be",
        )
    return click.confirm("\nwrite this?", default=False, err=True)
