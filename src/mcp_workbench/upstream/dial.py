"""What a connection needs of whatever carries its bytes: a child's pipes, or HTTP.
Where a command is on this machine. Pure: the system is asked through a function.

On Windows `npx` is `npx.cmd`: the endings that count as programs are tried, as its shell does.
Why a command can't be started, with what to write instead.
How many processes of servers run: one for each that is used, or one for each host of it.
From a wish to a channel: what is started, with which environment, and why it could not be."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import Protocol

from mcp_workbench.config.expand import Unexpandable, expand_target
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import HttpEndpoint, ServerSpec, StdioCommand
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.exit_reason import last_words
from mcp_workbench.wire.child import LAST_WORDS, Child, Launch, running_child
from mcp_workbench.wire.stdio import Channel

log = logging.getLogger(__name__)


class Link(Protocol):
    """One open road to a server."""

    @property
    def channel(self) -> Channel: ...

    @property
    def complaints(self) -> tuple[str, ...]:
        """What is wrong with tools that this road can't carry."""
        ...

    def agreed(self, revision: str) -> None:
        """Be told which revision is spoken from here on."""
        ...

    def hold(self, *, held: bool) -> None:
        """Stop listening to the server while a host can't keep up, or go on."""
        ...

    def unsent(self) -> tuple[bytes, ...]:
        """Requests that surely never reached the server, once the road is gone."""
        ...

    async def last_words(self, what: str, *, ended: bool) -> str:
        """`what` happened, with all that is known about why. `ended`: the road itself is gone."""
        ...


class StdioLink:
    """The road to a child of ours."""

    def __init__(self, child: Child, spec: ServerSpec, environ: Mapping[str, str]) -> None:
        self._child = child
        self._spec = spec
        self._environ = environ
        if log.isEnabledFor(logging.INFO):
            from mcp_workbench.upstream.stderr_log import Overheard  # only where there is a log

            child.overheard = Overheard(spec, environ).heard

    @property
    def group(self) -> int:
        """The process group of the server and all that it has started."""
        return self._child.pid

    @property
    def channel(self) -> Channel:
        return self._child.channel

    @property
    def complaints(self) -> tuple[str, ...]:
        return ()  # a pipe carries everything

    def agreed(self, revision: str) -> None:
        """A pipe is the same in every revision."""

    def hold(self, *, held: bool) -> None:
        self._child.hold(held=held)

    def unsent(self) -> tuple[bytes, ...]:
        return self._child.channel.unsent()

    async def last_words(self, what: str, *, ended: bool) -> str:
        if ended:
            await self._child.gone_within(LAST_WORDS)
        child = self._child
        return last_words(what, child.exit_status(), child.complaints, self._spec, self._environ)


def places(
    command: str, folders: Iterable[str], endings: tuple[str, ...], separators: str
) -> Iterable[str]:
    """Where it could be, in the order in which the system looks."""
    named = any(command.lower().endswith(ending) for ending in endings if ending)
    names = [command] if named or not endings else [command + ending for ending in endings]
    if any(mark in command for mark in separators):
        return names  # a path: it is there or nowhere
    return [f"{folder}{separators[0]}{name}" for folder in folders if folder for name in names]


def resolve(  # noqa: PLR0913 - as much as systems differ in
    command: str,
    path: str,
    *,
    is_program: Callable[[str], bool],
    path_separator: str = ":",
    separators: str = "/",
    endings: str = "",
) -> str | None:
    """The program that a command means, or None. `endings` is PATHEXT where the system has it."""
    known = tuple(ending.lower() for ending in endings.split(";") if ending) if endings else ()
    wanted = places(command, path.split(path_separator), known, separators)
    return next((place for place in wanted if is_program(place)), None)


FIRST_LINE = 256  # bytes; as much as Linux reads of it


def unusable_folder(cwd: str) -> str:
    """What is wrong with a working folder; empty where nothing is."""
    if not os.path.exists(cwd):  # noqa: PTH110 - text in, text out
        return f"its working folder {cwd} does not exist; correct 'cwd'"
    if not os.path.isdir(cwd):  # noqa: PTH112
        return f"its working folder {cwd} is no folder; correct 'cwd'"
    if not os.access(cwd, os.X_OK):
        return f"its working folder {cwd} may not be entered; correct 'cwd', or its rights"
    return ""


def not_startable(target: StdioCommand, path: str) -> str:
    """Why no program was found for this command."""
    command = target.command
    if os.path.isdir(command) and os.sep in command:  # noqa: PTH112
        return f"command is a folder: {command}; correct 'command'"
    if os.sep in command and os.path.exists(command):  # noqa: PTH110
        return f"command is not executable: {command}; chmod +x it or correct 'command'"
    if entry := _taken_apart(target):
        return f"command is a whole command line: {command}; write {entry}"
    if os.sep not in command:
        return f"command not found: {command} (searched PATH {path}); install it or write its absolute path"
    return f"command not found: {command}; correct 'command'"


def _taken_apart(target: StdioCommand) -> str:
    """The entry that was meant by a command line; empty where it is none."""
    # Only wanted when something has failed, so they are not loaded before.
    import shlex

    from msgspec.json import encode

    try:
        program, *args = shlex.split(target.command)
        name, *listed = [encode(word).decode() for word in (program, *args, *target.args)]
    except ValueError:  # an open quote, no word at all, or no text
        return ""
    # The path of a program may have spaces, too: then its first word leads nowhere.
    if not args or (os.sep in program and not os.access(program, os.X_OK)):
        return ""
    return f'"command": {name}, "args": [{", ".join(listed)}]'


def refused_by_system(command: str, error: OSError) -> str:
    """Why a program could not be started, with the limit that was met."""
    told = f"{command} can't be started: {error.strerror or error}"
    match error.errno:
        case errno.EMFILE:
            most = os.sysconf("SC_OPEN_MAX")
            return f"{told}: no more than {most} at once (ulimit -n), of which a server takes four"
        case errno.ENFILE:
            return f"{told}, on the whole machine (fs.file-max)"
        case errno.EAGAIN:
            return (
                f"{told}: no more processes are allowed (ulimit -u, or pids.max of the container)"
            )
        case errno.ENOENT if wrong := _wrong_first_line(error.filename or command):
            return f"{command} can't be started: {wrong}"
        case _:
            return told


def _wrong_first_line(program: str) -> str:
    """Of a script whose interpreter is not there; empty where that is not it."""
    try:
        with open(program, "rb") as file:  # noqa: PTH123 - text in, text out
            line = file.readline(FIRST_LINE)
    except OSError:
        return ""
    words = line.removeprefix(b"#!").replace(b"\t", b" ").strip(b" \n").split(b" ")
    interpreter = os.fsdecode(words[0])
    if not line.startswith(b"#!") or os.path.exists(interpreter):  # noqa: PTH110
        return ""
    if interpreter.endswith("\r"):  # for the system a part of the name
        return "its lines end as on Windows (CR LF); correct them to LF alone"
    told = f"its first line names the interpreter {interpreter}, which does not exist"
    return f"{told}; correct that line, or install {interpreter}"


log = logging.getLogger(__name__)


class Processes:
    """Counts them from their start until nothing of them is left; a server behind a URL has none."""

    def __init__(self) -> None:
        self._running: dict[ServerAddress, int] = {}

    def of(self, address: ServerAddress) -> int:
        return self._running.get(address, 0)

    @property
    def count(self) -> int:
        return sum(self._running.values())

    @contextmanager
    def running(self, address: ServerAddress, pid: int) -> Generator[None]:
        """One more, for as long as the block lasts."""
        self._running[address] = self.of(address) + 1
        log.info("%s: process %d started, %s", address, pid, self._told())
        try:
            yield
        finally:
            left = self._running.pop(address) - 1
            if left:
                self._running[address] = left
            log.info("%s: process %d has ended, %s", address, pid, self._told())

    def _told(self) -> str:
        return "1 runs now" if self.count == 1 else f"{self.count} run now"


# What programs need to start, and nothing else: the rest of our environment is not theirs.
PASSED_ON = frozenset(
    """
    HOME LOGNAME PATH SHELL TERM USER LANG LANGUAGE TZ TMPDIR TEMP TMP
    HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS
    APPDATA COMSPEC HOMEDRIVE HOMEPATH LOCALAPPDATA PATHEXT PROCESSOR_ARCHITECTURE PROGRAMDATA
    PROGRAMFILES SYSTEMDRIVE SYSTEMROOT USERNAME USERPROFILE WINDIR
    """.split()  # noqa: SIM905 - names, read as a list of words
)
PASSED_ON_PREFIXES = ("LC_", "XDG_")


class Unreachable(Exception):
    """There is no channel to this server; the text is the reason that a user reads."""


def child_environment(own: Mapping[str, str], entry: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child: an allow list of ours, and what its entry says."""
    passed = {
        name: value
        for name, value in own.items()
        if (name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES))
        and not value.startswith("()")  # an exported shell function
    }
    return {**passed, **entry}


def launch_of(target: StdioCommand, environ: Mapping[str, str]) -> Launch:
    """The exact process to start for an expanded command."""
    env = child_environment(environ, dict(target.env))
    cwd = os.path.join(target.folder, target.cwd) if target.cwd else None  # noqa: PTH118 - text in, text out
    if cwd is not None and (wrong := unusable_folder(cwd)):
        raise Unreachable(wrong)
    path = env.get("PATH", os.defpath)
    found = resolve(
        target.command,
        path,
        is_program=_is_program,
        path_separator=os.pathsep,
        separators=os.sep + (os.altsep or ""),
        endings=env.get("PATHEXT", "") if os.name == "nt" else "",
    )
    if found is None:
        raise Unreachable(not_startable(target, path))
    return Launch((found, *target.args), env, cwd)


def _is_program(place: str) -> bool:
    return os.access(place, os.X_OK) and not os.path.isdir(place)  # noqa: PTH112 - text in, text out


class Around(Protocol):
    """What dialling needs of the surroundings."""

    @property
    def environ(self) -> Mapping[str, str]: ...
    @property
    def processes(self) -> Processes: ...


@asynccontextmanager
async def counted(
    started: AbstractAsyncContextManager[Child], spec: ServerSpec, around: Around
) -> AsyncGenerator[Child]:
    """A child counts until it is seen out, which its own block does."""
    with ExitStack() as count:
        async with started as child:
            count.enter_context(around.processes.running(spec.address, child.pid))
            yield child


@asynccontextmanager
async def dial(
    spec: ServerSpec,
    around: Around,
    talk: Conversation,
    ended: Callable[[], None],
) -> AsyncGenerator[Link]:
    """A channel to the server, for as long as the block lasts."""
    environ = around.environ
    try:
        target = expand_target(spec, environ)
    except Unexpandable as error:
        raise Unreachable(error.message) from None
    if isinstance(target, HttpEndpoint):
        async with _dial_http(target, spec, environ, talk, ended) as link:
            yield link
        return
    try:
        launch = launch_of(target, environ)
        started = running_child(launch, talk.receive, ended)
        async with counted(started, spec, around) as child:
            yield StdioLink(child, spec, environ)
    except OSError as error:
        raise Unreachable(refused_by_system(target.command, error)) from None


@asynccontextmanager
async def _dial_http(
    target: HttpEndpoint,
    spec: ServerSpec,
    environ: Mapping[str, str],
    talk: Conversation,
    ended: Callable[[], None],
) -> AsyncGenerator[Link]:
    # A parser of HTTP, TLS and URLs: not before a server behind a URL is used.
    from mcp_workbench.upstream.http.headers import BadHeader
    from mcp_workbench.upstream.http.link import http_link
    from mcp_workbench.wire.addresses import BadAddress
    from mcp_workbench.wire.http_answer import Broken

    try:
        async with http_link(target, spec, environ, talk, ended) as link:
            yield link
    except (BadAddress, BadHeader, Broken) as error:
        raise Unreachable(str(error)) from None
