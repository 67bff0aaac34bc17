"""Talking with one server over a channel: our numbers out, answers and notices in. It never waits."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from mcp_workbench.era.translate import token_of
from mcp_workbench.upstream.responses import FutureWaiter, Lasting, Loss, Waiter
from mcp_workbench.wire import envelope
from mcp_workbench.wire.depth import too_deep
from mcp_workbench.wire.envelope import Envelope, Malformed, Outcome
from mcp_workbench.wire.frames import LineFramer
from mcp_workbench.wire.pending import NEVER, PendingTable
from mcp_workbench.wire.stdio import Channel, PipeWriter

log = logging.getLogger(__name__)

UNREADABLE = "the server's answer can't be read: "
KEPT = (
    1 << 13
)  # bytes of the last line that was no message: a secret in it must be whole to be known


class _Nowhere:
    """The channel of a conversation that has not begun."""

    backlog = 0

    def send(self, frame: bytes, about: bytes = b"") -> None:
        """Nobody is there."""


class Conversation:
    """The bytes of one server: what it says is read here, what it is asked is numbered here."""

    def __init__(self, message_bytes: int, notice: Callable[[Envelope], None]) -> None:
        self.channel: Channel = _Nowhere()
        self.pending: PendingTable[Waiter] = PendingTable()
        self.failure: Loss | None = None  # what the server said ends the connection
        self._over: Loss | None = None  # nobody will be answered any more
        self.dropped = 0  # requests that were ended without an answer
        self.skipped = 0  # lines that were no messages
        self.last_skipped = ""
        self.about = 0  # on whose answer the message came that is being read, if that is known
        self.lasting: dict[int, Lasting] = {}
        self.when_forgotten: list[Callable[[], None]] = []
        self.closed_until = 0.0  # the server wants nobody to come before
        self.unasked = 0  # answers that nobody waited for: late, doubled, or with a foreign id
        self.message_bytes = message_bytes
        self._framer = LineFramer(message_bytes)
        self._notice = notice

    @property
    def answered(self) -> int:
        """How many requests have been answered so far."""
        return self.pending.given - self.pending.count - self.dropped

    @property
    def over(self) -> bool:
        return self._over is not None

    def begin(self, method: str, params: bytes, waiter: Waiter) -> int:
        """A request of our own, answered to `waiter` however long it takes."""
        number = self.pending.add(waiter, NEVER)
        if self._over is not None:
            self.lose(self._over)
        self.channel.send(envelope.request(number, method, params))
        return number

    async def ask(self, method: str, params: bytes, seconds: float) -> Outcome:
        """A request of our own. Raises Lost, or TimeoutError after `seconds`."""
        waiter = FutureWaiter()
        number = self.begin(method, params, waiter)
        try:
            async with asyncio.timeout(seconds):
                return await waiter.future
        finally:
            self.pending.settle(number)

    def cancel(self, number: int, reason: str) -> None:
        """Forget a request and tell the server; a late answer finds nobody."""
        if self.pending.settle(number) is not None:
            self.tell_cancelled(number, reason)

    def tell_cancelled(self, number: int, reason: str) -> bool:
        """Of a request that nobody waits for any more. False: it had not left, and never will."""
        self.dropped += 1
        if self._taken_back(number):
            return False
        params = envelope.encode({"requestId": number, "reason": reason})
        self.channel.send(envelope.notification("notifications/cancelled", params))
        return True

    def time_out(self, number: int, seconds: float) -> Loss:
        """The time of a request is up: what is told to whoever waited for it."""
        reason = f"timed out after {seconds:g} s"
        if self.tell_cancelled(number, "timeout"):
            return Loss("timeout", reason)
        waited = f"{reason}, all of them in the queue: the server does not read"
        return Loss.of_call("timeout", waited, may_have_run=False)

    def _taken_back(self, number: int) -> bool:
        """Only a pipe has a queue of ours; over HTTP each request knows for itself."""
        channel = self.channel
        if not channel.backlog or not isinstance(channel, PipeWriter):
            return False
        return channel.take_back(envelope.start_of(number))

    def fail(self, number: int, loss: Loss) -> None:
        """One request has no answer; the others may well have."""
        waiter = self.pending.settle(number)
        if waiter is not None:
            self.dropped += 1
            waiter.lost(loss)

    def lose(self, loss: Loss) -> None:
        """The server is gone: everyone who waits is told so."""
        self._over = loss
        for _, waiter in self.pending.lose():
            waiter.lost(loss)

    def lose_unsent(self, frames: tuple[bytes, ...], loss: Loss) -> None:
        """The server is gone, and never knew of these requests."""
        for frame in frames:
            self.fail(_number(msgspec.Raw(envelope.salvaged_id(frame))), loss)

    def receive(self, data: bytes) -> None:
        """Bytes from the server. Nothing that it says may raise: on uvloop that ends the pipe."""
        for line in self._framer.feed(data):
            try:
                self._receive_line(line)
            except Exception:  # a fault of ours costs one message, not the connection
                log.exception("a server's message failed")
        if self._framer.overflow is not None:
            self._framer.take_overflow()
            self._break_off()

    def receive_on(self, number: int, data: bytes) -> None:
        """Bytes that came on the answer to this request: whatever is in them belongs to it."""
        self.about = number
        try:
            self.receive(data)
        finally:
            self.about = 0

    def announce(self, method: str) -> None:
        """Have it that the server said so: what it may have said was not heard."""
        self._notice(Envelope(method=method))

    def interrupted(self, number: int) -> None:
        """The road has lost a request that lasts, and takes it up again."""
        if (lasting := self.lasting.get(number)) is not None:
            lasting.interrupted()

    def forgotten(self) -> None:
        """The server knows nothing any more of what it was told before."""
        for act in self.when_forgotten:
            act()

    def _receive_line(self, line: bytes) -> None:
        """The commonest is a plain answer to one of our requests, which is read in one step."""
        if line.isascii():
            try:
                answer = envelope.read_answer(line)
            except (msgspec.DecodeError, RecursionError):
                self._receive_message(line)
                return
            plain = answer.result and not answer.error and not answer.method
            if plain and not too_deep(line):
                entry = self.pending.waiting.pop(answer.id, None)
                if entry is not None:
                    self._hand_on(entry[0], answer)
                    return
        self._receive_message(line)

    def _receive_message(self, line: bytes) -> None:
        try:
            if not line.isascii():
                line = _valid_text(line)
            message = envelope.decode(line)
        except Malformed as error:
            self._receive_garbage(line, error)
            return
        if message.method:
            self._receive_notice(message)
        elif waiter := self.pending.settle(_number(message.id)):
            self._hand_on(waiter, message)
        elif lasting := self.lasting.pop(_number(message.id), None):
            lasting.ended(message.error)
        else:
            self.unasked += 1

    def _hand_on(self, waiter: Waiter, answer: Outcome) -> None:
        try:
            waiter.settled(answer)
        except Exception:
            waiter.lost(Loss("internal", "the workbench failed to hand on the answer"))
            raise

    def _receive_notice(self, message: Envelope) -> None:
        if message.method == "notifications/progress" and message.params:
            try:
                waiter = self.pending.find(_as_number(token_of(message.params)))
            except (msgspec.DecodeError, RecursionError):
                return
            if waiter is not None:
                waiter.progressed(message.params)
        elif message.method == "notifications/cancelled" and self._lasting_ended(message.params):
            return
        else:
            self._notice(message)

    def _lasting_ended(self, params: msgspec.Raw) -> bool:
        """Servers end what lasts by its answer, or by taking it back."""
        try:
            number = msgspec.json.decode(params or b"{}", type=_Cancelled).requestId
        except msgspec.DecodeError:
            return False
        lasting = self.lasting.pop(number, None)
        if lasting is not None:
            lasting.ended(b"")
        return lasting is not None

    def _receive_garbage(self, line: bytes, error: Malformed) -> None:
        if envelope.is_batch(line):
            self._receive_batch(line)
            return
        waiter = self.pending.settle(_number(msgspec.Raw(error.id))) if error.id else None
        if waiter is not None:
            waiter.lost(Loss("protocol_error", UNREADABLE + str(error)))
            return
        self._skip(line)

    def _skip(self, line: bytes) -> None:
        self.skipped += 1
        self.last_skipped = line.removeprefix(envelope.BOM)[:KEPT].decode("utf-8", "replace")

    def _receive_batch(self, line: bytes) -> None:
        try:
            members = envelope.read_batch(line)
        except Malformed:
            self._skip(line)
            return
        for member in members:
            if not envelope.is_batch(member):
                self._receive_line(member)

    def _break_off(self) -> None:
        reason = f"a message of it is larger than {self.message_bytes} bytes (limits.messageBytes)"
        self.failure = loss = Loss("too_large", reason)
        self.lose(loss)
        self._notice(Envelope())  # wakes the owner, which ends the connection


class _Cancelled(msgspec.Struct):
    requestId: int = 0  # noqa: N815 - the wire's word


def _valid_text(line: bytes) -> bytes:
    if not envelope.is_utf8(line):
        line = envelope.mend_text(line)
    return line.removeprefix(envelope.BOM)


def _number(id: msgspec.Raw) -> int:
    """Our number in an answer's id; a string of it, as some servers echo, is not ours."""
    raw = bytes(id)
    return int(raw) if raw.isdigit() and len(raw) < 19 else 0


def _as_number(token: Any) -> int:
    return token if isinstance(token, int) else 0
