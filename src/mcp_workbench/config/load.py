"""From a file to a snapshot, or to all of its problems; without a file, to the built-in demo."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

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
from mcp_workbench.config.findings import Finding, problems_of
from mcp_workbench.config.validate import validate
from mcp_workbench.core.errors import ConfigError, Problem
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import ServerSpec, Snapshot, StdioCommand, ToolboxSpec
from mcp_workbench.transport.json_text import read_json

if TYPE_CHECKING:
    from pathlib import Path  # loading it takes four milliseconds

FILE_NAME = "workbench-config.json"
VARIABLE = "WORKBENCH_CONFIG"
MOST_BYTES = 8 << 20  # of a file; a larger one was named by mistake

_WRITE = "write the file there, or name the right one with --config"
_DEMO = "demo"
_DEMO_SERVERS = ("basics", "workshop")
_DEMO_DESCRIPTION = (
    "A demo, there being no configuration yet: text, numbers, dice, units. "
    "Next: write workbench-config.json and run `mcp-workbench check`."
)


def chosen_snapshot(option: str | None, *, careful: bool = False) -> Snapshot:
    """Returns the user's configuration: the named or found file, else the demo. `option`: `--config`."""
    path = find_config(option, os.environ, _here())
    if path is not None:
        return load_config(path, careful=careful, named=is_named(option, os.environ))
    return demo_snapshot()


def owner_notice(snapshot: Snapshot) -> str:
    """Returns one line for a user who has named a file that another user could have written."""
    warnings = [
        OwnershipWarning(w.code, w.message) for w in snapshot.warnings if w.code in OWNERSHIP_CODES
    ]
    return ownership_notice(snapshot.origin, warnings)


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - four milliseconds
    except FileNotFoundError:
        return ""  # the folder was removed: nothing is in it, but absolute paths still work


def find_config(option: str | None, environ: Mapping[str, str], cwd: str | Path) -> str | None:
    """Returns the file to use: the option, else the variable, else the usual name. None: the demo."""
    given = option if option is not None else environ.get(VARIABLE) or None
    path = os.path.join(cwd, FILE_NAME if given is None else given)  # noqa: PTH118
    if _exists(path):
        return path
    if given is None:
        return None
    source = "--config" if option is not None else f"${VARIABLE}"
    raise _refused(path, "WB-CONF-001", f"there is no such file (named by {source})", _WRITE)


def is_named(option: str | None, environ: Mapping[str, str]) -> bool:
    """Has the user named the file? Otherwise it was just found in the current folder."""
    return option is not None or bool(environ.get(VARIABLE))


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
    value, plain = _decoded(file, raw)
    folder = os.path.dirname(os.path.abspath(file))  # noqa: PTH100, PTH120
    snapshot, more = validate(value, os.environ if environ is None else environ, folder)
    findings += more
    if not (findings or careful or not plain):
        return msgspec.structs.replace(snapshot, origin=file)
    problems = problems_of(findings, raw.decode())
    errors = tuple(p for p in problems if p.severity == "error")
    warnings = tuple(p for p in problems if p.severity == "warning")
    if errors:
        raise ConfigError(file, errors, warnings)
    return msgspec.structs.replace(snapshot, origin=file, warnings=warnings)


def _refused(file: str, code: str, message: str, fix: str) -> ConfigError:
    return ConfigError(file, (Problem("", message, fix, code),))


def _exists(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass  # it exists somehow; loading it reports the reason
    return True


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
        fix = "see that this user may read it"
        raise _refused(file, "WB-CONF-002", f"can't be read: {reason}", fix) from None
    if not raw.strip():
        fix = 'begin with {"mcpServers": {}}'
        raise _refused(file, "WB-CONF-004", "the file is empty", fix)
    return raw, findings


def _owner_findings(file: str, status: os.stat_result, *, named: bool) -> list[Finding]:
    """Whoever can write this file can start programs as this user."""
    if os.name == "posix" and stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IWOTH:
        fix = f"chmod o-w {file}"
        raise _refused(file, "WB-CONF-006", "everybody on this machine can change this file", fix)
    ownership = check_ownership(file, status)
    if ownership and not named:
        fix = f"use a file of your own; if you trust this one, name it: --config {file}"
        raise ConfigError(file, tuple(Problem("", why, fix, code) for code, why in ownership))
    fix = "change the owner or the rights, or use a copy of your own"
    return [Finding((), code, why, fix, "warning") for code, why in ownership]


def _decoded(file: str, raw: bytes) -> tuple[Any, bool]:
    """Returns the value of the file, and whether it is plain JSON."""
    try:
        return read_json(raw), True
    except (ValueError, RecursionError):
        pass
    from mcp_workbench.config import jsonc  # only for files that need it: starting is quicker

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
