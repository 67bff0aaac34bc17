"""Containers of servers: each is removed when its client has ended, or when we have, in any way.

The client of a container engine (`docker run`, `podman run`) is our child; the container is not. A small
shell, the remover, is started before the client and reads from a pipe whose other end only we hold. Once
the pipe closes, it removes the container that has our label, and exits. We close the pipe after the client
has ended; the system does so if we are killed. So there is one way for all ends, and if we have no time
to wait for a slow engine, the remover finishes without us. Only what has the label is touched: its value
is random, and given to one launch.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from mcp_workbench.core.container_runs import LabelledContainer
from mcp_workbench.timing import deadline
from mcp_workbench.transport.process import (
    SHELL,
    ChildProcess,
    ProcessSpec,
    guard,
    running_child,
    watch_exit,
)
from mcp_workbench.transport.tasks import comes_within

log = logging.getLogger(__name__)

REMOVAL = deadline(3.0)  # seconds that we wait for the removal, which then goes on without us
SETTLED = (
    b"settled\n"  # tells the remover that the client has exited by itself: it starts nothing more
)

# A container that runs is killed, which removes it if it was started with `--rm`, volumes included; what
# is still there at the next look is removed. A client that was killed may have asked its engine for
# a container that does not exist yet, so the remover looks several times. Each command of the client has
# ten seconds, where the system has `timeout`: an engine may hang.
SCRIPT = r"""# removes the container of a server of mcp-workbench, once that has ended
trap '' HUP INT QUIT TERM PIPE
filter="label=$1"
[ "$2" ] && cd "$2"
shift 2
settled=
while read -r word; do settled=$word; done
command -v timeout && set -- timeout -s KILL 10 "$@"
client() (trap - HUP INT QUIT TERM PIPE; exec "$@")
status=1
for moment in 0.2 0.3 0.5 1 2; do
  if containers=$(client "$@" ps -aq --no-trunc --filter "$filter"); then
    status=0
    if [ "$containers" ]; then
      settled=yes # a client asks for one
      client "$@" kill $containers || client "$@" rm -f $containers || status=1
    elif [ "$settled" ]; then
      exit 0
    fi
  fi
  sleep "$moment" || sleep 1
done
exit $status
"""

PIPES: set[int] = set()  # our ends, of all removers


@asynccontextmanager
async def running_container(
    launch: ProcessSpec,
    container: LabelledContainer,
    received: Callable[[bytes], None],
    ended: Callable[[], None],
) -> AsyncGenerator[ChildProcess]:
    """Start the client of a container, end it with the block, and remove the container."""
    remover = Remover(container)
    child: ChildProcess | None = None
    try:
        async with running_child(launch, received, ended) as child:
            yield child
    except OSError:
        if child is None:
            remover.dismiss()  # nothing was started
        raise
    finally:
        status = None if child is None else child.exit_status()
        await remover.remove(settled=status is not None and status >= 0)


class Remover:
    """The shell that removes one container."""

    def __init__(self, container: LabelledContainer) -> None:
        self._container = container
        self._gone = asyncio.Event()
        self._status = 0
        self._pid = 0  # 0 while there is none
        self._pipe = -1
        self._start()

    def dismiss(self) -> None:
        """There is no container: end the shell."""
        if self._pid:
            # Killed before its input ends: at that end it would look for one.
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
        self._pid = 0
        self._gone.clear()

    async def remove(self, *, settled: bool) -> None:
        """Remove the container. Whatever interrupts this, the shell goes on."""
        look = f"{self._container.client[0]} ps -a --filter label={self._container.label}"
        for _ in range(2):
            if self._gone.is_set():  # it was killed: another one
                self._release()
                self._start()
            with suppress(OSError):
                if settled:
                    os.write(self._pipe, SETTLED)
            self._release()
            if guard().closed or not self._pid:
                return  # the user does not want to wait, or there is no shell
            if not await comes_within(self._gone, REMOVAL):
                log.info("a container takes long to remove: %s", look)
                return
            if self._status >= 0:
                break
        if self._status:
            log.warning("a container could not be removed; look for it with: %s", look)

    def _start(self) -> None:
        self._gone.clear()
        theirs, self._pipe = os.pipe()
        PIPES.add(self._pipe)
        try:
            self._pid = _start_shell(self._container, theirs)
        except OSError as error:
            self._pid = 0
            log.warning("a container would outlive us: %s: %s", SHELL, error.strerror)
            return
        finally:
            os.close(theirs)
        with suppress(OSError):  # out of descriptors: we wait in vain for its end
            watch_exit(self._pid, partial(self._exited, self._pid))

    def _exited(self, pid: int) -> None:
        with suppress(ChildProcessError):  # it was dismissed
            self._status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            self._gone.set()

    def _release(self) -> None:
        if self._pipe in PIPES:
            PIPES.discard(self._pipe)
            os.close(self._pipe)


def _start_shell(container: LabelledContainer, stdin: int) -> int:
    null = (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)
    return os.posix_spawn(
        SHELL,
        [SHELL, "-c", SCRIPT, SHELL, container.label, container.cwd, *container.client],
        container.env,
        file_actions=[(os.POSIX_SPAWN_DUP2, stdin, 0), null, (os.POSIX_SPAWN_DUP2, 1, 2)],
        setpgroup=0,  # a signal to our group is not meant for it
        setsigmask=(),
        setsigdef=(signal.SIGPIPE,),
    )


def _close_all() -> None:
    for pipe in PIPES:
        os.close(pipe)
    PIPES.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all)  # a copy of the pipe would keep it open
