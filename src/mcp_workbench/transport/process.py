"""Child processes: started without a shell, watched, and always ended with their whole group."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import msgspec

from mcp_workbench.timing import deadline
from mcp_workbench.transport.guard import Guard, guard, watch_exit
from mcp_workbench.transport.stdio import PipeReader, PipeWriter
from mcp_workbench.transport.tasks import comes_within

# Hosts that stop us send SIGTERM after two seconds and SIGKILL after four: children must be gone by then.
POLITE = deadline(1.0)  # seconds for a child to exit after its stdin has closed
FIRM = deadline(0.3)  # seconds after SIGTERM
EXIT_DRAIN = 0.25  # seconds for which stdout is read after the exit: it may hold responses
STDERR_BYTES = 8192  # kept of the end of stderr
PR_SET_DUMPABLE = 4  # of linux/prctl.h


class ProcessSpec(msgspec.Struct, frozen=True):
    """What to start: everything expanded, nothing left to decide."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None = None

    def __repr__(self) -> str:
        return f"ProcessSpec({self.argv[0]!r})"  # the rest may hold secrets


class Pipes(msgspec.Struct, frozen=True):
    """Our ends of a child's standard streams."""

    stdin: int
    stdout: int
    stderr: int


class ChildProcess:
    """One running child: a channel to it, its exit status and the end of its stderr."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pipes: Pipes,
        watched: Guard,
        received: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        self._process = process
        self._guard = watched
        self._ended = ended
        self._stderr_tail = bytearray()
        # Called with everything that it writes to stderr, and with b"" at the end.
        self.overheard: Callable[[bytes], None] | None = None
        self._stdout_ended = False
        self._gone = asyncio.Event()  # the process has exited; it is not yet reaped
        self.pid = process.pid
        self.channel = PipeWriter(pipes.stdin, ended)
        self._stderr = PipeReader(pipes.stderr, self._stderr_received, self._stderr_ended)
        self._stdout = PipeReader(pipes.stdout, received, self._stdout_closed)

    def exit_status(self) -> int | None:
        """Return its exit status, negative for a signal, once it has exited. This does not reap it."""
        if self._process.returncode is not None or not hasattr(os, "waitid"):
            return self._process.returncode
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    @property
    def complaints(self) -> str:
        """The end of what it wrote to stderr."""
        return self._stderr_tail.decode("utf-8", "replace")

    def _stderr_received(self, data: bytes) -> None:
        self._stderr_tail += data
        del self._stderr_tail[:-STDERR_BYTES]
        if self.overheard is not None:
            self.overheard(data)

    def _stderr_ended(self) -> None:
        if self.overheard is not None:
            self.overheard(b"")

    def _stdout_closed(self) -> None:
        self._stdout_ended = True
        self._ended()

    def left(self) -> None:
        """The process has exited. Its stdout may still hold responses, or be held open by a grandchild."""
        self._gone.set()
        self.hold(held=False)  # the rest of its output is read
        if not self._stdout_ended:
            asyncio.get_running_loop().call_later(EXIT_DRAIN, self._ended)

    def hold(self, *, held: bool) -> None:
        """Pause or resume reading its stdout."""
        self._stdout.hold(held=held)

    async def leave(self) -> None:
        """Close stdin, then SIGTERM, then SIGKILL. Whatever interrupts this, the group is gone afterwards."""
        self.channel.close()
        try:
            if not await self.gone_within(POLITE):
                self._signal(signal.SIGTERM)
                await self.gone_within(FIRM)
        finally:
            self.kill()
            self.channel.abort()
            self._stdout.close()
            self._stderr.close()

    def kill(self) -> None:
        """Kill the whole group at once, including what a launcher has left behind."""
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)
            self._guard.ended(self.pid)
            with suppress(subprocess.TimeoutExpired):  # the kernel can't end it: go on
                self._process.wait(1)

    async def gone_within(self, seconds: float) -> bool:
        return await comes_within(self._gone, seconds)

    def _signal(self, number: signal.Signals) -> None:
        # The leader is not reaped before its group has been signalled: its pid can't be reused.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


@asynccontextmanager
async def running_child(
    launch: ProcessSpec, received: Callable[[bytes], None], ended: Callable[[], None]
) -> AsyncGenerator[ChildProcess]:
    """Start a child and end it with the block. Raises OSError if it can't be started."""
    watched = guard()
    child = ChildProcess(*_spawn(launch, watched), watched, received, ended)
    stop_watching: Callable[[], None] | None = None
    try:
        stop_watching = watch_exit(child.pid, child.left)
        yield child
    finally:
        try:
            await child.leave()
        finally:
            if stop_watching is not None:
                stop_watching()


def _spawn(launch: ProcessSpec, watched: Guard) -> tuple[subprocess.Popen[bytes], Pipes]:
    ours: list[int] = []
    theirs: list[int] = []
    try:
        for _ in range(3):
            read, write = os.pipe()
            ours.append(read)
            theirs.append(write)
        ours[0], theirs[0] = theirs[0], ours[0]  # it reads the first and writes the others
        with watched.starting(theirs[0]) as started:
            process = subprocess.Popen(  # noqa: S603 - the operator's own launch line, no shell
                launch.argv,
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[2],
                env=launch.env,
                cwd=launch.cwd,
                start_new_session=True,
            )
            started(process.pid)
    except BaseException:
        for fd in ours:
            os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    return process, Pipes(*ours)


def close_to_others() -> None:
    """Let no process of this user, our servers included, read our memory: it holds every token.

    This also shuts out debuggers of the same user and core dumps. Child processes are not affected.
    Where the system does not support it, nothing happens.
    """
    if sys.platform != "linux":
        return
    import ctypes  # slow to load, and needed nowhere else

    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
