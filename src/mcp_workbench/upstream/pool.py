"""Connection pool: one connection per server, shared by all hosts or leased to one.

The pool owns the task scope in which connections run. It starts them on demand, leases those that
short-lived hosts use in turn (`Leases`), stops idle ones (`IdleTimers`), and drains those that a new
configuration replaces (`DrainingConnections`).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from typing import Any

from mcp_workbench.config.expand import ResolvedServer, environment, resolve_server
from mcp_workbench.core.errors import ServerUnavailable, not_connected, quarantined
from mcp_workbench.core.spec import (
    NOBODY,
    Limits,
    LockFile,
    ServerAddress,
    ServerKey,
    ServerSpec,
)
from mcp_workbench.transport.tasks import Lifetime, TaskScope, task_scope
from mcp_workbench.upstream.cache import CatalogueCache
from mcp_workbench.upstream.connection import Connecting, Connection, PoolContext
from mcp_workbench.upstream.health import PATIENCE
from mcp_workbench.upstream.idle_timers import IdleTimers
from mcp_workbench.upstream.primitives import Primitives
from mcp_workbench.upstream.server_requests import ConnectionHost
from mcp_workbench.upstream.subscriptions import ConnectionId, SubscriptionRegistry

TICK = 0.1  # seconds between two checks of the deadlines, while requests are pending

MOST_PRINCIPALS = 256  # with a connection of their own to one server; beyond that, unused ones go
MOST_CONNECTIONS = 4  # leased connections to one server
MOST_PER_PRINCIPAL = 4 * MOST_CONNECTIONS  # leased, whatever its hosts declare

ConnectionKey = ServerKey | tuple[ServerAddress, int]  # shared, of one principal, or of one host

_CHANGED = "its entry in the configuration has changed"
_REMOVED = "it was removed from the configuration"


class ConnectionPool(Lifetime):
    """Connections by key. They run in the pool's task scope, not in that of the first caller."""

    def __init__(
        self,
        limits: Limits,
        environ: Mapping[str, str],
        changed: Callable[[ServerSpec], None],
        first_listed: Callable[[ServerSpec], None] = lambda spec: None,
    ) -> None:
        environ = environment(environ)
        self.cache = CatalogueCache(environ)
        self.context = PoolContext(
            limits,
            environ,
            lambda connection: changed(connection.spec),
            self._crowded,
            self.cache,
            lambda connection: first_listed(connection.spec),
        )
        self.subscriptions = SubscriptionRegistry()
        # Where there is only one host, requests of shared servers go there.
        self.sole_host: ConnectionHost | None = None
        self.shared = self._live = dict[ConnectionKey, Connection]()
        self._leases = Leases(self._live, self._drop)
        self._draining = DrainingConnections(self._live)
        self._owners: TaskScope | None = None
        self._held = False
        self.clock: asyncio.TimerHandle | None = None
        self.starts: Counter[ServerAddress] = Counter()  # connections that were begun
        self.restarts: Counter[ServerAddress] = Counter()  # after one that had failed
        self._idle_timers = IdleTimers(self._subscribed)

    def _life(self) -> AbstractAsyncContextManager[None]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None]:
        async with task_scope() as self._owners:
            try:
                yield
            finally:
                self._idle_timers.end()
                self.cache.end()
                if self.clock is not None:
                    self.clock.cancel()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[Any]:
        """Start a task in the scope of the connections."""
        return self._scope().start(work, name)

    def _scope(self) -> TaskScope:
        if self._owners is None:
            raise RuntimeError("the workbench is not open: use `async with`")
        return self._owners

    def connection(self, spec: ServerSpec, host: ConnectionHost | None = None) -> Connection:
        """Return the connection for `spec`, starting it if needed. Never awaits, so never races."""
        locks = self.context.locks
        if locks is not None and (reason := locks.quarantine(spec)):
            raise quarantined(spec.address, reason)
        key = self._key(spec, host)
        current = self._live.get(key)
        if current is not None and (
            not current.over or self._must_wait(spec, self._located(spec, host), current)
        ):
            return current
        if spec.principal == NOBODY:
            raise _nameless(spec.address)
        self._require_backoff_over(self._located(spec, host))
        return self._begin(spec, host, key, current)

    def _require_backoff_over(self, spec: ServerSpec) -> None:
        """Raise while the backoff of this server forbids a start. All its connections share the backoff."""
        retry, now = self.context.backoff.of(spec), time.monotonic()
        if retry.not_before - now > PATIENCE:
            reason = retry.reason + retry.describe(now)
        elif retry.is_open and self._is_being_tried(spec):
            failed = f"it failed {retry.failures} times in a row and is being tried now"
            reason = f"{retry.reason}; {failed}"
        else:
            return
        server, toolbox = spec.address.server, spec.address.toolbox
        raise not_connected(server, toolbox, reason, code=retry.code, retry_after=retry.left(now))

    def _is_being_tried(self, spec: ServerSpec) -> bool:
        """Is one of its connections starting, and none of them ready?"""
        siblings = [
            connection for connection in self._live.values() if connection.spec.key == spec.key
        ]
        starting = any(isinstance(connection.state, Connecting) for connection in siblings)
        return starting and not any(connection.usable for connection in siblings)

    def _must_wait(self, spec: ServerSpec, located: ServerSpec, current: Connection) -> bool:
        """It keeps failing and its next attempt is not due: callers get its failure at once."""
        return current.spec.target == spec.target and self._pause(located) > PATIENCE

    def _pause(self, spec: ServerSpec) -> float:
        return self.context.backoff.of(spec).not_before - time.monotonic()

    def end_backoff(self, spec: ServerSpec, host: ConnectionHost | None) -> None:
        """Let the next request start this server, however often it has failed."""
        self.context.backoff.forget(self._located(spec, host))

    def begun(self, spec: ServerSpec, host: ConnectionHost | None = None) -> Connection | str:
        """The same for one server of many: the reason where it can't be started now."""
        try:
            return self.connection(spec, host)
        except ServerUnavailable as error:
            return error.reason

    def release(self, host: ConnectionHost) -> None:
        """End the connections that belong to this host alone."""
        self._leases.end(host)
        for key in [key for key in self._live if isinstance(key, tuple) and key[1] == id(host)]:
            if self._live[key].has_tasks:
                self._keep_for_tasks(key)
            else:
                self._drop(key)

    def _keep_for_tasks(self, key: ConnectionKey) -> None:
        """The host is gone, and its tasks go on: keep the connection under a key that is nobody's."""
        connection = self._live.pop(key)
        kept = (connection.spec.address, -next(self._leases.numbers))
        self._live[kept] = connection
        self._draining.rename(key, kept)
        self._stop_after_tasks(kept)

    def _stop_after_tasks(self, key: ConnectionKey) -> None:
        connection = self._live.get(key)
        if connection is not None and connection.has_tasks:
            left = connection.needed_until - time.monotonic()
            asyncio.get_running_loop().call_later(left + 0.1, self._stop_after_tasks, key)
        else:
            self._drop(key)

    def _drop(self, key: ConnectionKey) -> None:
        """Stop this connection and forget its key."""
        if (dropped := self._live.pop(key, None)) is not None:
            dropped.stop()
        self._draining.forget(key)

    # Reload

    def ways(
        self, specs: Mapping[ServerAddress, ServerSpec]
    ) -> dict[ServerAddress, ResolvedServer]:
        """How these servers are reached, with the current values of variables."""
        return {
            address: resolve_server(spec, self.context.environ) for address, spec in specs.items()
        }

    def begun_ways(self) -> dict[ServerAddress, ResolvedServer]:
        """How the connected servers are reached, with the values at their start."""
        return self._draining.ways()

    def at_hand(self) -> dict[ServerAddress, Connection]:
        """A connection of each server that was started, closed or not."""
        return {address_of(key): connection for key, connection in self._live.items()}

    def renew(
        self,
        specs: Mapping[ServerAddress, ServerSpec],
        ways: Mapping[ServerAddress, ResolvedServer],
        limits: Limits,
    ) -> dict[ServerAddress, Connection]:
        """Apply a configuration. Connections that it changes or removes are retired, and returned."""
        self.context.limits = limits
        retired = self._draining.renew(specs, ways, limits.drain)
        self.cache.forget(retired)  # their successors may offer something else
        for connection in self._live.values():
            self._idle_timers.watch(connection)
        if retired:
            self.watch_deadlines()
        return retired

    def relock(self, lock: LockFile | None) -> list[Connection]:
        """Use this version of the lock file; a server that it does not let through is stopped.

        Returns the connections whose tools are others now.
        """
        self.context.relock(lock)
        locks = self.context.locks
        stopped = [k for k, c in self._live.items() if locks and locks.quarantine(c.spec)]
        changed = [c for k, c in self._live.items() if k in stopped or c.relock()]
        for key in stopped:
            self._drop(key)
        return changed

    def revive(self, spec: ServerSpec, host: ConnectionHost | None) -> None:
        """Start this server now, and announce its lists where they are new."""
        key = self._key(spec, host)
        self._draining.expect(key)
        self.begun(spec, host)  # one that is too busy has nothing to announce

    # Lookup

    def live(self, address: ServerAddress) -> Connection | None:
        """The shared connection at this address, unless it is closed."""
        connection = self._live.get(address)
        return None if connection is None or connection.over else connection

    def last(self, spec: ServerSpec) -> Connection | None:
        """The last connection for `spec` that no host has for itself, closed or not."""
        return self._live.get(spec.key)

    def was_started(self, address: ServerAddress) -> bool:
        """Was a connection to this server begun that no host has for itself?"""
        return any(not _is_of_one_host(key) and address_of(key) == address for key in self._live)

    def met(self, spec: ServerSpec, host: ConnectionHost | None = None) -> Connection | None:
        """The connection for `spec` if one is ready; none is started."""
        if spec.scope == "session" and host is not None and host.takes_turns:
            connection = self._live.get(host.leases.get(spec.address, spec.address))
        else:
            connection = self._live.get(self._key(spec, host))
        # One that is stopping keeps its state until its process has exited.
        if connection is None or not connection.usable or connection.over:
            return None
        return connection

    def all_met(self) -> list[Connection]:
        return [connection for connection in self._live.values() if connection.usable]

    def _begin(
        self,
        spec: ServerSpec,
        host: ConnectionHost | None,
        key: ConnectionKey,
        before: Connection | None,
    ) -> Connection:
        owners = self._scope()
        if spec.principal:
            self._make_room(spec)
        connection = Connection(
            spec,
            self.context,
            host if _is_of_one_host(key) else self.sole_host,
            Primitives(_connection_id(key, host), self.subscriptions, self.subscriptions.publish),
            folder=_folder(spec, host),
            pause=max(self._pause(self._located(spec, host)), 0.0),
            after=before if before is not None and before.stopped_idle else None,
        )
        connection.hold(held=self._held)
        self._live[key] = connection
        self.starts[spec.address] += 1
        self.restarts[spec.address] += before is not None and not before.stopped_idle
        self._draining.begun(key, connection, resolve_server(spec, self.context.environ))
        owners.start(connection.run(), f"server {spec.address}")
        self._idle_timers.watch(connection)
        return connection

    def _make_room(self, spec: ServerSpec) -> None:
        """Stop a connection that nobody uses, if very many principals have one to this server."""
        others = [
            key
            for key, connection in self._live.items()
            if connection.spec.address == spec.address and connection.spec.key != spec.key
        ]
        if len(others) < MOST_PRINCIPALS:
            return
        unused = (key for key in others if self._live[key].spare or self._live[key].over)
        if (key := next(unused, None)) is None:
            reason = f"{MOST_PRINCIPALS} people use it now (scope: principal)"
            raise ServerUnavailable(
                "overloaded", f"[{spec.address}] Error: {reason}", reason=reason
            )
        self._drop(key)

    def _crowded(self) -> bool:
        calls = sum(connection.conversation.pending.count for connection in self._live.values())
        return calls >= self.context.limits.calls

    def _subscribed(self, connection: Connection) -> bool:
        return connection.has_tasks or bool(
            self.subscriptions.uris(connection.primitives.connection_id)
        )

    def _located(self, spec: ServerSpec, host: ConnectionHost | None) -> ServerSpec:
        """The server as this host uses it. One that fails in one folder may work in another."""
        return spec.in_folder(_folder(spec, host))

    def _key(self, spec: ServerSpec, host: ConnectionHost | None) -> ConnectionKey:
        if spec.scope != "session":
            is_own = _folder(spec, host) or self._needs_legacy(spec, host)
            return (spec.address, id(host)) if is_own else spec.key
        if host is None or not host.takes_turns:
            return (spec.address, id(host))
        return self._leases.key(spec, host)

    def let_ask(self, spec: ServerSpec, host: ConnectionHost) -> bool:
        """Give legacy hosts a connection of their own, on which this server can ask. Has this host one now?"""
        self.context.asking.add(spec.target)
        return self._needs_legacy(spec, host)

    def _needs_legacy(self, spec: ServerSpec, host: ConnectionHost | None) -> bool:
        """Does this server ask on the back-channel, and can it do so here?"""
        if spec.target not in self.context.asking or host is None or spec.principal:
            return False
        if (
            spec.scope == "shared"
            or spec.era != "auto"
            or self.context.eras.get(spec.target) == "modern"
        ):
            return False
        return host.is_legacy and bool(host.asking_capabilities())

    def hold(self, *, held: bool) -> None:
        """Backpressure: stop reading from all servers while a host can't keep up, or resume."""
        self._held = held
        for connection in self._live.values():
            connection.hold(held=held)
        self._draining.hold(held=held)

    def watch_deadlines(self) -> None:
        """Start the deadline timer unless it runs."""
        if self.clock is None:
            self.clock = asyncio.get_running_loop().call_later(TICK, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        waiting = [connection.expire(now) for connection in self._live.values()]
        waiting.append(self._draining.tick(now))
        self.clock = None
        if any(waiting):
            self.watch_deadlines()


class Leases:
    """Connections that hosts use in turn, where each host lasts for one request.

    With one call per connection, a request of the server can only belong to that call. A host holds its key until it leaves, whatever becomes of the connection: one that ends meanwhile
    is started again under the same key, and is free for others afterwards.
    """

    def __init__(
        self, live: dict[ConnectionKey, Connection], drop: Callable[[ConnectionKey], None]
    ) -> None:
        self._live = live
        self._drop = drop  # stops the connection and forgets its key
        self._leased: set[ConnectionKey] = set()
        # By server and principal, then by what their hosts declare.
        self._groups: dict[tuple[ServerAddress, Hashable], dict[Hashable, list[ConnectionKey]]] = {}
        self.numbers = count(1)

    def key(self, spec: ServerSpec, host: ConnectionHost) -> ConnectionKey:
        """The key of the connection that this host holds, leased if it holds none."""
        key = host.leases.get(spec.address)
        if key is None:
            key = host.leases[spec.address] = self._free(spec, host)
            self._leased.add(key)
            if key in self._live:
                self._live[key].server_requests.host = host
        return key

    def end(self, host: ConnectionHost) -> None:
        """The host leaves. A call that waits for a person keeps its connection busy."""
        self._leased.difference_update(host.leases.values())
        host.leases.clear()

    def _free(self, spec: ServerSpec, host: ConnectionHost) -> ConnectionKey:
        groups = self._groups.setdefault((spec.address, host.owner), {})
        for declared, keys in tuple(groups.items()):
            self._forget_ended(keys)
            if not keys:
                del groups[declared]
        group = groups.get(host.key, [])
        unleased = [key for key in group if key not in self._leased]
        for key in unleased:
            connection = self._live[key]
            if connection.idle or not connection.usable:  # or starting, and for nobody
                return key
        if len(group) < MOST_CONNECTIONS and self._has_room(groups.values()):
            groups.setdefault(host.key, []).append((spec.address, -next(self.numbers)))
            return groups[host.key][-1]
        for key in unleased:
            if _make_idle(self._live[key]):
                return key
        reason = (
            f"the server is busy: {MOST_CONNECTIONS} calls are under way at it (scope: session)"
        )
        where = f"[{spec.address}]"
        raise ServerUnavailable("overloaded", f"{where} Error: {reason}", reason=reason)

    def _forget_ended(self, keys: list[ConnectionKey]) -> None:
        for key in [key for key in keys if key not in self._leased]:
            if key not in self._live or self._live[key].over:
                keys.remove(key)
                self._drop(key)

    def _has_room(self, groups: Iterable[list[ConnectionKey]]) -> bool:
        """Is there room for one more? A principal that always declares something new is limited too."""
        groups = tuple(groups)
        if sum(map(len, groups)) < MOST_PER_PRINCIPAL:
            return True
        for group in groups:
            for key in group:
                if key not in self._leased and self._live[key].spare:
                    group.remove(key)
                    self._drop(key)
                    return True
        return False


def _make_idle(connection: Connection) -> bool:
    """Give up the oldest suspended call, if nobody waits for its outcome."""
    handler = connection.conversation.pending.oldest(lambda handler: handler.suspended)
    return handler is not None and handler.give_way()


class DrainingConnections:
    """Connections that are replaced: they take no new calls, and end when theirs have ended.

    Remembers how each connection reaches its server (`ResolvedServer`), and which one it replaces: lists that differ
    from those of its predecessor are announced.
    """

    def __init__(self, live: dict[ConnectionKey, Connection]) -> None:
        self._live = live
        self._ways: dict[ConnectionKey, ResolvedServer] = {}
        self._until: dict[Connection, float] = {}
        self._before: dict[ConnectionKey, Connection | None] = {}  # predecessors

    def begun(self, key: ConnectionKey, connection: Connection, way: ResolvedServer) -> None:
        """Record a new connection, which takes over the lists of its predecessor."""
        self._ways[key] = way
        if key in self._before:
            before = self._before.pop(key)
            connection.succeeds = True
            connection.primitives.succeed(None if before is None else before.primitives)
            if before is not None:
                connection.tools.catalogue = before.catalogue

    def expect(self, key: ConnectionKey) -> None:
        """The next connection with this key has new lists, to be announced."""
        if key not in self._live:
            self._before.setdefault(key, None)

    def forget(self, key: ConnectionKey) -> None:
        """The owner of this key is gone."""
        self._before.pop(key, None)
        self._ways.pop(key, None)

    def rename(self, key: ConnectionKey, kept: ConnectionKey) -> None:
        """A connection has another key."""
        self._ways[kept] = self._ways.pop(key)
        self._before.pop(key, None)

    def ways(self) -> dict[ServerAddress, ResolvedServer]:
        """How the connected servers are reached; one entry per server."""
        return {address_of(key): self._ways[key] for key in self._live}

    def renew(
        self,
        specs: Mapping[ServerAddress, ServerSpec],
        ways: Mapping[ServerAddress, ResolvedServer],
        drain: float,
    ) -> dict[ServerAddress, Connection]:
        """Keep the connections whose way is the same; retire the others, which are returned.

        Calls in flight have `drain` seconds; one that waits for a person has no limit.
        """
        until = time.monotonic() + drain
        retired: dict[ServerAddress, Connection] = {}
        for key, connection in tuple(self._live.items()):
            address = address_of(key)
            if self._ways[key] == ways.get(address):
                # Filters and times, from the next call on.
                connection.spec = specs[address].for_principal(connection.spec.principal)
            else:
                retired[address] = connection
                self._retire(key, connection, until, wanted=address in specs)
        for key in [key for key in self._before if address_of(key) not in specs]:
            del self._before[key]
        return retired

    def _retire(
        self, key: ConnectionKey, connection: Connection, until: float, *, wanted: bool
    ) -> None:
        del self._live[key], self._ways[key]
        if wanted and not _is_leased(key):
            # Even one that never became ready: it may have taken over lists itself.
            self._before[key] = connection
        connection.retired = connection.over = True
        connection.usable = connection.succeeds = False
        connection.ending = _CHANGED if wanted else _REMOVED
        connection.tools.retire()
        if isinstance(connection.state, Connecting):
            connection.stop()  # those who wait for it turn to its successor
        else:
            self._until[connection] = until
            self.tick(time.monotonic())

    def tick(self, now: float) -> bool:
        """Stop those that are idle or past their limit; are others left?"""
        for connection, until in tuple(self._until.items()):
            in_flight = connection.expire(now)
            if not in_flight or (now >= until and not connection.server_requests.any):
                del self._until[connection]
                connection.stop()
        return bool(self._until)

    def hold(self, *, held: bool) -> None:
        for connection in self._until:
            connection.hold(held=held)


def _connection_id(key: ConnectionKey, host: ConnectionHost | None) -> ConnectionId:
    if not isinstance(key, tuple):
        return ConnectionId(key)
    address, owner = key
    if isinstance(owner, str):
        return ConnectionId(address, owner=owner)
    return ConnectionId(address, owner, owner_of(host))


def owner_of(host: ConnectionHost | None) -> Hashable:
    """The owner of connections that this host does not share: itself, or its principal."""
    return host.key if host is not None and host.takes_turns else id(host)


def _folder(spec: ServerSpec, host: ConnectionHost | None) -> str:
    """The folder of this host, if the server runs there and not in ours."""
    return host.folder if host is not None and spec.follows_hosts else ""


def address_of(key: ConnectionKey) -> ServerAddress:
    return key[0] if isinstance(key, tuple) else key


def _is_leased(key: ConnectionKey) -> bool:
    """Is it leased? No host keeps such a connection long enough to hear of changes."""
    return isinstance(key, tuple) and isinstance(key[1], int) and key[1] < 0


def _is_of_one_host(key: ConnectionKey) -> bool:
    return isinstance(key, tuple) and isinstance(key[1], int)


def _nameless(address: ServerAddress) -> ServerUnavailable:
    reason = (
        "needs a principal: here each person signs in for themselves, and this port does not know who calls; "
        "set http.tokens or http.auth"
    )
    return not_connected(address.server, address.toolbox, reason)
