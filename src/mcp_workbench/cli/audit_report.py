"""`audit`: reads the record of calls: follows it, filters it, and sums it up."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mcp_workbench.cli.audit_lines import AuditReader, CallLine, read_since
from mcp_workbench.cli.completion import complete_server
from mcp_workbench.cli.settings import DONE, Settings, global_options, variable
from mcp_workbench.cli.terminal import about, nearby, number, plain, say, say_json, table
from mcp_workbench.core.errors import InvalidCall
from mcp_workbench.core.spec import AUDIT_FILES, AuditSettings

if TYPE_CHECKING:
    from click import Context, Parameter

Json = dict[str, Any]
Filter = Callable[[CallLine], bool]

TOP = 10  # rows of a table in the summary
_HOW = 'write "audit": true in the configuration, or name the file of --log-calls with --file'
LINES = 20  # shown by default
BYTES_PER_TOKEN = 4  # of text in a result


def _moment(context: Context, param: Parameter, value: str | None) -> float:
    try:
        return 0.0 if value is None else read_since(value, time.time())
    except ValueError:
        message = f"'{value}' is no time, such as 90s, 10m, 2h, 7d, 2026-11-14 or 2026-11-14T09:30"
        raise click.BadParameter(message, context, param) from None


class Choice(msgspec.Struct, frozen=True):
    """Which lines are wanted; an empty text is any."""

    server: str = ""  # or TOOLBOX/SERVER
    tool: str = ""
    outcome: str = ""
    host: str = ""
    since: float = 0.0  # seconds since the epoch
    errors: bool = False

    def fits(self, line: CallLine) -> bool:
        return (
            self.server in ("", line.server, f"{line.toolbox}/{line.server}")
            and self.tool in ("", line.name)
            and self.outcome in ("", line.outcome)
            and self.host in ("", line.host)
            and not (self.errors and not line.is_error)
            and (not self.since or line.seconds >= self.since)
        )


def _text_option(name: str, metavar: str, help: str, **more: Any) -> Callable[..., Any]:
    own = variable(f"AUDIT_{name.upper()}")
    return click.option(f"--{name}", metavar=metavar, default="", help=help, **own, **more)


def _flag(*names: str, help: str) -> Callable[..., Any]:
    own = variable(f"AUDIT_{names[-1].removeprefix('--').upper()}")
    return click.option(*names, is_flag=True, help=help, **own)


@click.command()
@_text_option(
    "server", "[TOOLBOX/]SERVER", "Calls of this server only.", shell_complete=complete_server
)
@_text_option("tool", "NAME", "Calls of this tool only, or of this method, such as resources/read.")
@_text_option("outcome", "WORD", "Calls that ended so: ok, tool_error, timeout, denied, ….")
@_text_option("host", "NAME", "Calls of this host only.")
@click.option(
    "--since",
    metavar="TIME",
    callback=_moment,
    help="Calls since then: 90s, 10m, 2h or 7d ago, or a date or time (UTC).",
    **variable("AUDIT_SINCE"),
)
@_flag("--errors", help="The calls that ended with an error.")
@_flag("--slow", help="The slowest calls first.")
@_flag("--calls", help="The calls, one line each, the newest last.")
@_flag("-f", "--follow", help="The same, and those to come, until Ctrl-C.")
@click.option(
    "-n",
    "--lines",
    default=LINES,
    show_default=True,
    help="How many calls.",
    **variable("AUDIT_LINES"),
)
@_text_option("file", "FILE", "Read this file and those rotated from it.")
@global_options
@click.pass_obj
def audit(settings: Settings, **options: Any) -> int:
    """Show the record of calls that `audit` in the configuration (or --log-calls) has written.

    Sums it up: the tools that were called most, with errors, times and tokens, how calls failed, and the
    slowest. --calls, --errors, --slow and -f list calls instead. Tokens are estimated from the size of
    results. With --json the summary is one document, and a list has the lines as they are in the file.

    \b
    Examples:
      mcp-workbench audit
      mcp-workbench audit --since 1h --server dev/github
      mcp-workbench audit --errors
      mcp-workbench audit -f
      mcp-workbench audit --calls -n 1000 --json
    """
    path, files = _file(settings, options["file"])
    names = ("server", "tool", "outcome", "host", "since", "errors")
    choice = Choice(**{name: options[name] for name in names})
    reader = AuditReader(path, files)
    if options["follow"]:
        return _follow(settings, reader, choice, options["lines"])
    lines = [line for line in reader.lines() if choice.fits(line)]
    if options["slow"]:
        lines.sort(key=lambda line: line.ms.total, reverse=True)
        _print_calls(settings, lines[: options["lines"]])
    elif options["calls"] or options["errors"]:
        _print_calls(settings, lines[max(len(lines) - options["lines"], 0) :])
    else:
        _summarize(settings, path, lines, reader.unreadable)
    return DONE


def _file(settings: Settings, given: str) -> tuple[str, int]:
    """Returns the path of the record, and of how many files it is."""
    from mcp_workbench.config.audit_settings import audit_path

    configured = None if given else settings.snapshot().audit
    path = given or audit_path(configured or AuditSettings(), os.environ)
    files = AUDIT_FILES if configured is None else configured.files
    if configured is None and not os.path.exists(path):  # noqa: PTH110 - text in
        if given:
            raise InvalidCall(f"there is no file {nearby(given)}")
        if settings.talkative:
            say(f"no calls are recorded; {_HOW}", err=True)
    return path, files


# Calls one by one


def _follow(settings: Settings, reader: AuditReader, choice: Choice, count: int) -> int:
    known = [line for line in reader.lines() if choice.fits(line)]
    _print_calls(settings, known[max(len(known) - count, 0) :])
    for line in reader.followed():
        if choice.fits(line):
            _print_calls(settings, [line], head=False)
    return DONE


def _print_calls(settings: Settings, lines: list[CallLine], *, head: bool = True) -> None:
    if settings.json:
        for line in lines:
            click.echo(line.raw)
        return
    if not lines and head and settings.talkative:
        say("no calls", err=True)
    for line in lines:
        who = "/".join(filter(None, (line.host or line.door, line.host_version)))
        took = f"{number(line.ms.total)} ms"
        more = f"   {line.arguments}" if line.arguments else ""
        say(plain(f"{line.ts}  {line.outcome:<14}  {took:>10}  {line.target}   {who}{more}"))


# The summary


class CallCounts(msgspec.Struct):
    """Calls of one tool."""

    calls: int = 0
    errors: int = 0
    bytes: int = 0
    times: list[float] = []

    @property
    def tokens(self) -> int:
        return round(self.bytes / BYTES_PER_TOKEN)

    def add(self, line: CallLine) -> None:
        self.calls += 1
        self.errors += line.is_error
        self.bytes += line.result_bytes
        self.times.append(line.ms.total)

    def document(self) -> Json:
        ordered = sorted(self.times)
        slow = ordered[int(len(ordered) * 0.95)] if ordered else 0.0
        middle = median(ordered) if ordered else 0.0
        figures = {"calls": self.calls, "errors": self.errors, "tokens": self.tokens}
        return {**figures, "p50": round(middle, 3), "p95": round(slow, 3)}


def _grouped(lines: list[CallLine], key: Callable[[CallLine], str]) -> dict[str, CallCounts]:
    groups: defaultdict[str, CallCounts] = defaultdict(CallCounts)
    for line in lines:
        groups[key(line)].add(line)
    return dict(sorted(groups.items(), key=lambda item: -item[1].calls))


def _document(path: str, lines: list[CallLine], unreadable: int) -> Json:
    tools = _grouped(lines, lambda line: line.target)
    failed = [line for line in lines if line.outcome != "ok"]
    slow = sorted(lines, key=lambda line: line.ms.total, reverse=True)[:TOP]
    whole = CallCounts()
    for line in lines:
        whole.add(line)
    return {
        "file": path,
        "from": lines[0].ts if lines else "",
        "to": lines[-1].ts if lines else "",
        **whole.document(),
        "unreadable": unreadable,
        "lost": sum(_lost(lines)),
        "tools": [{"tool": name, **group.document()} for name, group in tools.items()],
        "hosts": [
            {"host": name, **group.document()}
            for name, group in _grouped(lines, lambda line: line.host or line.door).items()
        ],
        "outcomes": {
            word: group.calls for word, group in _grouped(failed, lambda line: line.outcome).items()
        },
        "slow": [
            {"ts": s.ts, "tool": s.target, "ms": s.ms.total, "outcome": s.outcome} for s in slow
        ],
    }


def _lost(lines: list[CallLine]) -> Iterator[int]:
    """Yields how many lines each process could not write, as far as it has said so."""
    yield from {line.pid: line.lost for line in lines if line.lost}.values()


def _summarize(settings: Settings, path: str, lines: list[CallLine], unreadable: int) -> None:
    document = _document(path, lines, unreadable)
    if settings.json:
        say_json(document)
        return
    say(f"{nearby(path)}: {_counted(document)}")
    if document["lost"] or unreadable:
        say(f"! {document['lost']} calls could not be recorded, {unreadable} lines can't be read")
    if not lines:
        return
    _print_tools(document["tools"])
    if document["outcomes"]:
        words = (f"{word} {number(count)}" for word, count in document["outcomes"].items())
        say(f"\nnot ok: {', '.join(words)}")
    say("\nslowest:")
    for call in document["slow"][:3]:
        say(plain(f"  {number(call['ms'])} ms  {call['tool']}  {call['outcome']}  {call['ts']}"))


def _counted(document: Json) -> str:
    count = document["calls"]
    if not count:
        return "no calls"
    calls = f"{number(count)} call{'' if count == 1 else 's'}"
    errors = f"{number(document['errors'])} with an error"
    period = f"{document['from'][:19]} to {document['to'][:19]} UTC"
    return f"{calls}, {errors}, {about(document['tokens'])} tokens of results, {period}"


def _print_tools(tools: list[Json]) -> None:
    rows: list[tuple[str, ...]] = [("TOOL", "CALLS", "ERRORS", "P50 MS", "P95 MS", "TOKENS")]
    for tool in tools[:TOP]:
        figures = (number(tool["calls"]), number(tool["errors"]))
        times = (f"{tool['p50']:.1f}", f"{tool['p95']:.1f}")
        rows.append((tool["tool"], *figures, *times, about(tool["tokens"])))
    say("")
    for line in table(rows, right=frozenset(range(1, 6))):
        say(line)
    if len(tools) > TOP:
        say(f"… and {number(len(tools) - TOP)} more (--json has all)")
