"""The connection to the engine (Valkey or Redis): one, shared, made again whenever it breaks.

Commands go out at once and are answered in order. While the engine is away they fail at once, and none
waits longer than COMMAND_TIME: nothing here hangs.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from mcp_workbench.cluster.resp import BadReply, EngineError, ReplyReader, command
from mcp_workbench.config.cluster_settings import EngineAddress
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.timing import pause
from mcp_workbench.transport.tasks import comes_within

log = logging.getLogger(__name__)

COMMAND_TIME = (
    1.0  # seconds for a reply; afterwards the connection counts as broken. A third of a lease
)
CONNECT_TIME = 3.0  # seconds for a connection, with TLS and the password
FIRST_PAUSE = pause(0.1)  # seconds between two attempts; doubled up to LONGEST_PAUSE
LONGEST_PAUSE = pause(2.0)
MOST_PENDING = 20_000  # commands without a reply
MOST_VALUE = 4 << 20  # bytes of one value that we write
MOST_UNSENT = 32 << 20  # bytes that the engine has not taken yet

# Error replies of an engine that is there and can't serve us now.
_NOT_NOW = frozenset(("LOADING", "MASTERDOWN", "READONLY", "CLUSTERDOWN", "TRYAGAIN"))
# Those to a wrong setting: trying again changes nothing.
_WRONG_SETTING = frozenset(("NOAUTH", "WRONGPASS", "NOPERM", "ERR"))

Part = bytes | str | int


class EngineAway(WorkbenchError):
    """There is no connection to the engine, or it broke before the reply: the command may have run."""

    code = "engine_away"


class Script:
    """A Lua script: atomic in the engine. Its text is sent once per engine, then its hash."""

    __slots__ = ("sha", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode()).hexdigest()  # noqa: S324 - the engine's own name for it


class Engine:
    """One engine, for all of this process."""

    def __init__(self, address: EngineAddress, name: str) -> None:
        self.address = address
        self.reason = "not connected yet"  # why it is away; never a secret
        self.is_misconfigured = False  # the reason is a setting, such as the password
        self.since: float | None = None  # the loop's time at which the connection was made
        self.operations = 0  # commands so far
        self.on_change: list[Callable[[bool], None]] = []  # called when it comes and when it goes
        self._prefix = name.encode()
        self._link: _EngineLink | None = None
        self._tried = asyncio.Event()  # an attempt has ended

    def key(self, *parts: bytes | str) -> bytes:
        """Returns the name of a key of this cluster."""
        encoded = [part if isinstance(part, bytes) else part.encode() for part in parts]
        return b":".join((self._prefix, *encoded))

    @property
    def is_ready(self) -> bool:
        return self.since is not None

    # Commands

    def send(self, *parts: Part) -> asyncio.Future[Any]:
        """Send a command; the future has its reply. Raises EngineAway, at once or through the future.

        An error reply is raised as EngineError.
        """
        link = self._link
        if link is None or self.since is None:
            raise self._away()
        self.operations += 1
        return link.send(command(*parts))

    async def ask(self, *parts: Part) -> Any:
        """Send a command and return its reply. Raises EngineAway and EngineError."""
        return await self.send(*parts)

    async def ask_all(self, commands: Sequence[Sequence[Part]]) -> list[Any]:
        """Send commands together; returns their replies, error replies as values. Raises EngineAway."""
        futures = [self.send(*parts) for parts in commands]
        replies: list[Any] = []
        for future in futures:
            try:
                replies.append(await future)
            except EngineError as error:
                replies.append(error)
        return replies

    async def run_script(self, script: Script, keys: Sequence[bytes], *args: Part) -> Any:
        """Run a script atomically in the engine. Raises EngineAway and EngineError."""
        try:
            return await self.send("EVALSHA", script.sha, len(keys), *keys, *args)
        except EngineError as error:
            if error.kind != "NOSCRIPT":
                raise
        return await self.send("EVAL", script.text, len(keys), *keys, *args)

    async def read(self, key: bytes, most: int = MOST_VALUE) -> bytes | None:
        """Returns a value, or None if there is none, or one that we would not have written."""
        try:
            value = await self.ask("GET", key)
        except EngineError:  # another type
            return None
        return value if isinstance(value, bytes) and len(value) <= most else None

    def _away(self) -> EngineAway:
        return EngineAway(
            f"the engine of the cluster at {self.address} is away: {self.reason}",
            hint="it is tried again all the time; see that the Valkey or Redis runs",
        )

    # Connection

    async def run(self) -> None:
        """Keep a connection, until cancelled."""
        wait = FIRST_PAUSE
        while True:
            link = await self._connect()
            if link is not None:
                wait = FIRST_PAUSE
                try:
                    await link.closed.wait()
                finally:
                    link.abort()
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_PAUSE)

    async def ready(self, seconds: float) -> None:
        """Wait for the connection. Raises EngineAway after so many seconds, or if a setting is wrong."""
        end = asyncio.get_running_loop().time() + seconds
        while not self.is_ready:
            left = end - asyncio.get_running_loop().time()
            self._tried.clear()
            if self.is_misconfigured or left <= 0:
                raise self._away()
            await comes_within(self._tried, left)

    async def _connect(self) -> _EngineLink | None:
        loop = asyncio.get_running_loop()
        link = _EngineLink(loop)
        entered = False
        try:
            async with asyncio.timeout(CONNECT_TIME):
                address = self.address
                tls = _tls_context() if address.tls else None
                await loop.create_connection(lambda: link, address.host, address.port, ssl=tls)
                await self._enter(link)
                entered = True
        except (OSError, EngineAway, EngineError, BadReply) as error:
            self.is_misconfigured = isinstance(error, EngineError) and error.kind in _WRONG_SETTING
            self._failed(_reason(error))
            return None
        finally:
            if not entered:
                link.abort()
        self._link = link
        link.on_end = lambda: self._lost(link)
        self.since = loop.time()
        self.is_misconfigured = False
        log.info("connected to the engine at %s", self.address)
        self._changed(now_ready=True)
        return link

    async def _enter(self, link: _EngineLink) -> None:
        address = self.address
        if address.password:
            user = (address.user,) if address.user else ()
            await link.send(command("AUTH", *user, address.password))
        if address.database:
            await link.send(command("SELECT", address.database))
        role = await link.send(command("ROLE"))
        if isinstance(role, list) and role and role[0] != b"master":
            raise EngineError("READONLY it is a copy of another engine, which can't be written to")

    def _failed(self, reason: str) -> None:
        if reason != self.reason:
            log.warning("the engine of the cluster at %s is away: %s", self.address, reason)
        self.reason = reason
        self._tried.set()

    def _lost(self, link: _EngineLink) -> None:
        if self._link is not link:
            return
        self._link = None
        self.since = None
        self._failed(link.reason)
        self._changed(now_ready=False)

    def _changed(self, *, now_ready: bool) -> None:
        self._tried.set()
        for act in tuple(self.on_change):
            act(now_ready)


class _EngineLink(asyncio.Protocol):
    """One connection: commands out, replies in, in their order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.closed = asyncio.Event()
        self.on_end: Callable[[], None] | None = None  # called once, when it is of no use any more
        self.reason = "the connection broke"
        self._loop = loop
        self._reader = ReplyReader()
        self._pending: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def send(self, data: bytes) -> asyncio.Future[Any]:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise EngineAway(self.reason)
        if len(self._pending) >= MOST_PENDING or transport.get_write_buffer_size() > MOST_UNSENT:
            raise EngineAway("too much waits for the engine")
        future = self._loop.create_future()
        self._pending.append((future, self._loop.time() + COMMAND_TIME))
        if self._timer is None:
            self._timer = self._loop.call_later(COMMAND_TIME, self._check)
        transport.write(data)
        return future

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def _check(self) -> None:
        """Give up on an engine that owes a reply for too long."""
        self._timer = None
        if not self._pending:
            return
        left = self._pending[0][1] - self._loop.time()
        if left <= 0:
            self.reason = f"it did not answer within {COMMAND_TIME:g} seconds"
            self.abort()
        else:
            self._timer = self._loop.call_later(left, self._check)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending:
            future, _ = self._pending.popleft()
            if not future.done():
                future.set_exception(EngineAway(self.reason))
                future.exception()  # who no longer waits for it need not read it
        self.closed.set()
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def data_received(self, data: bytes) -> None:
        try:
            replies = self._reader.feed(data)
        except BadReply as error:
            self.reason = f"it is no Valkey or Redis: {error}"
            self.abort()
            return
        for reply in replies:
            if not self._pending:
                self.reason = "it answered what nobody asked"
                self.abort()
                return
            future, _ = self._pending.popleft()
            if future.done():
                continue
            if not isinstance(reply, EngineError):
                future.set_result(reply)
            elif reply.kind in _NOT_NOW:
                self.reason = str(reply)[:200]
                self.abort()
                future.set_exception(EngineAway(self.reason))
                return
            else:
                future.set_exception(reply)


def _tls_context() -> Any:
    import ssl  # only for engines behind TLS

    return ssl.create_default_context()


def _reason(error: Exception) -> str:
    """Returns why there is no connection, in the words of the system or of the engine."""
    if isinstance(error, TimeoutError):
        return f"no connection within {CONNECT_TIME:g} seconds"
    if isinstance(error, OSError):  # asyncio words the same number differently
        number = error.errno or 0
        return os.strerror(number).lower() if number > 0 else error.strerror or str(error)
    return str(error)[:200]
