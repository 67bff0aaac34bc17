"""Changes of tasks that hosts are notified of, in the way of their era.

A modern host subscribes to tasks (`taskIds` in `subscriptions/listen`), and gets their whole state, as `tasks/get` has it
(`notifications/tasks`). So whatever a server announces is a reason to look: a `TaskWatch` asks for the state on the path of every call, where
interceptors see it, and passes on what has changed. Where the server announces nothing, it looks from time to time.
Legacy servers announce changes as they like (`notifications/tasks/status`), and a legacy host gets those of the tasks that
it has used here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.errors import NotFound, WorkbenchError
from mcp_workbench.core.raw_json import changed
from mcp_workbench.core.spec import ToolIdentifier
from mcp_workbench.gateway.interceptors import CallOutcome, Completed, Failed, Rejected
from mcp_workbench.gateway.task_handles import TaskEnded, Tasks, tasks_of
from mcp_workbench.protocol.task_messages import (
    GET,
    LEGACY_NOTICE,
    NOTICE,
    TERMINAL,
    declares_tasks,
    detailed_task,
    progress_of_task,
    read_modern_task,
    read_task,
    with_related,
)
from mcp_workbench.server.parse import RequestError
from mcp_workbench.server.task_requests import (
    TaskCall,
    failed_task,
    missing_extension,
    why_ended,
)
from mcp_workbench.timing import pause
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.tasks import task_scope

if TYPE_CHECKING:
    from mcp_workbench.protocol.task_ids import TaskRef
    from mcp_workbench.server.session import HostSession
    from mcp_workbench.upstream.connection import Connection

encode = msgspec.json.encode

MOST_WATCHED = 64  # tasks of one `subscriptions/listen`
MOST_AT_ONCE = 256  # of one principal; beyond that they are not acknowledged
MOST_FOLLOWED = 64  # tasks of one legacy host
POLL = pause(1.0)  # seconds between two looks, if the server does not say
SHORTEST, LONGEST = 0.1, 30.0  # seconds that a server can ask for
AGAIN = pause(2.0)  # seconds before a server is asked again that could not be reached

Notify = Callable[[str, bytes], None]  # method and parameters


# Modern hosts


def requested_watches(
    session: HostSession, id: bytes, tokens: list[str], notify: Notify
) -> list[TaskWatch]:
    """A watch of each of these tasks that is one of this principal's. Raises a RequestError."""
    if not declares_tasks(session.elicitation.declared):
        raise missing_extension()
    if len(tokens) > MOST_WATCHED:
        raise RequestError(jsonrpc.INVALID_PARAMS, f"more than {MOST_WATCHED} tasks at once")
    tasks, view = session.view.gateway.tasks, session.view
    known = {token: tasks.read(token, view) for token in tokens}
    room = max(MOST_AT_ONCE - tasks.watches[view.scope.principal], 0)
    chosen = [(token, ref) for token, ref in known.items() if ref is not None][:room]
    return [TaskWatch(session, id, token, ref, notify) for token, ref in chosen]


async def possible_watches(watches: list[TaskWatch]) -> list[TaskWatch]:
    """Those of these tasks whose changes a host can be notified of; the others are stopped."""
    async with task_scope() as scope:
        preparing = [scope.start(watch.prepare(), watch.name) for watch in watches]
        is_possible = [await one for one in preparing]
    chosen = [watch for watch, possible in zip(watches, is_possible, strict=True) if possible]
    for watch in watches:
        if watch not in chosen:
            watch.stop()
    return chosen


class TaskWatch:
    """One task that a modern host has subscribed to, until it has ended."""

    def __init__(
        self, session: HostSession, id: bytes, token: str, ref: TaskRef, notify: Notify
    ) -> None:
        self.token = token
        self.name = f"task of {ref.address}"  # of the work for it
        self._session = session
        self._id = id  # of the `subscriptions/listen`
        self._ref = ref
        self._notify = notify
        self._changed = asyncio.Event()
        self._known: tuple[bytes, ...] = ()  # what the host knows of it
        self._place: Connection | None = None  # on which it listens
        self._is_announced = False  # the server announces changes
        self._leave: Callable[[], None] = lambda: None
        self._task: asyncio.Task[Any] | None = None
        self._tasks.watches[ref.principal] += 1  # from now on: many may be asked for at once
        self._is_counted = True

    @property
    def _tasks(self) -> Tasks:
        return self._session.view.gateway.tasks

    async def prepare(self) -> bool:
        """Listen for changes; False if there is no such task, or its server does not announce any."""
        try:
            await self._listen()
        except WorkbenchError:
            return False
        if self._place is None:
            return self._session.view.gateway.tasks.connection(self._ref) is not None
        return self._is_announced or not self._place.modern

    def start(self) -> None:
        """Notify the host from now on."""
        self._task = self._session.view.gateway.pool.start(self._follow(), self.name)
        self._task.add_done_callback(lambda _: self._uncount())

    def stop(self) -> None:
        """The host does not listen any more."""
        if self._task is not None:
            self._task.cancel()
        else:
            self._uncount()
        self._leave()

    def _uncount(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._tasks.unwatched(self._ref.principal)

    async def _follow(self) -> None:
        """Pass on each state that the task is in; that of now first, which may be another already."""
        try:
            while True:
                self._changed.clear()
                outcome = await self._look()
                if isinstance(outcome, Completed):
                    task = read_modern_task(outcome.result)
                    self._pass_on(outcome.result)
                    if task.status in TERMINAL:
                        return
                    await self._wait(self._until_next(task.poll_interval_ms))
                elif isinstance(outcome, Failed) and self._may_come_back(outcome.error):
                    await asyncio.sleep(AGAIN)
                else:
                    return  # its server has forgotten it
        except msgspec.DecodeError:
            return  # nobody can read what its server says
        finally:
            self._leave()

    async def _look(self) -> CallOutcome:
        try:
            await self._listen()  # before the look: what changes afterwards is announced
        except WorkbenchError as error:
            return Failed(error)
        return await TaskLook(self._session, self._id, self.token, self._ref).outcome()

    def _pass_on(self, result: msgspec.Raw | bytes) -> None:
        """Notify the host, if it does not know this state yet."""
        state = detailed_task(result)
        if self._known != (known := progress_of_task(state)):
            self._known = known
            self._notify(NOTICE, encode(state))

    async def _listen(self) -> None:
        """Listen on the connection that leads to the task now. Raises a WorkbenchError."""
        view, ref = self._session.view, self._ref
        place = view.gateway.tasks.connection(ref)
        if (place is None or isinstance(place, TaskEnded)) and ref.is_remote:
            place = await view.connected(view.spec(ref.address))
        if place is None or isinstance(place, TaskEnded):
            self._leave()
            self._place = None
            return
        if place is self._place:
            return
        self._leave()
        self._place = place
        self._leave = tasks_of(place).listen(ref.id, lambda _: self._changed.set())
        if place.modern:
            await self._subscribe(place)

    async def _subscribe(self, place: Connection) -> None:
        tasks, stop = tasks_of(place), self._leave

        def leave() -> None:
            self._leave = lambda: None
            stop()
            tasks.unsubscribe(self._ref.id)

        self._leave = leave
        self._is_announced = await tasks.subscribe(self._ref.id)

    def _until_next(self, milliseconds: float | None) -> float | None:
        """Seconds until the next look; None if the server announces every change."""
        if self._place is not None and self._place.modern and self._is_announced:
            return None
        seconds = POLL if milliseconds is None else milliseconds / 1000
        return min(max(seconds, SHORTEST), LONGEST)

    def _may_come_back(self, error: WorkbenchError) -> bool:
        """Whether the task may still be there although nothing was learned of it."""
        return self._ref.is_remote and not isinstance(error, NotFound)

    async def _wait(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return


class TaskLook(TaskCall):
    """A `tasks/get` of ours on behalf of a host that has subscribed to the task."""

    def __init__(self, session: HostSession, id: bytes, token: str, ref: TaskRef) -> None:
        target = ToolIdentifier(ref.address.toolbox, ref.address.server, GET)
        params = {"taskId": msgspec.Raw(encode(ref.id))}
        declared = session.elicitation.declared
        super().__init__(
            session, id, CallRequest(target, params, {}, session.era.modern, declared, GET)
        )
        self.given, self.ref = token, ref
        self._end: asyncio.Future[CallOutcome] = asyncio.get_running_loop().create_future()

    async def outcome(self) -> CallOutcome:
        """Send it, and await its outcome."""
        try:
            self.begin()
            return await self._end
        except asyncio.CancelledError:
            self.cancel("the host does not listen any more")
            raise

    def begin_elsewhere(self) -> None:
        self.run(self._send(), f"task of {self.ref.address}")

    async def _send(self) -> None:
        try:
            await self.view.dispatch(self)
        except WorkbenchError as error:
            self.fail(error)

    def fail(self, error: WorkbenchError) -> None:
        self.finish(Failed(error))  # nobody signs in for it

    def deliver(self, outcome: CallOutcome) -> None:
        if isinstance(outcome, Completed) and self.change_result is not None:
            outcome = Completed(self.change_result(outcome.result))
        if not self._end.done():
            self._end.set_result(outcome)

    def rejected(self, error: msgspec.Raw, about: jsonrpc.ErrorObject) -> None:
        self.finish(Rejected(error, about=about))


# Legacy hosts


class FollowedTasks:
    """The tasks that one legacy host has the handles of, and has used here."""

    def __init__(self) -> None:
        self._leave: dict[str, Callable[[], None]] = {}  # by the ids that the host knows

    def add(self, token: str, leave: Callable[[], None]) -> None:
        self._leave[token] = leave
        while len(self._leave) > MOST_FOLLOWED:
            self.drop(next(iter(self._leave)))

    def __contains__(self, token: str) -> bool:
        return token in self._leave

    def drop(self, token: str) -> None:
        if (leave := self._leave.pop(token, None)) is not None:
            leave()

    def close(self) -> None:
        for token in tuple(self._leave):
            self.drop(token)


def follow(session: HostSession, token: str, ref: TaskRef, place: Connection) -> None:
    """Notify a legacy host of what the server of this task announces about it."""
    if session.followed_tasks is None:
        session.followed_tasks = FollowedTasks()
    if token not in session.followed_tasks:
        told = partial(_announce, session, token, ref, place)
        session.followed_tasks.add(token, tasks_of(place).listen(ref.id, told))


def _announce(
    session: HostSession,
    token: str,
    ref: TaskRef,
    place: Connection,
    described: msgspec.Raw | None,
) -> None:
    followed = session.followed_tasks
    if described is not None:
        try:
            is_over = read_task(described).status in TERMINAL
            own = changed(with_related(described, token), {"taskId": encode(token)})
        except msgspec.DecodeError:
            return
        session.notify(LEGACY_NOTICE, own)
    elif (is_over := place.over) and not ref.is_remote:
        task = failed_task(ref, why_ended(ref, place.reason))
        session.notify(LEGACY_NOTICE, encode(task.legacy(token)))
    if is_over and followed is not None:
        followed.drop(token)
