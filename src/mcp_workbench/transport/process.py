"""Child processes: started without a shell, watched, and always ended with their whole group.

No child outlives us. SIGKILL gives us no chance to clean up, so a small shell process, the guard, does it: it knows
every process group that we have started, and kills those that are left when the pipe from us to it closes. On Linux,
both also end what has left its group (`detached.py`).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from mcp_workbench.timing import deadline, pause
from mcp_workbench.transport.detached import SUPPORTED, VARIABLE, DetachedProcesses
from mcp_workbench.transport.stdio import PipeReader, PipeWriter
from mcp_workbench.transport.tasks import comes_within

if TYPE_CHECKING:
    from mcp_workbench.core.container_runs import LabelledContainer

log = logging.getLogger(__name__)

# Hosts that stop us send SIGTERM after two seconds and SIGKILL after four: children must be gone by then.
POLITE = deadline(1.0)  # seconds for a child to exit after its stdin has closed
FIRM = deadline(0.3)  # seconds after SIGTERM
EXIT_DRAIN = 0.25  # seconds for which stdout is read after the exit: it may hold responses
STDERR_BYTES = (
    32768  # kept of the end of stderr; the properties of a Node error may follow its message
)
PR_SET_DUMPABLE = 4  # of linux/prctl.h
SHELL = "/bin/sh"  # 1.6 MB resident, 0.1 of them unshared; a second Python has 8.6
RESTART_PAUSE = pause(1.0)  # seconds between two starts of a shell that keeps exiting


class ProcessSpec(msgspec.Struct, frozen=True):
    """What to start: everything expanded, nothing left to decide."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None = None
    boxed: bool = False  # the leader of its group only waits for it, and its end is that of all
    container: LabelledContainer | None = None  # what it runs, if it is the client of an engine

    def __repr__(self) -> str:
        return f"ProcessSpec({self.argv[0]!r})"  # the rest may hold secrets


@asynccontextmanager
async def running_child(
    launch: ProcessSpec, received: Callable[[bytes], None], ended: Callable[[], None]
) -> AsyncGenerator[ChildProcess]:
    """Start a child and end it with the block. Raises OSError if it can't be started."""
    child_guard = guard()
    child = ChildProcess(_spawn(launch, child_guard), child_guard, received, ended)
    child.boxed = launch.boxed
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


def _spawn(launch: ProcessSpec, child_guard: Guard) -> StartedProcess:
    # A container engine starts processes for all containers of its user: those are not the server's.
    is_marked = SUPPORTED and launch.container is None and VARIABLE not in launch.env
    value = child_guard.next_value() if is_marked else ""
    env = {VARIABLE: value, **launch.env} if value else launch.env
    ours: list[int] = []
    theirs: list[int] = []
    try:
        for _ in range(3):
            read, write = os.pipe()
            ours.append(read)
            theirs.append(write)
        ours[0], theirs[0] = theirs[0], ours[0]  # it reads the first and writes the others
        with child_guard.starting(theirs[0]) as started:
            process = subprocess.Popen(  # noqa: S603 - the operator's own launch line, no shell
                launch.argv,
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[2],
                env=env,
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
    return StartedProcess(process, Pipes(*ours), DetachedProcesses(value, process.pid))


class Pipes(msgspec.Struct, frozen=True):
    """Our ends of a child's standard streams."""

    stdin: int
    stdout: int
    stderr: int


class StartedProcess(NamedTuple):
    """A process, our ends of its streams, and what may leave its group."""

    process: subprocess.Popen[bytes]
    pipes: Pipes
    detached: DetachedProcesses


class ChildProcess:
    """One running child: a channel to it, its exit status and the end of its stderr."""

    def __init__(
        self,
        started: StartedProcess,
        child_guard: Guard,
        received: Callable[[bytes], None],
        ended: Callable[[], None],
    ) -> None:
        process, pipes, self._detached = started
        self._process = process
        self._guard = child_guard
        self._ended = ended
        self._stderr_tail = bytearray()
        # Called with everything that it writes to stderr, and with b"" at the end.
        self.overheard: Callable[[bytes], None] | None = None
        self.boxed = False
        self._stdout_ended = False
        self._read_on_at = 0.0  # by the clock of the loop, after a pause of the reader
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
            asyncio.get_running_loop().call_later(EXIT_DRAIN, self._drained)

    def _drained(self) -> None:
        """The rest of its output was read, unless somebody was not done with what came before it."""
        loop = asyncio.get_running_loop()
        left = self._read_on_at + EXIT_DRAIN - loop.time()
        if self._stdout.waits or left > 0:
            loop.call_later(max(left, EXIT_DRAIN / 2), self._drained)
        else:
            self._ended()

    def hold(self, *, held: bool) -> None:
        """Pause or resume reading its stdout."""
        self._stdout.hold(held=held)

    def wait(self, *, waits: bool) -> None:
        """The same while what it has written is not handled yet; its end comes after that."""
        self._stdout.wait(waits=waits)
        self._read_on_at = asyncio.get_running_loop().time()

    async def leave(self) -> None:
        """Close stdin, then SIGTERM, then SIGKILL. Whatever interrupts this, the group is gone afterwards."""
        self.channel.close()
        try:
            exited = await self.gone_within(POLITE)
            if not exited:
                until = time.monotonic() + FIRM
                self._signal(signal.SIGTERM)
                await self._detached.terminate(FIRM)
                await self.gone_within(max(0.0, until - time.monotonic()))
            self._signal(signal.SIGKILL)  # what is left of the group starts nothing more
            await self._detached.end(FIRM if exited else 0.0)
        finally:
            self.kill()
            self.channel.abort()
            self._stdout.close()
            self._stderr.close()

    def kill(self) -> None:
        """Kill the whole group at once, including what a launcher has left behind, and what has left it."""
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)
            self._detached.end_now()
            self._guard.ended(self.pid)
            with suppress(subprocess.TimeoutExpired):  # the kernel can't end it: go on
                self._process.wait(1)

    async def gone_within(self, seconds: float) -> bool:
        return await comes_within(self._gone, seconds)

    def _signal(self, number: signal.Signals) -> None:
        # The leader is not reaped before its group has been signalled: its pid can't be reused.
        with suppress(ProcessLookupError, PermissionError):
            if self.boxed and number == signal.SIGTERM:
                _signal_followers(self.pid, number)
            else:
                os.killpg(self.pid, number)


def _signal_followers(group: int, number: signal.Signals) -> None:
    """Signal a group without its leader, on Linux: the leader of a sandbox would take all others with it."""
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and int(name) != group:
            with suppress(OSError):  # it has just ended, or belongs to another user
                if os.getpgid(int(name)) == group:
                    os.kill(int(name), number)


def watch_exit(pid: int, left: Callable[[], None]) -> Callable[[], None]:
    """Call `left` once when the process exits, without reaping it; returns a function that stops this."""
    loop = asyncio.get_running_loop()
    if not hasattr(os, "pidfd_open"):
        return watch_exit_in_thread(pid, left, loop)
    fd = os.pidfd_open(pid)

    def stop() -> None:
        nonlocal fd
        if fd >= 0:
            loop.remove_reader(fd)
            os.close(fd)
            fd = -1

    def readable() -> None:
        stop()
        left()

    loop.add_reader(fd, readable)
    return stop


def watch_exit_in_thread(
    pid: int, left: Callable[[], None], loop: asyncio.AbstractEventLoop
) -> Callable[[], None]:
    """The same on systems without pidfd_open."""

    def wait() -> None:
        with suppress(OSError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the loop is closed by now
            loop.call_soon_threadsafe(left)

    threading.Thread(target=wait, name=f"exit of {pid}", daemon=True).start()
    return lambda: None


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


# The guard

# It reads which groups start and end, and at the end of its input it kills those that are left. Only
# we hold the other end of that pipe, so its input ends when we do. A child that was being started is
# known only by the pipe that is its stdin. Until it leads its group it holds a copy of our end as
# well, so there is no need to look for it earlier. It may call exec later than that; if our memory is
# closed to other processes, so are its descriptors until then: the script looks again. It looks first by
# the pipe and then by the environment: whom the second has ended, the first would wait for in vain.
# Its argument is the beginning of VARIABLE=VALUE in the environments of our servers; empty where what has
# left its group is not looked for (`detached.py`). A number that has been found is looked at again right
# before it is signalled: the system gives out all other numbers before it gives one out again.
# It runs in every shell: dash, bash, and that of busybox, whose `kill` has no `-s`.
SCRIPT = r"""# ends the servers of mcp-workbench, should it be killed
trap '' HUP INT QUIT TERM PIPE
cd /
mark=$1
groups=' '
starting=' '
end_detached() {
  [ "$mark" ] || return
  for round in 1 2 3 4 5 6 7 8; do
    again=
    for file in $(grep -lsF -e "$mark" /proc/[0-9]*/environ); do
      grep -qsF DISPLAY= "$file" && continue
      process=${file#/proc/}
      grep -qsF -e "$mark" "$file" && kill -KILL "${process%%/*}" && again=yes
    done
    [ "$again" ] || return
  done
}
without() {
  case $1 in
  *" $2 "*) left="${1%% "$2" *} ${1#* "$2" }" ;;
  *) left=$1 ;;
  esac
}
ended=' '
look_for_starting() {
  missing=
  for pipe in $starting; do
    readers=$(ls -l /proc/[0-9]*/fd/0 | while read -r line; do
      case $line in
      *"/fd/0 -> pipe:[$pipe]")
        line=${line##*/proc/}
        echo "${line%%/*}"
        ;;
      esac
    done)
    for process in $readers; do
      kill -KILL "-$process"
      kill -KILL "$process"
      missing=yes
      ended="$ended$pipe "
    done
    case $ended in
    *" $pipe "*) ;;
    *) missing=yes ;;
    esac
  done
}
while read -r what number; do
  case $what in
  +) groups="$groups$number " ;;
  -) without "$groups" "$number"; groups=$left ;;
  '?') starting="$starting$number " ;;
  !) without "$starting" "$number"; starting=$left ;;
  esac
done
for group in $groups; do kill -KILL "-$group"; done
look_for_starting
end_detached
for moment in 0.1 0.2 0.4 0.8 1.6 3.2; do
  [ "$missing" ] || break
  sleep "$moment" || sleep 1
  look_for_starting
done
[ "$starting" = ' ' ] || end_detached
"""


def guard() -> Guard:
    """Return the guard of the running loop's children."""
    return GUARDS.setdefault(asyncio.get_running_loop(), Guard())


class Guard:
    """Knows every process group that we have started. Its shell runs while there are any."""

    def __init__(self) -> None:
        self.closed = False  # nothing may be started
        self._groups: set[int] = set()
        self._starting: set[int] = set()  # inodes of their stdin
        self._shell = 0  # its pid; 0 while there is none
        self._pipe = -1
        self._since = 0.0
        self._warned = False
        self._unwatch: Callable[[], None] = _nothing
        self._mark = _new_mark()
        self._values = 0

    def next_value(self) -> str:
        """A value of VARIABLE for one server. All of them begin in the same way, which our shell knows."""
        self._values += 1
        return f"{self._mark}.{self._values}"

    @contextmanager
    def starting(self, stdin: int) -> Generator[Callable[[int], None]]:
        """Announce a child that reads from `stdin` and leads a group; call the yielded with its pid.

        If anything but an error of the system interrupts the start, it is not known whether there is
        a child: the shell looks for it when we end.
        """
        if self.closed:
            raise OSError(errno.ECANCELED, "the workbench is shutting down")
        inode = os.fstat(stdin).st_ino
        self._starting.add(inode)
        self._send(b"? %d\n" % inode)

        def started(pid: int) -> None:
            self._groups.add(pid)
            self._starting.discard(inode)
            self._send(b"+ %d\n! %d\n" % (pid, inode))

        try:
            yield started
        except (OSError, ValueError, subprocess.SubprocessError):
            self._starting.discard(inode)
            self._send(b"! %d\n" % inode)
            raise

    def ended(self, group: int) -> None:
        """Forget a group. Call this before its leader is reaped: until then its pid can't be reused."""
        self._groups.discard(group)
        self._send(b"- %d\n" % group)

    def end_all(self) -> None:
        """Kill every group at once, and allow no new one."""
        self.closed = True
        for group in self._groups:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)

    def abandon(self) -> None:
        """Leave everything to the parent process, after a fork."""
        if self._shell:
            os.close(self._pipe)
        self._shell = 0
        self._mark = _new_mark()
        self._groups.clear()
        self._starting.clear()

    # The shell

    def _send(self, line: bytes) -> None:
        if not self._groups and not self._starting:
            self._dismiss()
        elif not self._shell:
            self._begin()
        else:
            try:
                os.write(self._pipe, line)
            except OSError:  # it was killed, or was stopped until its pipe filled up
                self._replace()

    def _begin(self) -> None:
        """Start a shell and send it all groups."""
        if not hasattr(os, "posix_spawn"):
            return  # Windows has neither this nor the shell
        try:
            self._shell, self._pipe = _start_shell(self._mark)
        except OSError as error:
            if not self._warned:
                log.warning("servers would outlive a SIGKILL: %s: %s", SHELL, error.strerror)
            self._warned = True
            return
        self._since = time.monotonic()
        with suppress(OSError):  # out of descriptors: the next write will show that
            self._unwatch = watch_exit(self._shell, partial(self._lost, self._shell))
        lines = [b"+ %d\n" % group for group in self._groups]
        lines += [b"? %d\n" % inode for inode in self._starting]
        with suppress(OSError):
            os.write(self._pipe, b"".join(lines))

    def _lost(self, shell: int) -> None:
        if shell == self._shell:
            self._replace()

    def _replace(self) -> None:
        wait = self._since + RESTART_PAUSE - time.monotonic()
        self._dismiss()
        if wait <= 0:
            self._begin()
        else:
            with suppress(RuntimeError):  # the loop has stopped: we are about to exit
                asyncio.get_running_loop().call_later(wait, self._begin_again)

    def _begin_again(self) -> None:
        if not self._shell and (self._groups or self._starting):
            self._begin()

    def _dismiss(self) -> None:
        if not self._shell:
            return
        self._unwatch()
        self._unwatch = _nothing
        shell, self._shell = self._shell, 0
        # Killed before its input ends: at that end it would kill the groups.
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(shell, signal.SIGKILL)
            os.waitpid(shell, 0)
        os.close(self._pipe)


def _new_mark() -> str:
    return os.urandom(8).hex()


def _start_shell(mark: str) -> tuple[int, int]:
    theirs, ours = os.pipe()
    try:
        os.set_blocking(ours, False)  # a stopped shell must not block us
        null = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
        streams = [(os.POSIX_SPAWN_DUP2, theirs, 0), null, (os.POSIX_SPAWN_DUP2, 1, 2)]
        argv = [SHELL, "-c", SCRIPT, SHELL, f"{VARIABLE}={mark}." if SUPPORTED else ""]
        env = {"PATH": os.defpath}
        # In a group of its own: a signal to ours is not meant for it.
        shell = os.posix_spawn(SHELL, argv, env, file_actions=streams, setpgroup=0, setsigmask=())
    except OSError:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return shell, ours


def _nothing() -> None:
    pass


def _abandon_all() -> None:
    for abandoned in GUARDS.values():
        abandoned.abandon()


GUARDS: WeakKeyDictionary[asyncio.AbstractEventLoop, Guard] = WeakKeyDictionary()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)  # a copy of the pipe would keep it open
