"""Which replica a modern request names: its call waits there, its task or its result was made there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.cluster.ownership import may_adopt
from mcp_workbench.cluster.shared_results import maker_of_result
from mcp_workbench.cluster.shared_tasks import TaskMakers
from mcp_workbench.protocol.signed_state import Seal
from mcp_workbench.server.http.modern import METHOD, NAME

if TYPE_CHECKING:
    from mcp_workbench.cluster.replica import Replica
    from mcp_workbench.transport.http.messages import HttpRequest

MOST_GONE = 1000

_STATE = b'"requestState"'
_HANDLE = b'"handle"'
_TASKS = b"tasks/"
_LISTEN = b"subscriptions/"


class _Params(msgspec.Struct, frozen=True):
    requestState: str = ""  # noqa: N815 - the wire's word


class _Resumed(msgspec.Struct, frozen=True):
    params: _Params = msgspec.field(default_factory=_Params)


_read_resumed = msgspec.json.Decoder(_Resumed).decode


class NamedReplica(msgspec.Struct, frozen=True):
    """A replica that a request is for."""

    id: str  # empty: any
    is_only: bool = False  # nobody else can answer: a result lies in the engine as well


def may_name_one(request: HttpRequest) -> bool:
    """Whether a modern request has to be looked at; most of them have not."""
    body = request.body
    method = request.headers.get(METHOD, b"")
    return method.startswith((_TASKS, _LISTEN)) or _STATE in body or _HANDLE in body


class NamedReplicas:
    """Reads requests, and knows which replicas have ended."""

    def __init__(self, replica: Replica) -> None:
        self._members = replica.members
        self._seal = Seal(replica.state_key)
        self._tasks = TaskMakers(replica.task_key)
        self._gone: set[str] = set()  # that were looked for, and do not live

    def named_in(self, request: HttpRequest) -> NamedReplica:
        method = request.headers.get(METHOD, b"")
        if method.startswith(_TASKS):
            return NamedReplica(self._tasks.maker(request.headers.get(NAME, b"")), is_only=True)
        if method.startswith(_LISTEN):
            return NamedReplica(self._tasks.maker_of_first(request.body), is_only=True)
        if _STATE in request.body:
            return NamedReplica(self._holder(request.body), is_only=True)
        return NamedReplica(maker_of_result(request.body) if _HANDLE in request.body else "")

    def _holder(self, body: bytes) -> str:
        try:
            token = _read_resumed(body).params.requestState
        except (msgspec.DecodeError, ValueError):
            return ""
        state = self._seal.verified(token) if token else None
        return state.handle.partition(".")[0] if state is not None and state.handle else ""

    def is_gone(self, id: str) -> bool:
        """Whether it is known that a replica has ended. One that has just started is not known yet."""
        return id not in self._members.others and id in self._gone

    def has_ended(self, id: str, now: float) -> bool:
        """Whether a replica that is not known has ended: not while the engine can't tell."""
        members = self._members
        promised = members.promised_until(id)
        return id not in members.others and may_adopt(now, members.engine.since, promised)

    def give_up(self, id: str) -> None:
        """Do not look for this one again."""
        if len(self._gone) >= MOST_GONE:
            self._gone.clear()
        self._gone.add(id)
