"""Sandboxes at launch: the command line of a confined server on this machine.

`core.bubblewrap` decides what it contains; this module looks at paths, limits and programs for it. A sandbox that can't be made costs its server: it is never left out, except for `auto`, which says so. Everything
here may block. It does not load asyncio, because commands that start no server use it, too.
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.config.state_home import private_folder, state_home
from mcp_workbench.core.bubblewrap import (
    Surroundings,
    box_arguments,
    is_inside,
    is_visible,
    limited,
    probe_arguments,
    seen_at,
)
from mcp_workbench.core.spec import (
    LOCK_NAME,
    UNCONFINED,
    ResourceLimits,
    Sandbox,
    StdioCommand,
)
from mcp_workbench.upstream.launch import folder_of

if TYPE_CHECKING:
    from pathlib import Path

    from mcp_workbench.upstream.cgroup import Delegation

log = logging.getLogger(__name__)

PROGRAM = "bwrap"
PREFIX = "sandbox: "  # begins every reason of ours
NO_SANDBOX, BAD_PATH, NO_LIMIT = "WB-BOX-701", "WB-BOX-702", "WB-BOX-703"
OPEN_CONFIGURATION = "WB-BOX-704"
PROBE_SECONDS = 10.0  # for a program that does nothing; it takes 10 ms
MOST_PARTS = 10_000  # names on the way to a file, those of links included; a path has 2,000 at most
COUNTS_PER_SANDBOX = (5, 14)  # Linux; before, all processes of the user count
_INSTALL = "install bubblewrap with the package manager of this system"
_ALLOW = (
    'allow user namespaces to bwrap on this machine or in this container, or write "sandbox": "off"'
)
_TEMPORARY = ("TMPDIR", "TEMP", "TMP")
_WORKING: set[tuple[str, ...]] = (
    set()
)  # command lines that made a sandbox; the machine does not change
_MENTIONED: set[str] = set()  # of what was logged
_LOOKING = threading.Lock()


class SandboxUnavailable(Exception):
    """This server can't be confined as configured. The text has the code and the fix."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(f"{PREFIX}{message} ({code}; fix: {fix})")
        self.code = code
        self.message = message
        self.fix = fix


class Confined(msgspec.Struct, frozen=True):
    """A command line that confines a program."""

    argv: tuple[str, ...]
    env: dict[str, str]
    box: str  # none, process or files

    def __repr__(self) -> str:
        return f"Confined({self.box!r})"  # the rest may hold secrets


def confine(
    target: StdioCommand,
    argv: tuple[str, ...],
    env: dict[str, str],
    environ: Mapping[str, str],
    *,
    starts: bool = False,
) -> Confined:
    """Returns how to start an expanded command in its sandbox, with its limits. Raises SandboxUnavailable.

    `starts`: it is started now, so what must be hidden has to exist.
    """
    box, bwrap = effective_box(target.sandbox, environ)
    _, limits = held_by_group(target.resources)
    if problem := limit_problem(limits, box):
        raise SandboxUnavailable(NO_LIMIT, *problem)
    inner = limited(argv, limits)
    if box == UNCONFINED:
        return Confined(inner, env, box)
    sandbox = _absolute(target, environ)
    if starts:
        _make_hideable(target, sandbox, environ)
    around = surroundings(target, sandbox, env, environ)
    if problem := program_problem(argv[0], sandbox, around.cwd):
        raise SandboxUnavailable(BAD_PATH, *problem)
    options = box_arguments(sandbox, around)
    return Confined((bwrap, *options, "--", *inner), _with_temporary(env, sandbox), box)


def effective_box(sandbox: Sandbox, environ: Mapping[str, str]) -> tuple[str, str]:
    """Returns which sandbox a process gets, and the program that makes it. Raises SandboxUnavailable."""
    if sandbox.kind == "off":
        return UNCONFINED, ""
    try:
        bwrap = working_program(sandbox, environ)
    except SandboxUnavailable as error:
        if sandbox.kind != "auto":
            raise
        if error.message not in _MENTIONED:
            _MENTIONED.add(error.message)
            log.warning("servers run without a sandbox: %s", error.message)
        return UNCONFINED, ""
    return "files" if sandbox.kind == "files" else "process", bwrap


def working_program(sandbox: Sandbox, environ: Mapping[str, str]) -> str:
    """Returns the program that makes such a sandbox, after trying it once. Raises SandboxUnavailable."""
    if sys.platform != "linux":
        raise SandboxUnavailable(
            NO_SANDBOX, "this system has none, only Linux does", 'write "sandbox": "off"'
        )
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    # Not from a relative folder: a server could have put a program of that name there.
    absolute = [folder for folder in folders if os.path.isabs(folder)]  # noqa: PTH117
    paths = (os.path.join(folder, PROGRAM) for folder in absolute)  # noqa: PTH118
    bwrap = next((path for path in paths if os.access(path, os.X_OK)), "")
    if not bwrap:
        raise SandboxUnavailable(
            NO_SANDBOX, f"bubblewrap ({PROGRAM}) is not installed, or not on the PATH", _INSTALL
        )
    argv = (bwrap, *probe_arguments(sandbox, is_root=os.geteuid() == 0), "--", "true")
    if argv not in _WORKING:
        if reason := _failure(argv):
            raise SandboxUnavailable(
                NO_SANDBOX, f"bubblewrap can't make one here: {reason}", _ALLOW
            )
        _WORKING.add(argv)
    return bwrap


def _failure(argv: tuple[str, ...]) -> str:
    """Returns why this command line fails; empty if it does not."""
    try:
        done = subprocess.run(  # noqa: S603 - no part of it comes from a server or its entry
            argv,
            env={"PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return getattr(error, "strerror", None) or "it does not end"
    if done.returncode == 0:
        return ""
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return last.removeprefix(f"{PROGRAM}: ") or f"exit status {done.returncode}"


# Paths


def _absolute(target: StdioCommand, environ: Mapping[str, str]) -> Sandbox:
    """Returns the sandbox with absolute paths, without those that do not exist. Raises SandboxUnavailable."""
    sandbox = target.sandbox
    if sandbox.kind != "files":
        return sandbox
    lists: dict[str, tuple[str, ...]] = {}
    for key in ("read", "write", "hide"):
        paths = [(p, full_path(p, target.folder, environ)) for p in getattr(sandbox, key)]
        for written, path in paths:
            if os.path.realpath(path) == "/proc" or os.path.realpath(path).startswith("/proc/"):
                fix = f"remove it from 'sandbox.{key}'"
                raise SandboxUnavailable(BAD_PATH, f"'{written}' is in /proc", fix)
        lists[key] = tuple(path for _, path in paths if os.path.exists(path))  # noqa: PTH110
    sandbox = msgspec.structs.replace(sandbox, **lists)
    if problem := _link_problem(sandbox, environ):
        raise SandboxUnavailable(BAD_PATH, *problem)
    return sandbox


def _link_problem(sandbox: Sandbox, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Returns which link the server could change to decide itself what it gets, and the fix.

    A link inside of what may be written is harmless if it stays there. What is hidden must not depend
    on any, nor a folder on a link that is in it.
    """
    writable = [(path, os.path.realpath(path)) for path in sandbox.write]
    hidden = (*sandbox.hide, state_home(environ))
    for path in (*sandbox.read, *sandbox.write, *(path for path in hidden if path)):
        real = os.path.realpath(path)
        for link in followed_links(path):
            for granted, folder in writable:
                stays = path not in (granted, *hidden) and is_inside(real, folder)
                if is_inside(link, folder) and not stays:
                    message = f"{path} depends on the link {link}, which the server may change"
                    return message, "remove the link, or write the path that is meant without it"
    return None


def followed_links(path: str) -> Iterator[str]:
    """Yields each symbolic link on the way to what an absolute path is, by the real path of its folder."""
    at, rest = "/", path.split("/")[::-1]
    for _ in range(MOST_PARTS):
        if not rest:
            return
        name = rest.pop()
        if name == "..":
            at = os.path.dirname(at)  # noqa: PTH120
        elif name not in ("", "."):
            here = os.path.join(at, name)  # noqa: PTH118
            try:
                rest += os.readlink(here).split("/")[::-1]  # noqa: PTH115
            except OSError:  # no link
                at = here
                continue
            yield here
            at = "/" if os.readlink(here).startswith("/") else at  # noqa: PTH115


def _make_hideable(target: StdioCommand, sandbox: Sandbox, environ: Mapping[str, str]) -> None:
    """Makes our state folder where a grant covers it: what does not exist can't be hidden."""
    for key, index, _ in missing_paths(target, environ):
        if key == "hide":  # the path may hold the value of a variable
            text = "sandbox.hide[%d] of a server does not exist (mcp-workbench check names it)"
            log.warning("%s: it is not hidden if it is made later", text % index)
    state = state_home(environ)
    grants = [(path, os.path.realpath(path)) for path in (*sandbox.read, *sandbox.write)]
    if not state or not any(seen_at(os.path.realpath(state), grants)):
        return
    try:
        private_folder(state)
    except OSError as error:
        message = f"our own folder {state} can't be hidden in it: {error.strerror or error}"
        fix = "grant less than its parent folder, or set MCP_WORKBENCH_HOME"
        raise SandboxUnavailable(BAD_PATH, message, fix) from None


def may_write_configuration(target: StdioCommand, environ: Mapping[str, str]) -> bool:
    """Is the configuration file in a folder that the server may write?"""
    if not target.sandbox.config:
        return False
    paths = [full_path(path, target.folder, environ) for path in target.sandbox.write]
    writable = [(path, os.path.realpath(path)) for path in paths]
    config = target.sandbox.config
    places = (os.path.realpath(config), *followed_links(config))
    return any(place for path in places for place in seen_at(path, writable))


def missing_paths(
    target: StdioCommand, environ: Mapping[str, str]
) -> Iterator[tuple[str, int, str]]:
    """Yields each path of the sandbox that does not exist, after its list and its place there."""
    sandbox = target.sandbox
    for key, paths in (("read", sandbox.read), ("write", sandbox.write), ("hide", sandbox.hide)):
        for index, path in enumerate(paths):
            if not os.path.exists(full_path(path, target.folder, environ)):  # noqa: PTH110
                yield key, index, path


def full_path(path: str, folder: str, environ: Mapping[str, str]) -> str:
    """Returns the path from the folder of the configuration file; `~` is the home of the user."""
    if path == "~" or path.startswith("~/"):
        path = environ.get("HOME", "/") + path[1:]
    joined = os.path.join(folder or os.getcwd(), path)  # noqa: PTH118, PTH109
    return "/" + os.path.normpath(joined).lstrip("/")


def surroundings(
    target: StdioCommand, sandbox: Sandbox, env: Mapping[str, str], environ: Mapping[str, str]
) -> Surroundings:
    """Returns what this machine adds to a sandbox with absolute paths.

    Our state folder is hidden, with the socket of the shared workbench in it. The configuration file is
    read-only, and so is its lock file: whoever writes them decides what is started outside. What may
    only be read is read-only wherever it can be seen.
    """
    cwd = folder_of(target) or os.getcwd()  # noqa: PTH109
    home = env.get("HOME", "")
    is_root = os.geteuid() == 0
    if sandbox.kind != "files":
        return Surroundings(cwd, home, is_root)
    writable = [(path, os.path.realpath(path)) for path in sandbox.write]
    grants = [*writable, *((path, os.path.realpath(path)) for path in sandbox.read)]
    hidden = [os.path.realpath(path) for path in (*sandbox.hide, state_home(environ)) if path]
    kept = [os.path.realpath(path) for path in (*sandbox.read, *_own_files(sandbox.config))]
    return Surroundings(
        full_path(cwd, "", environ),
        full_path(home, "/", environ) if home.startswith("/") else "",
        is_root,
        tuple(place for path in hidden if os.path.isdir(path) for place in seen_at(path, grants)),  # noqa: PTH112
        tuple(place for path in hidden if _is_other(path) for place in seen_at(path, grants)),
        tuple(place for path in kept for place in seen_at(path, writable)),
    )


def _is_other(path: str) -> bool:
    """Is it a file, a socket, a pipe, a device?"""
    return os.path.exists(path) and not os.path.isdir(path)  # noqa: PTH110, PTH112


def _own_files(config: str) -> list[str]:
    """Returns the configuration file and its lock file, as far as they exist."""
    if not config:
        return []
    lock = os.path.join(os.path.dirname(config), LOCK_NAME)  # noqa: PTH118, PTH120
    return [path for path in (config, lock) if os.path.isfile(path)]  # noqa: PTH113


def program_problem(program: str, sandbox: Sandbox, cwd: str) -> tuple[str, str] | None:
    """Returns why a program can't be started in its sandbox, and the fix."""
    path = os.path.join(cwd, program)  # noqa: PTH118
    for place in dict.fromkeys((path, os.path.realpath(path))):
        if not is_visible(place, sandbox):
            folder = os.path.dirname(place)  # noqa: PTH120
            return f"its program {place} is not in it", f"add {folder} to 'sandbox.read'"
    return None


def _with_temporary(env: dict[str, str], sandbox: Sandbox) -> dict[str, str]:
    """Returns the environment with a folder for temporary files that is in the sandbox."""
    if sandbox.kind != "files":
        return env
    lost = [n for n in _TEMPORARY if n in env and not is_visible(env[n], sandbox)]
    return {**env, **dict.fromkeys(lost, "/tmp")}  # noqa: S108 - the sandbox's own


# Limits


def held_by_group(limits: ResourceLimits) -> tuple[tuple[str, ...], ResourceLimits]:
    """Returns the controllers of a control group that hold some of these limits, and the rest of them."""
    if not (limits.memory_bytes or limits.processes):
        return (), limits
    return _delegation().split(limits)


def enter_group(
    argv: tuple[str, ...], limits: ResourceLimits
) -> tuple[tuple[str, ...], "Path | None"]:
    """Make a control group for a server if one can hold some of its limits.

    Returns the command line that enters it, and the group. Raises SandboxUnavailable.
    """
    controllers, _ = held_by_group(limits)
    if not controllers:
        return argv, None
    from mcp_workbench.upstream.cgroup import joining  # there are few who have one

    try:
        group = _delegation().make_group(limits, controllers)
    except OSError as error:
        message = f"the control group for resourceLimits can't be made: {error.strerror}"
        raise SandboxUnavailable(
            NO_LIMIT, message, "look at the controllers of this group"
        ) from None
    return joining(group, argv), group


def end_group(group: "Path") -> bool:
    """The server has ended: so does everything in its group. False if that takes a moment more."""
    return _delegation().end_group(group)


def _delegation() -> "Delegation":
    with _LOOKING:  # servers are started at the same time, in threads
        return _found_delegation()


@cache
def _found_delegation() -> "Delegation":
    from mcp_workbench.upstream.cgroup import find_delegation

    return find_delegation()


def limit_problem(limits: ResourceLimits, box: str) -> tuple[str, str] | None:
    """Returns why the system would not enforce a limit, and the fix."""
    if limits == ResourceLimits():
        return None
    import resource  # not on every system

    for name, wanted, kind in (
        ("openFiles", limits.open_files, resource.RLIMIT_NOFILE),
        ("memoryBytes", limits.memory_bytes, resource.RLIMIT_DATA),
    ):
        most = resource.getrlimit(kind)[1]
        if most != resource.RLIM_INFINITY and wanted > most:
            return f"resourceLimits.{name} is more than this user may have", f"write {most} or less"
    if not limits.processes:
        return None
    if box == UNCONFINED:
        message = (
            "without one, the system counts all processes of this user for resourceLimits.processes"
        )
        return message, 'write "sandbox": "process", or remove that limit'
    if os.geteuid() == 0:
        fix = "run as an ordinary user, or with a delegated control group"
        return "the system does not limit the processes of root", fix
    if _kernel() < COUNTS_PER_SANDBOX:
        message = "this kernel counts the processes of a user, not those of a sandbox"
        return message, "use Linux 5.14 or newer, or remove resourceLimits.processes"
    return None


def _kernel() -> tuple[int, ...]:
    numbers = os.uname().release.partition("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())
