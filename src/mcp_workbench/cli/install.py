"""`install` and `uninstall`: add our entry to the files of hosts, and remove it."""

import os
import shlex
from pathlib import Path
from typing import Any

import click
import msgspec

from mcp_workbench.cli.completion import complete_host, complete_toolbox
from mcp_workbench.cli.file_changes import (
    Agreement,
    ChangeLine,
    agreement_options,
    apply_if_confirmed,
    can_ask,
    lines_of,
    preview,
)
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
    Settings,
    global_options,
    variable,
)
from mcp_workbench.cli.terminal import glyph, plain, say, say_json
from mcp_workbench.config.load import find_config
from mcp_workbench.core.errors import did_you_mean
from mcp_workbench.hosts.files import (
    HostFile,
    HostUsage,
    Machine,
    Scope,
    file_to_change,
    read_file,
    this_machine,
)
from mcp_workbench.hosts.journal import available, own_journal
from mcp_workbench.hosts.own_entry import launch
from mcp_workbench.hosts.plan import (
    Change,
    Installation,
    direct,
    own_entries,
    plan_install,
    plan_uninstall,
    variables_in,
)
from mcp_workbench.hosts.restore import Removal, removals, with_removed
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
_WHERE: dict[Scope, str] = {"user": "on this machine", "project": "in this folder"}


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
