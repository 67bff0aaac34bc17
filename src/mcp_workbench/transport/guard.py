"""Guard: no server outlives us. Watches for exits, and kills our servers if we are killed ourselves.

SIGKILL gives us no chance to clean up, so a small shell process does it: it knows every process group
that we have started, and kills those that are left when the pipe from us to it closes.
"""

import asyncio
import errno
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from weakref import WeakKeyDictionary

from mcp_workbench.timing import pause

log = logging.getLogger(__name__)

SHELL = "/bin/sh"  # 1.6 MB resident, 0.1 of them unshared; a second Python has 8.6
PAUSE = pause(1.0)  # seconds between two starts of a shell that keeps exiting

# It reads which groups start and end, and at the end of its input it kills those that are left. Only
# we hold the other end of that pipe, so its input ends when we do. A child that was being started is
# known only by the pipe that is its stdin. Until it leads its group it holds a copy of our end as
# well, so there is no need to look for it earlier. It may call exec later than that; if our memory is
# closed to other processes, so are its descriptors until then: the script looks again.
# It runs in every shell: dash, bash, and that of busybox, whose `kill` has no `-s`.
SCRIPT = r"""# ends the servers of mcp-workbench, should it be killed
trap '' HUP INT QUIT TERM PIPE
cd /
groups=' '
starting=' '
without() {
  case $1 in
  *" $2 "*) left="${1%% "$2" *} ${1#* "$2" }" ;;
  *) left=$1 ;;
  esac
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
[ "$starting" = ' ' ] && exit
ended=' '
for moment in 0.1 0.2 0.4 0.8 1.6 3.2; do
  again=
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
      again=yes
      ended="$ended$pipe "
    done
    case $ended in
    *" $pipe "*) ;;
    *) again=yes ;;
    esac
  done
  [ "$again" ] || exit
  sleep "$moment" || sleep 1
done
"""


def guard() -> "Guard":
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
            self._shell, self._pipe = _start_shell()
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
        wait = self._since + PAUSE - time.monotonic()
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


def _start_shell() -> tuple[int, int]:
    theirs, ours = os.pipe()
    try:
        os.set_blocking(ours, False)  # a stopped shell must not block us
        null = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
        streams = [(os.POSIX_SPAWN_DUP2, theirs, 0), null, (os.POSIX_SPAWN_DUP2, 1, 2)]
        argv = [SHELL, "-c", SCRIPT]
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


def watch_exit(pid: int, left: Callable[[], None]) -> Callable[[], None]:
    """Call `left` once when the process exits, without reaping it; returns a function that stops this."""
    loop = asyncio.get_running_loop()
    if not hasattr(os, "pidfd_open"):
        return _watch_in_thread(pid, left, loop)
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


def _watch_in_thread(
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


GUARDS: WeakKeyDictionary[asyncio.AbstractEventLoop, Guard] = WeakKeyDictionary()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)  # a copy of the pipe would keep it open
