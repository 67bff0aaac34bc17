"""Handles of tasks that hosts have: ids, the connections that lead to the tasks, open questions.

The server has the task, we have the way to it. A connection on which a task was created is kept while the server keeps
the task. If it ends and the server is a process of ours, so do its tasks; a server behind a URL is asked on another one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.config.state_home import TASKS, private_folder, read_own, state_home, write_whole
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.raw_json import Members, changed, read_members
from mcp_workbench.core.spec import HttpEndpoint
from mcp_workbench.gateway.interceptors import Completed
from mcp_workbench.protocol.elicitation import AnswerCallback, Question, may_put, unanswered
from mcp_workbench.protocol.task_ids import TaskRef, TaskSeal
from mcp_workbench.protocol.task_messages import (
    GET,
    RESULT,
    ModernTask,
    Task,
    read_task,
    with_related,
)
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import Outcome
from mcp_workbench.transport.tasks import task_scope
from mcp_workbench.upstream.conversation import Failure, RequestFailed, ResponseHandler
from mcp_workbench.upstream.task_subscriptions import tasks_of

if TYPE_CHECKING:
    from mcp_workbench.gateway.calls import Call
    from mcp_workbench.gateway.views import View
    from mcp_workbench.upstream.connection import Connection

__all__ = ["HeldTask", "TaskEnded", "Tasks", "relay_legacy", "relay_modern", "task_key", "tasks_of"]

log = logging.getLogger(__name__)
encode = msgspec.json.encode

KEY_BYTES = 32
LONGEST_KEPT = 86_400.0  # seconds that a connection is kept for its tasks, whatever their ttl
MOST_ENDED = 256  # connections with tasks that have ended, whose reason is remembered
MOST_TOKENS = 256  # tasks of one connection whose progress is passed on
MOST_LISTED = 64  # tasks of one principal in a list
MOST_PRINCIPALS = 256  # whose tasks can be listed
MOST_HELD = 64  # tasks whose questions are open


class TaskEnded(msgspec.Struct, frozen=True):
    """The process that ran the task has ended, and the task with it."""

    reason: str


def task_key(environ: Mapping[str, str]) -> bytes:
    """The key of the ids, which all processes of this state folder share."""
    try:
        path = os.path.join(private_folder(state_home(environ), TASKS), "key")  # noqa: PTH118
        if not os.path.lexists(path):
            write_whole(path, os.urandom(KEY_BYTES), replace=False)  # the first process wins
        key = read_own(path, KEY_BYTES)
        if len(key) != KEY_BYTES:
            write_whole(path, key := os.urandom(KEY_BYTES))
    except OSError as error:
        log.warning("ids of tasks are valid in this process only: %s", error)
        key = os.urandom(KEY_BYTES)
    return key


class Tasks:
    """The tasks of all hosts, as far as this process knows a connection to them."""

    def __init__(self, key: bytes) -> None:
        self._seal = TaskSeal(key)
        self._connections: dict[str, Connection] = {}  # by what ids call them
        self._ended: dict[str, str] = {}  # why, likewise
        self._held: dict[tuple[str, str], HeldTask] = {}
        self._of: dict[str, list[str]] = {}  # the last ids of each principal
        self.watches: Counter[str] = Counter()  # subscriptions of each principal

    # Ids

    def given(self, call: Call, task_id: str, created: str, ttl: float | None) -> str:
        """Return the id for the host of a task that was created just now, and keep its connection."""
        self._forget_ended()
        connection = call.connection
        assert connection is not None  # noqa: S101 - it was sent
        if not connection.task_run:
            connection.task_run = self.new_run()
            self._connections[connection.task_run] = connection
        seconds = LONGEST_KEPT if ttl is None else min(ttl / 1000, LONGEST_KEPT)
        connection.needed_until = max(connection.needed_until, time.monotonic() + seconds)
        ref = TaskRef(
            call.request.tool.address,
            task_id,
            call.view.scope.principal,
            connection.task_run,
            isinstance(connection.spec.target, HttpEndpoint),
            created[:64],
        )
        token = self._seal.close(ref)
        last = self._of.setdefault(ref.principal, [])
        last.append(token)
        del last[:-MOST_LISTED]
        if len(self._of) > MOST_PRINCIPALS:
            del self._of[next(iter(self._of))]
        return token

    def new_run(self) -> str:
        """Return what ids call a connection."""
        return token_hex(8)

    async def tokens(self, view: View) -> list[str]:
        """The last ids that this principal was given, oldest first."""
        return self._of.get(view.scope.principal, [])

    async def place(self, ref: TaskRef, view: View) -> Connection | None:
        """Return the connection on which a task is looked at for a list; None if there is none."""
        place = self.connection(ref)
        return None if isinstance(place, TaskEnded) else place

    async def listed(self, view: View) -> list[Members]:
        """The tasks of legacy servers that this principal was given handles of, oldest first."""
        found: dict[str, Members] = {}

        async def look(token: str, ref: TaskRef) -> None:
            params = encode({"taskId": ref.id})
            with suppress(RequestFailed, TimeoutError, msgspec.DecodeError, WorkbenchError):
                connection = await self.place(ref, view)
                if connection is None or connection.modern:
                    return
                answer = await connection.conversation.ask(GET, params, connection.spec.timeout)
                if answer.result:  # otherwise the server has forgotten it
                    found[token] = read_task(answer.result).legacy(token)

        tokens = await self.tokens(view)
        async with task_scope() as scope:
            looks: list[asyncio.Task[None]] = []
            for token in tokens:
                ref = self.read(token, view)
                if ref is not None:
                    looks.append(scope.start(look(token, ref), f"task of {ref.address}"))
            for one in looks:
                await one
        return [found[token] for token in tokens if token in found]

    def read(self, token: str, view: View) -> TaskRef | None:
        """Return what an id stands for; None if it is not one of this principal's."""
        ref = self._seal.open(token, view.scope.principal)
        return ref if ref is not None and view.snapshot.find(ref.address) is not None else None

    def connection(self, ref: TaskRef) -> Connection | TaskEnded | None:
        """Return where the task was created; None if this process does not know, or has forgotten it."""
        self._forget_ended()
        connection = self._connections.get(ref.run)
        if connection is not None:
            return connection
        reason = self._ended.get(ref.run)
        return None if reason is None else TaskEnded(reason)

    def _forget_ended(self) -> None:
        for run, connection in tuple(self._connections.items()):
            if not connection.over:
                continue
            del self._connections[run]
            if connection.needed_until > connection.ended_at:  # otherwise its tasks had expired
                self._ended[run] = connection.reason
            for place in [place for place in self._held if place[0] == run]:
                del self._held[place]
        while len(self._ended) > MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def unwatched(self, principal: str) -> None:
        """A subscription of this principal has ended."""
        self.watches[principal] -= 1
        if self.watches[principal] <= 0:
            del self.watches[principal]

    # Questions of legacy servers

    def held(self, ref: TaskRef) -> HeldTask | None:
        """The task whose result we wait for, because it asks something."""
        return self._held.get((ref.run, ref.id))

    def hold(self, ref: TaskRef, connection: Connection, capabilities: msgspec.Raw) -> HeldTask:
        """Wait for the result of a task that asks something: its server sends the questions then."""
        for place in [place for place, held in self._held.items() if held.is_over]:
            del self._held[place]
        while len(self._held) >= MOST_HELD:
            self._held.pop(next(iter(self._held))).close()
        held = HeldTask(connection, ref.id, read_members(capabilities))
        self._held[ref.run, ref.id] = held
        held.begin()
        return held


class HeldTask(ResponseHandler):
    """A task of a legacy server that asks a modern host something.

    Its questions wait here until the host has fetched and answered them, in whatever requests.
    """

    def __init__(self, connection: Connection, task_id: str, capabilities: Members) -> None:
        self.questions: dict[str, Question] = {}  # those that are open
        self.is_over = False
        self.changed = asyncio.Event()  # a question came, or the end
        self._connection = connection
        self._id = task_id
        self._capabilities = capabilities
        self._answers: dict[str, AnswerCallback] = {}
        self._count = 0
        self._number = 0

    def begin(self) -> None:
        conversation = self._connection.conversation
        conversation.task_owners[self._id] = self
        params = encode({"taskId": self._id})
        self._number = conversation.begin(RESULT, params, self)

    def asked(self, question: Question, answered: AnswerCallback) -> None:
        """The server has a question in this task."""
        if not may_put(question, self._capabilities):
            why = "the host's request does not declare the capability"
            answered(b"", jsonrpc.error_object(jsonrpc.INVALID_PARAMS, why))
            return
        self._count += 1
        key = f"q{self._count}"  # never used twice in a task
        self.questions[key], self._answers[key] = question, answered
        self.changed.set()

    def answer(self, answers: Members) -> None:
        """Send these answers to the server. Those to unknown questions are ignored."""
        for key, answer in answers.items():
            if self.questions.pop(key, None) is not None:
                self._answers.pop(key)(answer, b"")

    def close(self) -> None:
        """Give up: nobody answers."""
        error = jsonrpc.error_object(jsonrpc.INTERNAL_ERROR, "nobody answered in time")
        for key, question in self.questions.items():
            answer = unanswered(question.method)
            self._answers[key](answer or b"", b"" if answer else error)
        self._connection.conversation.cancel(self._number, "too many questions are open")
        self._end()

    def _end(self) -> None:
        self.questions.clear()
        self._answers.clear()
        self.is_over = True
        self._connection.conversation.task_owners.pop(self._id, None)
        self.changed.set()

    def settled(self, answer: Outcome) -> None:
        self._end()  # the result is asked for again where it is wanted

    def lost(self, failure: Failure) -> None:
        self._end()

    def progressed(self, params: msgspec.Raw) -> None:
        """Tasks of modern hosts have none."""


# Handles for hosts


def relay_modern(call: Call, result: msgspec.Raw, task: ModernTask) -> None:
    """A modern server has created a task for a modern host."""
    tasks = call.view.gateway.tasks
    sealed = tasks.given(call, task.task_id, task.created_at, task.ttl_ms)
    call.finish(Completed(changed(result, {"taskId": encode(sealed)})))


def relay_legacy(call: Call, result: msgspec.Raw, task: Task) -> None:
    """A legacy server has created a task for a host of either era."""
    sealed = call.view.gateway.tasks.given(call, task.task_id, task.created_at, task.ttl)
    members = read_members(result)
    if call.request.modern_host:
        made: Members = {"resultType": msgspec.Raw(b'"task"'), **task.modern(sealed)}
        if "_meta" in members:
            made["_meta"] = members["_meta"]
        call.finish(Completed(with_related(encode(made))))
        return
    if "progressToken" in call.request.meta and call.connection is not None:
        tokens = call.connection.conversation.task_tokens  # the token counts for the whole task
        tokens[call.number] = call
        if len(tokens) > MOST_TOKENS:
            del tokens[next(iter(tokens))]
    call.given_task(sealed)
    own = changed(members["task"], {"taskId": encode(sealed)})
    call.finish(Completed(with_related(changed(result, {"task": own}), sealed)))
