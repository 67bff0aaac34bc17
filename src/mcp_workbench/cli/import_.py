"""`import`: copies the servers of hosts into our configuration."""

import os
import re
import sys
from pathlib import Path

import click
import msgspec

from mcp_workbench.cli.completion import complete_source
from mcp_workbench.cli.config_commands import config_target
from mcp_workbench.cli.error_reports import format_problems
from mcp_workbench.cli.install import (
    Agreement,
    ChangeLine,
    agreement_options,
    apply_if_confirmed,
    lines_of,
    preview,
    say_secrets,
)
from mcp_workbench.cli.settings import DONE, Settings, global_options, variable
from mcp_workbench.cli.terminal import glyph, plain, say, say_json, table
from mcp_workbench.config.file_access import check_ownership
from mcp_workbench.core.errors import ConfigError, did_you_mean
from mcp_workbench.hosts.environment import KEY, is_uncertain, known_variables
from mcp_workbench.hosts.files import (
    CannotEdit,
    HostFile,
    HostUsage,
    Machine,
    all_files,
    files_of,
    not_editable,
    shown,
    this_machine,
)
from mcp_workbench.hosts.own_config import read_config_file, servers_keys
from mcp_workbench.hosts.plan import (
    Change,
    ImportChoice,
    Keys,
    Member,
    Merged,
    edited,
    merge,
    plain_name,
)
from mcp_workbench.hosts.read import (
    HostServer,
    decoded,
    servers_in,
    servers_in_any,
    text_of,
    value_at,
)
from mcp_workbench.hosts.secrets import ExtractedSecret
from mcp_workbench.hosts.table import HOSTS

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")


class ImportedServer(msgspec.Struct, frozen=True, rename="camel"):
    """One server of one file in the JSON of `import`."""

    host: str
    file: str
    server: str
    name: str  # in our configuration; empty if it was skipped
    state: str
    reason: str
    notes: tuple[str, ...]


class Imported(msgspec.Struct, frozen=True, rename="camel"):
    """The document that `import --json` prints."""

    config: str
    toolbox: str
    servers: list[ImportedServer]
    variables: tuple[ExtractedSecret, ...]
    not_inherited: tuple[str, ...]  # variables that hosts may have passed on, and we do not
    changes: list[ChangeLine]
    written: bool
    undo: int | None


@click.command("import")
@click.argument("sources", metavar="[HOST|FILE|-]...", nargs=-1, shell_complete=complete_source)
@click.option(
    "--toolbox",
    default="default",
    metavar="NAME",
    help="The toolbox they go into.",
    **variable("IMPORT_TOOLBOX"),
)
@agreement_options
@global_options
@click.pass_obj
def import_(
    settings: Settings, sources: tuple[str, ...], toolbox: str, *, yes: bool, dry_run: bool
) -> int:
    """Copy the servers of other programs into the configuration file.

    Without a source, reads the files of all known hosts; they are not changed. Literal secrets are
    not copied: a variable takes their place, and the output names it.

    \b
    Examples:
      mcp-workbench import --dry-run          look, and change nothing
      mcp-workbench import cursor             from one host only
      mcp-workbench import servers.json       from any file with mcpServers
      mcp-workbench import - --yes < servers.json
    """
    if plain_name(toolbox) != toolbox:
        hint = f"letters, digits, '-' and '_', such as: --toolbox {plain_name(toolbox)}"
        raise HostUsage("bad_name", f"a toolbox can't be called '{toolbox}'", hint=hint)
    machine = this_machine()
    servers = _servers(settings, sources, machine)
    target = config_target(settings, machine, user=False, new_in_folder=True)
    config = read_config_file(target)
    before = config.before
    keys = servers_keys(config, toolbox)
    reserved = frozenset(_REFERENCE.findall((before or b"").decode()))
    merged = merge(servers, value_at(config.value, keys) or {}, reserved)
    changes = [c for c in [_change(target, before, keys, merged)] if c.needed]
    if not settings.json:
        _print(settings, merged, f"toolbox '{toolbox}' in {shown(target, machine)}", machine)
        preview(changes, machine, settings)
    undo = apply_if_confirmed(settings, "import", changes, Agreement(yes, dry_run))
    if settings.json:
        lines = [_line(choice) for choice in merged.chosen]
        document = Imported(
            str(target),
            toolbox,
            lines,
            merged.taken,
            _not_inherited(merged),
            lines_of(changes),
            undo is not None,
            undo,
        )
        say_json(document)
    else:
        _print_end(settings, merged, undo)
    return DONE


def _servers(settings: Settings, sources: tuple[str, ...], machine: Machine) -> list[HostServer]:
    if sources:
        return [server for source in sources for server in _named(source, machine)]
    servers: list[HostServer] = []
    for file in all_files(machine):
        try:
            servers += _of_host(file, machine)
        except ConfigError as error:  # a broken file does not stop the others
            if not settings.json:
                say(format_problems(error.problems, error.file), err=True, color=settings.color)
    return servers


def _named(source: str, machine: Machine) -> list[HostServer]:
    if source == "-":
        text = decoded(sys.stdin.buffer.read(), "standard input")
        return servers_in_any(text, "standard input", machine)
    if host := HOSTS.get(source):
        return [server for file in files_of(host, machine) for server in _of_host(file, machine)]
    path = Path(source).absolute()
    text = text_of(path, pipes=True)  # such as `<(command)` of a shell
    if text is None:
        hint = did_you_mean(source, list(HOSTS)) or f"known hosts: {', '.join(HOSTS)}"
        raise HostUsage("unknown_host", f"'{source}' is no host and no file", hint=hint)
    known = next((file for file in all_files(machine) if file.path == path), None)
    return servers_in(known, text, machine) if known else servers_in_any(text, str(path), machine)


def _of_host(file: HostFile, machine: Machine) -> list[HostServer]:
    if file.host.format == "yaml":
        return [HostServer("*", file.host.id, str(file.path), skipped="YAML is not read yet")]
    if why := _not_trusted(file.path):
        return [
            HostServer("*", file.host.id, str(file.path), skipped=f"{why}; import FILE takes it")
        ]
    return servers_in(file, text_of(file.path) or "", machine)


def _not_trusted(path: Path) -> str:
    """Returns why another user may have written this file, whose commands would be started."""
    try:
        return "; ".join(doubt.message for doubt in check_ownership(str(path), path.stat()))
    except OSError:
        return ""  # reading it reports the error


def _change(target: Path, before: bytes | None, keys: Keys, merged: Merged) -> Change:
    members = tuple(Member((*keys, name), entry) for name, entry in merged.new.items())
    try:
        after = edited((before or b"").decode(), "json", members)
    except CannotEdit as error:
        raise not_editable(str(target), error) from None
    return Change("", target, "json", before, after.encode(), members)


def _line(choice: ImportChoice) -> ImportedServer:
    server = choice.server
    state = "new" if choice.new else "skipped" if server.skipped else "same"
    return ImportedServer(
        server.host,
        server.file,
        server.name,
        choice.name,
        "there" if choice.there else state,
        server.skipped,
        choice.notes or server.notes,
    )


def _print(settings: Settings, merged: Merged, target: str, machine: Machine) -> None:
    files = dict.fromkeys((c.server.host, c.server.file) for c in merged.chosen)
    rows = [
        (host, shown(Path(file), machine), "  ".join(map(_word, _those(merged, host, file))))
        for host, file in files
    ]
    for row in table(rows):
        say(row)
    new = len(merged.new)
    if not merged.chosen:
        say("no servers were found in the files of the hosts that this program knows")
        return
    say(f"{new} new server{'' if new == 1 else 's'} for {target}")
    for choice in merged.chosen:
        for note in choice.notes if choice.new else ():
            say(f"{glyph('doubtful')} {plain(choice.name)}: {plain(note)}", color=settings.color)
    say_secrets(settings, merged.taken)

    _print_environment(settings, merged)


def _print_environment(settings: Settings, merged: Merged) -> None:
    """Says which servers inherit what their hosts passed on, and what the others may miss."""
    new = [choice for choice in merged.chosen if choice.new]
    inheriting = [choice for choice in new if KEY in choice.entry]
    if inheriting:
        names = ", ".join(plain(choice.name) for choice in inheriting)
        say(
            f'{titles(inheriting)} passed the environment on to its servers, so "{KEY}" stands in '
            f"these entries: {names}. Remove it, or list names, where a server needs less"
        )
    if lost := _not_inherited(merged):
        text = (
            f"{titles([c for c in new if _is_uncertain(c)])} may have passed on {', '.join(lost)}"
        )
        fix = f'write "{KEY}": ["{lost[0]}"] in the entry of a server that needs it'
        say(
            f"{glyph('doubtful')} {text}, which servers here do not get; {fix}",
            color=settings.color,
        )


def _not_inherited(merged: Merged) -> tuple[str, ...]:
    if any(choice.new and _is_uncertain(choice) for choice in merged.chosen):
        return known_variables(os.environ)
    return ()


def _is_uncertain(choice: ImportChoice) -> bool:
    return is_uncertain(choice.server.host, choice.entry)


def titles(choices: list[ImportChoice]) -> str:
    """Returns the names of the hosts that these servers come from."""
    return ", ".join(dict.fromkeys(HOSTS[choice.server.host].title for choice in choices))


def _those(merged: Merged, host: str, file: str) -> list[ImportChoice]:
    return [c for c in merged.chosen if (c.server.host, c.server.file) == (host, file)]


def _word(choice: ImportChoice) -> str:
    server = choice.server
    if server.skipped:
        return f"{server.name} (skipped: {server.skipped})"
    if choice.same_as:
        other = "" if choice.same_as == server.name else f" as {choice.same_as}"
        return f"{server.name} (same{other})"
    return f"{server.name} (there already)" if choice.there else server.name


def _print_end(settings: Settings, merged: Merged, undo: int | None) -> None:
    if undo is None or settings.quiet:
        return
    say(f"\nwritten   undo: mcp-workbench undo {undo}", err=True)
    variables = sorted({taken.variable for taken in merged.taken})
    if variables:
        say(
            "set these where the host starts this program, with the values from its file:", err=True
        )
        for variable in variables:
            say(f"  export {variable}=…", err=True)
    say("next: mcp-workbench check --connect, then mcp-workbench install HOST", err=True)
