"""`add`: puts a server into the configuration, after a preview and a look at the server itself."""

import os
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from mcp_workbench.cli.completion import complete_toolbox
from mcp_workbench.cli.config_commands import USER, config_target, writable_config
from mcp_workbench.cli.doctor import cause, remedy
from mcp_workbench.cli.install import (
    Agreement,
    ChangeLine,
    agreement_options,
    apply,
    confirmed,
    lines_of,
    preview,
)
from mcp_workbench.cli.registry import fetched
from mcp_workbench.cli.servers import survey
from mcp_workbench.cli.settings import (
    DONE,
    Settings,
    global_options,
    stdin_is_terminal,
    variable,
)
from mcp_workbench.cli.terminal import glyph, plain, say, say_json
from mcp_workbench.config.load import snapshot_of
from mcp_workbench.core.catalogue import ServerReport
from mcp_workbench.core.errors import ConfigError, InvalidCall, ServerUnavailable
from mcp_workbench.core.spec import HttpEndpoint, ServerAddress, Snapshot
from mcp_workbench.hosts.files import Machine, shown, this_machine
from mcp_workbench.hosts.new_server import (
    Options,
    assignments,
    from_command,
    from_json,
    from_url,
    is_url,
    require_name,
)
from mcp_workbench.hosts.own_config import Addition, chosen_toolbox, plan_addition
from mcp_workbench.hosts.read import HostServer, text_of, value_of
from mcp_workbench.hosts.secrets import ExtractedSecret
from mcp_workbench.hosts.server_json import from_server_json, is_server_json

# A name in a registry: a reversed domain, a slash, the name; and a version.
_REGISTERED = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9._-]+(?:@.+)?")
_USAGE = "mcp-workbench add NAME -- COMMAND ARGUMENTS, or mcp-workbench add NAME https://…"


class AddedServer(msgspec.Struct, frozen=True, rename="camel"):
    """One server in the JSON of `add`; without a check its tools are not known."""

    name: str
    tools: int | None = None
    server_name: str = ""
    server_version: str = ""
    notes: tuple[str, ...] = ()


class Added(msgspec.Struct, frozen=True, rename="camel"):
    """The document that `add --json` prints."""

    config: str
    toolbox: str
    servers: list[AddedServer]
    variables: tuple[ExtractedSecret, ...]
    changes: list[ChangeLine]
    written: bool
    undo: int | None


@click.command()
@click.argument("words", metavar="[NAME] SOURCE...", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--toolbox",
    default="",
    metavar="NAME",
    help="The toolbox it goes into; a new one is made. Needed if the file has several.",
    shell_complete=complete_toolbox,
    **variable("ADD_TOOLBOX"),
)
@click.option(
    "--env",
    "-e",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable for the command; without a value, the one of this name that hosts pass on.",
    **variable("ADD_ENV"),
)
@click.option(
    "--header",
    "-H",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="A header for the URL.",
    **variable("ADD_HEADER"),
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(["http", "sse"]),
    help="How the URL is spoken to.  [default: http]",
    **variable("ADD_TYPE"),
)
@click.option(
    "--set",
    "values",
    multiple=True,
    metavar="NAME=VALUE",
    help="A value that a server.json leaves to you.",
    **variable("ADD_SET"),
)
@click.option(
    "--registry",
    metavar="URL",
    default="",
    help="The registry to look SOURCE up in, as NAME or NAME@VERSION.",
    **variable("ADD_REGISTRY"),
)
@click.option(
    "--replace",
    is_flag=True,
    help="Replace a server of this name.",
    **variable("ADD_REPLACE"),
)
@click.option(
    "--no-check",
    is_flag=True,
    help="Write it without connecting to it first.",
    **variable("ADD_NO_CHECK"),
)
@USER
@agreement_options
@global_options
@click.pass_obj
def add(settings: Settings, words: tuple[str, ...], **options: Any) -> int:
    """Add a server to the configuration.

    SOURCE is a command, a URL, its entry as JSON ('{"command": …}', as hosts write it), a file with
    such entries, or a server.json: a file, or the name of a server in a registry. The change is shown
    first; then the server is connected, and written if that works. Literal secrets are not written: a
    variable takes their place, and the output names it.

    It goes into the configuration in use. Without any, a new one is written that is used in every
    folder (see `init`).

    \b
    Examples:
      mcp-workbench add time -- uvx mcp-server-time --local-timezone UTC
      mcp-workbench add issues https://example.com/mcp --header 'Authorization: Bearer TOKEN'
      mcp-workbench add notes --env API_KEY --toolbox home -- npx -y some-notes-server
      mcp-workbench add time --json '{"command": "uvx", "args": ["mcp-server-time"]}'
      mcp-workbench add ./server.json --set region=eu
      mcp-workbench add com.example/notes --registry https://registry.example.com
    """
    machine = this_machine()
    parts = Options(options["env"], options["header"], options["kind"] or "")
    values = Values(settings, assignments(options["values"]))
    servers = _requested(words, parts, machine, Sources(values, options["registry"]))
    if values.given and not values.wanted:
        raise InvalidCall("--set gives values to a server.json, and this is none")
    for server in servers:
        require_name(server.name)
    path = config_target(settings, machine, user=options["user"], new_in_folder=False)
    config = writable_config(settings, path)
    toolbox = chosen_toolbox(config, options["toolbox"])
    addition = plan_addition(config, toolbox, servers, replace=options["replace"])
    snapshot = _would_be(addition)
    if not settings.json:
        _print_plan(settings, addition, servers, machine)
    changes = [addition.change] if addition.names else []
    reports: list[ServerReport] = []
    undo = None
    if confirmed(settings, changes, Agreement(options["yes"], options["dry_run"])):
        if not options["no_check"]:
            reports = _checked(settings, addition, snapshot)
        undo = apply(settings, "add", changes)
    if settings.json:
        say_json(_document(addition, servers, reports, undo))
    elif undo is not None:
        _print_end(settings, addition, reports, undo)
    return DONE


class Values:
    """Values that a server.json leaves to the user: given as options, or asked for on a terminal."""

    def __init__(self, settings: Settings, given: dict[str, str]) -> None:
        self._settings = settings
        self._may_ask = not (settings.no_input or settings.json) and stdin_is_terminal()
        self.given = given
        self.wanted = False  # by a server.json

    def asking(self, registry: str) -> None:
        """Says whom we wait for."""
        if self._settings.talkative:
            say(f"asking {plain(registry)} …", err=True)

    def ask(self, name: str, about: str) -> str:
        if not self._may_ask:
            hint = f"--set {name}=VALUE{f'   {about}' if about else ''}"
            raise InvalidCall(f"the server needs a value for '{name}'", hint=hint)
        return str(click.prompt(plain(f"{name} ({about})" if about else name), err=True))


class Sources(NamedTuple):
    """Where a server.json may come from, and the values for it."""

    values: Values
    registry: str


def _requested(
    words: tuple[str, ...], options: Options, machine: Machine, sources: Sources
) -> list[HostServer]:
    """Returns what the command line asks for."""
    if len(words) == 1 and _needs_no_name(words[0], machine, sources):
        words = ("", *words)
    if len(words) < 2:
        raise InvalidCall("name the server, and say what it is", hint=_USAGE)
    name, source, *rest = words
    if rest:
        return [from_command(name, (source, *rest), options, machine)]
    if source.startswith("{"):
        return from_json(name, source, options, machine)
    if is_url(source):
        return [from_url(name, source, options)]
    if _is_json_file(source, machine):
        return _of_file(name, machine.folder / source, options, machine, sources)
    if sources.registry and _REGISTERED.fullmatch(source):
        sources.values.asking(sources.registry)
        return [_of_registry(name, fetched(sources.registry, source), options, sources)]
    return [from_command(name, (source,), options, machine)]


def _needs_no_name(source: str, machine: Machine, sources: Sources) -> bool:
    plain = source.startswith("{") or is_url(source) or _is_json_file(source, machine)
    return plain or bool(sources.registry and _REGISTERED.fullmatch(source))


def _is_json_file(source: str, machine: Machine) -> bool:
    return source.endswith(".json") and (machine.folder / source).is_file()


def _of_file(
    name: str, path: Path, options: Options, machine: Machine, sources: Sources
) -> list[HostServer]:
    text = text_of(path) or ""
    value = value_of(text, "json", str(path))
    if is_server_json(value):
        return [_of_registry(name, value, options, sources)]
    return from_json(name, text, options, machine)


def _of_registry(name: str, value: Any, options: Options, sources: Sources) -> HostServer:
    if options.env or options.headers or options.type:
        raise InvalidCall("a server.json says itself what it needs; --set gives it values")
    values = sources.values
    values.wanted = True
    return from_server_json(name, value, values.given, values.ask, _is_installed)


def _is_installed(program: str) -> bool:
    return shutil.which(program) is not None


def _would_be(addition: Addition) -> Snapshot:
    """Returns the configuration after the change; its mistakes are errors before anything is written."""
    change = addition.change
    environ = {**os.environ, **addition.values}
    try:
        return snapshot_of(str(change.path), change.after, environ)
    except ConfigError as error:
        # Their lines are those of a text that is not in the file.
        problems = (msgspec.structs.replace(p, line=0, column=0) for p in error.problems)
        raise ConfigError(error.file, tuple(problems)) from None


def _checked(settings: Settings, addition: Addition, snapshot: Snapshot) -> list[ServerReport]:
    """Connects to the new servers; raises if one does not answer."""
    specs = [snapshot.find(ServerAddress(addition.toolbox, name)) for name in addition.names]
    enabled = [spec for spec in specs if spec is not None]
    environ = {**os.environ, **addition.values}
    reports = survey(settings, snapshot, [spec.address for spec in enabled], environ)
    for spec, report in zip(enabled, reports, strict=True):
        if report.reason:
            fix = remedy(report.reason, remote=isinstance(spec.target, HttpEndpoint))
            raise NotAdded(report, fix)
    return reports


class NotAdded(ServerUnavailable):
    """A server that was to be added can't be reached, so nothing was written."""

    def __init__(self, report: ServerReport, fix: str) -> None:
        message = f"server '{report.address.server}' is not available, so nothing was written"
        super().__init__(
            "connect_failed", f"{message}\n{cause(report.reason)}", reason=report.reason
        )
        self.hint = f"{fix}; or write it all the same with --no-check"


# Output


def _print_plan(
    settings: Settings, addition: Addition, servers: list[HostServer], machine: Machine
) -> None:
    where = f"toolbox '{addition.toolbox}' in {plain(shown(addition.change.path, machine))}"
    for server in servers:
        if server.name not in addition.names:
            say(f"{plain(server.name)}: there already, in {where}")
    if not addition.names:
        return
    say(f"{plain(', '.join(addition.names))}: for {where}")
    preview([addition.change], machine, settings)
    for server in servers:
        for note in server.notes:
            say(f"{glyph('doubtful')} {plain(server.name)}: {plain(note)}", color=settings.color)
    for taken in addition.taken:
        blanks = "; it has blanks around it" if taken.blanks else ""
        say(
            f"{glyph('doubtful')} {plain(taken.server)}: {plain(taken.place)} is a literal secret, "
            f"so ${{{taken.variable}}} stands there instead{blanks}",
            color=settings.color,
        )


def _print_end(
    settings: Settings, addition: Addition, reports: list[ServerReport], undo: int
) -> None:
    if settings.quiet:
        return
    for report in reports:
        count = f"{len(report.tools)} tool{'' if len(report.tools) == 1 else 's'}"
        program = plain(f"{report.server_name} {report.server_version}".strip())
        about = ", ".join(filter(None, (program, count, f"{report.seconds:.1f} s")))
        say(f"{glyph('good')} {report.address}: {about}", err=True)
    say(f"written   undo: mcp-workbench undo {undo}", err=True)
    variables = sorted({taken.variable for taken in addition.taken})
    if variables:
        say("set these where the host starts this program:", err=True)
        for name in variables:
            say(f"  export {name}=…", err=True)
    say("next: mcp-workbench install HOST; hosts that have it see the server in seconds", err=True)


def _document(
    addition: Addition, servers: list[HostServer], reports: list[ServerReport], undo: int | None
) -> Added:
    known = {report.address.server: report for report in reports}
    lines: list[AddedServer] = []
    for server in servers:
        report = known.get(server.name)
        line = AddedServer(server.name, notes=server.notes)
        if report is not None:
            line = AddedServer(
                server.name,
                len(report.tools),
                report.server_name,
                report.server_version,
                server.notes,
            )
        lines.append(line)
    return Added(
        str(Path(addition.change.path)),
        addition.toolbox,
        lines,
        addition.taken,
        lines_of([addition.change]) if addition.names else [],
        undo is not None,
        undo,
    )
