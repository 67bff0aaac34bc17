"""All live servers, and the one scope that they live in."""

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
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.hosts import Host
from mcp_workbench.downstream.leases import Key, Leases
from mcp_workbench.downstream.memory import Memory
from mcp_workbench.downstream.offers import Offers
from mcp_workbench.downstream.rests import Rests
from mcp_workbench.downstream.retiring import Retiring, address_of
from mcp_workbench.downstream.standing import Place, Standing
from mcp_workbench.downstream.states import Connecting
from mcp_workbench.downstream.surroundings import Surroundings
from mcp_workbench.downstream.trials import PATIENCE
from mcp_workbench.wire.tasks import Lifetime, TaskScope, task_scope

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
