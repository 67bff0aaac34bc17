"""Tasks of servers, on any replica: an id names the replica whose connection led to the task.

While that replica lives, requests of modern hosts are passed on to it. When it has gone, a server behind a URL is
asked on another connection; a process of the replica has ended with it, and so have its tasks.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.cluster.engine import EngineAway
from mcp_workbench.cluster.keys import NONCE, TAG
from mcp_workbench.cluster.ownership import may_adopt
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.gateway.task_handles import LONGEST_KEPT, MOST_LISTED, TaskEnded, Tasks
from mcp_workbench.protocol.task_ids import LONGEST, TaskSeal

if TYPE_CHECKING:
    from mcp_workbench.cluster.replica import Replica
    from mcp_workbench.gateway.calls import Call
    from mcp_workbench.gateway.views import View
    from mcp_workbench.protocol.task_ids import TaskRef
    from mcp_workbench.upstream.connection import Connection

log = logging.getLogger(__name__)

_TASK_IDS = b'"taskIds"'
LONGEST_SHARED = 4096  # bytes of an id that is listed elsewhere
GONE = "the replica that ran this server has ended"


class TaskMakers:
    """Tells from an id which replica has the way to the task."""

    def __init__(self, key: bytes) -> None:
        self._seal = TaskSeal(key)

    def maker(self, token: bytes) -> str:
        """Returns its id; empty if this is none of our ids."""
        try:
            ref = self._seal.verified(token.decode("ascii")) if len(token) <= LONGEST else None
        except ValueError:
            return ""
        return "" if ref is None else maker_of(ref)

    def maker_of_first(self, body: bytes) -> str:
        """Returns the replica of the first task whose changes a host listens to; empty if there is none."""
        try:
            listening = _read_listening(body) if _TASK_IDS in body else _Listening()
        except (msgspec.DecodeError, ValueError, RecursionError):
            return ""
        tokens = listening.params.notifications.taskIds
        return self.maker(tokens[0].encode("ascii", "replace")) if tokens else ""


class _Filter(msgspec.Struct, frozen=True):
    taskIds: list[str] = []  # noqa: N815 - the wire's word


class _Params(msgspec.Struct, frozen=True):
    notifications: _Filter = msgspec.field(default_factory=_Filter)


class _Listening(msgspec.Struct, frozen=True):
    params: _Params = msgspec.field(default_factory=_Params)


_read_listening = msgspec.json.Decoder(_Listening).decode


def maker_of(ref: TaskRef) -> str:
    return ref.run.partition(".")[0] if "." in ref.run else ""


class SharedTasks(Tasks):
    """The tasks of all hosts; ids are valid on every replica."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(replica.task_key)
        self._replica = replica
        self._engine = replica.engine

    def new_run(self) -> str:
        return f"{self._replica.me.id}.{super().new_run()}"

    def given(self, call: Call, task_id: str, created: str, ttl: float | None) -> str:
        token = super().given(call, task_id, created, ttl)
        if len(token) <= LONGEST_SHARED:
            self._share(call.view.scope.principal, token)
        return token

    def _share(self, principal: str, token: str) -> None:
        """Write down the id, for lists of other replicas. Nobody waits for it."""
        key = self._key(principal)
        with suppress(EngineAway):
            for command in (
                ("RPUSH", key, self._replica.vault.close(key, token.encode())),
                ("LTRIM", key, -MOST_LISTED, -1),
                ("EXPIRE", key, int(LONGEST_KEPT)),
            ):
                self._engine.send(*command).add_done_callback(_forgive)

    def _key(self, principal: str) -> bytes:
        digest = hashlib.sha256(b"tasks " + principal.encode("utf-8", "surrogatepass"))
        return self._engine.key("tasks", digest.hexdigest()[:40])

    def connection(self, ref: TaskRef) -> Connection | TaskEnded | None:
        place = super().connection(ref)
        maker = maker_of(ref)
        if place is None and maker and maker != self._replica.me.id and not ref.is_remote:
            return TaskEnded(GONE) if self._has_ended(maker) else None
        return place

    def _has_ended(self, maker: str) -> bool:
        """Whether a replica without a lease has ended: not while it could not have renewed that."""
        members = self._replica.members
        now = asyncio.get_running_loop().time()
        promised = members.promised_until(maker)
        return maker not in members.others and may_adopt(now, self._engine.since, promised)

    # Lists

    async def tokens(self, view: View) -> list[str]:
        """The last ids that this principal was given on any replica, oldest first."""
        here = await super().tokens(view)
        key = self._key(view.scope.principal)
        try:
            reply = await self._engine.ask("LRANGE", key, -MOST_LISTED, -1)
        except (EngineAway, EngineError):
            return here
        sealed: list[object] = list(reply) if isinstance(reply, list) else []  # pyright: ignore[reportUnknownArgumentType]
        longest = LONGEST_SHARED + NONCE + TAG
        values = [v for v in sealed[:MOST_LISTED] if isinstance(v, bytes) and len(v) <= longest]
        opened = [self._replica.vault.open(key, value) for value in values]
        known = [value.decode("ascii", "replace") for value in opened if value is not None]
        return list(dict.fromkeys([*known, *here]))[-MOST_LISTED:]

    async def place(self, ref: TaskRef, view: View) -> Connection | None:
        """A server behind a URL can be looked at from here, whoever has created the task."""
        place = await super().place(ref, view)
        spec = view.snapshot.find(ref.address)
        if place is None and ref.is_remote and spec is not None:
            return await view.connected(spec)
        return place


def _forgive(future: asyncio.Future[Any]) -> None:
    if not future.cancelled() and isinstance(error := future.exception(), EngineError):
        log.warning("a task can't be listed elsewhere: %s", str(error)[:200])
