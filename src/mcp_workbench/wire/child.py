"""A server as our child: started without a shell, watched, and always ended with its whole group."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.timing import deadline
from mcp_workbench.wire.exits import watch_exit
from mcp_workbench.wire.stdio import PipeReader, PipeWriter
from mcp_workbench.wire.tasks import comes_within

if TYPE_CHECKING:
    from mcp_workbench.wire.guard import Guard

# Hosts that stop us send SIGTERM after two seconds and SIGKILL after four: ours must be gone by then.
POLITE = deadline(1.0)  # seconds for a child to leave after its stdin has closed
FIRM = deadline(0.3)  # seconds after SIGTERM
LAST_WORDS = 0.25  # seconds that the pipe of a dead child is still read: answers may lie there
STDERR_BYTES = 8192  # what is kept of its complaints


class Launch(msgspec.Struct, frozen=True):
    """What to start: everything expanded, nothing left to decide."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None = None

    def __repr__(self) -> str:
        return f"Launch({self.argv[0]!r})"  # the rest may hold secrets


class Pipes(msgspec.Struct, frozen=True):
    """Our ends of a child's standard streams."""

    stdin: int
    stdout: int
    stderr: int


class Child:
    """One running child: a channel to it, and what is known of its end."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        pipes: Pipes,
        watched: "Guard",
        received: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        self._process = process
        self._guard = watched
        self._ended = ended
        self._complaints = bytearray()
        self.overheard: Callable[[bytes], None] | None = (
            None  # told all that it writes to stderr, and b"" at its end
        )
        self._silent = False  # its stdout has ended
        self._gone = asyncio.Event()  # the process has ended; it is not yet reaped
        self.pid = process.pid
        self.channel = PipeWriter(pipes.stdin, ended)
        self._stderr = PipeReader(pipes.stderr, self._complained, self._complained_enough)
        self._stdout = PipeReader(pipes.stdout, received, self._fell_silent)

    def exit_status(self) -> int | None:
        """Its exit status, negative for a signal, once it has left. It is not reaped by asking."""
        if self._process.returncode is not None or not hasattr(os, "waitid"):
            return self._process.returncode
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    @property
    def complaints(self) -> str:
        """The end of what it wrote to stderr."""
        return self._complaints.decode("utf-8", "replace")

    def _complained(self, data: bytes) -> None:
        self._complaints += data
        del self._complaints[:-STDERR_BYTES]
        if self.overheard is not None:
            self.overheard(data)

    def _complained_enough(self) -> None:
        if self.overheard is not None:
            self.overheard(b"")

    def _fell_silent(self) -> None:
        self._silent = True
        self._ended()

    def left(self) -> None:
        """The process is over. Its pipe may still hold answers, or be held open by a grandchild."""
        self._gone.set()
        self.hold(held=False)  # what it has still said is heard
        if not self._silent:
            asyncio.get_running_loop().call_later(LAST_WORDS, self._ended)

    def hold(self, *, held: bool) -> None:
        """Stop reading what it says, or go on."""
        self._stdout.hold(held=held)

    async def leave(self) -> None:
        """Wait, ask, insist. Whatever interrupts this, the group is gone afterwards."""
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
        """End the whole group at once: also what a launcher has left behind."""
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)
            self._guard.ended(self.pid)
            with suppress(subprocess.TimeoutExpired):  # a kernel that can't end it: we go on
                self._process.wait(1)

    async def gone_within(self, seconds: float) -> bool:
        return await comes_within(self._gone, seconds)

    def _signal(self, number: signal.Signals) -> None:
        # The leader is not reaped before its group has been signalled: its number can't be another's.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


@asynccontextmanager
async def running_child(
    launch: Launch, received: Callable[[bytes], None], ended: Callable[[], None]
) -> AsyncGenerator[Child]:
    """Start a child and end it with the block. Raises OSError where it can't be started."""
    from mcp_workbench.wire.guard import guard  # not before something is started

    watched = guard()
    child = Child(*_spawn(launch, watched), watched, received, ended)
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


def _spawn(launch: Launch, watched: "Guard") -> tuple[subprocess.Popen[bytes], Pipes]:
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
