"""`call`: one tool, called by a person."""

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcp_workbench.cli.answer import save, tell
from mcp_workbench.cli.completing import complete_tool
from mcp_workbench.cli.facts import signature
from mcp_workbench.cli.misfits import misfits, remarks
from mcp_workbench.cli.progress import ProgressLine
from mcp_workbench.cli.render import glyph, nearby, plain, say, say_json
from mcp_workbench.cli.settings import (
    DONE,
    TOOL_ERROR,
    Settings,
    global_options,
    stdin_is_terminal,
    variable,
)
from mcp_workbench.cli.typed import add_pairs, read_identifier, read_input
from mcp_workbench.core.errors import InvalidCall, not_connected
from mcp_workbench.core.names import ToolIdentifier
from mcp_workbench.core.spec import Snapshot

if TYPE_CHECKING:
    from mcp_workbench.gateway.interview import Person
    from mcp_workbench.gateway.views import View

Json = dict[str, Any]


class Wish(msgspec.Struct, frozen=True):
    """What a person typed; `texts` are the arguments to be checked for their kind, if any are."""

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
@click.option(
    "--log-calls",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    default="",
    help="Append one JSON line about the call to this file.",
    **variable("CALL_LOG_CALLS"),
)
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
    result = _result(settings, Wish(identifier, arguments, None if no_check else texts, log_calls))
    saved = save(result, folder, identifier.tool) if folder is not None else {}
    failed = result.get("isError") is True
    if settings.json:
        say_json(result)
        for path in saved.values():
            say(f"saved {nearby(path)}", err=True)
    else:
        tell(result, saved)
        if failed and settings.talkative and sys.stderr.isatty():
            say(f"{glyph('bad')} the tool says that it failed", err=True, color=settings.color)
    return TOOL_ERROR if failed else DONE


def _result(settings: Settings, wish: Wish) -> Json:
    """Make the call, and show on the way that something happens."""
    from mcp_workbench.cli.running import run  # a loop and all: not for the tab key
    from mcp_workbench.upstream import context as pool_context

    settings.open_log()
    if not settings.verbose:  # why a server is not there stands in the error
        import logging

        logging.getLogger(pool_context.__name__).setLevel("ERROR")
    line = ProgressLine(wanted=settings.talkative)
    try:
        return run(_called(settings, settings.snapshot(), wish, line))
    finally:
        line.clear()


async def _called(settings: Settings, snapshot: Snapshot, wish: Wish, line: ProgressLine) -> Json:
    from mcp_workbench.gateway.gateway import Gateway
    from mcp_workbench.gateway.interview import interview

    async with (
        Gateway(snapshot, log_calls=wish.log_calls) as gateway,
        interview(gateway.view, _person(settings, line)) as it,
    ):
        if wish.texts is not None:
            with line.waiting(f"waiting for {wish.tool.address} to start"):
                await _check(settings, it.view, wish, wish.texts)
        with line.waiting(f"waiting for {wish.tool.address} to answer"):
            return await it.use_tool(wish.tool, wish.arguments, line.progress)


def _person(settings: Settings, line: ProgressLine) -> "Person":
    if settings.no_input or not (stdin_is_terminal() and sys.stderr.isatty()):
        return Nobody()
    from mcp_workbench.cli.asking import TerminalPerson  # only where somebody can be asked

    return TerminalPerson(line)


class Nobody:
    """There is no terminal, or no question is wanted: servers are told that they can't ask."""

    capabilities: Json = {}  # noqa: RUF012 - never changed

    async def answer(self, question: object) -> None:
        return None


async def _check(settings: Settings, view: "View", wish: Wish, texts: set[str]) -> None:
    """Refuse what the tool's own schema would refuse. An unknown tool is left to the call itself."""
    report = await view.survey(wish.tool.address)
    if report.reason:
        error = not_connected(wish.tool.server, wish.tool.toolbox, report.reason)
        error.hint = f"mcp-workbench doctor {wish.tool.address}"
        raise error
    for info in report.tools:
        if info.name != wish.tool.tool:
            continue
        if wrong := misfits(info, wish.arguments, texts):
            raise InvalidCall("\n".join((*wrong, signature(info))))
        for remark in remarks(info, wish.arguments) if settings.talkative else ():
            say(f"note: {plain(remark)}", err=True)
