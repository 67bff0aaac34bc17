"""The HTTP front of a replica: answers what is its own, and passes on what belongs to another one."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mcp_workbench.cluster.engine import EngineAway
from mcp_workbench.cluster.forwarding import (
    MOST_HOPS,
    ForwardedRequest,
    ForwardedTo,
    Forwarding,
    write_request,
)
from mcp_workbench.cluster.link import LinkBroken
from mcp_workbench.cluster.named_replicas import NamedReplica, NamedReplicas, may_name_one
from mcp_workbench.cluster.ownership import (
    NEW,
    Absent,
    Adopt,
    ForwardTo,
    Local,
    Step,
    WaitForLease,
    may_adopt,
    next_step,
    successor,
)
from mcp_workbench.cluster.records import ReplicaAddress
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.server.http.access import CLOSING, refused
from mcp_workbench.server.http.front import HttpFront
from mcp_workbench.server.http.later_answers import answer_later
from mcp_workbench.server.http.sessions import (
    LAST_EVENT,
    SESSION_ID,
    Admitted,
    LegacySession,
    LegacySessions,
)
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.http.messages import HttpRequest, Reply, ResponseWriter

if TYPE_CHECKING:
    from mcp_workbench.cluster.replica import Replica
    from mcp_workbench.cluster.session_store import StoredSession
    from mcp_workbench.gateway.views import View
    from mcp_workbench.transport.http.server import HttpServer
    from mcp_workbench.transport.tasks import TaskScope

log = logging.getLogger(__name__)

WAIT = 0.2  # seconds between two looks at who may answer
SOON = 0.05  # seconds until a second look, after another replica has refused
HOLD = 10.0  # seconds for which a request waits until it is clear who answers it
OWNERS = 20_000  # sessions of others whose owner is kept in mind
LINGER = 3.0  # seconds after SIGTERM in which load balancers notice that we are not ready
LONGEST_SESSION_ID = 128
AWAY = refused(
    503,
    "it is not known now which replica has this session; try again",
    code=jsonrpc.SERVER_ERROR,
    headers=b"Retry-After: 2\r\n",
)

UNREACHED = refused(
    503,
    "the replica that has this call or task can't be reached now; try again",
    code=jsonrpc.SERVER_ERROR,
    headers=b"Retry-After: 2\r\n",
)

_WAIT = WaitForLease()
_NO_LEASE = Reply(503, b"no lease")
_DRAINING = Reply(503, b"draining")


class ClusterFront(HttpFront):
    """All hosts of one replica."""

    def __init__(self, view: View, scope: TaskScope, replica: Replica) -> None:
        super().__init__(view, scope)
        self._replica = replica
        self._members = replica.members
        self._me = replica.me.id
        self._named = NamedReplicas(replica)
        self._owners: dict[str, str] = {}  # sessions of other replicas
        self._forwarded: set[Forwarding] = set()
        self._routing: dict[
            str, tuple[asyncio.Lock, int]
        ] = {}  # sessions whose owner is looked for
        self.is_draining = False
        self._linger_until = 0.0
        self._handing_over = False
        self._sessions.new_id = replica.sessions.new_id
        self._sessions.on_new = replica.sessions.created
        self._sessions.on_end = replica.sessions.ended
        self._exchanges.states = replica.states
        self.serves = self._serves

    def _serves(self, server: HttpServer) -> None:
        self._replica.server = server
        self._replica.front = self

    @property
    def legacy(self) -> LegacySessions:
        return self._sessions

    # Requests of hosts

    def handle(self, request: HttpRequest, response: ResponseWriter) -> None:
        admitted = request.admitted
        if type(admitted) is not Admitted:
            super().handle(request, response)
        elif admitted.modern:
            if self.is_draining or may_name_one(request):
                self._handle_modern(request, response)
            else:
                self._exchanges.handle(request, response)
        else:
            session = admitted.session
            own = session is not None and self._sessions.get(session.id) is session
            if own and not self._routing and self._members.holds():
                self._handle_own(request, response, session)
            else:
                self._handle_legacy(request, response)

    def _handle_own(
        self, request: HttpRequest, response: ResponseWriter, session: LegacySession | None
    ) -> None:
        """Answer for a session of this replica."""
        if request.admitted.session is not session:
            request.admitted.session = None  # one that has moved: it is looked up again
        if request.method == b"GET" and self._resumes(request, response, session):
            return
        self._sessions.handle(request, response)
        if session is not None and self._replica.sessions.previous:
            self._replica.sessions.tell_previous(session, request.body)

    def _resumes(
        self, request: HttpRequest, response: ResponseWriter, session: LegacySession | None
    ) -> bool:
        """Resume a stream of a former owner. False: it is none, or the request is not the session's."""
        admitted: Admitted = request.admitted
        last = request.headers.get(LAST_EVENT, b"")
        fits = session is not None and (session.principal, session.endpoint) == (
            admitted.principal.name,
            admitted.endpoint,
        )
        if session is None or not last or not fits:
            return False
        return self._replica.sessions.resume(session, response, last)

    def _handle_legacy(self, request: HttpRequest, response: ResponseWriter) -> None:
        id = request.headers.get(SESSION_ID, b"").decode("latin-1")
        if not id and self.is_draining:
            self._forward_to_successor(request, response)
        elif not id or len(id) > LONGEST_SESSION_ID:
            self._sessions.handle(request, response)  # `initialize`, or an error
        elif id in self._routing:  # behind those that came before
            work = self._route(request.kept(), response, id, 0)
            answer_later(self._scope, work, response, "request for another replica")
        elif (session := self._sessions.get(id)) is not None and self._members.holds():
            self._handle_own(request, response, session)
        elif not self._forward_at_once(request, response, id):
            work = self._route(request.kept(), response, id, 0)
            answer_later(self._scope, work, response, "request for another replica")

    def _forward_at_once(self, request: HttpRequest, response: ResponseWriter, id: str) -> bool:
        """Pass on what has a known owner and a connection to it; False if it is not so simple."""
        owner = self._owners.get(id) or id.partition(".")[0]
        if self._sessions.get(id) is not None or owner == self._me:
            return False
        member = self._members.others.get(owner)
        if member is None or member.is_draining:
            return False
        return self._forward(request.kept(), response, owner, 1)

    def _handle_modern(self, request: HttpRequest, response: ResponseWriter) -> None:
        named = self._named.named_in(request)
        if named.id and named.id != self._me and not self._named.is_gone(named.id):
            work = self._forward_modern(request.kept(), response, named)
            answer_later(self._scope, work, response, "answer for another replica")
        elif self.is_draining and named.id != self._me:
            self._forward_to_successor(request, response)
        else:
            self._exchanges.handle(request, response)

    async def _forward_modern(
        self, request: HttpRequest, response: ResponseWriter, named: NamedReplica
    ) -> None:
        """Pass it on to the replica that it names, which may be new, or hard to reach for a moment."""
        loop = asyncio.get_running_loop()
        end, new_until = loop.time() + HOLD, loop.time() + NEW
        while not response.over and not await self._pass_on(request, response, named.id, 1):
            now = loop.time()
            is_new = named.id not in self._members.others and now <= new_until
            has_ended = not is_new and self._named.has_ended(named.id, now)
            if has_ended:
                self._named.give_up(named.id)
            if has_ended or not (named.is_only or is_new):
                self._answer_without(request, response)
                return
            if now > end:
                response.plain(UNREACHED)
                return
            await self._members.next_beat(WAIT)

    def _answer_without(self, request: HttpRequest, response: ResponseWriter) -> None:
        if self.is_draining:
            self._forward_to_successor(request, response)
        else:
            self._exchanges.handle(request, response)  # which says what is gone

    def _forward_to_successor(self, request: HttpRequest, response: ResponseWriter) -> None:
        work = self._to_successor(request.kept(), response)
        answer_later(self._scope, work, response, "request for another replica")

    async def _to_successor(self, request: HttpRequest, response: ResponseWriter) -> None:
        tried: frozenset[str] = frozenset()
        while other := successor(self._members.others, self._me, tried):
            if await self._pass_on(request, response, other, 1):
                return
            tried |= {other}
        if request.admitted.modern:
            self._exchanges.handle(request, response)  # nobody else is there: it is answered here
        else:
            response.plain(CLOSING)

    # Requests for sessions of others

    async def _route(  # noqa: PLR0913 - a request, and how far it has come
        self,
        request: HttpRequest,
        response: ResponseWriter,
        id: str,
        hops: int,
        *,
        end: float = 0.0,
        forwarded: ForwardedTo | None = None,
    ) -> None:
        """Find out who answers, and let that happen. Requests of one session keep their order."""
        end = end or asyncio.get_running_loop().time() + HOLD
        lock, others = self._routing.get(id) or (asyncio.Lock(), 0)
        self._routing[id] = (lock, others + 1)
        try:
            async with lock:
                await self._find(request, response, id, hops, end, forwarded)
        finally:
            lock, others = self._routing[id]
            if others > 1:
                self._routing[id] = (lock, others - 1)
            else:
                del self._routing[id]

    async def _find(  # noqa: PLR0913 - a request, and how far it has come
        self,
        request: HttpRequest,
        response: ResponseWriter,
        id: str,
        hops: int,
        end: float,
        forwarded: ForwardedTo | None,
    ) -> None:
        """Ends with an answer, or with somebody who will answer, whatever is wrong."""
        yielder = forwarded.sender if forwarded is not None and forwarded.is_yielded else ""
        tried: frozenset[str] = frozenset()
        while not response.over:
            step, stored = await self._next_step(id, request.admitted, tried, yielder=yielder)
            if isinstance(step, Local) or (isinstance(step, Absent) and not yielder):
                self._handle_own(request, response, self._sessions.get(id))  # the second: 404
                return
            if isinstance(step, ForwardTo):
                if forwarded is not None and hops >= MOST_HOPS:
                    forwarded.refuse()  # who sent it looks again
                    return
                if await self._pass_on(request, response, step.replica, hops + 1, end):
                    return
                tried = frozenset((step.replica,))
            else:
                tried = frozenset()
            adopted = await self._adopted(step, stored, request)
            if not adopted and not await self._may_go_on(end, forwarded, response):
                return

    async def _adopted(
        self, step: Step, stored: StoredSession | None, request: HttpRequest
    ) -> bool:
        """Adopt where that is the step. False: nothing has changed, or another replica was faster."""
        if not isinstance(step, Adopt) or stored is None:
            return False
        return await self._replica.sessions.adopt(stored, request.admitted, self._sessions)

    async def _may_go_on(
        self, end: float, forwarded: ForwardedTo | None, response: ResponseWriter
    ) -> bool:
        """Wait until more may be known. False: it ends here, and that was said."""
        await self._members.next_beat(WAIT)
        if forwarded is not None and forwarded.is_yielded:
            forwarded.refuse()  # who sent it has the session, and may have its lease again
            return False
        if asyncio.get_running_loop().time() < end:
            return True
        response.plain(AWAY)
        return False

    async def _next_step(
        self, id: str, admitted: Admitted, tried: frozenset[str], *, yielder: str
    ) -> tuple[Step, StoredSession | None]:
        members = self._members
        if self._sessions.get(id) is not None:
            if members.holds():
                return Local(), None
            other = successor(members.others, self._me, tried)
            return (ForwardTo(other) if other else _WAIT), None
        named = members.others.get(self._owners.pop(id, "") or id.partition(".")[0])
        if named and not (named.id in tried or named.id == yielder or named.is_draining):
            return ForwardTo(named.id), None
        try:
            stored = await self._replica.store.read(id)
        except (EngineAway, EngineError):
            return await self._step_by_asking(id, _WAIT, tried, yielder=yielder), None
        if stored is not None and not _belongs(stored, admitted):
            return Absent(), None
        step = await self._step_by_record(id, stored, tried, yielder=yielder)
        if stored is None and isinstance(step, Absent):
            step = await self._step_by_asking(id, step, tried, yielder=yielder)
        return step, stored

    async def _step_by_asking(
        self, id: str, step: Step, tried: frozenset[str], *, yielder: str
    ) -> Step:
        """Ask the other replicas for a session of which the engine tells nothing."""
        holder = await self._replica.who_has(id, tried | {yielder})
        return ForwardTo(holder) if holder else step

    async def _step_by_record(
        self, id: str, stored: StoredSession | None, tried: frozenset[str], *, yielder: str
    ) -> Step:
        members, record = self._members, None if stored is None else stored.record
        owner = "" if record is None else record.owner
        known = members.others
        is_yielded = bool(yielder) and yielder == owner
        if is_yielded:  # who forwards it does not answer for it now
            known = {name: member for name, member in known.items() if name != owner}
        now = asyncio.get_running_loop().time()
        promised = members.promised_until(owner) if record else members.promised_any_until()
        allowed = may_adopt(now, members.engine.since, promised)
        step = next_step(
            record,
            known,
            self._me,
            may_adopt=allowed or (is_yielded and promised <= now),
            is_draining=self.is_draining,
            has_ended=self._replica.sessions.has_ended(id),
            unreachable=tried,
        )
        is_others = owner not in ("", self._me)
        if isinstance(step, Adopt) and record is not None and is_others and not is_yielded:
            other = ReplicaAddress(owner, record.host, record.port)
            if await self._replica.holds_elsewhere(other):
                return ForwardTo(owner)
        return step

    async def _pass_on(
        self,
        request: HttpRequest,
        response: ResponseWriter,
        replica: str,
        hops: int,
        end: float = 0.0,
    ) -> bool:
        """Forward, with a new connection if needed. Returns whether it was sent."""
        member = self._members.others.get(replica) or self._replica.known_elsewhere(replica)
        if member is None:
            return False
        try:
            await self._replica.links.to(member)
        except LinkBroken:
            return False
        return self._forward(request, response, replica, hops, end)

    def _forward(
        self,
        request: HttpRequest,
        response: ResponseWriter,
        replica: str,
        hops: int,
        end: float = 0.0,
    ) -> bool:
        link = self._replica.links.ready(replica)
        if link is None:
            return False
        id = request.headers.get(SESSION_ID, b"").decode("latin-1")
        own = self._sessions.get(id)  # without a lease: another replica may adopt it
        payload = write_request(request, hops=hops, is_yielded=own is not None)
        forwarding = Forwarding(
            request, response, link, on_refused=self._refused, on_over=self._forwarded.discard
        )
        forwarding.end_of_search = end or asyncio.get_running_loop().time() + HOLD
        try:
            forwarding.start(payload)
        except LinkBroken:
            return False
        self._forwarded.add(forwarding)
        if id and own is None:
            if len(self._owners) >= OWNERS:
                self._owners.clear()
            self._owners[id] = replica
        return True

    def _refused(self, forwarding: Forwarding) -> None:
        """The other replica does not have it: look again."""
        request, response = forwarding.request, forwarding.response
        id = request.headers.get(SESSION_ID, b"").decode("latin-1")
        self._owners.pop(id, None)
        if response.over:
            return
        if request.admitted.modern or not id:
            response.plain(CLOSING)
        elif asyncio.get_running_loop().time() >= forwarding.end_of_search:
            response.plain(AWAY)
        else:
            work = self._find_again(request, response, id, forwarding.end_of_search)
            answer_later(self._scope, work, response, "request for another replica")

    async def _find_again(
        self, request: HttpRequest, response: ResponseWriter, id: str, end: float
    ) -> None:
        await self._members.next_beat(SOON)
        await self._route(request, response, id, 0, end=end)

    # Requests that other replicas pass on

    def handle_forwarded(
        self,
        forwarded: ForwardedRequest,
        request: HttpRequest,
        response: ResponseWriter,
        origin: ForwardedTo,
    ) -> bool:
        """Answer a request that another replica has admitted. False: it is not ours."""
        principal, path = forwarded.principal, request.path()
        endpoint = self._endpoints.get((principal, path)) or self._create_endpoint(principal, path)
        if endpoint is None:
            return False
        request.admitted = Admitted(
            endpoint,
            principal,
            forwarded.modern,
            self.access,
            self._view.snapshot,
            until=forwarded.until,
            host=request.headers.get(b"host", b""),
        )
        if forwarded.modern:
            self._exchanges.handle(request, response)
            return True
        id = request.headers.get(SESSION_ID, b"").decode("latin-1")
        if not id:
            if self.is_draining:
                return False
            self._sessions.handle(request, response)
            return True
        session = self._sessions.get(id)
        if session is not None and self._members.holds():
            if session.endpoint is endpoint and session.principal == principal.name:
                request.admitted.session = session  # the most frequent request needs no other look
            self._handle_own(request, response, session)
        elif session is not None:
            return False  # it may be another one's already
        else:
            work = self._route(request, response, id, forwarded.hops, forwarded=origin)
            answer_later(self._scope, work, response, "request of another replica")
        return True

    # Time

    def _health(self, request: HttpRequest, path: bytes) -> Reply:
        if path == b"/readyz" and request.method == b"GET":
            if self.is_draining:
                return _DRAINING
            if not self._members.holds():
                return _NO_LEASE
        return super()._health(request, path)

    def tick(self, now: float) -> None:
        super().tick(now)
        self._replica.sessions.tick(now, self._sessions)

    @property
    def busy(self) -> bool:
        lingers = self.is_draining and asyncio.get_running_loop().time() < self._linger_until
        placed = self._replica.placed
        is_moving = placed is not None and placed.is_busy
        own = (
            self._handing_over
            or is_moving
            or lingers
            or self._replica.sessions.is_busy
            or self._routing
            or self._exchanges.has_suspended  # their hosts come back through other replicas
        )
        return bool(own or self._forwarded) or super().busy

    def stop(self) -> None:
        """Hand everything over to the other replicas."""
        self.is_draining = True
        self._linger_until = asyncio.get_running_loop().time() + LINGER
        self._handing_over = True
        self._scope.start(self._hand_over(), "hand-over")
        if self._replica.placed is not None:
            self._scope.start(self._replica.placed.hand_over(), "hand-over of servers")

    async def _hand_over(self) -> None:
        try:
            await self._members.drain()
            await self._replica.sessions.release_all(self._sessions)
        except EngineAway as error:
            log.warning("sessions can't be handed over: %s", error)
        finally:
            self._exchanges.stop()
            self._handing_over = False

    def close(self) -> None:
        self._sessions.on_end = None
        self._replica.sessions.close()
        super().close()


def _belongs(stored: StoredSession, admitted: Admitted) -> bool:
    """Whether a session is this principal's, at this endpoint."""
    record = stored.record
    return record.principal == admitted.principal.name and record.path == admitted.endpoint.path
