"""`call`: calls one tool from the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click
import msgspec

from mcp_workbench.cli.call_arguments import (
    add_pairs,
    argument_notes,
    checked_arguments,
    read_input,
)
from mcp_workbench.cli.completion import complete_tool
from mcp_workbench.cli.servers import (
    SurveyProgress,
    age_text,
    cached_reports,
    last_lists,
    refresh_option,
    survey_with,
)
from mcp_workbench.cli.settings import (
    DONE,
    TOOL_ERROR,
    Settings,
    calling_options,
    stdin_is_terminal,
    variable,
)
from mcp_workbench.cli.sign_in_reports import code_and_fix
from mcp_workbench.cli.terminal import ProgressLine, glyph, nearby, plain, say, say_json
from mcp_workbench.cli.tool_names import choose, identify, needed_lists
from mcp_workbench.core.catalogue import ServerReport
from mcp_workbench.core.errors import InvalidCall, NotFound, WorkbenchError, not_connected
from mcp_workbench.core.spec import Snapshot, ToolIdentifier

if TYPE_CHECKING:
    from mcp_workbench.cli.backends import Backend, Nobody
    from mcp_workbench.gateway.interactive import Person

Json = dict[str, Any]
# Types that servers use, and that Python's table has on some systems only.
_SUFFIXES = {
    "audio/wav": ".wav",
    "audio/ogg": ".ogg",
    "audio/webm": ".weba",
    "image/webp": ".webp",
    "image/avif": ".avif",
    "image/jpeg": ".jpg",
}
LONGEST_NAME = 80  # characters of a file name that a server proposed


class TypedCall(msgspec.Struct, frozen=True):
    """What the user typed; `texts` are the arguments given as text, None to skip the check."""

    name: str  # of the tool, perhaps only its last parts
    arguments: Json
    texts: set[str] | None
    refresh: bool = False


@click.command()
@click.argument("tool", metavar="TOOLBOX/SERVER/TOOL", shell_complete=complete_tool)
@click.argument("pairs", metavar="[NAME=TEXT | NAME:=JSON]...", nargs=-1)
@click.option("--input", "given", metavar="JSON|@FILE|-", help="All arguments as one JSON object.")
@click.option(
    "--no-check", is_flag=True, help="Send the arguments as they are.", **variable("CALL_NO_CHECK")
)
@click.option(
    "--save",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Write images, sounds and resources of the answer into this folder.",
    **variable("CALL_SAVE"),
)
@refresh_option("CALL")
@calling_options("CALL")
@click.pass_obj
def call(  # noqa: PLR0913 - each is an option
    settings: Settings,
    tool: str,
    pairs: tuple[str, ...],
    *,
    given: str | None,
    no_check: bool,
    folder: str | None,
    refresh: bool,
    log_calls: str,
) -> int:
    """Call one tool. NAME=TEXT gives an argument as the tool's schema wants it, NAME:=JSON any value.

    SERVER/TOOL or TOOL is enough if no other tool of the configuration has that name.

    The arguments are checked before the server is started, against the schema in the cache, and then
    against the current one. --no-check sends them as they are: then NAME=TEXT is a text.

    The workbench that `mcp-workbench up` has started is used if it runs. Otherwise the server is started
    for this call, unless it has failed within the last 30 seconds; --refresh starts it all the same.

    What the server asks meanwhile (a form, a visit to an address) is asked here, on a terminal and
    without --no-input; so is whether a call is approved, if 'approve' requires that. Ctrl-C cancels the call at its server, too.

    The tool's text goes to stdout; everything else of its answer is summed up there, or saved.
    Exit status 5 if the tool says that it failed, 4 if its server can't be reached.

    \b
    Examples:
      mcp-workbench call demo/basics/echo text=hello
      mcp-workbench call add a=2 b=3
      mcp-workbench call demo/basics/add --input '{"a": 2, "b": 3}' --json
      mcp-workbench call dev/browser/screenshot --save shots
    """
    arguments = read_input(given) if given is not None else {}
    texts = add_pairs(pairs, arguments)
    request = TypedCall(tool, arguments, None if no_check else texts, refresh)
    identifier, result = _made(settings, request, log_calls)
    saved = save_content(result, folder, identifier.tool) if folder is not None else {}
    failed = result.get("isError") is True
    if settings.json:
        say_json(result)
        for path in saved.values():
            say(f"saved {nearby(path)}", err=True)
    else:
        print_result(result, saved)
        if failed and settings.talkative and sys.stderr.isatty():
            say(f"{glyph('bad')} the tool says that it failed", err=True, color=settings.color)
    return TOOL_ERROR if failed else DONE


def _made(settings: Settings, request: TypedCall, log_calls: str) -> tuple[ToolIdentifier, Json]:
    """Makes the call, and shows progress meanwhile; returns the tool and its result."""
    from mcp_workbench.cli.backends import BackendOptions, with_backend  # not for completion

    settings.open_log(reports_servers=True)
    line = ProgressLine(wanted=settings.talkative)
    snapshot = settings.snapshot()
    identify(request.name, snapshot)  # what is wrong in any case is said before anything starts
    options = BackendOptions(person_of(settings, line), log_calls=log_calls)

    async def called(backend: Backend) -> tuple[ToolIdentifier, Json]:
        tool = await _identified(settings, snapshot, request, backend)
        try:
            arguments = await _checked(settings, snapshot, Target(tool, backend, line), request)
        except WorkbenchError as error:
            await backend.refuse(tool, request.arguments, error)
            raise
        with line.waiting(f"waiting for {tool.address} to answer"):
            return tool, await backend.use_tool(tool, arguments, line.progress)

    try:
        return with_backend(settings, snapshot, called, options)
    finally:
        line.clear()


def person_of(settings: Settings, line: ProgressLine) -> Person | Nobody:
    """Returns who can be asked: the person at the terminal, or nobody."""
    if settings.no_input or not (stdin_is_terminal() and sys.stderr.isatty()):
        from mcp_workbench.cli.backends import Nobody

        return Nobody()
    # Loaded only where a user can be asked.
    from mcp_workbench.cli.elicitation_prompt import TerminalPerson

    return TerminalPerson(line)


# The tool and its arguments


async def _identified(
    settings: Settings, snapshot: Snapshot, request: TypedCall, backend: Backend
) -> ToolIdentifier:
    """Returns the tool of this name. Servers that nobody has asked yet are asked, if that decides it."""
    tool = identify(request.name, snapshot)
    if tool is not None:
        return tool
    addresses = needed_lists(request.name, snapshot)
    lists = {} if request.refresh else last_lists(snapshot, addresses)
    unknown = [address for address in addresses if address not in lists]
    reports: list[ServerReport] = []
    if unknown:
        progress = SurveyProgress(settings, unknown, lines=False)
        reports = await survey_with(backend, unknown, progress, fresh=request.refresh)
        progress.line.clear()
    lists |= {r.address: tuple(info.name for info in r.tools) for r in reports if not r.reason}
    try:
        return choose(request.name, snapshot, lists)
    except NotFound as error:
        missing = [f"{r.address} is not available: {r.reason}" for r in reports if r.reason]
        message = "\n".join((error.message, *missing))
        raise NotFound(error.code, message, hint=error.hint) from None


class Target(NamedTuple):
    """The tool of a call, and where its server is."""

    tool: ToolIdentifier
    backend: Backend
    line: ProgressLine


async def _checked(
    settings: Settings, snapshot: Snapshot, target: Target, request: TypedCall
) -> Json:
    """Starts the server; returns the arguments as the tool's schema wants them.

    Raises InvalidCall for what the schema does not allow, before that if it is known from the cache.
    The call itself reports an unknown tool.
    """
    tool, texts = target.tool, request.texts
    snapshot.toolbox(tool.toolbox).server(tool.server)
    if texts is not None and not request.refresh:
        _check_cached(snapshot, tool, request.arguments, texts)
    with target.line.waiting(f"waiting for {tool.address} to start"):
        report = await target.backend.survey(tool.address, fresh=request.refresh)
    if report.reason:
        code, fix = code_and_fix(report.reason, tool.address)
        error = not_connected(tool.server, tool.toolbox, report.reason, code=code)
        error.hint = fix
        raise error
    info = next((info for info in report.tools if info.name == tool.tool), None)
    if info is None or texts is None:
        return request.arguments
    arguments = checked_arguments(info, request.arguments, texts)
    for note in argument_notes(info, arguments) if settings.talkative else ():
        say(f"note: {plain(note)}", err=True)
    return arguments


def _check_cached(
    snapshot: Snapshot, tool: ToolIdentifier, arguments: Json, texts: set[str]
) -> None:
    known = cached_reports(snapshot, [tool.address]).get(tool.address)
    if known is None or known.age is None:
        return
    for info in known.tools:
        if info.name == tool.tool:
            try:
                checked_arguments(info, arguments, texts)
            except InvalidCall as error:
                source = f"from the cache, asked {age_text(known.age)}; --refresh asks the server"
                raise InvalidCall(f"{error.message}\n({source})") from None


def print_result(result: Json, saved: dict[int, str]) -> None:
    """Prints a result on stdout; `saved` has the files of the blocks that were saved."""
    blocks = _blocks(result)
    for number, block in enumerate(blocks):
        _print_block(block, saved.get(number, ""))
    if not blocks and "structuredContent" in result:
        say_json(result["structuredContent"], pretty=True)


def save_content(result: Json, folder: str, tool: str) -> dict[int, str]:
    """Writes images, sounds and resources into this folder; returns the file of each block."""
    saved: dict[int, str] = {}
    for number, block in enumerate(_blocks(result)):
        data = _bytes(block)
        if data is not None:
            try:
                saved[number] = str(_written(Path(folder), _name(block, tool, number + 1), data))
            except OSError as error:
                raise InvalidCall(f"can't write into {folder}: {error.strerror}") from None
    return saved


def _written(folder: Path, name: str, data: bytes) -> Path:
    """Writes a new file under the next free name."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in _names(folder, name):
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            continue
        return path
    raise FileExistsError  # not reached: there is always another name


def _names(folder: Path, name: str) -> Iterator[Path]:
    yield folder / name
    stem, suffix = Path(name).stem, Path(name).suffix
    number = 2
    while True:
        yield folder / f"{stem}-{number}{suffix}"
        number += 1


def _name(block: Json, tool: str, number: int) -> str:
    """Returns the last part of a resource's URI, or the tool's name; a server can't choose a folder."""
    inner = _inner(block)
    uri: Any = inner.get("uri")
    proposed = uri.partition("?")[0].rpartition("/")[2] if isinstance(uri, str) else ""
    clean = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in proposed)
    if clean.strip("._-"):
        return clean.lstrip(".")[-LONGEST_NAME:]
    from mimetypes import guess_extension  # a large table: only to save something

    kind: Any = inner.get("mimeType")
    plain_kind = kind.partition(";")[0].strip().lower() if isinstance(kind, str) else ""
    suffix = _SUFFIXES.get(plain_kind) or guess_extension(plain_kind)
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in tool)
    return f"{safe[-LONGEST_NAME:]}-{number}{suffix or '.bin'}"


def _bytes(block: Json) -> bytes | None:
    """Returns what can be saved of a block; None for plain text and for a block without content."""
    import base64
    import binascii

    inner = _inner(block)
    for member in ("data", "blob"):
        value: Any = inner.get(member)
        if isinstance(value, str):
            try:
                return base64.b64decode("".join(value.split()), validate=True)
            except (binascii.Error, ValueError):
                return None
    text: Any = inner.get("text")
    return text.encode() if block.get("type") == "resource" and isinstance(text, str) else None


def _print_block(block: Json, path: str) -> None:
    text: Any = block.get("text")
    if block.get("type") == "text" and isinstance(text, str):
        # Escape sequences of a server must not reach a terminal; a file or a pipe gets the text as it is.
        click.echo(plain(text) if sys.stdout.isatty() else text, color=True)
        return
    inner = _inner(block)
    parts = [block.get("type"), inner.get("mimeType"), inner.get("uri"), _size(inner)]
    where = f" saved as {nearby(path)}" if path else ""
    say(plain(f"[{' '.join(str(part) for part in parts if part)}]{where}"))


def _size(block: Json) -> str:
    for member, unit, factor in (
        ("data", "bytes", 0.75),
        ("blob", "bytes", 0.75),
        ("text", "characters", 1),
    ):
        value: Any = block.get(member)
        if isinstance(value, str):
            length = len(value.rstrip("=")) if factor < 1 else len(value)
            return f"{int(length * factor):,} {unit}"  # base64 has three bytes in four characters
    return ""


def _inner(block: Json) -> Json:
    resource: Any = block.get("resource")
    return cast("Json", resource) if isinstance(resource, dict) else block


def _blocks(result: Json) -> list[Json]:
    blocks: Any = result.get("content")
    listed = cast("list[Any]", blocks) if isinstance(blocks, list) else []
    return [cast("Json", block) if isinstance(block, dict) else {} for block in listed]
