"""`install` and `uninstall`: add our entry to the files of hosts, and remove it."""

import os
import shlex
from pathlib import Path
from typing import Any

import click
import msgspec

from mcp_workbench.cli.completion import complete_host, complete_toolbox
from mcp_workbench.cli.settings import DONE, Settings, global_options, variable
from mcp_workbench.cli.terminal import glyph, plain, say, say_json
from mcp_workbench.cli.ui.changes import (
    Agreement,
    ChangeLine,
    agreement_options,
    apply_if_confirmed,
    lines_of,
    show,
)
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
from mcp_workbench.hosts.journal import available
from mcp_workbench.hosts.launch import launch
from mcp_workbench.hosts.merge import direct, own_entries, variables_in
from mcp_workbench.hosts.plan import Change, Installation, plan_install, plan_uninstall
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
    """The document that `install --json` and `uninstall --json` print."""

    hosts: list[str]
    changes: list[ChangeLine]
    twice: dict[str, list[str]]  # by host: servers that it still has directly
    written: bool
    undo: int | None


class Plan(msgspec.Struct, frozen=True):
    """What a command is about to do, one change for each file."""

    command: str
    files: list[HostFile]
    changes: list[Change]
    twice: dict[str, list[str]]
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
    help="Remove the host's own entries that we now serve.",
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

    \b
    Examples:
      mcp-workbench install claude-code cursor
      mcp-workbench install cursor --replace    remove there what is served here now
      mcp-workbench install --all --dry-run     look, and change nothing
    """
    machine = this_machine()
    config = _config(settings, machine)
    toolboxes = settings.snapshot().narrowed(
        options["toolboxes"]
    )  # fails if it is invalid, or has no such toolbox
    files = _files(settings, hosts, machine, options)
    ours = own_entries(config, list(toolboxes.toolboxes))
    words = launch().command(config, options["toolboxes"])
    installation = Installation(words, variables_in(ours), own=not options["edit"])
    changes: list[Change] = []
    twice: dict[str, list[str]] = {}
    for file in files:
        twins = direct(file, ours, machine)
        out = tuple(twins) if options["replace"] else ()
        change = plan_install(file, read_file(file.path), installation, out)
        changes.append(_runnable(change))
        if twins and not out:
            twice[file.host.id] = [keys[-1] for keys in twins]
    agreed = Agreement(options["yes"], options["dry_run"])
    return _finish(settings, Plan("install", files, changes, twice, installation.variables), agreed)


@click.command()
@_HOSTS
@_ALL
@_SCOPE
@_EDIT
@agreement_options
@global_options
@click.pass_obj
def uninstall(settings: Settings, hosts: tuple[str, ...], **options: Any) -> int:
    """Remove this program from a host.

    Removes only the entry 'workbench'. To restore what `install --replace` removed, use `undo`.

    \b
    Examples:
      mcp-workbench uninstall cursor
      mcp-workbench uninstall --all
    """
    machine = this_machine()
    files = _files(settings, hosts, machine, options)
    own = not options["edit"]
    changes = [_runnable(plan_uninstall(file, read_file(file.path), own=own)) for file in files]
    agreed = Agreement(options["yes"], options["dry_run"])
    return _finish(settings, Plan("uninstall", files, changes, {}), agreed)


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
        show(needed, this_machine(), settings)
    undo = apply_if_confirmed(settings, plan.command, needed, agreed)
    if settings.json:
        hosts = [file.host.id for file in plan.files]
        say_json(Installed(hosts, lines_of(needed), plan.twice, undo is not None, undo))
    elif not settings.quiet:
        _print_end(plan, {change.host for change in needed}, undo)
    return DONE


def _print_end(plan: Plan, changed: set[str], undo: int | None) -> None:
    if undo is not None:
        for host in (file.host for file in plan.files if file.host.id in changed):
            step = host.next_step[0].upper() + host.next_step[1:]
            say(f"{glyph('good')} {_DONE[plan.command]} {host.title}. {step}.", err=True)
            if plan.variables and host.passes == "none":
                names = ", ".join(plan.variables)
                say(f"    it passes no variables on; write into its entry's env: {names}", err=True)
        say(f"undo: mcp-workbench undo {undo}", err=True)
    for name, servers in plan.twice.items():
        say(
            f"{glyph('doubtful')} {name} still has {plain(', '.join(servers))} directly, so those "
            f"tools are offered twice   fix: mcp-workbench install {name} --replace",
            err=True,
        )
