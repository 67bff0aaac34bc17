"""Servers that nobody uses are stopped after a while, where their entry says so.
Connections whose place others take: no new calls, an end when theirs have ended.
All live servers, and the one scope that they live in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from mcp_workbench.config.expand import Way, way_to
from mcp_workbench.core.errors import ServerUnavailable, not_connected
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import Limits, ServerSpec
from mcp_workbench.upstream.backoff import PATIENCE
from mcp_workbench.upstream.cache import Memory
from mcp_workbench.upstream.connection import Connecting, Connection
from mcp_workbench.upstream.context import Surroundings
from mcp_workbench.upstream.leases import Key, Leases
from mcp_workbench.upstream.primitives import Offers
from mcp_workbench.upstream.server_requests import Host
from mcp_workbench.upstream.subscriptions import Place, Standing
from mcp_workbench.wire.tasks import Lifetime, TaskScope, task_scope

LOOKS = 4  # at each server within its time: it is stopped at most a quarter of that late


class Rests:
    """Looks at such servers from time to time; one timer each."""

    def __init__(self, is_needed: Callable[[Connection], bool]) -> None:
        self._is_needed = is_needed
        self._timers: dict[Connection, asyncio.TimerHandle] = {}

    def watch(self, connection: Connection) -> None:
        """Look at it from now on, where its entry says so."""
        seconds = connection.spec.idle_timeout / LOOKS
        if not seconds or connection in self._timers:
            return
        loop = asyncio.get_running_loop()
        self._timers[connection] = loop.call_later(seconds, self._look, connection)

    def end(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _look(self, connection: Connection) -> None:
        self._timers.pop(connection, None)
        if connection.over:
            return
        talk, now = connection.conversation, time.monotonic()
        unused = connection.wellbeing.unused_for(talk, now)
        is_used = not connection.usable or self._is_needed(connection)
        if is_used or unused < connection.spec.idle_timeout:
            self.watch(connection)
        else:
            connection.resting = True
            seconds = connection.spec.idle_timeout
            connection.ending = f"stopped after {seconds:g} s without a call (idleTimeout)"
            connection.stop()


_CHANGED = "its entry in the configuration has changed"
_REMOVED = "it was removed from the configuration"


class Retiring:
    """What was begun in which way, what is on its way out, and what its successors inherit."""

    def __init__(self, live: dict[Key, Connection]) -> None:
        self._live = live
        self._ways: dict[Key, Way] = {}
        self._until: dict[Connection, float] = {}
        self._before: dict[Key, Connection | None] = {}  # whose place is to be taken

    def begun(self, key: Key, connection: Connection, way: Way) -> None:
        """A connection has begun; what differs from the one before it will be announced."""
        self._ways[key] = way
        if key in self._before:
            before = self._before.pop(key)
            connection.succeeds = True
            connection.offers.succeed(None if before is None else before.offers)
            if before is not None:
                connection.wares.catalogue = before.catalogue

    def expect(self, key: Key) -> None:
        """Whatever is begun here next has lists that nobody has seen."""
        if key not in self._live:
            self._before.setdefault(key, None)

    def forget(self, key: Key) -> None:
        """Whoever had a connection here is gone."""
        self._before.pop(key, None)
        self._ways.pop(key, None)

    def ways(self) -> dict[ServerAddress, Way]:
        """How the servers that were begun are reached; one with several connections counts once."""
        return {address_of(key): self._ways[key] for key in self._live}

    def renew(
        self,
        specs: Mapping[ServerAddress, ServerSpec],
        ways: Mapping[ServerAddress, Way],
        drain: float,
    ) -> dict[ServerAddress, Connection]:
        """Keep the connections that lead where they should, and retire the others: those are returned.

        Calls under way have `drain` seconds; one that waits for a person has all the time it needs.
        """
        until = time.monotonic() + drain
        retired: dict[ServerAddress, Connection] = {}
        for key, connection in tuple(self._live.items()):
            address = address_of(key)
            if self._ways[key] == ways.get(address):
                connection.spec = specs[address]  # filters and times, from the next call on
            else:
                retired[address] = connection
                self._retire(key, connection, until, wanted=address in specs)
        for key in [key for key in self._before if address_of(key) not in specs]:
            del self._before[key]
        return retired

    def _retire(self, key: Key, connection: Connection, until: float, *, wanted: bool) -> None:
        del self._live[key], self._ways[key]
        if wanted and not _leased(key):
            self._before[key] = (
                connection  # even one that was still to be met: it may have inherited
            )
        connection.retired = connection.over = True
        connection.usable = connection.succeeds = False
        connection.ending = _CHANGED if wanted else _REMOVED
        connection.wares.retire()
        if isinstance(connection.state, Connecting):
            connection.stop()  # whoever waits for it turns to its successor
        else:
            self._until[connection] = until
            self.tick(time.monotonic())

    def tick(self, now: float) -> bool:
        """Stop those that are done, or have had their time; are there others?"""
        for connection, until in tuple(self._until.items()):
            under_way = connection.expire(now)
            if not under_way or (now >= until and not connection.questions.any):
                del self._until[connection]
                connection.stop()
        return bool(self._until)

    def hold(self, *, held: bool) -> None:
        for connection in self._until:
            connection.hold(held=held)


def address_of(key: Key) -> ServerAddress:
    return key[0] if isinstance(key, tuple) else key


def _leased(key: Key) -> bool:
    """Is it of those that hosts take turns with? Nobody has it for long enough to hear of changes."""
    return isinstance(key, tuple) and key[1] < 0


TICK = 0.1  # seconds between two looks at the deadlines, while anyone waits


class ConnectionPool(Lifetime):
    """Connections by address. They belong to the pool's scope, never to who asked first."""

    def __init__(
        self,
        limits: Limits,
        environ: Mapping[str, str],
        changed: Callable[[ServerAddress], None],
    ) -> None:
        self.memory = Memory(environ)
        self.around = Surroundings(
            limits,
            environ,
            lambda connection: changed(connection.spec.address),
            self._crowded,
            self.memory,
        )
        self.standing = Standing()
        self.sole_host: Host | None = None  # where there is but one, every question is its
        self.shared = self._live = dict[Key, Connection]()
        self._leases = Leases(self._live, self._drop)
        self._retiring = Retiring(self._live)
        self._owners: TaskScope | None = None
        self._held = False
        self.clock: asyncio.TimerHandle | None = None
        self._rests = Rests(self._subscribed)

    def _life(self) -> AbstractAsyncContextManager[None]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None]:
        async with task_scope() as self._owners:
            try:
                yield
            finally:
                self._rests.end()
                self.memory.end()
                if self.clock is not None:
                    self.clock.cancel()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[Any]:
        """A task that lives as long as the connections do."""
        return self._scope().start(work, name)

    def _scope(self) -> TaskScope:
        if self._owners is None:
            raise RuntimeError("the workbench is not open: use `async with`")
        return self._owners

    def connection(self, spec: ServerSpec, host: Host | None = None) -> Connection:
        """The connection for `spec`, begun if there is none. Never waits, so never races."""
        key = self._key(spec, host)
        found = self._live.get(key)
        if found is not None and (not found.over or self._must_wait(spec, found)):
            return found
        self._require_turn(spec)
        return self._begin(spec, host, key, found)

    def _require_turn(self, spec: ServerSpec) -> None:
        """One that fails for others who have their own will fail here too: all of them share its tries."""
        trial, now = self.around.trials.of(spec), time.monotonic()
        if trial.not_before - now > PATIENCE:
            why = trial.reason + trial.told(now)
        elif trial.is_open and self._is_tried(spec):
            why = (
                f"{trial.reason}; it failed {trial.failures} times in a row and is being tried now"
            )
        else:
            return
        server, toolbox = spec.address.server, spec.address.toolbox
        raise not_connected(server, toolbox, why, code=trial.code, retry_after=trial.left(now))

    def _is_tried(self, spec: ServerSpec) -> bool:
        """Is somebody finding out whether it works again, and does it not work for anybody yet?"""
        beside = [one for one in self._live.values() if one.spec.address == spec.address]
        tried = any(isinstance(one.state, Connecting) for one in beside)
        return tried and not any(one.usable for one in beside)

    def _must_wait(self, spec: ServerSpec, found: Connection) -> bool:
        """It keeps failing, and its next try is not due: who asks is told so at once."""
        return found.spec.target == spec.target and self._pause(spec) > PATIENCE

    def _pause(self, spec: ServerSpec) -> float:
        return self.around.trials.of(spec).not_before - time.monotonic()

    def begun(self, spec: ServerSpec, host: Host | None = None) -> Connection | str:
        """The same for one server of many: where it is too busy, the reason."""
        try:
            return self.connection(spec, host)
        except ServerUnavailable as busy:
            return busy.reason

    def release(self, host: Host) -> None:
        """End the connections that belong to this host alone."""
        self._leases.end(host)
        for key in [key for key in self._live if isinstance(key, tuple) and key[1] == id(host)]:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        """Nobody will ask for this one again."""
        if (dropped := self._live.pop(key, None)) is not None:
            dropped.stop()
        self._retiring.forget(key)

    # Another configuration

    def ways(self, specs: Mapping[ServerAddress, ServerSpec]) -> dict[ServerAddress, Way]:
        """How these servers are reached, with the variables' values of now."""
        return {address: way_to(spec, self.around.environ) for address, spec in specs.items()}

    def begun_ways(self) -> dict[ServerAddress, Way]:
        """How those that were begun are reached, with the values of then."""
        return self._retiring.ways()

    def at_hand(self) -> dict[ServerAddress, Connection]:
        """A connection of each server that was begun, over or not."""
        return {address_of(key): connection for key, connection in self._live.items()}

    def renew(
        self,
        specs: Mapping[ServerAddress, ServerSpec],
        ways: Mapping[ServerAddress, Way],
        limits: Limits,
    ) -> dict[ServerAddress, Connection]:
        """Want these servers from now on. Connections that lead elsewhere are retired, and returned."""
        self.around.limits = limits
        retired = self._retiring.renew(specs, ways, limits.drain)
        self.memory.forget(retired)  # what those offered does not speak for others
        for connection in self._live.values():
            self._rests.watch(connection)
        if retired:
            self.watch_deadlines()
        return retired

    def revive(self, spec: ServerSpec, host: Host | None) -> None:
        """Begin this server now, and have its lists announced where they are news."""
        key = self._key(spec, host)
        self._retiring.expect(key)
        self.begun(spec, host)  # one that is too busy has nothing to announce

    # One by one

    def live(self, address: ServerAddress) -> Connection | None:
        """The connection at this address, if there is one that is not over."""
        found = self._live.get(address)
        return None if found is None or found.over else found

    def last(self, address: ServerAddress) -> Connection | None:
        """The last shared connection at this address, over or not."""
        return self._live.get(address)

    def met(self, spec: ServerSpec, host: Host | None = None) -> Connection | None:
        """The connection for `spec` if there is one that takes calls; none is begun."""
        if spec.scope == "session" and host is not None and host.takes_turns:
            found = self._live.get(host.leases.get(spec.address, spec.address))
        else:
            found = self._live.get(self._key(spec, host))
        # One that is being stopped still has its state until its process has left.
        return found if found is not None and found.usable and not found.over else None

    def all_met(self) -> list[Connection]:
        return [connection for connection in self._live.values() if connection.usable]

    def _begin(
        self, spec: ServerSpec, host: Host | None, key: Key, before: Connection | None
    ) -> Connection:
        owners = self._scope()
        begun = Connection(
            spec,
            self.around,
            self.sole_host if spec.scope == "shared" else host,
            Offers(_place(key, host), self.standing, self.standing.pass_on),
            pause=max(self._pause(spec), 0.0),
            after=before if before is not None and before.resting else None,
        )
        begun.hold(held=self._held)
        self._live[key] = begun
        self._retiring.begun(key, begun, way_to(spec, self.around.environ))
        owners.start(begun.run(), f"server {spec.address}")
        self._rests.watch(begun)
        return begun

    def _crowded(self) -> bool:
        calls = sum(one.conversation.pending.count for one in self._live.values())
        return calls >= self.around.limits.calls

    def _subscribed(self, connection: Connection) -> bool:
        return bool(self.standing.uris(connection.offers.place))

    def _key(self, spec: ServerSpec, host: Host | None) -> Key:
        if spec.scope == "shared":
            return spec.address
        if host is None or not host.takes_turns:
            return (spec.address, id(host))
        return self._leases.key(spec, host)

    def hold(self, *, held: bool) -> None:
        """Stop listening to all servers while a host can't keep up, or go on."""
        self._held = held
        for connection in self._live.values():
            connection.hold(held=held)
        self._retiring.hold(held=held)

    def watch_deadlines(self) -> None:
        """See to it that the clock runs while calls are in flight."""
        if self.clock is None:
            self.clock = asyncio.get_running_loop().call_later(TICK, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        waiting = [connection.expire(now) for connection in self._live.values()]
        waiting.append(self._retiring.tick(now))
        self.clock = None
        if any(waiting):
            self.watch_deadlines()


def _place(key: Key, host: Host | None) -> Place:
    return Place(*key, owner_of(host)) if isinstance(key, tuple) else Place(key)


def owner_of(host: Host | None) -> Hashable:
    """Whose a connection is that this host does not share: its own, or all of its principal's."""
    return host.key if host is not None and host.takes_turns else id(host)
