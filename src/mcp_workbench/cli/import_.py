"""`import`: copies the servers of hosts into our configuration."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from mcp_workbench.cli.completion import complete_source
from mcp_workbench.cli.config_commands import config_target
from mcp_workbench.cli.error_reports import format_problems
from mcp_workbench.cli.file_changes import (
    Agreement,
    ChangeLine,
    agreement_options,
    apply,
    confirmed,
    lines_of,
    preview,
    say_secrets,
)
from mcp_workbench.cli.settings import DONE, Settings, global_options, variable
from mcp_workbench.cli.sign_in_reports import login_command
from mcp_workbench.cli.stored_secrets import (
    say_stored,
    secrets_option,
    store,
    stored_values,
    stored_values_of,
    wants_store,
    with_values,
)
from mcp_workbench.cli.terminal import glyph, plain, say, say_json, table
from mcp_workbench.config.expand import secrets_of
from mcp_workbench.config.file_access import check_ownership
from mcp_workbench.config.load import snapshot_of
from mcp_workbench.core.catalogue import ServerReport
from mcp_workbench.core.errors import ConfigError, did_you_mean
from mcp_workbench.core.redact import redact
from mcp_workbench.core.spec import ServerAddress, Snapshot
from mcp_workbench.hosts.environment import KEY, is_uncertain, known_variables
from mcp_workbench.hosts.files import (
    HostFile,
    HostUsage,
    Machine,
    all_files,
    files_of,
    shown,
    this_machine,
)
from mcp_workbench.hosts.host_sign_in import has_no_credential
from mcp_workbench.hosts.merge import ImportChoice, Merged, merge
from mcp_workbench.hosts.own_config import (
    DEFAULT,
    SERVERS,
    ConfigFile,
    plan_change,
    read_config_file,
    reserved_secrets,
    secret_members,
    servers_keys,
    servers_of,
)
from mcp_workbench.hosts.plan import Change, Member, plain_name, variables_in
from mcp_workbench.hosts.read import HostServer, decoded, servers_in, servers_in_any, text_of
from mcp_workbench.hosts.secrets import ExtractedSecret
from mcp_workbench.hosts.table import HOSTS
from mcp_workbench.hosts.toolboxes import ProposedToolbox, ServerSummary, description, proposed

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")
DETAIL = "signature"  # of new toolboxes: one line for each tool


class ImportedServer(msgspec.Struct, frozen=True, rename="camel"):
    """One server of one file in the JSON of `import`."""

    host: str
    file: str
    server: str
    name: str  # in our configuration; empty if it was skipped
    toolbox: str
    state: str
    reason: str
    notes: tuple[str, ...]
    tools: int | None = None  # null if it was not read
    unavailable: str = ""  # why it could not be read
    login: str = ""  # the command to run, if it wants a login here


class ImportedToolbox(msgspec.Struct, frozen=True, rename="camel"):
    """One toolbox that gets servers, in the JSON of `import`."""

    name: str
    description: str | None  # null if it is there already and stays as it is
    servers: tuple[str, ...]


class Imported(msgspec.Struct, frozen=True, rename="camel"):
    """The document that `import --json` prints."""

    config: str
    toolboxes: list[ImportedToolbox]
    servers: list[ImportedServer]
    variables: tuple[ExtractedSecret, ...]
    stored: bool  # their values are in the encrypted store, once this is written
    unset: tuple[str, ...]  # other variables that the servers need and that have no value here
    not_inherited: tuple[str, ...]  # variables that hosts may have passed on, and we do not
    changes: list[ChangeLine]
    written: bool
    undo: int | None


class ImportPlan(msgspec.Struct, frozen=True):
    """What an import is about to write."""

    config: ConfigFile
    merged: Merged
    toolboxes: list[ProposedToolbox]
    stored: bool = False  # literal secrets go into the encrypted store
    reports: tuple[ServerReport, ...] = ()  # of the servers, once they have been read

    def __repr__(self) -> str:
        return f"ImportPlan({self.config!r})"

    def description(self, toolbox: ProposedToolbox) -> str | None:
        """Returns the description of a new toolbox; None for one that is there already."""
        if toolbox.name in self.config.toolboxes or self._is_flat:
            return None
        known = {report.address.server: report for report in self.reports if not report.reason}
        summaries: list[ServerSummary] = []
        for name in toolbox.servers:
            report = known.get(name)
            title, text = (report.server_name, report.instructions) if report else ("", "")
            summaries.append(ServerSummary(name, title, text))
        return description(toolbox.about, summaries)

    @property
    def _is_flat(self) -> bool:
        return servers_keys(self.config, DEFAULT) == (SERVERS,)

    def changes(self) -> list[Change]:
        members: list[Member] = []
        entries = {choice.name: choice.entry for choice in self.merged.new}
        for toolbox in self.toolboxes:
            keys = servers_keys(self.config, toolbox.name)
            text = self.description(toolbox)
            if text is not None:
                members.append(Member((*keys[:-1], "description"), text))
                members.append(Member((*keys[:-1], "detail"), DETAIL))
            members += (Member((*keys, name), entries[name]) for name in toolbox.servers)
        if self.stored:
            members += secret_members(self.config, self.merged.taken)
        return [plan_change(self.config, tuple(members))] if members else []


@click.command("import")
@click.argument("sources", metavar="[HOST|FILE|-]...", nargs=-1, shell_complete=complete_source)
@click.option(
    "--toolbox",
    metavar="NAME",
    help="One toolbox for all of them.",
    **variable("IMPORT_TOOLBOX"),
)
@click.option(
    "--by",
    type=click.Choice(["purpose", "host", "project"]),
    help="What the toolboxes follow.  [default: purpose, if there are many servers]",
    **variable("IMPORT_BY"),
)
@click.option(
    "--no-check",
    is_flag=True,
    help="Write them without connecting to them first.",
    **variable("IMPORT_NO_CHECK"),
)
@secrets_option("IMPORT")
@agreement_options
@global_options
@click.pass_obj
def import_(settings: Settings, sources: tuple[str, ...], **options: Any) -> int:
    """Copy the servers of other programs into the configuration file.

    Without a source, reads the files of all known hosts; they are not changed. Literal secrets are
    not copied: a variable takes their place, and the output names it. With --secrets store, which a
    terminal offers, their values go into the encrypted store, so that the servers work at once.

    Up to eight new servers go into the toolbox 'default', more of them into toolboxes by what they
    are for. Each server is connected once, for at most a minute in all: its tools can be searched
    from then on, and the descriptions of new toolboxes say what it says of itself. A server that
    does not answer is written all the same; for one that wants a login, the output has the command.

    \b
    Examples:
      mcp-workbench import --dry-run          look, and change nothing
      mcp-workbench import cursor             from one host only
      mcp-workbench import --by host          a toolbox for each host
      mcp-workbench import servers.json       from any file with mcpServers
      mcp-workbench import - --yes < servers.json
    """
    machine = this_machine()
    _require_toolbox(options["toolbox"], options["by"])
    found = FoundServers(machine)
    found.read(sources)
    plan = _chosen_plan(settings, found.servers, options, machine)
    changes = plan.changes()
    if not settings.json:
        _print(settings, plan, machine)
        preview(changes, machine, settings)
        _print_remarks(settings, plan, found, reads=not options["no_check"])
    undo = None
    if confirmed(settings, changes, Agreement(options["yes"], options["dry_run"])):
        if not options["no_check"]:
            plan = _read(settings, plan, changes)
            changes = plan.changes()
        if plan.stored:
            store(plan.merged.taken, plan.merged.values)
        undo = apply(settings, "import", changes)
    if settings.json:
        say_json(_document(plan, changes, undo))
    else:
        _print_end(settings, plan, undo, machine)
    return DONE


def _require_toolbox(toolbox: str | None, by: str | None) -> None:
    if toolbox is None:
        return
    if by:
        raise click.UsageError("--toolbox and --by can't stand together")
    if plain_name(toolbox) != toolbox:
        hint = f"letters, digits, '-' and '_', such as: --toolbox {plain_name(toolbox)}"
        raise HostUsage("bad_name", f"a toolbox can't be called '{toolbox}'", hint=hint)


def _chosen_plan(
    settings: Settings, servers: list[HostServer], options: dict[str, Any], machine: Machine
) -> ImportPlan:
    """Returns the plan, with literal secrets for the encrypted store if that is wanted."""
    plan = _planned(settings, servers, options, machine)
    count = len({secret.variable for secret in plan.merged.taken})
    agreed = Agreement(options["yes"], options["dry_run"])
    if not wants_store(settings, options["secrets"], count, agreed):
        return plan
    return _planned(settings, servers, {**options, "stored": stored_values()}, machine)


def _planned(
    settings: Settings, servers: list[HostServer], options: dict[str, Any], machine: Machine
) -> ImportPlan:
    """Plans to add these servers to our file, without those that it has already."""
    stored: dict[str, str] | None = options.get("stored")
    target = config_target(settings, machine, user=False, new_in_folder=True)
    config = read_config_file(target)
    reserved = frozenset(_REFERENCE.findall((config.before or b"").decode()))
    reserved |= reserved_secrets(config, stored=stored is not None)
    toolbox: str | None = options["toolbox"]
    if toolbox is None and servers_keys(config, DEFAULT) == (SERVERS,) and not options["by"]:
        toolbox = DEFAULT  # the only one that such a file has
    existing = [own for own in servers_of(config) if toolbox in (None, own.toolbox)]
    environ = {**machine.environ, **stored_values_of(config)}
    merged = merge(servers, existing, reserved, environ, stored)
    if toolbox is None:
        boxes = proposed(merged.new, options["by"], config.toolboxes, machine)
    else:
        names = tuple(choice.name for choice in merged.new)
        servers_keys(config, toolbox)  # fails if there is no room for it
        boxes = [ProposedToolbox(toolbox, "", names)] if names else []
    of = {name: box.name for box in boxes for name in box.servers}
    chosen = tuple(
        msgspec.structs.replace(c, toolbox=c.toolbox or of.get(c.name, "")) for c in merged.chosen
    )
    merged = msgspec.structs.replace(merged, chosen=chosen)
    return ImportPlan(config, merged, boxes, stored is not None)


def _read(settings: Settings, plan: ImportPlan, changes: list[Change]) -> ImportPlan:
    """Connects to the new servers, with the secrets that their hosts have."""
    from mcp_workbench.cli.servers import read_catalogues  # a preview needs no event loop

    environ = with_values(plan.merged.values, stored=plan.stored)
    [change] = changes
    try:
        snapshot = snapshot_of(str(change.path), change.after, environ)
    except ConfigError:
        if settings.talkative:
            fix = "mcp-workbench check shows them"
            say(f"{glyph('doubtful')} the file has other mistakes, so no server is read; {fix}")
        return plan
    addresses = [ServerAddress(c.toolbox, c.name) for c in plan.merged.new]
    enabled = [address for address in addresses if snapshot.find(address) is not None]
    try:
        reports = read_catalogues(settings, snapshot, enabled, environ)
    except KeyboardInterrupt:
        say("nothing was changed; --no-check writes the servers without connecting", err=True)
        raise
    reports = [_without_secrets(report, snapshot, environ) for report in reports]
    return msgspec.structs.replace(plan, reports=tuple(reports))


def _without_secrets(
    report: ServerReport, snapshot: Snapshot, environ: Mapping[str, str]
) -> ServerReport:
    """Returns the report; without the server's own words if a secret of its entry is in them."""
    spec = snapshot.find(report.address)
    text = f"{report.server_name}\n{report.instructions}"
    if spec is None or redact(text, secrets_of(spec, environ)) == text:
        return report
    return msgspec.structs.replace(report, server_name="", instructions="")


class FoundServers:
    """The servers of hosts, and the files that can't be read."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.servers: list[HostServer] = []
        self.broken: list[ConfigError] = []

    def read(self, sources: tuple[str, ...]) -> None:
        """Reads these sources; without any, all hosts, of which a broken file does not stop the others."""
        for source in sources:
            self.servers += _named(source, self._machine)
        for file in () if sources else all_files(self._machine):
            try:
                self.servers += _of_host(file, self._machine)
            except ConfigError as error:
                self.broken.append(error)


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


# Output


def _document(plan: ImportPlan, changes: list[Change], undo: int | None) -> Imported:
    reports = {report.address.server: report for report in plan.reports}
    merged = plan.merged
    return Imported(
        str(plan.config.path),
        [ImportedToolbox(b.name, plan.description(b), b.servers) for b in plan.toolboxes],
        [_line(choice, reports.get(choice.name)) for choice in merged.chosen],
        merged.taken,
        plan.stored,
        _unset(merged),
        _not_inherited(merged),
        lines_of(changes),
        undo is not None,
        undo,
    )


def _line(choice: ImportChoice, report: ServerReport | None) -> ImportedServer:
    server = choice.server
    state = "new" if choice.new else "skipped" if server.skipped else "same"
    return ImportedServer(
        server.host,
        server.file,
        server.name,
        choice.name,
        choice.toolbox,
        "there" if choice.there else state,
        server.skipped,
        choice.notes or server.notes,
        None if report is None or report.reason else len(report.tools),
        report.reason if report else "",
        login_command(report.reason) if report else "",
    )


def _print(settings: Settings, plan: ImportPlan, machine: Machine) -> None:
    """Prints which servers the hosts have, and where the new ones go."""
    merged = plan.merged
    files = dict.fromkeys((c.server.host, c.server.file) for c in merged.chosen)
    rows = [
        (host, shown(Path(file), machine), "  ".join(map(_word, _those(merged, host, file))))
        for host, file in files
    ]
    for row in table(rows):
        say(row)
    if not merged.chosen:
        say("no servers were found in the files of the hosts that this program knows")
        return
    new = len(merged.new)
    say(f"{new} new server{'' if new == 1 else 's'} for {_place(plan, machine)}")


def _place(plan: ImportPlan, machine: Machine) -> str:
    file = plain(shown(plan.config.path, machine))
    if len(plan.toolboxes) > 1:
        counts = ", ".join(f"{plain(b.name)} ({len(b.servers)})" for b in plan.toolboxes)
        return f"{len(plan.toolboxes)} toolboxes in {file}: {counts}"
    return f"toolbox '{plan.toolboxes[0].name}' in {file}" if plan.toolboxes else file


def _print_remarks(
    settings: Settings, plan: ImportPlan, found: FoundServers, *, reads: bool
) -> None:
    """Prints, after the preview, what to know about the change."""
    merged = plan.merged
    if merged.new:
        say("")
    for choice in merged.new:
        for note in choice.notes:
            say(f"{glyph('doubtful')} {plain(choice.name)}: {plain(note)}", color=settings.color)
    say_secrets(settings, merged.taken, stored=plan.stored)
    _print_environment(settings, merged)
    if reads and any(plan.description(box) is not None for box in plan.toolboxes):
        say("the descriptions get what the servers say of themselves; --no-check leaves them so")
    for error in found.broken:
        say(format_problems(error.problems, error.file), err=True, color=settings.color)


def _print_environment(settings: Settings, merged: Merged) -> None:
    """Says which servers inherit what their hosts passed on, and what the others may miss."""
    new = merged.new
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


def _unset(merged: Merged) -> tuple[str, ...]:
    """Returns the variables that the new servers need, that have no value here, and that are no secrets
    of a host's file: such as what a host asked its user for.
    """
    taken = {secret.variable for secret in merged.taken}
    entries = {choice.name: choice.entry for choice in merged.new}
    needed = variables_in(entries, needed=True)
    return tuple(name for name in needed if name not in taken and name not in os.environ)


def _not_inherited(merged: Merged) -> tuple[str, ...]:
    if any(map(_is_uncertain, merged.new)):
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


def _print_end(settings: Settings, plan: ImportPlan, undo: int | None, machine: Machine) -> None:
    if undo is None or settings.quiet:
        return
    say(f"\nwritten   undo: mcp-workbench undo {undo}", err=True)
    _print_read(settings, plan)
    _print_logins(plan)
    _print_variables(plan, machine)
    check = "" if plan.reports else "mcp-workbench check --connect, then "
    say(f"next: {check}mcp-workbench install HOST", err=True)


def _print_read(settings: Settings, plan: ImportPlan) -> None:
    """Prints what the new toolboxes offer, and which servers did not answer."""
    known = {report.address.server: report for report in plan.reports if not report.reason}
    for box in plan.toolboxes if plan.reports else ():
        tools = sum(len(known[name].tools) for name in box.servers if name in known)
        servers = "1 server" if len(box.servers) == 1 else f"{len(box.servers)} servers"
        about = plan.description(box)
        line = f"{plain(box.name)}: {servers}, {tools} tool{'' if tools == 1 else 's'}"
        say(f"{glyph('good')} {line}{f'   {plain(about)}' if about else ''}", err=True)
    for report in plan.reports:
        if report.reason and not login_command(report.reason):
            from mcp_workbench.gateway.remedies import cause  # a preview needs no event loop

            reason = cause(report.reason).splitlines()[0]
            fix = f"mcp-workbench doctor {report.address}"
            line = f"{report.address}: not read: {plain(reason)}   fix: {fix}"
            say(f"{glyph('doubtful')} {line}", color=settings.color, err=True)


def _print_logins(plan: ImportPlan) -> None:
    """Lists the servers that their hosts sign in to, for which a login is needed here as well."""
    if plan.reports:
        wanted = [login_command(report.reason) for report in plan.reports]
        what = "these want a login here, as in their hosts:"
    else:  # nobody has asked the servers
        new = [choice for choice in plan.merged.new if has_no_credential(choice.entry)]
        wanted = [f"mcp-workbench login {choice.toolbox}/{choice.name}" for choice in new]
        what = "these may want a login here, if their hosts sign in to them:"
    if any(wanted):
        say(what, err=True)
        for command in filter(None, wanted):
            say(f"  {plain(command)}", err=True)


def _print_variables(plan: ImportPlan, machine: Machine) -> None:
    """Lists the variables to set, and where their values are."""
    merged = plan.merged
    left = () if plan.stored else merged.taken
    if plan.stored:
        say_stored(merged.taken)
    files = {choice.name: choice.server.file for choice in merged.new}
    rows = {
        taken.variable: (
            f"export {taken.variable}=…",
            f"in {shown(Path(files[taken.server]), machine)}",
        )
        for taken in sorted(left, key=lambda secret: secret.variable)
    }
    rows |= {name: (f"export {name}=…", "not set yet") for name in _unset(merged)}
    if rows:
        say("set these where the host starts this program:", err=True)
        for line in table(rows.values()):
            say(f"  {line}", err=True)
