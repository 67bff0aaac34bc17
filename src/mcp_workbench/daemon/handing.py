"""A host's pipes are handed to the shared workbench; this process waits, and goes on if that one dies."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from contextlib import suppress

from mcp_workbench import __version__
from mcp_workbench.daemon import words
from mcp_workbench.daemon.door import NoAnswer, ask_with_fds, knock, peer_of
from mcp_workbench.daemon.folder import Place
from mcp_workbench.daemon.joining import NotJoined
from mcp_workbench.timing import deadline, pause

TYPE_CHECKING = False  # see `joining`
if TYPE_CHECKING:
    from types import FrameType

ANSWER = deadline(
    3.0
)  # seconds for a welcome; a workbench that hangs must not take its hosts with it
BEAT = pause(10.0)  # seconds without a word, after which it is asked for a sign of life
SILENCE = 3 * BEAT  # seconds without any, after which it is ended
INTERRUPTED = 130  # exit status
KEPT = 1000  # requests of a host that subscribes again and again


class Takeover:
    """A host that the shared workbench has left behind, with all that is known of it."""

    def __init__(self, note: int, outlet: int = -1) -> None:
        self.note = note
        self.outlet = outlet  # of the basin, where there is one
        self.kept: list[bytes] = []  # requests that made the conversation what it is
        self.opened: list[str] = []  # toolboxes
        self.is_modern = False

    def learn(self, frame: list[bytes]) -> None:
        what, *fields = frame
        if what == words.KEEP:
            self.kept.append(fields[0])
            del self.kept[1:-KEPT]  # the first is how the host opened the conversation
        elif what == words.OPENED:
            self.opened.append(fields[0].decode())
        elif what == words.MODERN:
            self.is_modern = True


def joined(place: Place, toolboxes: tuple[str, ...]) -> int | Takeover | None:
    """Be served by the workbench of this place; None where there is none. Raises NotJoined."""
    try:
        door = knock(place)
        if door is None:
            return None
        fields = [__version__.encode(), os.fsencode(place.config), ",".join(toolboxes).encode()]
        fields += [b"%b=%b" % pair for pair in os.environb.items()]
        answer, shared = ask_with_fds(door, ANSWER, words.JOIN, *fields)
    except NoAnswer as error:
        raise NotJoined(str(error)) from None
    if not answer:
        return None  # it has just ended
    if answer[:2] == [words.REFUSED, words.QUIETLY]:
        return None  # what is wrong is told by whoever serves it alone
    if answer[0] != words.WELCOME or not shared:
        raise NotJoined(answer[-1].decode("utf-8", "replace"))
    return _Waiting(door, Takeover(*shared), peer_of(door)[0] or _holder(place)).wait()


def _holder(place: Place) -> int:
    from mcp_workbench.daemon.lock import holder  # only where the system can't tell who is there

    return holder(place)


class _Waiting:
    """The joiner while it is served: nothing to do but to pass on signals."""

    def __init__(self, door: socket.socket, takeover: Takeover, pid: int) -> None:
        self._door = door
        self._takeover = takeover
        self._pid = pid  # of the workbench
        self._how = "has ended"
        self._told = 0  # how often we were asked to end
        self._status = 0
        self._terminal = os.isatty(2)

    def wait(self) -> int | Takeover:
        handlers = {"SIGTERM": self._asked, "SIGINT": self._asked, "SIGHUP": self._hung_up}
        before = {
            number: signal.signal(number, act)
            for number, act in ((getattr(signal, name), act) for name, act in handlers.items())
        }
        try:
            status = self._served()
        except _Insisted:
            status = self._status
        for number, act in before.items():
            signal.signal(number, act)
        self._door.close()
        if status is not None or self._told:
            return self._status if status is None else status
        sys.stderr.write(
            f"mcp-workbench: the shared workbench (pid {self._pid}) {self._how}; "
            "this host goes on by itself\n"
        )
        sys.stderr.flush()
        return self._takeover

    def _served(self) -> int | None:
        """The exit status; None where the workbench leaves without a word."""
        frames = words.Frames()
        self._door.settimeout(BEAT)
        try:
            socket.send_fds(self._door, [words.packed(words.PIPES)], [0, 1])
            while data := self._heard():
                for frame in frames.feed(data):
                    if frame[0] == words.ENDED:
                        return int(frame[1])
                    self._takeover.learn(frame)
        except OSError:  # it was killed
            pass
        return None

    def _heard(self) -> bytes:
        """What the workbench says next; nothing once it is gone.

        One that gives no sign of life, because it was stopped or hangs, is ended: it has the host's
        pipes, and if it woke up later there would be two that read them.
        """
        since = time.monotonic()
        while True:
            try:
                return self._door.recv(1 << 16)
            except TimeoutError:
                self._say(words.PING)
            if time.monotonic() - since > SILENCE and self._pid > 0:
                self._how = f"gave no sign of life for {SILENCE:g} seconds and was ended"
                os.kill(self._pid, signal.SIGKILL)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        """Told once, the workbench lets what is under way end; told again, we leave at once."""
        self._told += 1
        if number == signal.SIGINT:
            self._status = INTERRUPTED
        if self._told > 1:
            raise _Insisted
        self._say(words.INTERRUPTED if number == signal.SIGINT else words.ASKED)

    def _hung_up(self, number: int, frame: FrameType | None) -> None:
        if self._terminal and not os.isatty(2):  # the window was closed
            self._asked(number, frame)
        else:
            self._say(words.RELOAD)

    def _say(self, word: bytes) -> None:
        with suppress(OSError):  # it is gone, as we are about to notice
            self._door.sendall(words.packed(word))


class _Insisted(Exception):
    """Somebody asked twice."""
