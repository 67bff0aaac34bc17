"""`add`: puts a server into the configuration, after a preview and a look at the server itself."""

import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from mcp_workbench.cli.commands import looks_like_json
from mcp_workbench.cli.completion import complete_toolbox
from mcp_workbench.cli.config_commands import USER, config_target, writable_config
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
from mcp_workbench.cli.registry import fetched
from mcp_workbench.cli.servers import survey
from mcp_workbench.cli.settings import (
    DONE,
    Settings,
    global_options,
    stdin_is_terminal,
    variable,
)
from mcp_workbench.cli.sign_in_reports import login_command
from mcp_workbench.cli.stored_secrets import (
    say_stored,
    secrets_option,
    store,
    stored_values,
    wants_store,
    with_values,
)
from mcp_workbench.cli.terminal import glyph, plain, say, say_json
from mcp_workbench.config.load import snapshot_of
from mcp_workbench.config.state_home import state_home
from mcp_workbench.core.catalogue import ServerReport
from mcp_workbench.core.errors import ConfigError, InvalidCall, ServerUnavailable
from mcp_workbench.core.spec import HttpEndpoint, ServerAddress, Snapshot
from mcp_workbench.gateway.remedies import cause, remedy
from mcp_workbench.hosts.bundle import Bundle, from_bundle, is_bundle, read_bundle, remove, unpack
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
from mcp_workbench.hosts.own_config import Addition, ConfigFile, chosen_toolbox, plan_addition
from mcp_workbench.hosts.read import HostServer, text_of, value_of
from mcp_workbench.hosts.secrets import ExtractedSecret
from mcp_workbench.hosts.server_json import ValueSource, from_server_json, is_server_json

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
    login: str = ""  # the command to run, if it wants a login


class Added(msgspec.Struct, frozen=True, rename="camel"):
    """The document that `add --json` prints."""

    config: str
    toolbox: str
    servers: list[AddedServer]
    variables: tuple[ExtractedSecret, ...]
    stored: bool  # their values are in the encrypted store, once this is written
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
    help="A value that a server.json or a bundle leaves to you.",
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
@secrets_option("ADD")
@USER
@agreement_options
@global_options
@click.pass_obj
def add(settings: Settings, words: tuple[str, ...], **options: Any) -> int:
    """Add a server to the configuration.

    SOURCE is a command, a URL, its entry as JSON ('{"command": …}', as hosts write it), a file with
    such entries, a server.json (a file, or the name of a server in a registry), or a bundle (.mcpb),
    which is unpacked into the state folder. The change is shown first; then the server is connected,
    and written if that works, or if all it wants is a login, for which the output has the command.
    Literal secrets are not written: a variable takes their place, and the output names it. With
    --secrets store, which a terminal offers, their values go into the encrypted store.

    It goes into the configuration in use. Without any, a new one is written that is used in every
    folder (see `init`).

    \b
    Examples:
      mcp-workbench add time -- uvx mcp-server-time --local-timezone UTC
      mcp-workbench add issues https://example.com/mcp --header 'Authorization: Bearer TOKEN'
      mcp-workbench add notes --env API_KEY --toolbox home -- npx -y some-notes-server
      mcp-workbench add time --json '{"command": "uvx", "args": ["mcp-server-time"]}'
      mcp-workbench add ./notes.mcpb
      mcp-workbench add ./server.json --set region=eu
      mcp-workbench add com.example/notes --registry https://registry.example.com
    """
    machine = this_machine()
    request = Request(settings, options)
    servers = _requested(words, request, machine)
    for server in servers:
        require_name(server.name)
    path = config_target(settings, machine, user=options["user"], new_in_folder=False)
    config = writable_config(settings, path)
    toolbox = chosen_toolbox(config, options["toolbox"])
    addition = _planned(settings, config, toolbox, servers, options)
    snapshot = _would_be(addition)
    if not settings.json:
        _print_plan(settings, addition, servers, machine)
    changes = [addition.change] if addition.names else []
    reports: list[ServerReport] = []
    undo = None
    if confirmed(settings, changes, Agreement(options["yes"], options["dry_run"])):
        with _unpacked(request.bundle):
            if not options["no_check"]:
                reports = _checked(settings, addition, snapshot)
            if addition.stored:
                store(addition.taken, addition.values)
            undo = apply(settings, "add", changes)
    if settings.json:
        say_json(_document(addition, servers, reports, undo))
    elif undo is not None:
        _print_end(settings, addition, reports, undo)
    return DONE


def _planned(
    settings: Settings,
    config: ConfigFile,
    toolbox: str,
    servers: list[HostServer],
    options: dict[str, Any],
) -> Addition:
    """Returns the plan, with literal secrets for the encrypted store if that is wanted."""
    addition = plan_addition(config, toolbox, servers, replace=options["replace"])
    count = len({secret.variable for secret in addition.taken})
    agreed = Agreement(options["yes"], options["dry_run"])
    if not wants_store(settings, options["secrets"], count, agreed):
        return addition
    stored = stored_values()
    return plan_addition(config, toolbox, servers, replace=options["replace"], stored=stored)


class Request:
    """What `add` was given beside its words, and the bundle that is to be unpacked."""

    def __init__(self, settings: Settings, options: dict[str, Any]) -> None:
        self._settings = settings
        self.parts = Options(options["env"], options["header"], options["kind"] or "")
        self.values = ValueSource(assignments(options["values"]), self._ask)
        self.registry: str = options["registry"]
        self.bundle: Bundle | None = None

    def refuse_parts(self, what: str) -> None:
        if self.parts != Options():
            raise InvalidCall(f"{what} says itself what it needs; --set gives it values")

    def refuse_values(self) -> None:
        if self.values.given:
            raise InvalidCall("--set gives values to a server.json or a bundle, and this is none")

    def asking(self) -> None:
        """Says whom we wait for."""
        if self._settings.talkative:
            say(f"asking {plain(self.registry)} …", err=True)

    def _ask(self, name: str, about: str) -> str:
        settings = self._settings
        if settings.no_input or settings.json or not stdin_is_terminal():
            hint = f"--set {name}=VALUE{f'   {about}' if about else ''}"
            raise InvalidCall(f"the server needs a value for '{name}'", hint=hint)
        return str(click.prompt(plain(f"{name} ({about})" if about else name), err=True))


def _requested(words: tuple[str, ...], request: Request, machine: Machine) -> list[HostServer]:
    """Returns the servers that the command line asks for."""
    if len(words) == 1 and _needs_no_name(words[0], request, machine):
        words = ("", *words)
    if len(words) < 2:
        raise InvalidCall("name the server, and say what it is", hint=_USAGE)
    name, source, *rest = words
    described = None if rest else _described(name, source, request, machine)
    if described is not None:
        return [described]
    request.refuse_values()
    if rest:
        return [from_command(name, (source, *rest), request.parts, machine)]
    if looks_like_json(source):
        return from_json(name, source, request.parts, machine)
    if is_url(source):
        return [from_url(name, source, request.parts)]
    if _is_json_file(source, machine):
        return from_json(name, text_of(machine.folder / source) or "", request.parts, machine)
    return [from_command(name, (source,), request.parts, machine)]


def _needs_no_name(source: str, request: Request, machine: Machine) -> bool:
    if looks_like_json(source) or is_url(source) or _is_json_file(source, machine):
        return True
    registered = bool(request.registry and _REGISTERED.fullmatch(source))
    return registered or is_bundle(machine.folder / source)


def _is_json_file(source: str, machine: Machine) -> bool:
    return source.endswith(".json") and (machine.folder / source).is_file()


def _described(name: str, source: str, request: Request, machine: Machine) -> HostServer | None:
    """Returns the server that a bundle, a server.json or a registry describes, if this is one."""
    path = machine.folder / source
    if is_bundle(path):
        request.refuse_parts("a bundle")
        request.bundle = read_bundle(path)
        home = state_home(machine.environ)
        return from_bundle(name, request.bundle, home, request.values, machine)
    if _is_json_file(source, machine):
        value = value_of(text_of(path) or "", "json", str(path))
        if not is_server_json(value):
            return None
    elif request.registry and _REGISTERED.fullmatch(source):
        request.asking()
        value = fetched(request.registry, source)
    else:
        return None
    request.refuse_parts("a server.json")
    return from_server_json(name, value, request.values, _is_installed)


def _is_installed(program: str) -> bool:
    return shutil.which(program) is not None


@contextmanager
def _unpacked(bundle: Bundle | None) -> Generator[None]:
    """Unpacks a bundle, and removes it again if the block fails."""
    home = state_home(os.environ)
    unused = bundle if bundle is not None and unpack(bundle, home) else None
    try:
        yield
        unused = None
    finally:
        if unused is not None:
            remove(unused, home)


def _would_be(addition: Addition) -> Snapshot:
    """Returns the configuration after the change; its mistakes are errors before anything is written."""
    change = addition.change
    environ = with_values(addition.values, stored=addition.stored)
    try:
        return snapshot_of(str(change.path), change.after, environ)
    except ConfigError as error:
        # Their lines are those of a text that is not in the file.
        problems = (msgspec.structs.replace(p, line=0, column=0) for p in error.problems)
        raise ConfigError(error.file, tuple(problems)) from None


def _checked(settings: Settings, addition: Addition, snapshot: Snapshot) -> list[ServerReport]:
    """Connects to the new servers; raises if one does not answer. One that wants a login has answered."""
    specs = [snapshot.find(ServerAddress(addition.toolbox, name)) for name in addition.names]
    enabled = [spec for spec in specs if spec is not None]
    environ = with_values(addition.values, stored=addition.stored)
    reports = survey(settings, snapshot, [spec.address for spec in enabled], environ)
    for spec, report in zip(enabled, reports, strict=True):
        if report.reason and not login_command(report.reason):
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
    say_secrets(settings, addition.taken, stored=addition.stored)


def _print_end(
    settings: Settings, addition: Addition, reports: list[ServerReport], undo: int
) -> None:
    if settings.quiet:
        return
    for report in reports:
        if command := login_command(report.reason):
            say(f"{glyph('doubtful')} {report.address}: it wants a login: {command}", err=True)
            continue
        count = f"{len(report.tools)} tool{'' if len(report.tools) == 1 else 's'}"
        program = plain(f"{report.server_name} {report.server_version}".strip())
        about = ", ".join(filter(None, (program, count, f"{report.seconds:.1f} s")))
        say(f"{glyph('good')} {report.address}: {about}", err=True)
    say(f"written   undo: mcp-workbench undo {undo}", err=True)
    variables = sorted({taken.variable for taken in addition.taken})
    if addition.stored:
        say_stored(addition.taken)
    elif variables:
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
                None if report.reason else len(report.tools),
                report.server_name,
                report.server_version,
                server.notes,
                login_command(report.reason),
            )
        lines.append(line)
    return Added(
        str(Path(addition.change.path)),
        addition.toolbox,
        lines,
        addition.taken,
        addition.stored,
        lines_of([addition.change]) if addition.names else [],
        undo is not None,
        undo,
    )
