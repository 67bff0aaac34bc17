"""Dial: start a server's process, or open an HTTP link to it, and say why it failed or ended.

`dial` yields a `Link`, which carries the bytes of a connection. For a command: find the program, choose
its environment, start and count the process, log its stderr, and explain every way in which that can
fail.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import Protocol

import msgspec

from mcp_workbench.config.expand import (
    Environment,
    Unexpandable,
    expand_target,
    malformed,
    secrets_of,
)
from mcp_workbench.core.redact import LineRedactor, redact, redact_cut
from mcp_workbench.core.spec import (
    UNCONFINED,
    HttpEndpoint,
    ServerAddress,
    ServerSpec,
    StdioCommand,
)
from mcp_workbench.transport.process import EXIT_DRAIN, ChildProcess, ProcessSpec, running_child
from mcp_workbench.transport.stdio import Channel
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.launch import (
    child_environment,
    folder_of,
    folder_problem,
    launch_problem,
    program_of,
)

log = logging.getLogger(__name__)

GROUP_TRIES = 20  # to remove the control group of a server, whose killed processes take a moment
GROUP_PAUSE = 0.05  # seconds between them

CONTAINER_CLIENTS = ("docker", "podman", "podman-remote")
FIRST_LINE = 256  # bytes that Linux reads of a script's first line

# Of stderr, in the reason why a server exited
TAIL_CHARACTERS = 400
SAMPLE = 100  # characters of a line that is no message; enough to recognize a banner

LONGEST_REASON = 4096  # characters of any reason

# stderr in our log
LINES = 100  # in a window, from one server
WINDOW = 10.0  # seconds
LONGEST = 2000  # characters of a line
HELD_BYTES = 8192  # of an incomplete line; the rest of it is dropped


class Unreachable(Exception):
    """The server could not be started or reached; the text is the reason for the user."""


class Link(Protocol):
    """An open transport to one server: the pipes of a process, or HTTP."""

    @property
    def channel(self) -> Channel: ...

    @property
    def complaints(self) -> tuple[str, ...]:
        """What is wrong with tools that this transport can't call."""
        ...

    @property
    def initialize_first(self) -> bool:
        """May `initialize` be the first request to a server whose era is not known?"""
        ...

    async def opens_sessions(self) -> bool:
        """A server that speaks modern: does it open sessions of the legacy era, too?"""
        ...

    def agreed(self, revision: str) -> None:
        """Use this revision from here on."""
        ...

    def hold(self, *, held: bool) -> None:
        """Stop reading from the server while a host can't keep up, or resume."""
        ...

    def unsent(self) -> tuple[bytes, ...]:
        """After the end: requests that certainly did not reach the server."""
        ...

    async def exit_reason(self, what: str, *, ended: bool) -> str:
        """`what` happened, with all that is known about why. `ended`: the transport is closed."""
        ...


class LaunchContext(Protocol):
    """What dialling needs of the pool's context."""

    @property
    def environ(self) -> Environment: ...
    @property
    def processes(self) -> Processes: ...
    @property
    def placements(self) -> Placements | None: ...


class Placements(Protocol):
    """Servers with one process for all replicas of a cluster (`placement`)."""

    def dial(
        self, spec: ServerSpec, conversation: Conversation, ended: Callable[[], None]
    ) -> AbstractAsyncContextManager[Link]:
        """Open a link to that process, wherever it runs. Raises Unreachable."""
        ...


@asynccontextmanager
async def dial(
    spec: ServerSpec,
    context: LaunchContext,
    conversation: Conversation,
    ended: Callable[[], None],
) -> AsyncGenerator[Link]:
    """Open a link to the server for the duration of the block. Raises Unreachable."""
    if spec.placement == "one" and context.placements is not None:
        async with context.placements.dial(spec, conversation, ended) as link:
            yield link
        return
    target = await _target_of(spec, context.environ)
    if isinstance(target, HttpEndpoint):
        async with _dial_http(target, spec, context.environ, conversation, ended) as link:
            yield link
        return
    async with _start(target, spec, context, conversation.receive, ended) as link:
        conversation.on_waiting = link.wait
        yield link


@asynccontextmanager
async def start_server(
    spec: ServerSpec,
    context: LaunchContext,
    received: Callable[[bytes], None],
    ended: Callable[[], None],
) -> AsyncGenerator[StdioLink]:
    """Run the server's process for the duration of the block. Raises Unreachable."""
    target = await _target_of(spec, context.environ)
    if isinstance(target, HttpEndpoint):
        raise Unreachable("it is no program")
    async with _start(target, spec, context, received, ended) as link:
        yield link


async def _target_of(spec: ServerSpec, environ: Environment) -> StdioCommand | HttpEndpoint:
    """The program or URL, with the values of variables. Raises Unreachable."""
    try:
        await environ.prepare(spec)
        target = expand_target(spec, environ)
    except Unexpandable as error:
        raise Unreachable(error.message) from None
    for problem in malformed(spec):
        log.warning("%s: %s", spec.address, problem)
    return target


@asynccontextmanager
async def _start(
    target: StdioCommand,
    spec: ServerSpec,
    context: LaunchContext,
    received: Callable[[bytes], None],
    ended: Callable[[], None],
) -> AsyncGenerator[StdioLink]:
    environ = context.environ
    try:
        async with _confined(launch_of(target, environ), target, environ) as (launch, box):
            started = _running(launch, received, ended)
            async with _counted(started, spec, context, box) as child:
                yield StdioLink(child, spec, environ)
    except OSError as error:
        raise Unreachable(start_error(target.command, error)) from None


@asynccontextmanager
async def _dial_http(
    target: HttpEndpoint,
    spec: ServerSpec,
    environ: Mapping[str, str],
    conversation: Conversation,
    ended: Callable[[], None],
) -> AsyncGenerator[Link]:
    # HTTP, TLS and URLs are loaded with the first server behind a URL, to keep the start fast.
    from mcp_workbench.transport.http.client_response import ExchangeFailed
    from mcp_workbench.transport.http.urls import BadUrl
    from mcp_workbench.upstream.http.link import open_http_link
    from mcp_workbench.upstream.http.requests import BadHeader

    try:
        async with open_http_link(target, spec, environ, conversation, ended) as link:
            yield link
    except (BadUrl, BadHeader, ExchangeFailed) as error:
        raise Unreachable(str(error)) from None


# Processes


def _running(
    launch: ProcessSpec, received: Callable[[bytes], None], ended: Callable[[], None]
) -> AbstractAsyncContextManager[ChildProcess]:
    if launch.container is None:
        return running_child(launch, received, ended)
    from mcp_workbench.transport.container import running_container  # most servers are none

    return running_container(launch, launch.container, received, ended)


class StdioLink:
    """The pipes of a process that we started."""

    initialize_first = True

    def __init__(self, child: ChildProcess, spec: ServerSpec, environ: Mapping[str, str]) -> None:
        self._child = child
        self._spec = spec
        self._environ = environ
        if log.isEnabledFor(logging.INFO):
            child.overheard = StderrLog(spec, environ).feed

    @property
    def group(self) -> int:
        """The process group of the server and everything it started."""
        return self._child.pid

    @property
    def channel(self) -> Channel:
        return self._child.channel

    @property
    def complaints(self) -> tuple[str, ...]:
        return ()  # a pipe has no such limits

    async def opens_sessions(self) -> bool:
        return False  # it has refused `initialize`

    def agreed(self, revision: str) -> None:
        """A pipe works the same in every revision."""

    def hold(self, *, held: bool) -> None:
        self._child.hold(held=held)

    def wait(self, *, waits: bool) -> None:
        """Read no more while what was read is not handled yet."""
        self._child.wait(waits=waits)

    def unsent(self) -> tuple[bytes, ...]:
        return self._child.channel.unsent()

    def kill(self) -> None:
        """End the process and all that it started at once."""
        self._child.kill()

    async def exit_reason(self, what: str, *, ended: bool) -> str:
        if ended:
            await self._child.gone_within(EXIT_DRAIN)
        child = self._child
        return exit_reason(what, child.exit_status(), child.complaints, self._spec, self._environ)


class Processes:
    """Counts the processes of servers, from their start until they have exited."""

    def __init__(self) -> None:
        self._running: dict[ServerAddress, int] = {}
        self._boxes: dict[ServerAddress, str] = {}

    def box_of(self, address: ServerAddress) -> str:
        """The sandbox of its last process: none, process or files; empty where none was started."""
        return self._boxes.get(address, "")

    def of(self, address: ServerAddress) -> int:
        return self._running.get(address, 0)

    @property
    def count(self) -> int:
        return sum(self._running.values())

    @contextmanager
    def running(self, address: ServerAddress, pid: int, box: str) -> Generator[None]:
        """Count one more for the duration of the block."""
        self._boxes[address] = box
        self._running[address] = self.of(address) + 1
        within = "" if box == UNCONFINED else f" in the sandbox '{box}'"
        log.info("%s: process %d started%s, %s", address, pid, within, self._describe_count())
        try:
            yield
        finally:
            left = self._running.pop(address) - 1
            if left:
                self._running[address] = left
            log.info("%s: process %d has ended, %s", address, pid, self._describe_count())

    def _describe_count(self) -> str:
        return "1 runs now" if self.count == 1 else f"{self.count} run now"


@asynccontextmanager
async def _counted(
    started: AbstractAsyncContextManager[ChildProcess],
    spec: ServerSpec,
    context: LaunchContext,
    box: str,
) -> AsyncGenerator[ChildProcess]:
    """Count a child until it has exited, which `started` waits for."""
    with ExitStack() as count:
        async with started as child:
            count.enter_context(context.processes.running(spec.address, child.pid, box))
            yield child


# The program and the environment of a command


def launch_of(target: StdioCommand, environ: Mapping[str, str]) -> ProcessSpec:
    """The exact process to start for an expanded command."""
    env = child_environment(environ, target)
    program = program_of(target, env)
    if program is None or folder_problem(folder_of(target)):
        raise Unreachable(launch_problem(target, env))
    launch = ProcessSpec((program, *target.args), env, folder_of(target) or None)
    return _labelled(launch) if program.endswith(CONTAINER_CLIENTS) else launch


def _labelled(launch: ProcessSpec) -> ProcessSpec:
    """The same process, with a label if it runs a container."""
    from mcp_workbench.core.container_runs import LABEL, container_run  # most servers are none

    run = container_run(launch.argv)
    if run is None or not hasattr(os, "posix_spawn"):
        return launch
    label = f"{LABEL}={os.urandom(8).hex()}"
    container = run.labelled(label, launch.env, launch.cwd or "")
    return msgspec.structs.replace(launch, argv=run.argv(label), container=container)


@asynccontextmanager
async def _confined(
    launch: ProcessSpec, target: StdioCommand, environ: Mapping[str, str]
) -> AsyncGenerator[tuple[ProcessSpec, str]]:
    """The same process with the sandbox and the limits of its entry, and which sandbox that is."""
    if not target.is_confined:
        yield launch, UNCONFINED
        return
    # Loaded for such a server only. It looks at files and may start a program, so it runs in a thread.
    from mcp_workbench.upstream.sandbox import SandboxUnavailable, confine, end_group, enter_group

    try:
        confined = await asyncio.to_thread(
            confine, target, launch.argv, launch.env, environ, starts=True
        )
        argv, group = await asyncio.to_thread(enter_group, confined.argv, target.resources)
    except SandboxUnavailable as error:
        raise Unreachable(str(error)) from None
    boxed = confined.box != UNCONFINED
    try:
        yield (
            msgspec.structs.replace(launch, argv=argv, env=confined.env, boxed=boxed),
            confined.box,
        )
    finally:
        for _ in range(GROUP_TRIES):
            if group is None or end_group(group):
                break
            await asyncio.sleep(GROUP_PAUSE)


# Why a process can't be started


def start_error(command: str, error: OSError) -> str:
    """Why the system did not start a program, with the limit that was reached."""
    failed = f"{command} can't be started: {error.strerror or error}"
    match error.errno:
        case errno.EMFILE:
            most = os.sysconf("SC_OPEN_MAX")
            return (
                f"{failed}: no more than {most} at once (ulimit -n), of which a server takes four"
            )
        case errno.ENFILE:
            return f"{failed}, on the whole machine (fs.file-max)"
        case errno.EAGAIN:
            limit = "ulimit -u, or pids.max of the container"
            return f"{failed}: no more processes are allowed ({limit})"
        case errno.ENOENT if problem := _interpreter_problem(error.filename or command):
            return f"{command} can't be started: {problem}"
        case _:
            return failed


def _interpreter_problem(program: str) -> str:
    """What is wrong with the first line of a script; empty where that is not the reason."""
    try:
        with open(program, "rb") as file:  # noqa: PTH123 - text in, text out
            line = file.readline(FIRST_LINE)
    except OSError:
        return ""
    words = line.removeprefix(b"#!").replace(b"\t", b" ").strip(b" \n").split(b" ")
    interpreter = os.fsdecode(words[0])
    if not line.startswith(b"#!") or os.path.exists(interpreter):  # noqa: PTH110
        return ""
    if interpreter.endswith("\r"):  # the system takes it as a part of the name
        return "it has Windows line endings (CR LF); convert them to LF"
    missing = f"its first line names the interpreter {interpreter}, which does not exist"
    return f"{missing}; correct that line, or install {interpreter}"


# Why a server exited or did not start in time; secrets are masked


def exit_reason(
    what: str, status: int | None, stderr: str, spec: ServerSpec, environ: Mapping[str, str]
) -> str:
    """`what` happened, with the exit status and what stderr says about it, secrets masked."""
    reason = what if status is None else f"{what} ({_describe(status)})"
    tail = _tail(stderr, spec, environ)
    return f"{reason}. stderr: {tail}" if tail else reason


def _describe(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def _tail(stderr: str, spec: ServerSpec, environ: Mapping[str, str]) -> str:
    """The lines that say what went wrong. Masked before it is split: a secret may span lines."""
    # Loaded when something failed, to keep the start fast.
    from mcp_workbench.upstream.crash_output import reason_lines

    clean = _without_secrets(stderr, spec, environ, cut=True)  # only the end was kept
    reason = reason_lines(clean)
    text = " | ".join(map(printable, reason.lines))
    if len(text) <= TAIL_CHARACTERS:
        return text
    return f"{text[:TAIL_CHARACTERS]}…" if reason.is_exception else f"…{text[-TAIL_CHARACTERS:]}"


def startup_timeout(
    spec: ServerSpec, conversation: Conversation, environ: Mapping[str, str]
) -> str:
    """Why a server was not ready in time: it is slow, or writes to stdout what is not a message."""
    limit = f"within {spec.connect_timeout:g} s (connectTimeout)"
    if conversation.answered or not conversation.skipped:
        return f"it did not start {limit}"
    lines = (
        "1 line that is no message"
        if conversation.skipped == 1
        else f"{conversation.skipped} lines that are no messages"
    )
    line = masked(conversation.last_skipped.strip(), spec, environ, cut=True)
    short = line if len(line) <= SAMPLE else f"{line[:SAMPLE]}…"
    return f"it answered nothing {limit}, but wrote {lines}, such as: {short}"


def masked(reason: str, spec: ServerSpec, environ: Mapping[str, str], *, cut: bool = False) -> str:
    """A reason without secrets and control characters, fit for everybody.

    `cut`: it is a part of a longer text, so a secret in it may be incomplete.
    """
    if len(reason) > LONGEST_REASON:  # a server wrote it
        return masked(reason[:LONGEST_REASON], spec, environ, cut=True) + "…"
    return printable(_without_secrets(reason, spec, environ, cut=cut))


def printable(text: str) -> str:
    """The text with control characters and line ends escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def _without_secrets(text: str, spec: ServerSpec, environ: Mapping[str, str], *, cut: bool) -> str:
    return (redact_cut if cut else redact)(text, secrets_of(spec, environ))


class StderrLog:
    """A server's stderr in our log: split into lines, secrets masked, at a limited rate."""

    def __init__(
        self,
        spec: ServerSpec,
        environ: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = str(spec.address)
        self._clock = clock
        self._masked = LineRedactor(secrets_of(spec, environ))
        self._held = b""
        self._since = clock()
        self._budget = LINES
        self._dropped = 0
        self._is_cut = False  # the text before the next line was dropped

    def feed(self, data: bytes) -> None:
        """Take bytes as they arrive; empty at the end."""
        now = self._clock()
        if now - self._since > WINDOW:
            self._log_dropped()
            self._since, self._budget = now, LINES
        if not self._budget:  # a flood: only lines are counted
            self._drop(data.count(b"\n"))
            self._held = b""
            return
        if not data:
            self._write(self._masked.cut(self._text(self._held)))
            self._held = b""
            return
        *lines, rest = (self._held + data).split(b"\n")
        self._held = rest[:HELD_BYTES]
        for line in lines[: self._budget]:
            self._take(line)
        if len(lines) > self._budget:
            self._drop(len(lines) - self._budget)
        self._budget = max(self._budget - len(lines), 0)

    def _drop(self, lines: int) -> None:
        if not self._is_cut:
            self._is_cut = True
            self._write(self._masked.cut())
        self._dropped += lines

    def _take(self, line: bytes) -> None:
        """One line; it may be incomplete if it is too long or follows dropped ones."""
        if self._is_cut or len(line) >= HELD_BYTES:
            self._is_cut = False
            self._write(self._masked.cut(self._text(line[:HELD_BYTES])))
        else:
            self._write(self._masked.feed(self._text(line) + "\n"))

    def _text(self, line: bytes) -> str:
        return line.decode("utf-8", "replace")

    def _write(self, text: str) -> None:
        for line in text.split("\n"):
            if clean := printable(line.strip()):
                short = clean if len(clean) <= LONGEST else f"{clean[:LONGEST]}…"
                log.info("%s", short, extra={"server": self._address})

    def _log_dropped(self) -> None:
        if self._dropped:
            line = f"({self._dropped} more lines were left out: more than {LINES} in {WINDOW:g} s)"
            log.info("%s", line, extra={"server": self._address})
        self._dropped = 0
