"""`doctor`: checks everything that may be wrong, and names the fix of each problem."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click
import msgspec

from mcp_workbench import __version__
from mcp_workbench.cli.check import sandboxes, server_warnings
from mcp_workbench.cli.completion import complete_server
from mcp_workbench.cli.doctor_checks import (
    STATE_FOLDER,
    CheckResult,
    OwnConfig,
    check_hosts,
    check_state,
    hosted_configs,
    own_config,
    problem_result,
)
from mcp_workbench.cli.doctor_issuer import check_issuer
from mcp_workbench.cli.servers import observed, survey
from mcp_workbench.cli.settings import (
    DONE,
    FAILED,
    UNREACHABLE,
    USAGE,
    Settings,
    global_options,
    variable,
)
from mcp_workbench.cli.sign_in_reports import code_and_fix
from mcp_workbench.cli.terminal import counted, glyph, hanging, nearby, plain, say, say_json
from mcp_workbench.cli.variable_sources import described, source_warnings, variable_sources
from mcp_workbench.config.load import demo_snapshot, is_named, load_config
from mcp_workbench.config.state_home import has_credentials, state_home
from mcp_workbench.core.catalogue import ServerReport
from mcp_workbench.core.errors import ConfigError, InvalidCall, WorkbenchError, did_you_mean
from mcp_workbench.core.spec import (
    ServerAddress,
    ServerSpec,
    Snapshot,
    StdioCommand,
    ToolboxSpec,
    ToolIdentifier,
)
from mcp_workbench.gateway.remedies import RUNTIMES, Runtime, cause, fix_of, written
from mcp_workbench.hosts.files import shown, this_machine
from mcp_workbench.hosts.own_entry import same_file
from mcp_workbench.upstream.cache import SWITCH

OPEN_TO_ALL = "WB-CONF-006"
UNREACHED = "WB-CONN-101"
PROGRAMS = "programs"  # subject of results
VERSION_TIMEOUT = 10.0  # seconds for a program to print its version
# The PATH of a program that is started from a desktop.
DESKTOP_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


class Diagnosis(msgspec.Struct, frozen=True):
    """The document that `doctor --json` prints."""

    ok: bool
    version: str
    config: str | None
    lines: list[CheckResult]


@click.command()
@click.argument(
    "which", metavar="[TOOLBOX[/SERVER]|SERVER]", default="", shell_complete=complete_server
)
@click.option("--fix", is_flag=True, help="Fix what can be fixed safely.", **variable("DOCTOR_FIX"))
@global_options
@click.pass_obj
def doctor(settings: Settings, which: str, *, fix: bool) -> int:
    """Find problems and how to fix them.

    Checks the program itself, the configuration, the issuer of `http.auth`, our entry in every host on
    this machine, every server (started for real, all at once; where one fails, the variables that it
    misses), concealed text and suspicious phrases in what they define, the programs that they need,
    and the state folder. A configuration that a host starts is checked in any folder, beside the one
    in use there, unless --config names one. With a toolbox or a server named, only those are started,
    and no host is checked.

    --fix makes a configuration that everybody can change read-only for others, makes the state folder
    private if it holds nothing but our files, removes leftover files of ours in it, and renews our
    entry in a host if it starts nothing any more (`undo` reverts that). Nothing else is ever changed.

    Exit status 0 without a problem, warnings or not; 2 if the configuration can't be used, 4 if a
    server can't be reached, 1 for anything else.

    \b
    Examples:
      mcp-workbench doctor
      mcp-workbench doctor demo/basics
      mcp-workbench doctor --fix --json
    """
    output = Output(settings)
    only_named = bool(which) or is_named(settings.config, os.environ)
    hosted = {} if only_named else hosted_configs(this_machine())
    try:
        snapshot, lines = _configured(settings, hosted, fix=fix)
    except ConfigError as error:
        output.show((*check_installation(), *check_state(state_home(os.environ), fix=fix)))
        output.show(
            problem_result(p, error.file, "config") for p in (*error.problems, *error.warnings)
        )
        if not which:
            output.show(check_hosts(OwnConfig(error.file), this_machine(), fix=fix))
        return output.end(error.file, USAGE)
    specs = chosen(snapshot, which)
    output.column = max([output.column, *(len(str(spec.address)) for spec in specs)])
    output.show((*check_installation(), *check_state(state_home(os.environ), fix=fix)))
    output.show(lines)
    output.show(self_test())
    if not which:
        output.show(check_issuer(snapshot))
        if snapshot.cluster is not None:
            from mcp_workbench.cli.cluster_checks import check_cluster  # few have one

            output.show(check_cluster(snapshot))
        output.show(check_hosts(own_config(snapshot), this_machine(), fix=fix))
    status = _show_servers(settings, output, snapshot, specs)
    for file, hosts in hosted.items():
        if not same_file(file, snapshot.origin):
            other = _show_other(settings, output, file, hosts)
            status = status or other
    return output.end(snapshot.origin, status)


def _show_servers(
    settings: Settings, output: Output, snapshot: Snapshot, specs: list[ServerSpec]
) -> int:
    """Starts these servers and shows the results; returns the exit status."""
    output.show(check_variables(snapshot, specs))
    output.show(check_programs(specs, os.environ))
    output.show(check_sandboxes(snapshot, specs))
    reports = survey(
        settings, observed(snapshot), [spec.address for spec in specs], _without_cache()
    )
    output.show(check_servers(specs, reports))
    output.show(check_sign_ins(snapshot, specs))
    output.show(problem_result(d, "", "tools") for d in server_warnings(snapshot, reports))
    output.show(check_texts(snapshot, reports))
    return UNREACHABLE if any(report.reason for report in reports) else DONE


def _show_other(settings: Settings, output: Output, file: str, hosts: list[str]) -> int:
    """Shows the results for another configuration than this folder's, which these hosts start."""
    try:
        snapshot = load_config(file, careful=True)
    except ConfigError as error:
        output.show(problem_result(problem, file, "config") for problem in error.problems)
        return USAGE
    output.show(_of_config(snapshot, hosts))
    return _show_servers(settings, output, snapshot, chosen(snapshot, ""))


class Output:
    """Prints results as they come; with --json, all of them at the end."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lines: list[CheckResult] = []
        self.column = len(STATE_FOLDER)  # as wide as the longest subject

    def show(self, lines: Iterable[CheckResult]) -> None:
        for line in lines:
            self._lines.append(line)
            if not self._settings.json and not (self._settings.quiet and line.state == "good"):
                _print(line, self.column)

    def end(self, config: str, status: int) -> int:
        """Prints the summary; returns the exit status."""
        bad = sum(line.state == "bad" for line in self._lines)
        if self._settings.json:
            say_json(Diagnosis(not bad and not status, __version__, config or None, self._lines))
        elif not self._settings.quiet:
            doubtful = sum(line.state == "doubtful" for line in self._lines)
            all_well = "all is well" if not bad else f"{bad} problem{'' if bad == 1 else 's'}"
            say(f"\n{all_well}, {doubtful} warning{'' if doubtful == 1 else 's'}")
        return status or (FAILED if bad else DONE)


def _print(line: CheckResult, column: int) -> None:
    fixed = " (fixed)" if line.fixed else ""
    under = " " * (column + 4)
    message = hanging(f"{plain(line.message)}{fixed}", under)
    say(f"{glyph(line.state)} {line.subject:{column}}  {message.lstrip()}")
    place = shown(Path(line.place), this_machine()) if line.place else ""
    more = "   ".join(filter(None, (place, line.code)))
    if more:
        say(click.style(f"{under}{plain(more)}", dim=True))
    if line.fix and not line.fixed:
        say(hanging(f"fix: {plain(line.fix)}", under))


# Checks of this program and its configuration


def check_installation() -> Iterator[CheckResult]:
    """Checks our version, our Python, and whether the command on the PATH is this one."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield CheckResult(
        "good", "program", f"mcp-workbench {__version__}, Python {python}, {sys.platform}"
    )
    on_path = shutil.which("mcp-workbench")
    own = Path(sys.executable).with_name("mcp-workbench")
    if on_path is None:
        where = f"it is at {own}" if own.exists() else "python -m mcp_workbench works, too"
        message = "mcp-workbench is not on the PATH of this shell"
        yield CheckResult("doubtful", "program", message, f"add its folder to PATH; {where}")
    elif own.exists() and not Path(on_path).samefile(own):
        message = f"the mcp-workbench on the PATH is another one: {on_path}"
        yield CheckResult(
            "doubtful", "program", message, f"this one is {own}; remove one of the two"
        )


def _configured(
    settings: Settings, hosted: dict[str, list[str]], *, fix: bool
) -> tuple[Snapshot, list[CheckResult]]:
    """Returns the configuration to check: the one in use here, else the first that a host starts."""
    repaired: list[CheckResult] = []
    try:
        snapshot = settings.snapshot(careful=True, silent=True, shows_demo=True)
    except ConfigError as error:
        if not (fix and error.problems[0].code == OPEN_TO_ALL):
            raise
        repaired.append(_closed(error.file))
        snapshot = settings.snapshot(careful=True, silent=True, shows_demo=True)
    if snapshot.origin or not hosted:
        return snapshot, [*repaired, *_of_config(snapshot)]
    file, hosts = next(iter(hosted.items()))
    snapshot = load_config(file, careful=True)
    return snapshot, [*repaired, *_of_config(snapshot, hosts)]


def _closed(file: str) -> CheckResult:
    path = Path(file)
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~stat.S_IWOTH)
    message = "everybody on this machine could change this file"
    return CheckResult(
        "good", "config", message, f"chmod o-w {file}", OPEN_TO_ALL, file, fixed=True
    )


def _of_config(snapshot: Snapshot, hosts: Sequence[str] = ()) -> Iterator[CheckResult]:
    contents = f"{counted(snapshot)}, {snapshot.tool_mode} mode"
    if hosts:
        users = f"what {', '.join(hosts)} {'starts' if len(hosts) == 1 else 'start'}"
        yield CheckResult("good", "config", f"{nearby(snapshot.origin)}, {users}: {contents}")
    elif snapshot.origin:
        yield CheckResult("good", "config", f"{nearby(snapshot.origin)}: {contents}")
    else:
        message = f"no configuration file was found, so the built-in demo: {contents}"
        yield CheckResult(
            "doubtful", "config", message, "mcp-workbench import, add or init makes one"
        )
    for warning in snapshot.warnings:
        yield problem_result(warning, snapshot.origin, "config")


def chosen(snapshot: Snapshot, which: str) -> list[ServerSpec]:
    """Returns the servers to check: all, those of a toolbox, or those of a name."""
    specs = [spec for box in snapshot.toolboxes.values() for spec in box.servers.values()]
    named = [spec for spec in specs if not which or which in _names(spec.address)]
    if named or not which:
        return named
    known = [name for spec in specs for name in _names(spec.address)]
    raise InvalidCall(
        f"no toolbox or server '{which}'",
        hint=did_you_mean(which, known) or "mcp-workbench tools lists what there is",
    )


def _names(address: ServerAddress) -> tuple[str, str, str]:
    return address.toolbox, str(address), address.server


def self_test() -> Iterator[CheckResult]:
    """Calls the demo toolbox in both eras: a failure here is no server's fault."""
    from mcp_workbench.app import run_interruptible  # the event loop: not for completion

    since = time.monotonic()
    try:
        run_interruptible(_add_in_both_eras())
    except WorkbenchError as error:
        fix = "install the program again, and see that Python may start processes here"
        yield CheckResult("bad", "self-test", error.message, fix, "WB-TOUR-401")
        return
    took = time.monotonic() - since
    yield CheckResult("good", "self-test", f"the demo toolbox answered in both eras, {took:.1f} s")


def _without_cache() -> dict[str, str]:
    """Returns our environment without the cache: a check leaves nothing behind."""
    return {**os.environ, SWITCH: "off"}


async def _add_in_both_eras() -> None:
    from mcp_workbench.gateway.workbench import Workbench

    (basics, *_) = demo_snapshot().toolboxes["demo"].servers.values()
    eras = {
        era: msgspec.structs.replace(basics, address=ServerAddress("self-test", era), era=era)
        for era in ("legacy", "modern")
    }
    box = ToolboxSpec("self-test", "", eras)
    async with Workbench(Snapshot({"self-test": box}), environ=_without_cache()) as workbench:
        for era in eras:
            await workbench.use_tool(ToolIdentifier("self-test", era, "add"), {"a": 2, "b": 3})


# Checks of the servers


def check_servers(specs: list[ServerSpec], reports: list[ServerReport]) -> Iterator[CheckResult]:
    for spec, report in zip(specs, reports, strict=True):
        subject = str(report.address)
        if report.reason:
            code, command = code_and_fix(report.reason, spec.address)
            fix = command if code != UNREACHED else fix_of(spec, report.reason, os.environ)
            yield CheckResult("bad", subject, cause(report.reason), fix, code, spec.place)
            continue
        count = len(report.tools)
        tools = f"{count} tool{'' if count == 1 else 's'}"
        tools += f", {report.hidden} hidden" if report.hidden else ""
        program = f"{report.server_name} {report.server_version}".strip()
        about = f"{program or 'ready'}, {report.revision}, {tools}, {report.seconds:.1f} s"
        yield CheckResult("good", subject, about)


def check_sandboxes(snapshot: Snapshot, specs: list[ServerSpec]) -> Iterator[CheckResult]:
    """Reports the sandbox of each server that has one, and what keeps it from being made."""
    chosen = {str(spec.address) for spec in specs}
    boxes = [b for b in sandboxes(snapshot, os.environ) if b.document.server in chosen]
    for box in boxes:
        yield from (problem_result(p, snapshot.origin, "sandbox") for p in box.problems)
    if boxes:
        yield CheckResult("good", "sandbox", "; ".join(str(box.document) for box in boxes))


def check_texts(snapshot: Snapshot, reports: list[ServerReport]) -> Iterator[CheckResult]:
    """Yields warnings about concealed text and suspicious phrases in what these servers define."""
    from mcp_workbench.cli.suspicious_texts import text_problems  # the tab key loads this file, too

    for problem, _ in text_problems(snapshot, reports):
        yield problem_result(problem, "", "tools")


def check_variables(snapshot: Snapshot, specs: list[ServerSpec]) -> Iterator[CheckResult]:
    """Yields where the variables of these servers come from, and what is wrong with secrets."""
    sources = variable_sources(snapshot, specs, os.environ)
    if sources:
        yield CheckResult("good", "variables", described(sources))
    for problem in source_warnings(sources):
        yield problem_result(problem, snapshot.origin, "variables")


def check_sign_ins(snapshot: Snapshot, specs: list[ServerSpec]) -> Iterator[CheckResult]:
    """Yields who is signed in at these servers, and which sign-ins have ended."""
    if not has_credentials(os.environ):
        return
    from mcp_workbench.cli.sign_in_reports import describe, is_over, renewal_command, sign_ins

    names = {str(spec.address) for spec in specs}
    for one in sign_ins(snapshot):
        if one.server not in names:
            continue
        if is_over(one):
            grade = "doubtful" if one.principal else "bad"  # that person is asked at the next call
            yield CheckResult(grade, one.server, describe(one), renewal_command(one), "WB-AUTH-012")
        else:
            yield CheckResult("good", one.server, describe(one))


# Checks of the programs that servers need


def check_programs(specs: list[ServerSpec], environ: Mapping[str, str]) -> Iterator[CheckResult]:
    """Reports versions that are too old, and commands that only this shell's PATH has."""
    commands = commands_of(specs)
    path = environ.get("PATH", os.defpath)
    versions: list[str] = []
    for runtime in dict.fromkeys(RUNTIMES[c] for c in commands if c in RUNTIMES):
        program = shutil.which(runtime.program, path=path)
        version = program_version(program) if program else ()
        if version and version < runtime.oldest:
            yield _too_old(runtime, version)
        elif version:
            versions.append(f"{runtime.program} {_dotted(version)}")
    if versions:
        yield CheckResult("good", PROGRAMS, ", ".join(versions))
    lost = [c for c in commands if shutil.which(c, path=path)]
    lost = [c for c in lost if not shutil.which(c, path=DESKTOP_PATH)]
    if lost:
        where = [str(shutil.which(c, path=path)) for c in lost]
        yield CheckResult(
            "doubtful",
            PROGRAMS,
            f"only this PATH leads to {', '.join(lost)}: hosts started from a desktop have another",
            f"write absolute paths: {written(lost[0], where[0])}",
            "WB-CONN-103",
        )


def _too_old(runtime: Runtime, version: tuple[int, ...]) -> CheckResult:
    wanted = _dotted(runtime.oldest)
    message = (
        f"{runtime.program} {_dotted(version)} is older than {wanted}, which most servers need"
    )
    return CheckResult("doubtful", PROGRAMS, message, runtime.install, "WB-CONN-104")


def program_version(program: str) -> tuple[int, ...]:
    """Returns the first version number that it prints, or an empty tuple."""
    try:
        done = subprocess.run(  # noqa: S603 - found on the PATH that its servers are started with
            [program, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", done.stdout + done.stderr)
    return tuple(int(part) for part in match.groups() if part) if match else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def commands_of(specs: Iterable[ServerSpec]) -> list[str]:
    """Returns the commands that are given without a folder and without a variable, each once."""
    commands = [s.target.command for s in specs if isinstance(s.target, StdioCommand)]
    return list(dict.fromkeys(c for c in commands if os.sep not in c and "$" not in c))
