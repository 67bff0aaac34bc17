"""Servers with one process for all replicas (`placement`): who runs it, how others reach it.

A record in the engine names the replica that holds a server, as records do for sessions: the same lease, the
same compare-and-swap, the same conditions for who takes over (`ownership.py`). The holder runs the process
(`placed_process.py`); every replica, the holder among them, has a link to it (`placed_links.py`), so that for
all above it is a server like another one. The holder ends its process when its lease ends, before anybody
else can take the record. On SIGTERM it lets the calls in flight finish, ends the process and releases the record.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mcp_workbench.cluster.engine import EngineAway
from mcp_workbench.cluster.link import REFUSED, AcceptedLink, LinkBroken
from mcp_workbench.cluster.ownership import (
    Absent,
    Adopt,
    ForwardTo,
    Local,
    Step,
    WaitForLease,
    adopted,
    may_adopt,
    next_step,
    released,
    successor,
)
from mcp_workbench.cluster.placed_links import (
    AttachRequest,
    LocalLink,
    RemoteClient,
    RemoteLink,
    read_attach,
)
from mcp_workbench.cluster.placed_process import PlacedProcess
from mcp_workbench.cluster.records import ReplicaAddress, SessionRecord
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.config.expand import resolve_server
from mcp_workbench.core.spec import ServerAddress, ServerSpec
from mcp_workbench.transport.tasks import comes_within
from mcp_workbench.upstream.dial import Unreachable, start_server

if TYPE_CHECKING:
    from mcp_workbench.cluster.replica import Replica
    from mcp_workbench.cluster.session_store import StoredSession
    from mcp_workbench.gateway.reload import Reloaded
    from mcp_workbench.gateway.workbench import Gateway
    from mcp_workbench.upstream.conversation import Conversation

log = logging.getLogger(__name__)

WAIT = 0.2  # seconds between two looks at who has the server
PATIENCE = 5.0  # seconds for an engine that is away to come back, before a call fails
ATTACH_TIME = 60.0  # seconds for the holder to start the process
LOOK = 1.0  # seconds between two looks whether a process is still wanted
KEEP_EVERY = 600.0  # seconds between two signs of use; records stay for an hour
MOVED = "the server moves to another replica"
CHANGED = "its entry in the configuration has changed"
FENCED = "this replica has lost its lease, and another one may run the server now"

_AWAY = (EngineAway, EngineError)


class HostedServer:
    """One server that runs at this replica."""

    def __init__(self, spec: ServerSpec, way: object, process: PlacedProcess) -> None:
        self.spec = spec
        self.way = way  # how it is started
        self.process = process
        self.decided = asyncio.Event()  # it runs, or could not be started
        self.gone = asyncio.Event()
        self.failure = ""
        self.has_exited = False
        self.is_fenced = False
        self.unused_since: float | None = None

    def exited(self) -> None:
        self.has_exited = True
        self.process.end("the server exited")

    def fence(self) -> None:
        """Another replica may run the server: end the process at once."""
        self.is_fenced = True
        self.process.end(FENCED)

    def is_unused(self, now: float) -> bool:
        """Whether no replica has used it for its `idleTimeout`."""
        if self.process.has_clients or not self.spec.idle_timeout:
            self.unused_since = None
            return False
        if self.unused_since is None:
            self.unused_since = now
        return now - self.unused_since >= self.spec.idle_timeout


class PlacedServers:
    """All such servers, as one replica sees them."""

    def __init__(self, gateway: Gateway, replica: Replica) -> None:
        self._gateway = gateway
        self._context = gateway.pool.context
        self._replica = replica
        self._members = replica.members
        self._scope = replica.scope
        self._owned: dict[ServerAddress, StoredSession] = {}
        self._hosted: dict[ServerAddress, HostedServer] = {}
        self._known: dict[ServerAddress, str] = {}  # replicas that had a server when we last asked
        self._taking: dict[ServerAddress, asyncio.Lock] = {}
        # Of other replicas; None: not attached yet.
        self._streams: dict[tuple[AcceptedLink, int], tuple[PlacedProcess, int] | None] = {}
        self.is_draining = False
        self.is_busy = False  # hands over

    # Links

    @asynccontextmanager
    async def dial(
        self, spec: ServerSpec, conversation: Conversation, ended: Callable[[], None]
    ) -> AsyncGenerator[LocalLink | RemoteLink]:
        """Open a link to the one process, wherever it runs. Raises Unreachable."""
        link = await self._attach(spec, conversation, ended)
        try:
            yield link
        finally:
            link.close()

    async def _attach(
        self, spec: ServerSpec, conversation: Conversation, ended: Callable[[], None]
    ) -> LocalLink | RemoteLink:
        """Look until somebody has the server; who dials limits the time. Raises Unreachable."""
        tried: frozenset[str] = frozenset()
        patience = time.monotonic() + PATIENCE
        while True:
            try:
                step = await self._next_step(spec.address, tried)
            except _AWAY as error:
                if time.monotonic() > patience:
                    reason = f"which replica runs it is not known: {error}"
                    raise Unreachable(reason) from None
                step = WaitForLease()
            tried = frozenset()
            if isinstance(step, Local):
                process = await self._process(spec)
                if process is not None:
                    return LocalLink(process, conversation, ended)
            elif isinstance(step, ForwardTo):
                link = await self._attach_at(step.replica, spec.address, conversation, ended)
                if link is not None:
                    self._known[spec.address] = step.replica
                    return link
                tried = frozenset((step.replica,))
            await self._members.next_beat(WAIT)

    async def _attach_at(
        self,
        replica: str,
        address: ServerAddress,
        conversation: Conversation,
        ended: Callable[[], None],
    ) -> RemoteLink | None:
        """Attach at another replica. None: it does not have the server. Raises Unreachable if it can't start it."""
        member = self._members.others.get(replica)
        if member is None:
            return None
        try:
            link = RemoteLink(await self._replica.links.to(member), conversation, ended)
            link.open(AttachRequest(address.toolbox, address.server, self.is_draining))
        except LinkBroken:
            return None
        attached = False
        try:
            async with asyncio.timeout(ATTACH_TIME):
                attached = await link.attached
        except TimeoutError:
            return None
        finally:
            if not attached:
                link.close()
        if not attached and link.reason:
            raise Unreachable(link.reason)
        return link if attached else None

    # Who has it

    def _may_host(self, address: ServerAddress) -> bool:
        return address in self._owned and self._members.holds() and not self.is_draining

    async def _next_step(self, address: ServerAddress, tried: frozenset[str]) -> Step:
        """Find out who has the server; take it if nobody has. Raises EngineAway and EngineError."""
        if self._may_host(address):
            return Local()
        async with self._taking.setdefault(address, asyncio.Lock()):
            if self._may_host(address):
                return Local()
            try:
                stored = await self._replica.store.read(_id(address))
            except _AWAY:
                known = self._known.get(address, "")
                if known in self._members.others and known not in tried:
                    return ForwardTo(known)
                raise
            step = await self._step_by_record(stored, tried)
            return await self._taken(address, stored, step)

    async def _step_by_record(self, stored: StoredSession | None, tried: frozenset[str]) -> Step:
        members, me = self._members, self._replica.me.id
        record = None if stored is None else stored.record
        owner = "" if record is None else record.owner
        promised = members.promised_until(owner) if record else members.promised_any_until()
        now = asyncio.get_running_loop().time()
        step = next_step(
            record,
            members.others,
            me,
            may_adopt=may_adopt(now, members.engine.since, promised),
            is_draining=self.is_draining,
            unreachable=tried,
        )
        if isinstance(step, Absent) and self.is_draining:
            other = successor(members.others, me, tried)
            return ForwardTo(other) if other else WaitForLease()
        if isinstance(step, Adopt) and record is not None and owner not in ("", me):
            other_address = ReplicaAddress(owner, record.host, record.port)
            if await self._replica.holds_elsewhere(other_address):
                return WaitForLease()
        return step

    async def _taken(
        self, address: ServerAddress, stored: StoredSession | None, step: Step
    ) -> Step:
        """Take it where that is the step; another replica may be faster."""
        store, me = self._replica.store, self._replica.me
        if not self._members.holds():
            return step if isinstance(step, ForwardTo) else WaitForLease()
        taken: StoredSession | None = None
        if isinstance(step, Absent):
            record = SessionRecord(_id(address), me.id, 1, "", "", b"", me.host, me.port)
            taken = (await store.claim([record]))[record.id]
        elif isinstance(step, Adopt) and stored is not None:
            taken = await store.swap(stored, adopted(stored.record, me))
            log.info("%s: taken over from replica %s", address, stored.record.owner or "none")
        else:
            return step
        if taken is None:
            return WaitForLease()
        self._owned[address] = taken
        return Local()

    # The process

    async def _process(self, spec: ServerSpec) -> PlacedProcess | None:
        """The process, started if needed. None: this replica does not hold it. Raises Unreachable."""
        address, way = spec.address, resolve_server(spec, self._context.environ)
        while self._may_host(address):
            hosted = self._hosted.get(address)
            if hosted is None:
                hosted = self._host(spec, way)
            elif hosted.way != way:
                await self._retire(hosted, CHANGED)
            if hosted.process.over.is_set() or hosted.process.is_draining:
                await hosted.gone.wait()
                continue
            await hosted.decided.wait()
            if hosted.failure:
                raise Unreachable(hosted.failure)
            if not hosted.process.over.is_set():
                return hosted.process
        return None

    def _host(self, spec: ServerSpec, way: object) -> HostedServer:
        address = spec.address

        def may_answer() -> bool:
            return self._members.holds() and address in self._owned

        most = self._gateway.snapshot.limits.message_bytes
        hosted = HostedServer(spec, way, PlacedProcess(most, may_answer))
        self._hosted[address] = hosted
        self._scope.start(self._run(hosted), f"the one process of {address}")
        return hosted

    async def _run(self, hosted: HostedServer) -> None:
        process = hosted.process
        try:
            async with start_server(
                hosted.spec, self._context, process.receive, hosted.exited
            ) as link:
                process.started(link.channel, link.wait)
                hosted.decided.set()
                try:
                    await self._wanted(hosted)
                    if hosted.has_exited:
                        process.reason = await link.exit_reason("the server exited", ended=True)
                finally:
                    process.close_clients(process.reason)
                    if hosted.is_fenced or not self._members.holds():
                        link.kill()
        except Unreachable as error:
            hosted.failure = str(error)
        finally:
            process.end("it could not be started")
            process.close_clients(hosted.failure or process.reason)
            del self._hosted[hosted.spec.address]
            hosted.decided.set()
            hosted.gone.set()

    async def _wanted(self, hosted: HostedServer) -> None:
        """Wait until the process has to end: it exited, or its lease has ended, or nobody uses it."""
        process = hosted.process
        while not process.over.is_set():
            left = self._members.holds_until - time.monotonic()
            if left <= 0:
                log.warning("%s: %s", hosted.spec.address, FENCED)
                hosted.fence()
            elif hosted.is_unused(time.monotonic()):
                process.end("nobody has used it (idleTimeout)")
            else:
                await comes_within(process.over, min(left, LOOK))

    async def _retire(self, hosted: HostedServer, reason: str) -> None:
        """Let calls in flight finish, then end the process."""
        hosted.process.drain()
        await comes_within(hosted.process.idle, self._gateway.snapshot.limits.drain)
        hosted.process.end(reason)
        await hosted.gone.wait()

    # Other replicas

    def opened(self, link: AcceptedLink, stream: int, payload: bytes) -> None:
        request = read_attach(payload)
        if request is None:
            link.frame(REFUSED, stream)
            return
        self._streams[link, stream] = None
        work = self._accept(link, stream, request)
        self._scope.start(work, "a server for another replica")

    async def _accept(self, link: AcceptedLink, stream: int, request: AttachRequest) -> None:
        client = RemoteClient(link, stream)
        process: PlacedProcess | None = None
        try:
            spec = self._spec(ServerAddress(request.toolbox, request.server))
            if spec is not None and (
                self._may_host(spec.address)
                or (request.is_handed_over and await self._takes(spec.address))
            ):
                process = await self._process(spec)
        except Unreachable as error:
            if self._streams.pop((link, stream), False) is None:
                client.closed(str(error), (), 0)
            return
        if (link, stream) not in self._streams:
            return  # it has left
        if process is None:
            del self._streams[link, stream]
            link.frame(REFUSED, stream)
            return
        number = process.attach(client)
        self._streams[link, stream] = (process, number)
        client.attached(number)

    async def _takes(self, address: ServerAddress) -> bool:
        """Take a server that another replica hands over; False if somebody else has it."""
        try:
            return isinstance(await self._next_step(address, frozenset()), Local)
        except _AWAY:
            return False

    def _spec(self, address: ServerAddress) -> ServerSpec | None:
        box = self._gateway.snapshot.toolboxes.get(address.toolbox)
        spec = None if box is None else box.servers.get(address.server)
        return spec if spec is not None and spec.placement == "one" else None

    def more(self, link: AcceptedLink, stream: int, payload: bytes) -> None:
        attached = self._streams.get((link, stream))
        if attached is not None:
            process, number = attached
            process.send(number, payload)

    def gone(self, link: AcceptedLink, stream: int) -> None:
        attached = self._streams.pop((link, stream), None)
        if attached is not None:
            process, number = attached
            process.detach(number)

    def closed(self, link: AcceptedLink) -> None:
        for key in [key for key in self._streams if key[0] is link]:
            self.gone(*key)

    # Time, the engine, and the end

    async def keep(self) -> None:
        """Until cancelled: say that the records are in use."""
        while True:
            await asyncio.sleep(KEEP_EVERY)
            try:
                if not await self._replica.store.keep([_id(a) for a in self._owned]):
                    self._members.distrust()
            except _AWAY:
                self._members.distrust()  # compared when the engine is back

    async def verify(self) -> None:
        """Compare what is ours with the engine: what another replica has taken is given up. Raises EngineAway."""
        store, me = self._replica.store, self._replica.me.id
        owned = dict(self._owned)
        found = await store.read_all([_id(address) for address in owned])
        lost = [s.record for a, s in owned.items() if found[_id(a)] is None]
        claimed = await store.claim(lost)
        for address in owned:
            stored = found[_id(address)] or claimed.get(_id(address))
            if stored is not None and stored.record.owner == me:
                self._owned[address] = stored
                continue
            del self._owned[address]
            hosted = self._hosted.get(address)
            if hosted is not None:
                log.warning("%s: %s", address, FENCED)
                hosted.fence()

    def reloaded(self, change: Reloaded) -> None:
        """End what the new configuration does not have any more, or starts in another way."""
        for address, hosted in tuple(self._hosted.items()):
            spec = self._spec(address)
            if spec is None or resolve_server(spec, self._context.environ) != hosted.way:
                self._scope.start(self._retire(hosted, CHANGED), f"end of {address}")

    async def hand_over(self) -> None:
        """Finish what runs, and leave the servers to the other replicas."""
        self.is_draining = self.is_busy = True
        try:
            retired = [
                self._scope.start(self._retire(hosted, MOVED), f"hand-over of {address}")
                for address, hosted in self._hosted.items()
            ]
            if retired:
                await asyncio.wait(retired)
            await self._release()
        except EngineAway as error:
            log.warning("servers with one process can't be handed over: %s", error)
        finally:
            self.is_busy = False

    async def _release(self) -> None:
        me = self._replica.me.id
        for stored in self._owned.values():
            self._replica.store.rewrite(stored, released(stored.record, me), _ignore)
        if self._owned:
            self._owned.clear()
            await self._replica.engine.ask("PING")  # all of them have arrived

    async def end(self) -> None:
        """End the processes that are left, before this replica gives up its lease."""
        self.is_draining = True
        hosted = tuple(self._hosted.values())
        for one in hosted:
            one.fence()
        for one in hosted:
            await one.gone.wait()


def _id(address: ServerAddress) -> str:
    """Under what a server's record lies in the engine. No session has such an id."""
    return f"server {address.toolbox}/{address.server}"


def _ignore() -> None:
    """Another replica has the server: it needs no hand-over."""


@asynccontextmanager
async def placed_servers(gateway: Gateway, replica: Replica) -> AsyncGenerator[PlacedServers]:
    """Serve them for the length of the block, and end their processes afterwards."""
    placed = PlacedServers(gateway, replica)
    replica.placed = gateway.pool.context.placements = placed
    stop_listening = gateway.on_change(lambda address: None, placed.reloaded)
    task = replica.scope.start(placed.keep(), "records of servers")
    try:
        yield placed
    finally:
        task.cancel()
        stop_listening()
        await placed.end()
