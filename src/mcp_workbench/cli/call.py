"""`call`: one tool, called by a person."""

import sys
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from mcp_workbench.cli.progress import ProgressLine, progress_text
from mcp_workbench.cli.render import plain, say, say_json
from mcp_workbench.cli.running import run
from mcp_workbench.cli.settings import DONE, TOOL_ERROR, Settings, global_options
from mcp_workbench.cli.signature import misfits, signature
from mcp_workbench.core.errors import InvalidCall, empty_component, not_connected
from mcp_workbench.core.names import ToolIdentifier
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.workbench import Workbench

Json = dict[str, Any]


@click.command()
@click.argument("tool", metavar="TOOLBOX/SERVER/TOOL")
@click.argument("pairs", metavar="[NAME=TEXT | NAME:=JSON]...", nargs=-1)
@click.option("--input", "given", metavar="JSON|@FILE|-", help="All arguments as one JSON object.")
@click.option("--no-check", is_flag=True, help="Send the arguments as they are.")
@global_options
@click.pass_obj
def call(
    settings: Settings, tool: str, pairs: tuple[str, ...], *, given: str | None, no_check: bool
) -> int:
    """Call one tool: NAME=TEXT gives a text, NAME:=JSON anything else.

    \b
    mcp-workbench call demo/basics/echo text=hello
    mcp-workbench call demo/basics/add a:=2 b:=3

    The tool's text goes to stdout. Exit status 5 if the tool says that it failed.
    """
    identifier = _identifier(tool)
    arguments = _input(given) if given is not None else {}
    texts = _add_pairs(pairs, arguments)
    settings.open_log()
    line = ProgressLine(wanted=settings.talkative)
    wish = Wish(identifier, arguments, None if no_check else texts)
    try:
        result = run(_called(settings.snapshot(), wish, line))
    finally:
        line.clear()
    if settings.json:
        say_json(result)
    else:
        _tell(result)
    return TOOL_ERROR if result.get("isError") is True else DONE


class Wish(msgspec.Struct, frozen=True):
    """What a person typed; `texts` are the arguments to be checked for their kind, if any are."""

    tool: ToolIdentifier
    arguments: Json
    texts: set[str] | None


async def _called(snapshot: Snapshot, wish: Wish, line: ProgressLine) -> Json:
    async with Workbench(snapshot) as workbench:
        if wish.texts is not None:
            await _check(workbench, wish, wish.texts)
        return await workbench.use_tool(
            wish.tool, wish.arguments, on_progress=lambda p: line.show(progress_text(p))
        )


async def _check(workbench: Workbench, wish: Wish, texts: set[str]) -> None:
    """Refuse what the tool's own schema would refuse. An unknown tool is left to the call itself."""
    report = await workbench.survey(wish.tool.address)
    if report.reason:
        raise not_connected(wish.tool.server, wish.tool.toolbox, report.reason)
    for info in report.tools:
        if info.name == wish.tool.tool and (wrong := misfits(info, wish.arguments, texts)):
            raise InvalidCall("\n".join((*wrong, signature(info))))


def _identifier(text: str) -> ToolIdentifier:
    parts = text.split("/", 2)
    for field, part in zip(("toolbox", "server", "tool"), (*parts, "", ""), strict=False):
        if not part:
            raise InvalidCall(empty_component(field), hint="a tool is named TOOLBOX/SERVER/TOOL")
    return ToolIdentifier(*parts)


def _input(given: str) -> Json:
    try:
        value: Any = msgspec.json.decode(_read(given))
    except (ValueError, RecursionError) as error:
        raise InvalidCall(f"--input is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidCall("--input must be a JSON object")
    return cast("Json", value)


def _read(given: str) -> bytes | str:
    if given == "-":
        return sys.stdin.buffer.read()
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_bytes()
    except OSError as error:
        raise InvalidCall(f"can't read {given[1:]}: {error.strerror}") from None


def _add_pairs(pairs: tuple[str, ...], arguments: Json) -> set[str]:
    """Put them in, and return the names of those that were given as text."""
    texts: set[str] = set()
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or name in ("", ":"):
            raise InvalidCall(
                f"'{pair}' is not an argument",
                hint="write NAME=TEXT, or NAME:=JSON for other values",
            )
        if name.endswith(":"):
            name = name[:-1]
            arguments[name] = _json(name, value)
            texts.discard(name)
        else:
            arguments[name] = value
            texts.add(name)
    return texts


def _json(name: str, value: str) -> Any:
    try:
        return msgspec.json.decode(value)
    except (ValueError, RecursionError) as error:
        hint = f"for a text write {name}=TEXT"
        raise InvalidCall(f"the value of '{name}' is not JSON: {error}", hint=hint) from None


def _tell(result: Json) -> None:
    blocks: Any = result.get("content")
    for block in cast("list[Any]", blocks) if isinstance(blocks, list) else ():
        _tell_block(cast("Json", block) if isinstance(block, dict) else {})
    if not blocks and "structuredContent" in result:
        say_json(result["structuredContent"], pretty=True)


def _tell_block(block: Json) -> None:
    text: Any = block.get("text")
    if block.get("type") == "text" and isinstance(text, str):
        # A terminal would obey what a server writes; a file or a pipe takes it as it is.
        click.echo(plain(text) if sys.stdout.isatty() else text, color=True)
        return
    resource: Any = block.get("resource")
    inner = cast("Json", resource) if isinstance(resource, dict) else block
    told = [block.get("type"), inner.get("mimeType"), inner.get("uri"), _size(inner)]
    say(plain(f"[{' '.join(str(part) for part in told if part)}]"))


def _size(block: Json) -> str:
    for member, unit, factor in (
        ("data", "bytes", 0.75),
        ("blob", "bytes", 0.75),
        ("text", "characters", 1),
    ):
        value: Any = block.get(member)
        if isinstance(value, str):
            return f"{int(len(value) * factor)} {unit}"  # base64 holds three bytes in four letters
    return ""
