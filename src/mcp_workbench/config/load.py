"""Loads the configuration file: the result is a snapshot, or all of its problems.

A file that is named comes first, then that of the current folder, then the user's own. Without any, the
configuration is the built-in demo. `FileWatch` loads a file again when it changes.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.config.expand import dotted
from mcp_workbench.config.file_access import (
    OWNERSHIP_CODES,
    PIPE_WAIT,
    OwnershipWarning,
    TooLarge,
    TooSlow,
    at_once,
    check_ownership,
    ownership_notice,
    read_open,
)
from mcp_workbench.config.findings import MOST, Finding
from mcp_workbench.config.user_file import user_config
from mcp_workbench.config.validate import validate
from mcp_workbench.core.errors import ConfigError, Problem
from mcp_workbench.core.spec import (
    LOCK_NAME,
    ServerAddress,
    ServerSpec,
    Snapshot,
    StdioCommand,
    ToolboxSpec,
)
from mcp_workbench.timing import pause
from mcp_workbench.transport.json_text import read_json

if TYPE_CHECKING:
    from pathlib import Path  # loading it takes four milliseconds

    from mcp_workbench.config import jsonc

FILE_NAME = "workbench-config.json"
VARIABLE = "WORKBENCH_CONFIG"
MOST_BYTES = 8 << 20  # of a file; a larger one was named by mistake
MOST_READ = 1 << 20  # characters of a file in which findings are placed on lines
POLL = pause(1.0)  # seconds between two polls; one costs some microseconds
SETTLE = pause(0.15)  # seconds without a change until a written file counts as complete
DOUBT = pause(0.5)  # more seconds for a file with errors: a slow writer may not be done
ROUNDS = 20  # polls of a file that never settles before it is read anyway

_WRITE = "write the file there, or name the right one with --config"
_DEMO = "demo"
_DEMO_SERVERS = ("basics", "workshop")
_DEMO_DESCRIPTION = (
    "A demo, there being no configuration yet: text, numbers, dice, units. "
    "Next: run `mcp-workbench import` or `mcp-workbench add`."
)
DEMO_NOTICE = (
    "mcp-workbench: no configuration file was found, so this is the built-in demo; "
    "mcp-workbench import, add or init makes one"
)


def chosen_snapshot(option: str | None, *, careful: bool = False) -> Snapshot:
    """Returns the user's configuration: the named or found file, else the demo. `option`: `--config`."""
    path = find_config(option, os.environ, _here())
    if path is not None:
        return load_config(path, careful=careful, named=is_named(option, os.environ))
    return demo_snapshot()


def find_config(option: str | None, environ: Mapping[str, str], cwd: str | Path) -> str | None:
    """Returns the file to use: the option, else the variable, else the usual name in the folder, else
    the user's own file. None: the demo.
    """
    given = option if option is not None else environ.get(VARIABLE) or None
    path = os.path.join(cwd, FILE_NAME if given is None else given)  # noqa: PTH118
    if _exists(path):
        return path
    if given is None:
        own = user_config(environ)
        return own if own and _exists(own) else None
    source = "--config" if option is not None else f"${VARIABLE}"
    raise _refused(path, "WB-CONF-001", f"there is no such file (named by {source})", _WRITE)


def is_named(option: str | None, environ: Mapping[str, str]) -> bool:
    """Has the user named the file? Otherwise it was just found."""
    return option is not None or bool(environ.get(VARIABLE))


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - four milliseconds
    except FileNotFoundError:
        return ""  # the folder was removed: nothing is in it, but absolute paths still work


def _exists(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass  # it exists somehow; loading it reports the reason
    return True


# One file


def load_config(
    path: str | Path,
    environ: Mapping[str, str] | None = None,
    *,
    careful: bool = False,
    named: bool = True,
) -> Snapshot:
    """Returns the configuration in this file. `careful` also reports duplicate keys.

    A file that another user could have written is refused, unless the user has named it: then the
    snapshot carries a warning.
    """
    file = str(path)
    raw, findings = _read(file, named=named)
    environ = os.environ if environ is None else environ
    return _snapshot(file, raw, environ, findings, careful=careful)


def snapshot_of(file: str, raw: bytes, environ: Mapping[str, str]) -> Snapshot:
    """Returns the configuration that this file would be with these bytes, and without a lock file.

    Raises ConfigError.
    """
    snapshot = _snapshot(file, raw, environ, [], careful=False)
    return msgspec.structs.replace(snapshot, lock=None)


def _snapshot(
    file: str, raw: bytes, environ: Mapping[str, str], findings: list[Finding], *, careful: bool
) -> Snapshot:
    value, plain = _decoded(file, raw)
    folder = os.path.dirname(os.path.abspath(file))  # noqa: PTH100, PTH120
    snapshot, more = validate(value, environ, folder, os.path.abspath(file))  # noqa: PTH100
    findings = [*findings, *more]
    if not (findings or careful or not plain):
        return _locked(msgspec.structs.replace(snapshot, origin=file), folder)
    problems = problems_of(findings, raw.decode())
    errors = tuple(p for p in problems if p.severity == "error")
    warnings = tuple(p for p in problems if p.severity == "warning")
    if errors:
        raise ConfigError(file, errors, warnings)
    return _locked(msgspec.structs.replace(snapshot, origin=file, warnings=warnings), folder)


def _locked(snapshot: Snapshot, folder: str) -> Snapshot:
    """Returns the configuration with the lock file in its folder, if there is one or a level needs one."""
    path = os.path.join(folder, LOCK_NAME)  # noqa: PTH118
    levels = {spec.lock for box in snapshot.toolboxes.values() for spec in box.servers.values()}
    if not levels & {"pin", "review"} and (levels <= {"off"} or not _exists(path)):
        return snapshot
    from mcp_workbench.config.lock_file import read_lock  # only where it is used

    lock = read_lock(path)
    warnings = snapshot.warnings if lock.problem is None else (*snapshot.warnings, lock.problem)
    return msgspec.structs.replace(snapshot, lock=lock, warnings=warnings)


def _read(file: str, *, named: bool) -> tuple[bytes, list[Finding]]:
    try:
        with open(file, "rb", buffering=0, opener=at_once) as stream:
            status = os.fstat(stream.fileno())
            findings = _owner_findings(file, status, named=named)
            raw = read_open(stream.fileno(), status, MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise _refused(file, "WB-CONF-001", "there is no such file", _WRITE) from None
    except IsADirectoryError:
        fix = f"name the file in it, such as {FILE_NAME}"
        raise _refused(file, "WB-CONF-002", "this is a folder", fix) from None
    except TooSlow:
        message = f"this is a pipe, and nobody has written a whole file to it for {PIPE_WAIT:g} s"
        fix = "start what writes to it, or name a plain file"
        raise _refused(file, "WB-CONF-002", message, fix) from None
    except TooLarge:
        message = f"the file is larger than {MOST_BYTES >> 20} MiB"
        raise _refused(file, "WB-CONF-005", message, "name the configuration file itself") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        fix = "make it readable for this user"
        raise _refused(file, "WB-CONF-002", f"can't be read: {reason}", fix) from None
    if not raw.strip():
        fix = 'begin with {"mcpServers": {}}'
        raise _refused(file, "WB-CONF-004", "the file is empty", fix)
    return raw, findings


def _owner_findings(file: str, status: os.stat_result, *, named: bool) -> list[Finding]:
    """Returns warnings about the owner, or refuses the file: who writes it starts programs as this user."""
    if os.name == "posix" and stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IWOTH:
        fix = f"chmod o-w {file}"
        raise _refused(file, "WB-CONF-006", "everybody on this machine can change this file", fix)
    ownership = check_ownership(file, status)
    if ownership and not named:
        fix = f"use a file of your own; if you trust this one, name it: --config {file}"
        problems = (Problem("", warning.message, fix, warning.code) for warning in ownership)
        raise ConfigError(file, tuple(problems))
    fix = "change the owner or the rights, or use a copy of your own"
    return [Finding((), w.code, w.message, fix, "warning") for w in ownership]


def require_owner(file: str, *, named: bool) -> None:
    """Raises ConfigError for an existing file that would be refused because of its owner or its rights."""
    _owner_findings(file, os.stat(file), named=named)  # noqa: PTH116 - follows symbolic links


def _decoded(file: str, raw: bytes) -> tuple[Any, bool]:
    """Returns the value of the file, and whether it is plain JSON."""
    try:
        return read_json(raw), True
    except (ValueError, RecursionError):
        pass
    from mcp_workbench.config import jsonc  # not loaded for plain JSON, for a quick start

    try:
        return jsonc.parse(raw.decode()), False
    except UnicodeDecodeError as error:
        place = jsonc.place_of_byte(raw, error.start)
        message = "the file is not UTF-8 text"
        problem = Problem("", message, "save it as UTF-8", "WB-CONF-003", *place)
    except jsonc.SyntaxProblem as error:
        fix = "correct the text there; comments and trailing commas are allowed"
        problem = Problem("", error.message, fix, "WB-CONF-007", error.line, error.column)
    raise ConfigError(file, (problem,))


def _refused(file: str, code: str, message: str, fix: str) -> ConfigError:
    return ConfigError(file, (Problem("", message, fix, code),))


def owner_notice(snapshot: Snapshot) -> str:
    """Returns one line for a user who has named a file that another user could have written."""
    warnings = [
        OwnershipWarning(w.code, w.message) for w in snapshot.warnings if w.code in OWNERSHIP_CODES
    ]
    return ownership_notice(snapshot.origin, warnings)


# Lines and columns of findings


def problems_of(findings: list[Finding], text: str) -> list[Problem]:
    """Returns the findings and the duplicate keys with line and column, in the order of the file.

    Findings that only count others come last, without a place.
    """
    from mcp_workbench.config import jsonc  # not loaded without findings, for a quick start

    try:
        root = jsonc.read(text) if len(text) <= MOST_READ else None
    except jsonc.SyntaxProblem:
        root = None
    if root is None:  # too deep or too long for the parser: findings keep their paths only
        return [_problem(finding) for finding in findings]
    lines = jsonc.Lines(text)
    placed = [
        (_offset(text, root, finding), finding) for finding in findings if not finding.unlisted
    ]
    placed += islice(_duplicates(lines, root), MOST)
    placed.sort(key=lambda pair: pair[0])
    listed = [_problem(finding, *lines.place(offset)) for offset, finding in placed]
    return listed + [_problem(finding) for finding in findings if finding.unlisted]


def _offset(text: str, root: jsonc.Node, finding: Finding) -> int:
    from mcp_workbench.config import jsonc

    child = jsonc.find(root, finding.path)
    inside = text.find(finding.inside, child.node.start, child.node.end) if finding.inside else -1
    return child.start if inside < 0 else inside


def _duplicates(lines: jsonc.Lines, root: jsonc.Node) -> Iterator[tuple[int, Finding]]:
    from mcp_workbench.config import jsonc

    for twice in jsonc.duplicates(root):
        line, column = lines.place(twice.first)
        message = f"duplicate key; this one counts, the one at {line}:{column} does not"
        yield (
            twice.second,
            Finding(twice.path, "WB-CONF-024", message, "remove one of them", "warning"),
        )


def _problem(finding: Finding, line: int = 0, column: int = 0) -> Problem:
    return Problem(
        dotted(finding.path),
        finding.message,
        finding.fix,
        finding.code,
        line,
        column,
        finding.severity,
        finding.unlisted or 1,
    )


# A file that changes


LoadResult = Snapshot | ConfigError
Stamp = tuple[int, ...]

UNKNOWN: Stamp = (-1,)
ABSENT: Stamp = ()


class FileWatch:
    """Polls, waits and reads in a thread of its own: a drive that hangs blocks nothing else.

    `report` is called in that thread with each configuration or error, first with the file as it is
    now. A file that never existed (`optional`) is not reported as missing; while it does not exist,
    `fallback` is used if that does. One that another user could have written is refused, unless the
    user was warned when it was first read (`accepted`).
    """

    def __init__(
        self,
        path: str,
        report: Callable[[LoadResult], None],
        *,
        optional: bool,
        accepted: bool = False,
        fallback: str = "",
    ) -> None:
        self._path = path
        self._candidates = (path, fallback) if optional and fallback else ()
        self._report = report
        self._optional = optional
        self._accepted = accepted
        self._wake = threading.Event()
        self._over = False

    def start(self) -> None:
        threading.Thread(target=self._run, name="configuration", daemon=True).start()

    def look(self) -> None:
        """Reads the file now, even if it has not changed."""
        self._wake.set()

    def end(self) -> None:
        self._over = True
        self._wake.set()

    def _run(self) -> None:
        seen = UNKNOWN
        while True:
            asked = self._wake.wait(POLL)
            self._wake.clear()
            if self._over:
                return
            self._choose()
            if asked or self._stamp() != seen:
                seen = self._read(asked=asked)

    def _choose(self) -> None:
        """Chooses the file, as long as none was ever loaded."""
        if self._candidates and self._optional:
            first, last = self._candidates
            self._path = first if _exists(first) else last

    def _read(self, *, asked: bool) -> Stamp:
        """Reads the file when it has settled; returns its stamp."""
        stamp = self._stamp() if asked else self._settled(SETTLE)
        if stamp == ABSENT and self._optional:
            return stamp
        result = self._loaded()
        for _ in range(ROUNDS):
            if isinstance(result, Snapshot):
                self._optional = False
            elif (now := self._settled(DOUBT)) != stamp:
                stamp, result = now, self._loaded()
                continue
            break
        if not self._over:
            self._report(result)
        return stamp

    def _settled(self, seconds: float) -> Stamp:
        """Returns the stamp once it has stayed the same for so long."""
        stamp = self._stamp()
        for _ in range(ROUNDS):
            if self._pause(seconds) or (now := self._stamp()) == stamp:
                break
            stamp = now
        return stamp

    def _stamp(self) -> Stamp:
        """Returns the stamp of the file, and of the lock file beside it."""
        stamp = stamp_of(self._path)
        folder = os.path.dirname(self._path)  # noqa: PTH120
        return stamp and stamp + stamp_of(os.path.join(folder, LOCK_NAME))  # noqa: PTH118

    def _pause(self, seconds: float) -> bool:
        """Waits; returns whether the watch has ended."""
        self._wake.wait(seconds)
        return self._over

    def _loaded(self) -> LoadResult:
        try:
            return load_config(self._path, named=self._accepted)
        except ConfigError as error:
            return error


def stamp_of(path: str) -> Stamp:
    """Returns a stamp that changes with the file, however it is written: in place, by rename, by link."""
    try:
        status = os.stat(path)  # noqa: PTH116 - follows symbolic links
    except (OSError, ValueError):
        return ABSENT
    # ctime changes where mtime is kept: cp -p, chmod, a rename of an old file.
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


# The built-in demo


def demo_snapshot() -> Snapshot:
    """Returns a toolbox with our two demo servers, started by this Python. It needs nothing else."""
    servers = {name: _demo_server(name) for name in _DEMO_SERVERS}
    return Snapshot({_DEMO: ToolboxSpec(_DEMO, _DEMO_DESCRIPTION, servers)})


def _demo_server(name: str) -> ServerSpec:
    # -P: never import modules of the current folder
    args = ("-P", "-m", "mcp_workbench.demo", name)
    python = sys.executable.replace("${", "$${")  # a path, not a variable
    return ServerSpec(ServerAddress(_DEMO, name), StdioCommand(python, args))
