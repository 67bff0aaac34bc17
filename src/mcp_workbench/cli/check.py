"""`check`: every problem of the configuration at once, and on request its servers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import click
import msgspec

from mcp_workbench.cli.completion import complete_host
from mcp_workbench.cli.error_reports import ErrorReport, error_report, format_problems
from mcp_workbench.cli.servers import cached_reports, observed, survey
from mcp_workbench.cli.settings import (
    DONE,
    UNREACHABLE,
    USAGE,
    Settings,
    attach_option,
    global_options,
    variable,
)
from mcp_workbench.cli.sign_in_reports import SignedIn, print_sign_ins, sign_ins
from mcp_workbench.cli.terminal import counted, glyph, nearby, number, plain, say, say_json, table
from mcp_workbench.cli.variable_sources import (
    VariableSource,
    described,
    source_warnings,
    variable_sources,
)
from mcp_workbench.config.expand import Unexpandable, expand_without_secrets, has_secret_launch
from mcp_workbench.config.script_support import script_warnings
from mcp_workbench.core.catalogue import ServerReport
from mcp_workbench.core.errors import ConfigError, Problem, shown_name
from mcp_workbench.core.spec import (
    AuthSettings,
    ServerAddress,
    ServerSpec,
    Snapshot,
    StdioCommand,
)
from mcp_workbench.upstream.launch import (
    child_environment,
    folder_of,
    folder_problem,
    launch_problem,
)

if TYPE_CHECKING:
    from mcp_workbench.cli.sandbox_reports import SandboxReport, ServerSandbox
    from mcp_workbench.cli.suspicious_texts import SuspiciousText

MOST_UNLIKE = 20  # warnings about one server
_LOG_ELSEWHERE = "let the server write its log to stderr; calls work all the same"


class CheckedServer(msgspec.Struct, frozen=True, rename="camel"):
    """One server in the JSON of `check`."""

    toolbox: str
    server: str
    available: bool
    reason: str
    revision: str
    name: str
    version: str
    tools: int
    hidden: int
    seconds: float
    processes: int  # started for it: none for a URL server
    box: str  # its sandbox: none, process or files; empty for a URL server


class ReportedProblem(ErrorReport, frozen=True):
    """A problem in the JSON of `check`: an error report with its severity."""

    severity: str = "error"


class Checked(msgspec.Struct, frozen=True, rename="camel"):
    """The document that `check --json` prints."""

    config: str | None
    ok: bool
    tool_mode: str
    toolboxes: int
    problems: list[ReportedProblem]
    servers: list[CheckedServer] | None = None  # null unless asked with --connect
    sign_ins: list[SignedIn] = []
    variables: list[VariableSource] = []
    suspicious_texts: list[SuspiciousText] = []
    sandboxes: list[ServerSandbox] = []


@click.command()
@click.option(
    "--connect",
    is_flag=True,
    help="Start every server for real, too.",
    **variable("CHECK_CONNECT"),
)
@click.option(
    "--host",
    metavar="HOST",
    shell_complete=complete_host,
    help="Check what this host does with names and lists, too.",
    **variable("CHECK_HOST"),
)
@attach_option("CHECK")
@global_options
@click.pass_obj
def check(settings: Settings, *, connect: bool, host: str | None) -> int:
    """Check the configuration and show every problem at once.

    A command that does not exist on this machine is a warning; no server is started to find out.
    So are concealed text and suspicious phrases in tools, prompts and instructions, as far as the
    definitions are known (--connect reads them all).

    With --connect, every server is started, also one that has just failed, and the last line says how
    many are ready. The workbench that `mcp-workbench up` has started is asked if it runs, so that no
    server is started twice.

    With --host, names that this host would cut, drop or mix up are warnings, and so is dynamic mode if
    the host does not read its list of tools again: in proxy mode there is neither.

    Exit status 2 if the configuration can't be used, 4 if a server can't be reached.

    \b
    Examples:
      mcp-workbench check
      mcp-workbench check --connect
      mcp-workbench check --host cursor
      mcp-workbench check --config PATH --json
    """
    try:
        snapshot = settings.snapshot(careful=True, silent=not settings.quiet)
    except ConfigError as error:
        _print_broken(settings, error)
        return USAGE
    if host:
        from mcp_workbench.cli.host_limits import known_host  # loads the hosts

        known_host(host)
    facts = _configured(snapshot, connect=connect)
    _print_problems(settings, snapshot, facts.problems)
    servers = _servers(snapshot)
    reports = survey(settings, observed(snapshot), servers) if connect else None
    known = tuple(cached_reports(snapshot, servers).values() if reports is None else reports)
    texts = _suspicious_texts(snapshot, known)
    of_host = _host_warnings(snapshot, known, host) if host else ()
    of_tools = server_warnings(snapshot, known, every_host=not host)
    of_servers = (*of_tools, *(problem for problem, _ in texts), *of_host)
    if settings.json:
        document = _document(snapshot, facts, of_servers, reports)
        found = [text for _, text in texts]
        say_json(msgspec.structs.replace(document, suspicious_texts=found))
    else:
        _print_problems(settings, snapshot, of_servers)
        _print(snapshot, facts, of_servers, reports)
    return UNREACHABLE if any(report.reason for report in reports or []) else DONE


class _Facts(msgspec.Struct, frozen=True):
    """What is known of a configuration without its servers."""

    sources: list[VariableSource]
    boxes: list[SandboxReport]
    problems: tuple[Problem, ...]


def _configured(snapshot: Snapshot, *, connect: bool) -> _Facts:
    sources = _sources(snapshot)
    boxes = sandboxes(snapshot, os.environ)
    problems = (
        *snapshot.warnings,
        *source_warnings(sources),
        *(problem for box in boxes for problem in box.problems),
        *launch_warnings(snapshot, os.environ),
        *script_warnings(snapshot),
        *(_cluster_problems(snapshot, connect=connect) if snapshot.cluster else ()),
    )
    return _Facts(sources, boxes, problems)


def _cluster_problems(snapshot: Snapshot, *, connect: bool) -> tuple[Problem, ...]:
    from mcp_workbench.cli.cluster_checks import cluster_problems  # few have one

    return tuple(cluster_problems(snapshot, connect=connect))


def _host_warnings(
    snapshot: Snapshot, reports: tuple[ServerReport, ...], host: str
) -> tuple[Problem, ...]:
    from mcp_workbench.cli.host_limits import host_warnings, known_host

    return tuple(host_warnings(snapshot, reports, known_host(host)))


def _suspicious_texts(
    snapshot: Snapshot, reports: tuple[ServerReport, ...]
) -> list[tuple[Problem, SuspiciousText]]:
    if not reports:
        return []
    from mcp_workbench.cli.suspicious_texts import text_problems  # only with definitions to read

    return list(text_problems(snapshot, reports))


def sandboxes(snapshot: Snapshot, environ: Mapping[str, str]) -> list[SandboxReport]:
    """Returns what is known of the sandboxes of a configuration, without starting a server."""
    specs = [s for box in snapshot.toolboxes.values() for s in box.servers.values()]
    confined = [s for s in specs if isinstance(s.target, StdioCommand) and s.target.is_confined]
    if not confined:
        return []
    from mcp_workbench.cli.sandbox_reports import sandbox_report  # few have any

    return [sandbox_report(spec, environ) for spec in confined]


def _sources(snapshot: Snapshot) -> list[VariableSource]:
    specs = [s for box in snapshot.toolboxes.values() for s in box.servers.values()]
    return variable_sources(snapshot, specs, os.environ)


def _servers(snapshot: Snapshot) -> list[ServerAddress]:
    return [s.address for t in snapshot.toolboxes.values() for s in t.servers.values()]


def _print_broken(settings: Settings, error: ConfigError) -> None:
    problems = (*error.problems, *error.warnings)
    if settings.json:
        findings = [_finding(problem, error.file) for problem in problems]
        say_json(Checked(error.file, ok=False, tool_mode="", toolboxes=0, problems=findings))
        return
    say(format_problems(problems, error.file), err=True, color=settings.color)
    say(f"{glyph('bad')} {nearby(error.file)}: {_counted(problems)}")


def _print_problems(settings: Settings, snapshot: Snapshot, problems: tuple[Problem, ...]) -> None:
    if problems and settings.talkative:
        say(format_problems(problems, snapshot.origin), err=True, color=settings.color)


def _print(
    snapshot: Snapshot,
    facts: _Facts,
    of_servers: tuple[Problem, ...],
    reports: list[ServerReport] | None,
) -> None:
    problems = (*facts.problems, *of_servers)
    where = nearby(snapshot.origin) if snapshot.origin else "no configuration file, so the demo"
    warned = f", {_counted(problems)}" if problems else ""
    mark = glyph("doubtful" if problems else "good")
    say(f"{mark} {where}: {counted(snapshot)}, {snapshot.tool_mode} mode{warned}")
    if reports is not None:
        _print_servers(reports)
        _print_processes(snapshot, reports)
        ready = sum(not report.reason for report in reports)
        say(f"{number(ready)} of {number(len(reports))} ready")
    if facts.sources:
        say(f"variables: {plain(described(facts.sources))}")
    if facts.boxes:
        say(f"sandboxes: {'; '.join(str(box.document) for box in facts.boxes)}")
    print_sign_ins(sign_ins(snapshot))


def _print_servers(reports: list[ServerReport]) -> None:
    for report, line in zip(reports, table(map(_row, reports)), strict=True):
        say(f"{glyph('bad' if report.reason else 'good')} {line}")
        if report.reason:
            say(f"    {plain(report.reason)}")


def _print_processes(snapshot: Snapshot, reports: list[ServerReport]) -> None:
    """Prints how many processes the servers need."""
    boxes = snapshot.toolboxes.values()
    own = [s.address for box in boxes for s in box.servers.values() if s.scope == "session"]
    ours = sum(report.processes for report in reports if report.address not in own)
    counts = [f"{ours} server process{'' if ours == 1 else 'es'}"] if ours else []
    counts += [f"one for each host: {', '.join(map(str, own))} (scope: session)"] if own else []
    local = [s.address for box in boxes for s in box.servers.values() if s.follows_hosts]
    names = ", ".join(map(str, local))
    counts += [f"under `up` one for each host, in its folder: {names}"] if local else []
    if counts:
        say("; ".join(counts))


def _row(report: ServerReport) -> tuple[str, ...]:
    took = f"{report.seconds:.1f} s"
    if report.reason:
        return (str(report.address), "not available", "", took, "")
    count = f"{number(len(report.tools))} tool{'' if len(report.tools) == 1 else 's'}"
    hidden = f", {number(report.hidden)} hidden" if report.hidden else ""
    program = f"{report.server_name} {report.server_version}"
    return (str(report.address), report.revision, f"{count}{hidden}", took, program)


def _counted(problems: tuple[Problem, ...]) -> str:
    def several(kind: str) -> str:
        count = sum(problem.count for problem in problems if problem.severity == kind)
        return f"{count} {kind}{'' if count == 1 else 's'}" if count else ""

    return ", ".join(filter(None, (several("error"), several("warning"))))


def _document(
    snapshot: Snapshot,
    facts: _Facts,
    of_servers: tuple[Problem, ...],
    reports: list[ServerReport] | None,
) -> Checked:
    return Checked(
        snapshot.origin or None,
        ok=not any(report.reason for report in reports or []),
        tool_mode=snapshot.tool_mode,
        toolboxes=len(snapshot.toolboxes),
        problems=[_finding(one, snapshot.origin) for one in (*facts.problems, *of_servers)],
        servers=None if reports is None else [_server(report) for report in reports],
        sign_ins=sign_ins(snapshot),
        variables=facts.sources,
        sandboxes=[box.document for box in facts.boxes],
    )


def _finding(problem: Problem, file: str) -> ReportedProblem:
    return ReportedProblem(
        **msgspec.structs.asdict(error_report(problem, file)), severity=problem.severity
    )


def _server(report: ServerReport) -> CheckedServer:
    return CheckedServer(
        toolbox=report.address.toolbox,
        server=report.address.server,
        available=not report.reason,
        reason=report.reason,
        revision=report.revision,
        name=report.server_name,
        version=report.server_version,
        tools=len(report.tools),
        hidden=report.hidden,
        seconds=round(report.seconds, 3),
        processes=report.processes,
        box=report.box,
    )


def launch_warnings(snapshot: Snapshot, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Yields warnings about commands that can't be started here, known without starting any."""
    for spec in (s for box in snapshot.toolboxes.values() for s in box.servers.values()):
        try:
            target = expand_without_secrets(spec, environ)
        except Unexpandable:  # a warning of its own
            continue
        if has_secret_launch(spec):
            continue
        if not isinstance(target, StdioCommand):
            if target.auth.private_key:
                yield from _key_warning(spec, target.auth)
            continue
        problem = launch_problem(target, child_environment(environ, target))
        if problem:
            # Only where something is wrong: it loads much.
            from mcp_workbench.gateway.remedies import cause, remedy

            member = "cwd" if folder_problem(folder_of(target)) else "command"
            message = f"server '{spec.address}' can't be started: {cause(problem)}"
            yield _warning(f"{spec.place}.{member}", message, remedy(problem), "WB-CONN-105")


def _key_warning(spec: ServerSpec, settings: AuthSettings) -> Iterator[Problem]:
    from mcp_workbench.upstream.oauth.client_key import CODE, key_problem  # only with a key

    message, fix = key_problem(settings)
    if message:
        yield _warning(f"{spec.place}.auth.privateKey", message, fix, CODE)


def server_warnings(
    snapshot: Snapshot, reports: Iterable[ServerReport], *, every_host: bool = True
) -> Iterator[Problem]:
    """Yields warnings that need the servers: idle filters, omitted tools, stray output, long names.

    Names count as too long if they are so in any of the hosts, unless one of them is checked by itself.
    """
    reports = tuple(reports)
    yield from _idle_approvals(snapshot, reports)
    for report in reports:
        place = snapshot.toolbox(report.address.toolbox).server(report.address.server).place
        for pattern in report.idle_filters:
            message = f"toolFilters: '{pattern}' matches none of the tools of {report.address}"
            message += " (known from the cache)" if report.age is not None else ""
            fix = f"mcp-workbench tools {report.address} lists those that are shown"
            yield _warning(f"{place}.toolFilters", message, fix, "WB-TOOL-301")
        for complaint in report.complaints:
            yield _warning(place, f"{report.address}: {complaint}", "", "WB-TOOL-303")
        yield from _lock_warnings(report, place)
        if report.skipped:
            yield _warning(place, _no_messages(report), _LOG_ELSEWHERE, "WB-CONN-102")
    if every_host and snapshot.tool_mode == "dynamic":
        from mcp_workbench.cli.host_limits import name_warnings  # loads the hosts

        yield from name_warnings(snapshot, reports)


def _idle_approvals(snapshot: Snapshot, reports: tuple[ServerReport, ...]) -> Iterator[Problem]:
    """Yields patterns of `approve` that match no tool of any server that they are for."""
    idle: dict[str, str] = {}  # with the place of a server that it is for
    effective: set[str] = set()
    for report in reports:
        spec = snapshot.toolbox(report.address.toolbox).server(report.address.server)
        if not spec.approve:
            continue
        from mcp_workbench.core.approve_rules import approve_rule  # only where it is configured

        names = tuple(info.name for info in report.tools)
        unmatched = () if report.reason else approve_rule(spec.approve).idle(names)
        effective.update(pattern for pattern in spec.approve if pattern not in unmatched)
        idle |= dict.fromkeys(unmatched, spec.place)
    for pattern, place in idle.items():
        if pattern not in effective:
            message = f"approve: '{pattern}' matches no tool, so nothing is asked because of it"
            yield _warning(f"{place}.approve", message, "correct its spelling", "WB-TOOL-301")


def _lock_warnings(report: ServerReport, place: str) -> Iterator[Problem]:
    """Yields what is not as the lock file has it; of very many, the first and their number."""
    for place_in_list, (kind, name, state) in enumerate(report.unlike_lock[:MOST_UNLIKE], start=1):
        about = f"{kind} {shown_name(name)!a}" if name else kind
        message = f"{report.address}: {about}: {state} since it was recorded in the lock file"
        more = len(report.unlike_lock) - MOST_UNLIKE if place_in_list == MOST_UNLIKE else 0
        message += f"; {more} more" if more > 0 else ""
        yield _warning(place, message, f"mcp-workbench lock diff {report.address}", "WB-LOCK-003")


def _no_messages(report: ServerReport) -> str:
    lines = "1 line" if report.skipped == 1 else f"{report.skipped} lines"
    last = report.last_skipped.strip()
    return f"{report.address}: {lines} on its stdout held no message; the last one: {last}"


def _warning(path: str, message: str, fix: str, code: str) -> Problem:
    return Problem(path, message, fix, code, severity="warning")
