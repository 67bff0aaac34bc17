"""What one connection hears of its server's tasks: changes of their status, and its own end.

Loaded with the first task that a host has a handle of. A legacy server announces changes by itself, if it does; a modern
one is asked to, for certain tasks (`subscriptions/listen`), and says which it agrees to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.protocol.extensions import MEMBER, TASKS, read_extensions
from mcp_workbench.protocol.task_messages import acknowledged_tasks, noticed_task
from mcp_workbench.upstream.subscriptions import ListenRequest

if TYPE_CHECKING:
    from mcp_workbench.core.raw_json import Members
    from mcp_workbench.transport.jsonrpc import Envelope
    from mcp_workbench.upstream.connection import Connection
    from mcp_workbench.upstream.conversation import Conversation

# Called with a legacy server's description of the task; without one, its state has to be asked for.
TaskListener = Callable[[msgspec.Raw | None], None]


def tasks_of(connection: Connection) -> ConnectionTasks:
    """Return what is heard of the tasks of this connection from now on."""
    if connection.tasks is None:
        connection.tasks = ConnectionTasks(connection)
    return connection.tasks


class ConnectionTasks:
    """The tasks of one connection that somebody hears of, by the server's own ids."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._listeners: dict[str, dict[object, TaskListener]] = {}
        self._subscribed: dict[str, int] = {}  # at a modern server, and by how many
        self._request: _TasksListen | None = None

    def listen(self, id: str, listener: TaskListener) -> Callable[[], None]:
        """Call `listener` whenever the task has changed, and at the end of the connection."""
        key = object()
        self._listeners.setdefault(id, {})[key] = listener

        def stop() -> None:
            listeners = self._listeners.get(id, {})
            listeners.pop(key, None)
            if not listeners:
                self._listeners.pop(id, None)

        return stop

    def received(self, message: Envelope) -> None:
        """The server has announced a change."""
        params = None if self._connection.modern else message.params
        for listener in tuple(self._listeners.get(noticed_task(message.params), {}).values()):
            listener(params)

    def ended(self) -> None:
        """The connection has ended, or announcements may have been missed."""
        for listeners in tuple(self._listeners.values()):
            for listener in tuple(listeners.values()):
                listener(None)

    # Modern servers

    async def subscribe(self, id: str) -> bool:
        """Ask a modern server to announce changes of this task; does it agree?"""
        self._subscribed[id] = self._subscribed.get(id, 0) + 1
        if self._subscribed[id] == 1 or self._request is None:
            self._reopen()
        request = self._request
        assert request is not None  # noqa: S101 - for the type
        await request.ready()
        return id in request.agreed

    def unsubscribe(self, id: str) -> None:
        """One subscriber less."""
        self._subscribed[id] = self._subscribed.get(id, 1) - 1
        if self._subscribed[id] > 0:
            return
        del self._subscribed[id]
        if self._connection.over:
            return
        if self._subscribed:
            self._reopen()
        elif self._request is not None:
            self._request.end()
            self._request = None

    def _reopen(self) -> None:
        """Ask for the tasks of now; the request before ends when this one is acknowledged."""
        ids = list(self._subscribed)
        conversation = self._connection.conversation
        self._request = _TasksListen(conversation, {"taskIds": ids}, self.ended, self._request)


class _TasksListen(ListenRequest):
    """The `subscriptions/listen` for tasks, which is refused without the extension."""

    agreed: frozenset[str] = frozenset()  # the tasks that the server announces changes of

    def capabilities(self, conversation: Conversation) -> Members:
        declared = conversation.capabilities
        extensions = {**read_extensions(declared), TASKS: msgspec.Raw(b"{}")}
        return {**declared, MEMBER: msgspec.Raw(msgspec.json.encode(extensions))}

    def acknowledged(self, params: msgspec.Raw) -> None:
        self.agreed = acknowledged_tasks(params)
        super().acknowledged(params)

    def ended(self, error: msgspec.Raw | bytes) -> None:
        super().ended(error)
        self.give_up_waiting()
