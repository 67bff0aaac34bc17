"""All live servers, and the one scope that they live in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import Era, Limits, ServerSpec
from mcp_workbench.downstream.connection import Connection
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
        self._limits = limits
        self._environ = environ
        self._changed = changed
        self._live: dict[ServerAddress, Connection] = {}
        self._eras: dict[object, Era] = {}
        self._owners: TaskScope | None = None
        self._held = False
        self._clock: asyncio.TimerHandle | None = None

    def _life(self) -> AbstractAsyncContextManager[None]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None]:
        async with task_scope() as self._owners:
            try:
                yield
            finally:
                if self._clock is not None:
                    self._clock.cancel()

    def connection(self, spec: ServerSpec) -> Connection:
        """The connection for `spec`, begun if there is none. Never waits, so never races."""
        found = self._live.get(spec.address)
        return self._begin(spec) if found is None or found.over else found

    def live(self, address: ServerAddress) -> Connection | None:
        """The connection at this address, if there is one that is not over."""
        found = self._live.get(address)
        return None if found is None or found.over else found

    def _begin(self, spec: ServerSpec) -> Connection:
        if self._owners is None:
            raise RuntimeError("the workbench is not open: use `async with`")
        begun = Connection(
            spec,
            self._limits,
            self._environ,
            self._eras,
            lambda connection: self._changed(connection.spec.address),
        )
        begun.hold(held=self._held)
        self._live[spec.address] = begun
        self._owners.start(begun.run(), f"server {spec.address}")
        return begun

    def hold(self, *, held: bool) -> None:
        """Stop listening to all servers while a host can't keep up, or go on."""
        self._held = held
        for connection in self._live.values():
            connection.hold(held=held)

    def watch_deadlines(self) -> None:
        """See to it that the clock runs while calls are in flight."""
        if self._clock is None:
            self._clock = asyncio.get_running_loop().call_later(TICK, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        waiting = [connection.expire(now) for connection in self._live.values()]
        self._clock = None
        if any(waiting):
            self.watch_deadlines()
