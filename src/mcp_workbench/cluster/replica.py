"""One replica: the engine, the other replicas, and the port on which these reach it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mcp_workbench.cluster.engine import Engine
from mcp_workbench.cluster.forwarding import AnswerStream, ForwardedTo, as_request, read_request
from mcp_workbench.cluster.joining import join, reach
from mcp_workbench.cluster.keys import ValueSeal, derive
from mcp_workbench.cluster.link import ANSWER, REFUSED, STRANGERS, AcceptedLink, LinkBroken
from mcp_workbench.cluster.links import Links
from mcp_workbench.cluster.members import Members, new_replica_id
from mcp_workbench.cluster.owned_sessions import OwnedSessions
from mcp_workbench.cluster.ownership import LEASE
from mcp_workbench.cluster.placed_links import ATTACH
from mcp_workbench.cluster.records import (
    LONGEST_MEMBER,
    ReplicaAddress,
    read_record,
    write_record,
)
from mcp_workbench.cluster.session_store import SessionStore
from mcp_workbench.cluster.shared_streams import SharedStreams
from mcp_workbench.config.cluster_settings import ClusterConfig, join_address
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.server.suspended_calls import RequestStates
from mcp_workbench.transport.http.messages import ResponseWriter

if TYPE_CHECKING:
    from mcp_workbench.cluster.front import ClusterFront
    from mcp_workbench.cluster.placed_servers import PlacedServers
    from mcp_workbench.server.http.sessions import LegacySession
    from mcp_workbench.transport.http.server import HttpServer
    from mcp_workbench.transport.tasks import TaskScope

log = logging.getLogger(__name__)

START = 10.0  # seconds for the engine when we start
FLUSH = 1.0  # seconds for what is written and not sent yet, when we end
POLL = 0.02
ASK_TIME = 1.0  # seconds for another replica's answer to a short question
REACH_TIME = 2.0  # seconds for one that has to connect first

_PROMISE = b"promise"
_HOLDS = b"holds"
_NOTE = b"note"
_HAS = b"has "
_REACH = b"reach "
_YES, _NO = b"1", b"0"


class ClusterPortRefused(WorkbenchError):
    """The system refuses to listen for the other replicas."""

    code = "port_refused"


class Replica:
    """This process as one of several."""

    def __init__(
        self, config: ClusterConfig, scope: TaskScope, most: int, address: tuple[str, int], id: str
    ) -> None:
        self.scope = scope
        self.me = ReplicaAddress(id, *address)
        self.state_key = derive(config.key, b"request states")
        self.script_key = derive(config.key, b"suspended scripts")
        self.catalogue_key = derive(config.key, b"names of catalogues")
        self.task_key = derive(config.key, b"task ids")
        self.engine = Engine(config.engine, config.name)
        self.vault = vault = ValueSeal(config.key)
        self.store = SessionStore(self.engine, vault)
        self.streams = SharedStreams(self.engine, vault)
        self.links = Links(config.key, most, id, scope)
        self.members = Members(self.engine, vault, self.me, self._ask_promise, scope)
        self.sessions = OwnedSessions(self)
        self.front: ClusterFront | None = None
        self.server: HttpServer | None = None
        self.placed: PlacedServers | None = None
        self._answers: dict[tuple[AcceptedLink, int], ResponseWriter] = {}
        self._elsewhere: dict[str, ReplicaAddress] = {}  # without a lease, and alive
        self.members.verify = self._verify

    def states(self, principal: str) -> RequestStates:
        """Signs for this principal with the key of all replicas; their clocks are compared."""
        return RequestStates(principal, self.state_key, time.time, f"{self.me.id}.")

    # The engine

    async def _verify(self) -> None:
        if self.front is not None:
            await self.sessions.verify(self.front.legacy)
        if self.placed is not None:
            await self.placed.verify()

    # What we ask of others

    async def _ask(
        self, member: ReplicaAddress, question: bytes, seconds: float = ASK_TIME
    ) -> bytes:
        link = await self.links.to(member)
        return await link.ask(question, seconds)

    async def is_reached_by(self, member: ReplicaAddress) -> bool | None:
        """Whether another replica can connect to this one; None if it does not say."""
        try:
            answer = await self._ask(member, _REACH + write_record(self.me), REACH_TIME)
        except LinkBroken:
            return None
        return answer == _YES

    async def _ask_promise(self, member: ReplicaAddress) -> bool:
        return await self._ask(member, _PROMISE + self.me.id.encode()) == _YES

    async def _drop_silent(self) -> None:
        """Give up connections to replicas that have lost their lease and do not answer."""
        for id in self.links.connected():
            if id not in self.members.others and not await self._answers_still(id):
                self.links.drop(id)

    async def _answers_still(self, id: str) -> bool:
        link = self.links.ready(id)
        try:
            return link is not None and bool(await link.ask(_HOLDS, ASK_TIME))
        except LinkBroken:
            return False

    async def watch_links(self) -> None:
        """Until cancelled: who waits for a replica that is stopped is told so."""
        while True:
            await self.members.next_beat(LEASE)
            if self.engine.is_ready:
                await self._drop_silent()

    async def holds_elsewhere(self, member: ReplicaAddress) -> bool:
        """Whether a replica without a lease lives and answers for its sessions all the same."""
        try:
            holds = await self._ask(member, _HOLDS) == _YES
        except LinkBroken:
            return False
        if holds:
            self._elsewhere[member.id] = member
        return holds

    def session(self, id: str) -> LegacySession | None:
        """A session in this process's memory."""
        return None if self.front is None else self.front.legacy.get(id)

    async def who_has(self, id: str, tried: frozenset[str]) -> str:
        """The replica that has this session in its memory, whatever the engine knows; empty if none has."""
        found: list[str] = []

        async def ask(member: ReplicaAddress) -> None:
            with contextlib.suppress(LinkBroken):
                if await self._ask(member, _HAS + id.encode("latin-1")) == _YES:
                    found.append(member.id)

        asked = [m for m in self.members.others.values() if m.id not in tried]
        if asked:
            await asyncio.wait([self.scope.start(ask(m), "who has a session") for m in asked])
        return found[0] if found else ""

    def known_elsewhere(self, id: str) -> ReplicaAddress | None:
        return self._elsewhere.pop(id, None)

    async def note(self, member: ReplicaAddress, payload: bytes) -> None:
        try:
            await self._ask(member, _NOTE + payload)
        except LinkBroken:
            return  # its calls are gone as well

    # What others ask of us

    def opened(self, link: AcceptedLink, stream: int, payload: bytes) -> None:
        if payload.startswith(ATTACH) and self.placed is not None:
            self.placed.opened(link, stream, payload)
            return
        forwarded, front = read_request(payload), self.front
        if forwarded is None or front is None or self.server is None:
            link.frame(REFUSED, stream)
            return
        connection = AnswerStream(link, stream, self._date)
        connection.on_answered = lambda number: self._answers.pop((link, number), None) and None
        request = as_request(forwarded)
        response = ResponseWriter(connection, request)
        self._answers[link, stream] = response

        def refuse() -> None:
            self._answers.pop((link, stream), None)
            link.frame(REFUSED, stream)

        origin = ForwardedTo(link.other_id, refuse, is_yielded=forwarded.is_yielded)
        if not front.handle_forwarded(forwarded, request, response, origin):
            refuse()

    def _date(self) -> bytes:
        return b"" if self.server is None else self.server.date

    def more(self, link: AcceptedLink, stream: int, payload: bytes) -> None:
        if self.placed is not None:
            self.placed.more(link, stream, payload)

    def gone(self, link: AcceptedLink, stream: int) -> None:
        if self.placed is not None:
            self.placed.gone(link, stream)
        response = self._answers.pop((link, stream), None)
        if response is not None:
            response.lost()

    def asked(self, link: AcceptedLink, stream: int, payload: bytes) -> None:
        if payload.startswith(_PROMISE):
            other = payload[len(_PROMISE) :].decode("latin-1")
            answer = _YES if self.members.promise(other) else _NO
        elif payload == _HOLDS:
            answer = _YES if self.members.holds() else _NO
        elif payload.startswith(_HAS):
            id = payload[len(_HAS) :].decode("latin-1")
            answer = _YES if self.session(id) is not None else _NO
        elif payload.startswith(_NOTE):
            self.sessions.receive_note(payload[len(_NOTE) :])
            answer = _YES
        elif payload.startswith(_REACH):
            self.scope.start(self._try_to_reach(link, stream, payload), "a replica that starts")
            return
        else:
            answer = _NO
        link.frame(ANSWER, stream, answer)

    async def _try_to_reach(self, link: AcceptedLink, stream: int, payload: bytes) -> None:
        """Tell a replica that starts whether its address is right."""
        member = read_record(ReplicaAddress, payload[len(_REACH) :], LONGEST_MEMBER)
        reached = False
        if member is not None and member.id == link.other_id:
            with contextlib.suppress(OSError, LinkBroken):
                await reach(self, member)
                reached = True
        link.frame(ANSWER, stream, _YES if reached else _NO)

    def closed(self, link: AcceptedLink) -> None:
        if self.placed is not None:
            self.placed.closed(link)
        for key in [key for key in self._answers if key[0] is link]:
            self._answers.pop(key).lost()


class _Listener:
    """The internal port: accepts replicas alone."""

    def __init__(self, config: ClusterConfig, most: int, id: str) -> None:
        self.replica: Replica | None = None
        self._config = config
        self._most = most
        self._id = id
        self._links: set[AcceptedLink] = set()
        self._strangers: dict[AcceptedLink, None] = {}
        self._named: dict[AcceptedLink, None] = {}  # know our id, and have not proved the key

    def accept(self) -> AcceptedLink:
        link = AcceptedLink(self._config.key, self._most, self._id, self)
        self._links.add(link)
        link.on_named = lambda: self._was_named(link)
        link.on_known = lambda: self._forget(link)
        self._add(self._strangers, link)
        return link

    def _was_named(self, link: AcceptedLink) -> None:
        """It is hardly a stranger: no number of those takes its place."""
        self._forget(link)
        self._add(self._named, link)

    def _add(self, links: dict[AcceptedLink, None], link: AcceptedLink) -> None:
        links[link] = None
        if len(links) > STRANGERS:
            next(iter(links)).abort()

    def _forget(self, link: AcceptedLink) -> None:
        self._strangers.pop(link, None)
        self._named.pop(link, None)

    def opened(self, link: AcceptedLink, stream: int, payload: bytes) -> None:
        if self.replica is not None:
            self.replica.opened(link, stream, payload)

    def more(self, link: AcceptedLink, stream: int, payload: bytes) -> None:
        if self.replica is not None:
            self.replica.more(link, stream, payload)

    def gone(self, link: AcceptedLink, stream: int) -> None:
        if self.replica is not None:
            self.replica.gone(link, stream)

    def asked(self, link: AcceptedLink, stream: int, payload: bytes) -> None:
        if self.replica is not None:
            self.replica.asked(link, stream, payload)

    def closed(self, link: AcceptedLink) -> None:
        self._links.discard(link)
        self._forget(link)
        if self.replica is not None:
            self.replica.closed(link)

    async def finish(self) -> None:
        """Let the last answers leave."""
        for link in tuple(self._links):
            link.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH):
                while self._links:  # noqa: ASYNC110 - during shutdown only
                    await asyncio.sleep(POLL)

    def close(self) -> None:
        for link in tuple(self._links):
            link.abort()


@asynccontextmanager
async def replica_of(config: ClusterConfig, scope: TaskScope, most: int) -> AsyncGenerator[Replica]:
    """Be a replica for the length of the block. Raises EngineAway, JoinRefused and ClusterPortRefused."""
    id = new_replica_id()
    listener = _Listener(config, most, id)
    server = await _listening(config, listener)
    try:
        address = config.advertise or (config.listen[0], server.sockets[0].getsockname()[1])
        replica = listener.replica = Replica(config, scope, most, address, id)
        scope.start(replica.engine.run(), "engine")
        await replica.engine.ready(START)
        await join(replica)
        scope.start(replica.members.run(), "lease")
        scope.start(replica.watch_links(), "links")
        yield replica
        await replica.members.leave()
        server.close()
        await listener.finish()
        replica.links.close()
    finally:
        server.close()
        listener.close()


async def _listening(config: ClusterConfig, listener: _Listener) -> asyncio.Server:
    try:
        loop = asyncio.get_running_loop()
        return await loop.create_server(listener.accept, *config.listen)
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        hint = "end what listens there, or name another port in cluster.listen"
        if error.errno != errno.EADDRINUSE:
            hint = "name an address of this machine in cluster.listen"
        where = join_address(*config.listen)
        raise ClusterPortRefused(f"can't listen on {where}: {reason}", hint=hint) from None
