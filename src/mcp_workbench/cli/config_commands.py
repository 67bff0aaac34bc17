"""Commands that change the configuration file: `init`, `remove`, `enable`, `disable`; and `list`."""

import os
from pathlib import Path
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem

from mcp_workbench.cli.completion import complete_toolbox
from mcp_workbench.cli.file_changes import (
    Agreement,
    ChangeLine,
    agreement_options,
    apply,
    apply_if_confirmed,
    lines_of,
    preview,
)
from mcp_workbench.cli.settings import DONE, Settings, global_options, variable
from mcp_workbench.cli.terminal import glyph, plain, say, say_json, table
from mcp_workbench.config.load import (
    FILE_NAME,
    VARIABLE,
    demo_snapshot,
    find_config,
    is_named,
    require_owner,
)
from mcp_workbench.config.user_file import user_config
from mcp_workbench.core.errors import ConfigError, WorkbenchError
from mcp_workbench.core.spec import HttpEndpoint, ServerSpec
from mcp_workbench.hosts.files import HostUsage, Machine, shown, this_machine
from mcp_workbench.hosts.own_config import (
    DEFAULT,
    ConfigFile,
    OwnServer,
    chosen_toolbox,
    named_server,
    plan_change,
    plan_new,
    read_config_file,
    servers_of,
)
from mcp_workbench.hosts.plan import Change, Keys, Member
from mcp_workbench.hosts.read import parse_json
from mcp_workbench.hosts.secrets import masked

DISABLED = "disabled"  # the key, and the state in `list`
USER = click.option(
    "--user",
    is_flag=True,
    help="Your own configuration, which is used in every folder that has none.",
    **variable("USER"),
)


class Changed(msgspec.Struct, frozen=True):
    """The document that commands print with --json that change the configuration."""

    config: str
    servers: list[str]  # as TOOLBOX/SERVER
    changes: list[ChangeLine]
    written: bool
    undo: int | None


class ListedServer(msgspec.Struct, frozen=True):
    """One server in the JSON of `list`."""

    toolbox: str
    server: str
    enabled: bool
    target: str  # the command line or the URL, secrets hidden


# Which file


def config_target(settings: Settings, machine: Machine, *, user: bool, new_in_folder: bool) -> Path:
    """Returns the file to change: the one in use, or where a new one goes."""
    given = settings.config or machine.environ.get(VARIABLE)
    if given and user:
        raise click.UsageError(f"--user can't stand together with --config or ${VARIABLE}")
    if given:
        return machine.folder / Path(given).expanduser()
    local, own = machine.folder / FILE_NAME, user_config(machine.environ)
    if user or not os.path.lexists(local):
        if own and (user or not new_in_folder or os.path.lexists(own)):
            return Path(own)
        if user or not new_in_folder:
            hint = "set HOME, or name a file with --config"
            raise HostUsage("no_config", "there is no folder for your own configuration", hint=hint)
    return local


def writable_config(settings: Settings, path: Path) -> ConfigFile:
    """Returns the file to change; refuses one that would not be loaded because of its owner."""
    if path.is_file():
        require_owner(str(path), named=is_named(settings.config, os.environ))
    return read_config_file(path)


def _existing(settings: Settings, machine: Machine) -> ConfigFile:
    found = find_config(settings.config, machine.environ, machine.folder)
    if found is None:
        hint = "mcp-workbench import, add or init makes one; --config names another"
        raise HostUsage("no_config", "there is no configuration file", hint=hint)
    return writable_config(settings, Path(found))


# `init`


@click.command()
@click.option(
    "--toolbox",
    default=DEFAULT,
    metavar="NAME",
    help="The name of its toolbox.",
    **variable("INIT_TOOLBOX"),
)
@USER
@click.option(
    "--dry-run", is_flag=True, help="Show what would be done, and stop.", **variable("DRY_RUN")
)
@global_options
@click.pass_obj
def init(settings: Settings, toolbox: str, *, user: bool, dry_run: bool) -> int:
    """Write a new configuration file, with comments that explain it and one empty toolbox.

    It is workbench-config.json in this folder. With --user it is your own, which is used in every
    folder that has none: ~/.config/mcp-workbench/config.json (XDG_CONFIG_HOME is honoured), on macOS
    ~/Library/Application Support/mcp-workbench/config.json, on Windows
    %APPDATA%\\mcp-workbench\\config.json. A file that exists is never replaced.

    \b
    Examples:
      mcp-workbench init
      mcp-workbench init --user
      mcp-workbench init --toolbox dev --config ~/dev/workbench-config.json
    """
    machine = this_machine()
    named = settings.config or machine.environ.get(VARIABLE)
    path = machine.folder / FILE_NAME
    if user or named:
        path = config_target(settings, machine, user=user, new_in_folder=False)
    if os.path.lexists(path):
        hint = "mcp-workbench add and import add servers to it"
        message = f"there is a configuration already: {shown(path, machine)}"
        raise HostUsage("config_exists", message, hint=hint)
    config = ConfigFile(path, None, {})
    changes = [plan_new(path, chosen_toolbox(config, toolbox))]
    if not settings.json and dry_run:
        preview(changes, machine, settings)
    undo = None if dry_run else apply(settings, "init", changes)
    if settings.json:
        say_json(Changed(str(path), [], lines_of(changes), undo is not None, undo))
    elif undo is not None and not settings.quiet:
        say(f"{glyph('good')} {plain(shown(path, machine))}   undo: mcp-workbench undo {undo}")
        _warn_of_owner(settings, path)
        say("next: mcp-workbench add NAME -- COMMAND, or mcp-workbench import", err=True)
    return DONE


def _warn_of_owner(settings: Settings, path: Path) -> None:
    """Warns if the new file would be refused because others can write to its folder."""
    try:
        require_owner(str(path), named=is_named(settings.config, os.environ))
    except ConfigError as error:
        for problem in error.problems:
            say(f"{glyph('doubtful')} it will be refused: {plain(problem.message)}", err=True)


# `remove`, `enable`, `disable`


def complete_own_server(
    context: click.Context, param: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Completes the servers of the file, disabled ones included."""
    settings = context.find_object(Settings) or Settings()
    try:
        servers = servers_of(_existing(settings, this_machine()))
    except (WorkbenchError, OSError):
        return []
    names = [text for server in servers for text in (server.name, server.address)]
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(typed)]


_SERVERS = click.argument(
    "names",
    metavar="[TOOLBOX/]SERVER...",
    nargs=-1,
    required=True,
    shell_complete=complete_own_server,
)


@click.command()
@_SERVERS
@agreement_options
@global_options
@click.pass_obj
def remove(settings: Settings, names: tuple[str, ...], *, yes: bool, dry_run: bool) -> int:
    """Remove servers from the configuration.

    Comments and everything else stay. To keep an entry without using it, `disable` it.

    \b
    Examples:
      mcp-workbench remove time
      mcp-workbench remove dev/git dev/github --yes
    """
    return _edit(settings, "remove", names, Agreement(yes, dry_run))


@click.command()
@_SERVERS
@agreement_options
@global_options
@click.pass_obj
def enable(settings: Settings, names: tuple[str, ...], *, yes: bool, dry_run: bool) -> int:
    """Enable servers that are disabled in the configuration.

    \b
    Examples:
      mcp-workbench enable time
      mcp-workbench enable dev/git --yes
    """
    return _edit(settings, "enable", names, Agreement(yes, dry_run))


@click.command()
@_SERVERS
@agreement_options
@global_options
@click.pass_obj
def disable(settings: Settings, names: tuple[str, ...], *, yes: bool, dry_run: bool) -> int:
    """Disable servers: they stay in the configuration, but no agent sees them.

    \b
    Examples:
      mcp-workbench disable time
      mcp-workbench disable dev/git --yes
    """
    return _edit(settings, "disable", names, Agreement(yes, dry_run))


_DONE = {"remove": "removed", "enable": "enabled", "disable": "disabled"}


def _edit(settings: Settings, command: str, names: tuple[str, ...], agreed: Agreement) -> int:
    machine = this_machine()
    config = _existing(settings, machine)
    servers = {server.address: server for server in (named_server(config, n) for n in names)}
    changed = [server for server in servers.values() if _is_needed(command, server)]
    changes = [_edited(command, config, changed)] if changed else []
    if not settings.json:
        for server in servers.values():
            if server not in changed:
                say(f"{plain(server.address)}: {_DONE[command]} already")
        preview(changes, machine, settings)
    undo = apply_if_confirmed(settings, command, changes, agreed)
    addresses = [server.address for server in changed]
    if settings.json:
        document = Changed(str(config.path), addresses, lines_of(changes), undo is not None, undo)
        say_json(document)
    elif undo is not None and not settings.quiet:
        done = f"{_DONE[command]} {plain(', '.join(addresses))}"
        say(f"\n{glyph('good')} {done}   undo: mcp-workbench undo {undo}", err=True)
    return DONE


def _is_needed(command: str, server: OwnServer) -> bool:
    return command == "remove" or server.disabled == (command == "enable")


def _edited(command: str, config: ConfigFile, servers: list[OwnServer]) -> Change:
    if command == "remove":
        return plan_change(config, remove=tuple(server.keys for server in servers))
    places: list[Keys] = [(*server.keys, DISABLED) for server in servers]
    if command == "enable":
        return plan_change(config, remove=tuple(places))
    return plan_change(config, put=tuple(Member(keys, value=True) for keys in places))


# `list`


@click.command("list")
@click.argument("toolbox", required=False, shell_complete=complete_toolbox)
@global_options
@click.pass_obj
def list_(settings: Settings, toolbox: str | None) -> int:
    """List the servers of the configuration, disabled ones included.

    Starts nothing. `tools` lists the tools of servers, `check --connect` shows whether they work.

    \b
    Examples:
      mcp-workbench list
      mcp-workbench list dev --json
    """
    machine = this_machine()
    found = find_config(settings.config, machine.environ, machine.folder)
    if found is None:
        settings.snapshot()  # warns of the demo
        boxes = demo_snapshot().toolboxes.values()
        lines = [_of_spec(spec) for box in boxes for spec in box.servers.values()]
    else:
        lines = _of_file(writable_config(settings, Path(found)))
    if toolbox is not None:
        lines = [line for line in lines if line.toolbox == toolbox]
    if settings.json:
        say_json(lines)
    else:
        _print_list(lines, shown(Path(found), machine) if found else "", toolbox)
    return DONE


def _of_file(config: ConfigFile) -> list[ListedServer]:
    text = masked((config.before or b"").decode(), "json")
    hidden = servers_of(ConfigFile(config.path, config.before, parse_json(text)))
    return [ListedServer(s.toolbox, s.name, not s.disabled, _target_text(s.entry)) for s in hidden]


def _target_text(entry: dict[str, Any]) -> str:
    if isinstance(entry.get("url"), str):
        return entry["url"]
    args = entry.get("args")
    words = [str(word) for word in args] if isinstance(args, list) else []  # pyright: ignore
    return " ".join([str(entry.get("command", "")), *words]).strip()


def _of_spec(spec: ServerSpec) -> ListedServer:
    target = spec.target
    text = (
        target.url if isinstance(target, HttpEndpoint) else " ".join((target.command, *target.args))
    )
    return ListedServer(spec.address.toolbox, spec.address.server, enabled=True, target=text)


def _print_list(lines: list[ListedServer], file: str, toolbox: str | None) -> None:
    if not lines:
        where = f"toolbox '{toolbox}'" if toolbox else file
        say(f"no servers in {plain(where)}   next: mcp-workbench add NAME -- COMMAND, or import")
        return
    rows = [("SERVER", "STATE", "STARTS OR REACHES")]
    rows += [
        (f"{line.toolbox}/{line.server}", "enabled" if line.enabled else DISABLED, line.target)
        for line in lines
    ]
    for row in table(rows):
        say(row)
    if file:
        off = sum(not line.enabled for line in lines)
        count = f"{len(lines)} server{'' if len(lines) == 1 else 's'}"
        say(f"{count}{f', {off} disabled' if off else ''}   {plain(file)}", err=True)
