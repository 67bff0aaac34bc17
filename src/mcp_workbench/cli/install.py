"""`install`, `uninstall` and `undo`: add our entry to the files of hosts, remove it, revert either.

Every change of such a file, those of `import` as well, is previewed and confirmed here, and recorded
in the journal that `undo` reads.
"""

import os
import shlex
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec

from mcp_workbench.cli.completion import complete_host, complete_toolbox
from mcp_workbench.cli.host_limits import print_unseen_tools
from mcp_workbench.cli.replace import (
    KeptEntry,
    NotRestored,
    Replacement,
    kept_instead,
    missing_names,
    not_restored,
    plan_replacement,
)
from mcp_workbench.cli.settings import (
    DONE,
    Decorated,
    Settings,
    global_options,
    stdin_is_terminal,
    variable,
)
from mcp_workbench.cli.terminal import glyph, plain, say, say_json, table
from mcp_workbench.config.load import find_config
from mcp_workbench.core.errors import did_you_mean
from mcp_workbench.hosts.files import (
    HostFile,
    HostUsage,
    Machine,
    Scope,
    file_to_change,
    read_file,
    shown,
    this_machine,
)
from mcp_workbench.hosts.journal import Record, Undone, apply_changes, available, own_journal
from mcp_workbench.hosts.journal import undo as undo_record
from mcp_workbench.hosts.own_entry import launch
from mcp_workbench.hosts.plan import (
    Change,
    Installation,
    diff,
    direct,
    own_entries,
    plan_install,
    plan_uninstall,
    variables_in,
)
from mcp_workbench.hosts.restore import Removal, removals, with_removed
from mcp_workbench.hosts.secrets import ExtractedSecret
from mcp_workbench.hosts.table import HOSTS, Host

_HOSTS = click.argument("hosts", metavar="HOST...", nargs=-1, shell_complete=complete_host)
_ALL = click.option(
    "--all",
    "everywhere",
    is_flag=True,
    help="Every host found on this machine.",
    **variable("INSTALL_ALL"),
)
_SCOPE = click.option(
    "--scope",
    type=click.Choice(["user", "project"]),
    default="user",
    help="The host's file for all of your work, or the one of this folder.",
    **variable("INSTALL_SCOPE"),
)
_EDIT = click.option(
    "--edit",
    is_flag=True,
    help="Edit the file even where the host has a command.",
    **variable("INSTALL_EDIT"),
)
_UNCHANGED = {"install": "there already", "uninstall": "not there"}
_DONE = {"install": "Installed in", "uninstall": "Removed from"}
_UNDONE = {
    "exactly": "restored, byte for byte",
    "editing": "file changed since; reverted only our edit",
    "not at all": "nothing to do",
}
_COLORS = {"+": "green", "-": "red", "@": "cyan"}
_WHERE: dict[Scope, str] = {"user": "on this machine", "project": "in this folder"}


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


class Installed(msgspec.Struct, frozen=True, rename="camel"):
    """The document that `install --json` prints; servers are by host."""

    hosts: list[str]
    changes: list[ChangeLine]
    twice: dict[str, list[str]]  # that it still has directly; without --replace
    removed: dict[str, list[str]]
    kept: dict[str, list[KeptEntry]]  # in spite of --replace
    written: bool
    undo: int | None


class Uninstalled(msgspec.Struct, frozen=True, rename="camel"):
    """The document that `uninstall --json` prints; servers are by host."""

    hosts: list[str]
    changes: list[ChangeLine]
    restored: dict[str, list[str]]
    not_restored: dict[str, NotRestored]
    kept: dict[str, list[KeptEntry]]  # in place of what was removed
    written: bool
    undo: int | None


class Plan(msgspec.Struct, frozen=True):
    """What a command is about to do, one change for each file. Servers are by host."""

    command: str
    files: list[HostFile]
    changes: list[Change]
    kept: dict[str, list[KeptEntry]]
    twice: dict[str, list[str]] = {}
    removed: dict[str, list[str]] = {}
    restored: dict[str, list[str]] = {}
    not_restored: dict[str, NotRestored] = {}
    variables: tuple[str, ...] = ()


def agreement_options(function: Decorated) -> Decorated:
    yes, dry_run = "Do it without asking.", "Show what would be done, and stop."
    function = click.option("--yes", "-y", is_flag=True, help=yes, **variable("YES"))(function)
    return click.option("--dry-run", is_flag=True, help=dry_run, **variable("DRY_RUN"))(function)


@click.command()
@_HOSTS
@_ALL
@_SCOPE
@click.option(
    "--toolbox",
    "toolboxes",
    multiple=True,
    metavar="NAME",
    help="Only this toolbox.",
    shell_complete=complete_toolbox,
    **variable("INSTALL_TOOLBOX"),
)
@click.option(
    "--replace",
    is_flag=True,
    help="Remove the host's own entries whose servers are connected here with the same account.",
    **variable("INSTALL_REPLACE"),
)
@_EDIT
@agreement_options
@global_options
@click.pass_obj
def install(settings: Settings, hosts: tuple[str, ...], **options: Any) -> int:
    """Add this program to a host, under the name 'workbench'.

    Runs the host's own command if it has one; otherwise edits its file: with a preview, a backup for
    `undo`, and every comment kept.

    --replace connects to our servers first. An entry goes only if its server answers here, now, with
    the same values of its variables and headers; the others are listed with the reason.

    \b
    Examples:
      mcp-workbench install claude-code cursor
      mcp-workbench install cursor --replace    remove there what is served here now
      mcp-workbench install --all --dry-run     look, and change nothing
    """
    machine = this_machine()
    config = _config(settings, machine)
    # Fails for an invalid configuration, and for a toolbox that it does not have.
    snapshot = settings.snapshot().narrowed(options["toolboxes"])
    files = _files(settings, hosts, machine, options)
    ours = own_entries(config, list(snapshot.toolboxes))
    words = launch().command(config, options["toolboxes"])
    installation = Installation(
        words, variables_in(ours, secrets=snapshot.secrets), own=not options["edit"]
    )
    contents = [(file, read_file(file.path)) for file in files]
    replacements = [Replacement()] * len(files)
    twice: dict[str, list[str]] = {}
    if options["replace"]:
        replacements = plan_replacement(settings, snapshot, contents, installation, machine)
    else:
        twins = {file.host.id: direct(file, ours, machine) for file in files}
        twice = {host: [keys[-1] for keys in some] for host, some in twins.items() if some}
    changes = [
        _runnable(plan_install(file, before, installation, replacement.removed))
        for (file, before), replacement in zip(contents, replacements, strict=True)
    ]
    by_host = {f.host.id: some for f, some in zip(files, replacements, strict=True)}
    plan = Plan(
        "install",
        files,
        changes,
        kept={host: list(some.kept) for host, some in by_host.items() if some.kept},
        twice=twice,
        removed={host: some.names for host, some in by_host.items() if some.removed},
        variables=installation.variables,
    )
    done = _finish(settings, plan, Agreement(options["yes"], options["dry_run"]))
    print_unseen_tools(settings, snapshot, files, options["toolboxes"])
    return done


@click.command()
@_HOSTS
@_ALL
@_SCOPE
@click.option(
    "--restore",
    is_flag=True,
    help="Put back the entries that `install --replace` has removed.",
    **variable("UNINSTALL_RESTORE"),
)
@_EDIT
@agreement_options
@global_options
@click.pass_obj
def uninstall(settings: Settings, hosts: tuple[str, ...], **options: Any) -> int:
    """Remove this program from a host.

    Removes the entry 'workbench'. On a terminal it offers to put back what `install --replace` has
    removed; elsewhere, --restore does. Entries return as they were, with their comments where that is
    possible. An entry that has been made since under the same name stays.

    \b
    Examples:
      mcp-workbench uninstall cursor
      mcp-workbench uninstall cursor --restore
      mcp-workbench uninstall --all
    """
    machine = this_machine()
    files = _files(settings, hosts, machine, options)
    agreed = Agreement(options["yes"], options["dry_run"])
    contents = [(file, read_file(file.path)) for file in files]
    journal = own_journal(os.environ)
    removed = {file.host.id: removals(journal, file, before) for file, before in contents}
    restore = options["restore"] or _wants_restored(settings, removed, agreed)
    changes: list[Change] = []
    for file, before in contents:
        change = _runnable(plan_uninstall(file, before, own=not options["edit"]))
        some = removed[file.host.id] if restore else []
        changes.append(with_removed(file, change, some))
    missing = {host: missing_names(some) for host, some in removed.items() if missing_names(some)}
    plan = Plan(
        "uninstall",
        files,
        changes,
        kept=kept_instead(removed) if restore else {},
        restored=missing if restore else {},
        not_restored={} if restore else not_restored(removed),
    )
    return _finish(settings, plan, agreed)


def _wants_restored(
    settings: Settings, removed: dict[str, list[Removal]], agreed: Agreement
) -> bool:
    """Asks on a terminal whether to put back what is missing."""
    if agreed.yes or agreed.dry_run or not can_ask(settings):
        return False
    names = [
        f"{', '.join(n)} in {host}" for host, some in removed.items() if (n := missing_names(some))
    ]
    if not names:
        return False
    say("`install --replace` has removed entries of other servers:", err=True)
    for line in names:
        say(f"    {plain(line)}", err=True)
    return click.confirm("put them back?", default=True, err=True)


def _runnable(change: Change) -> Change:
    """Returns the change without the host's own command if that is not installed."""
    return change if available(change.own) else msgspec.structs.replace(change, own=())


def _config(settings: Settings, machine: Machine) -> str:
    config = find_config(settings.config, os.environ, machine.folder)
    if config is None:
        raise HostUsage(
            "no_config",
            "there is no configuration that a host could be given",
            hint="mcp-workbench import makes one; --config names another",
        )
    return str(Path(config).absolute())


def _files(
    settings: Settings, hosts: tuple[str, ...], machine: Machine, options: dict[str, Any]
) -> list[HostFile]:
    scope: Scope = options["scope"]
    if options["everywhere"]:
        files = _existing(scope, machine)
        if not files and settings.talkative:
            say(f"no host has a file {_WHERE[scope]}; one that is named gets one", err=True)
        return files
    if not hosts:
        raise HostUsage("unknown_host", "no host is named", hint=_choice(scope, machine))
    return [_file(_host(name), scope, machine) for name in dict.fromkeys(hosts)]


def _existing(scope: Scope, machine: Machine) -> list[HostFile]:
    """Returns the files that `--all` changes."""
    files = [file_to_change(HOSTS[name], scope, machine) for name in _known()]
    return [file for file in files if file is not None and file.path.is_file()]


def _choice(scope: Scope, machine: Machine) -> str:
    names = [file.host.id for file in _existing(scope, machine)]
    if names:
        return f"found {_WHERE[scope]}: {', '.join(names)}; --all means all of them"
    return f"one of: {', '.join(_known())}"


def _known() -> list[str]:
    return [host.id for host in HOSTS.values() if not host.import_only]


def _host(name: str) -> Host:
    host = HOSTS.get(name)
    if host is None:
        hint = did_you_mean(name, _known()) or f"one of: {', '.join(_known())}"
        raise HostUsage("unknown_host", f"there is no host '{name}'", hint=hint)
    if host.import_only:
        words = shlex.join(launch().command("FILE"))
        hint = f"change it by hand; its entry starts: {words}"
        raise HostUsage(
            "not_written", f"{host.title} is not changed: {host.import_only}", hint=hint
        )
    return host


def _file(host: Host, scope: Scope, machine: Machine) -> HostFile:
    file = file_to_change(host, scope, machine)
    if file is None:
        message = f"{host.title} has no {scope} file"
        raise HostUsage("not_written", message, hint="leave --scope out")
    return file


def _finish(settings: Settings, plan: Plan, agreed: Agreement) -> int:
    needed = [change for change in plan.changes if change.needed]
    if not settings.json:
        for file, change in zip(plan.files, plan.changes, strict=True):
            if not change.needed:
                say(f"{file.host.id}: {_UNCHANGED[plan.command]}")
        preview(needed, this_machine(), settings)
        _print_kept(settings, plan.kept)
    record = apply_if_confirmed(settings, plan.command, needed, agreed)
    if settings.json:
        say_json(_document(plan, lines_of(needed), record))
    elif not settings.quiet:
        _print_end(plan, {change.host for change in needed}, record)
    return DONE


def _print_kept(settings: Settings, kept: dict[str, list[KeptEntry]]) -> None:
    for host, entries in kept.items():
        say(f"\n{host} keeps:")
        for entry in entries:
            line = f"{glyph('doubtful')} {plain(entry.server)}: {plain(entry.reason)}"
            say(line.replace("\n", "\n    "), color=settings.color)


def _document(plan: Plan, lines: list[ChangeLine], record: int | None) -> Installed | Uninstalled:
    hosts = [file.host.id for file in plan.files]
    written = record is not None
    if plan.command == "install":
        return Installed(hosts, lines, plan.twice, plan.removed, plan.kept, written, record)
    return Uninstalled(hosts, lines, plan.restored, plan.not_restored, plan.kept, written, record)


def _print_end(plan: Plan, changed: set[str], record: int | None) -> None:
    if record is not None:
        for file, change in zip(plan.files, plan.changes, strict=True):
            if file.host.id in changed:
                _print_done(
                    plan, file.host, only_restored=bool(plan.restored and not change.removed)
                )
        say(f"undo: mcp-workbench undo {record}", err=True)
    for name, servers in plan.twice.items():
        say(
            f"{glyph('doubtful')} {name} still has {plain(', '.join(servers))} directly, so those "
            f"tools are offered twice   fix: mcp-workbench install {name} --replace",
            err=True,
        )
    for name, missing in plan.not_restored.items():
        numbers = " and ".join(f"mcp-workbench undo {number}" for number in missing.undo)
        say(
            f"{glyph('doubtful')} {name} is without {plain(', '.join(missing.servers))}, which "
            f"`install --replace` has removed   fix: mcp-workbench uninstall {name} --restore, "
            f"or {numbers}",
            err=True,
        )


def _print_done(plan: Plan, host: Host, *, only_restored: bool) -> None:
    step = host.next_step[0].upper() + host.next_step[1:]
    restored = plan.restored.get(host.id)
    done = "" if only_restored else f"{_DONE[plan.command]} {host.title}. "
    if restored:
        done += f"Put back in {host.title}: {plain(', '.join(restored))}. "
    say(f"{glyph('good')} {done}{step}.", err=True)
    if plan.variables and host.passes == "none":
        names = ", ".join(plan.variables)
        say(f"    it passes no variables on; write into its entry's env: {names}", err=True)


# A change: previewed, confirmed, applied


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


# `undo`


@click.command()
@click.argument("number", metavar="[ID]", type=int, required=False)
@click.option(
    "--list", "listing", is_flag=True, help="Show what can be undone.", **variable("UNDO_LIST")
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Everything, the newest first.",
    **variable("UNDO_ALL"),
)
@global_options
@click.pass_obj
def undo(settings: Settings, number: int | None, *, listing: bool, everything: bool) -> int:
    """Undo what `install`, `uninstall` or `doctor --fix` has changed in the files of hosts, and what
    `import`, `add`, `remove`, `enable`, `disable` or `init` has changed in the configuration.

    A file that has not changed since is restored byte for byte. In one that has, only our edit is
    reverted: what we added is removed, and what we removed is added again.

    \b
    Examples:
      mcp-workbench undo --list
      mcp-workbench undo          the last one
      mcp-workbench undo 6        that one
    """
    journal = own_journal(os.environ)
    if listing:
        _list_records(settings, journal.records())
        return DONE
    if everything and number is not None:
        raise click.UsageError("An ID and --all can't stand together")
    last = journal.record(number)  # none is an error, of --all, too
    records = journal.not_undone()[::-1] if everything else [last]
    done = [(record, undo_record(journal, record)) for record in records]
    if settings.json:
        say_json([{"id": record.id, "files": files} for record, files in done])
    else:
        for record, files in done:
            _print_undone(settings, record, files)
    return DONE


def _print_undone(settings: Settings, record: Record, files: list[Undone]) -> None:
    machine = this_machine()
    say(f"{record.id} {record.command}")
    for file in files:
        mark = glyph("doubtful" if file.left else "good")
        place = plain(shown(Path(file.file), machine))
        say(f"{mark} {place}: {_UNDONE[file.how]}", color=settings.color)
        for name in file.left:
            say(f"    {plain(name)} has changed since and stays")


def _list_records(settings: Settings, records: list[Record]) -> None:
    if settings.json:
        say_json(
            [
                {
                    "id": record.id,
                    "command": record.command,
                    "time": record.time,
                    "undone": record.undone,
                    "files": [step.file for step in record.steps],
                }
                for record in records
            ]
        )
        return
    if not records and settings.talkative:
        say("nothing to undo: no file was changed yet", err=True)
    machine = this_machine()
    rows = [
        (
            str(record.id),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(record.time)),
            record.command,
            "undone" if record.undone else "",
            "  ".join(shown(Path(step.file), machine) for step in record.steps),
        )
        for record in records
    ]
    for line in table(rows):
        say(line)
