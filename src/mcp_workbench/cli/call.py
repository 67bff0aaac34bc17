"""`call`: calls one tool from the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from mcp_workbench.cli.call_arguments import (
    add_pairs,
    argument_errors,
    argument_notes,
    read_identifier,
    read_input,
)
from mcp_workbench.cli.completion import complete_tool
from mcp_workbench.cli.settings import (
    DONE,
    TOOL_ERROR,
    Settings,
    global_options,
    log_calls_option,
    stdin_is_terminal,
    variable,
)
from mcp_workbench.cli.terminal import ProgressLine, glyph, nearby, plain, say, say_json
from mcp_workbench.core.errors import InvalidCall, WorkbenchError, not_connected
from mcp_workbench.core.spec import Snapshot, ToolIdentifier

if TYPE_CHECKING:
    from mcp_workbench.gateway.interactive import Person
    from mcp_workbench.gateway.views import View

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

    tool: ToolIdentifier
    arguments: Json
    texts: set[str] | None
    log_calls: str = ""


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
@log_calls_option("CALL")
@global_options
@click.pass_obj
def call(  # noqa: PLR0913 - each is an option
    settings: Settings,
    tool: str,
    pairs: tuple[str, ...],
    *,
    given: str | None,
    no_check: bool,
    folder: str | None,
    log_calls: str,
) -> int:
    """Call one tool: NAME=TEXT gives a text, NAME:=JSON anything else.

    The arguments are checked against the tool's schema first; --no-check leaves that to its server.
    What the server asks meanwhile (a form, a visit to an address) is asked here, on a terminal and
    without --no-input. Ctrl-C cancels the call at its server, too.

    The tool's text goes to stdout; everything else of its answer is summed up there, or saved.
    Exit status 5 if the tool says that it failed, 4 if its server can't be reached.

    \b
    Examples:
      mcp-workbench call demo/basics/echo text=hello
      mcp-workbench call demo/basics/add a:=2 b:=3
      mcp-workbench call demo/basics/add --input '{"a": 2, "b": 3}' --json
      mcp-workbench call dev/browser/screenshot --save shots
    """
    identifier = read_identifier(tool)
    arguments = read_input(given) if given is not None else {}
    texts = add_pairs(pairs, arguments)
    result = _result(
        settings, TypedCall(identifier, arguments, None if no_check else texts, log_calls)
    )
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


def _result(settings: Settings, request: TypedCall) -> Json:
    """Makes the call, and shows progress meanwhile."""
    from mcp_workbench.app import run_interruptible  # the event loop: not for completion

    settings.open_log(reports_servers=True)
    line = ProgressLine(wanted=settings.talkative)
    try:
        return run_interruptible(_called(settings, settings.snapshot(), request, line))
    finally:
        line.clear()


async def _called(
    settings: Settings, snapshot: Snapshot, request: TypedCall, line: ProgressLine
) -> Json:
    from mcp_workbench.gateway.interactive import interactive_session
    from mcp_workbench.gateway.workbench import Gateway

    async with (
        Gateway(snapshot, log_calls=request.log_calls) as gateway,
        interactive_session(gateway.view, _person(settings, line)) as it,
    ):
        if request.texts is not None:
            with line.waiting(f"waiting for {request.tool.address} to start"):
                try:
                    await _check(settings, it.view, request, request.texts)
                except WorkbenchError as error:
                    await it.refuse(request.tool, request.arguments, error)
        with line.waiting(f"waiting for {request.tool.address} to answer"):
            return await it.use_tool(request.tool, request.arguments, line.progress)


def _person(settings: Settings, line: ProgressLine) -> Person:
    if settings.no_input or not (stdin_is_terminal() and sys.stderr.isatty()):
        return Nobody()
    # Loaded only where a user can be asked.
    from mcp_workbench.cli.elicitation_prompt import TerminalPerson

    return TerminalPerson(line)


class Nobody:
    """No terminal, or --no-input: declares no elicitation capability to servers."""

    capabilities: Json = {}  # noqa: RUF012 - never changed

    async def answer(self, question: object) -> None:
        return None


async def _check(settings: Settings, view: View, request: TypedCall, texts: set[str]) -> None:
    """Refuses what the tool's schema does not allow. The call itself reports an unknown tool."""
    report = await view.survey(request.tool.address)
    if report.reason:
        error = not_connected(request.tool.server, request.tool.toolbox, report.reason)
        error.hint = f"mcp-workbench doctor {request.tool.address}"
        raise error
    for info in report.tools:
        if info.name != request.tool.tool:
            continue
        if wrong := argument_errors(info, request.arguments, texts):
            from mcp_workbench.cli.tools import signature  # only for a refusal

            raise InvalidCall("\n".join((*wrong, signature(info))))
        for note in argument_notes(info, request.arguments) if settings.talkative else ():
            say(f"note: {plain(note)}", err=True)


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
