"""Routes: how calls reach one target, compiled once and valid until one of its parts changes.

A route is the only sender of calls. The most common call goes from a legacy host to a legacy server that is
ready, without an interceptor: then `send` is a few comparisons and one write. Calls are rare for a processor,
so its caches are cold each time: latency depends on how little code runs.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.call_request import TOOLS_CALL, CallRequest
from mcp_workbench.core.errors import CallFailed, WorkbenchError
from mcp_workbench.core.spec import ServerSpec, ToolIdentifier
from mcp_workbench.gateway.calls import Call
from mcp_workbench.gateway.interceptors import (
    EndCall,
    Interceptor,
    Refusal,
    Wait,
    decide,
    decide_later,
    with_after,
    with_before,
)
from mcp_workbench.protocol.handshake import STAMPS
from mcp_workbench.protocol.primitive_messages import request_params
from mcp_workbench.protocol.translation import LEGACY_TO_MODERN, PAIRS, params_for, with_logs
from mcp_workbench.transport import jsonrpc
from mcp_workbench.upstream.connection import Connection
from mcp_workbench.upstream.health import ALWAYS_ADMITTED

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from mcp_workbench.core.raw_json import Members
    from mcp_workbench.gateway.views import View
    from mcp_workbench.protocol.task_messages import TaskSupport

LITTLE = 1 << 16  # bytes queued for the server; with more, it is slow
MOST_ROUTES = 256  # of a view: a host can write the name of one tool in many ways
LONGEST_KEY = 1024  # bytes of such a name


class Route:
    """The way to one tool, or to one server with another method."""

    __slots__ = (
        "_catalogue",
        "_channel",
        "_few",
        "_harmless",
        "_head",
        "_little",
        "_name",
        "_pending",
        "_pool",
        "_scope",
        "_snapshot",
        "_timeout",
        "_tools",
        "after",
        "before",
        "connection",
        "method",
        "note",
        "observers",
        "plain",
        "recorders",
        "task_support",
        "tool",
    )

    def __init__(
        self,
        request: CallRequest,
        spec: ServerSpec,
        connection: Connection,
        view: View,
        interceptors: tuple[Interceptor, ...],
    ) -> None:
        self.tool: ToolIdentifier = request.tool
        self.method = request.method
        self.connection = connection
        self.before = with_before(interceptors)
        self.after, self.recorders, self.observers = with_after(interceptors)
        nobody_looks = all(interceptor.failures_only for interceptor in self.after)
        self.plain = request.method == TOOLS_CALL and not connection.modern and nobody_looks
        self._pool = view.gateway.pool
        limits = self._pool.context.limits
        self._timeout = spec.timeout
        self._few = min(ALWAYS_ADMITTED, limits.calls_per_server)
        self._little = min(LITTLE, limits.queue_bytes)
        self._pending = connection.conversation.pending
        self._channel = connection.conversation.channel
        self._scope = view.scope
        self._snapshot = view.scope.snapshot
        self._tools = connection.tools
        self._catalogue = connection.catalogue
        self._harmless: bool | None = None  # not known yet
        self._name = self._head = b""
        if request.method == TOOLS_CALL:
            self._name = connection.visible(spec.tools)[request.tool.tool]
            if not connection.modern:
                start = b',"method":"tools/call","params":{"name":%b,"arguments":'
                self._head = start % self._name
        self.task_support: TaskSupport = self._task_support()

    def _task_support(self) -> TaskSupport:
        """Whether the server runs this tool as a task. Then the fast path does not apply."""
        definition = self._catalogue.tools.get(self.tool.tool) if self._head else None
        if definition is None or b"taskSupport" not in definition.raw:
            return "forbidden"
        from mcp_workbench.protocol.task_messages import task_support  # seldom needed

        is_declared = self.connection.primitives.declared.tasks
        support = task_support(definition.raw) if is_declared else "forbidden"
        if support != "forbidden":
            self._head, self.plain = b"", False
        return support

    @property
    def is_gone(self) -> bool:
        """Whether it can never be valid again, and only keeps a closed connection in memory."""
        return self.connection.over or self._scope.snapshot is not self._snapshot

    @property
    def is_harmless(self) -> bool:
        """Whether a second run changes nothing, as the tool declares. Prompts and resources are only read."""
        if self._harmless is None:
            from mcp_workbench.core.call_request import READS, is_harmless

            definition = self._catalogue.tools.get(self.tool.tool)
            known = definition is not None and is_harmless(definition.raw)
            self._harmless = known or self.method in READS
        return self._harmless

    def send(self, call: Call) -> bool:
        """Send the call, or refuse it. Returns False, and does nothing, if the route is no longer valid."""
        connection, pending = self.connection, self._pending
        if (
            not connection.usable
            or self._scope.snapshot is not self._snapshot
            or self._tools.catalogue is not self._catalogue
        ):
            return False
        call.route = self
        call.connection = connection
        busy = len(pending.waiting) >= self._few or self._channel.backlog > self._little
        if busy and (reason := connection.full()):
            call.fail(CallFailed("overloaded", self.tool, reason, may_have_run=False))
            return True
        if self.before and not self._passes(call):
            return True
        request = call.request
        call.plain = self.plain and not request.modern_host
        call.sent = now = monotonic()
        call.number = number = pending.add(call, now + self._timeout)
        params = request.params
        if self._head and not request.meta and len(params) == 1:
            start = b'{"jsonrpc":"2.0","id":%d%b%b}}\n'
            self._channel.send(start % (number, self._head, params["arguments"]))
        else:
            self._channel.send(self._frame(call, number))
        if self._pool.clock is None:
            self._pool.watch_deadlines()
        return True

    def _frame(self, call: Call, number: int) -> bytes:
        request = call.request
        pair = PAIRS[request.modern_host, self.connection.modern]
        if pair is LEGACY_TO_MODERN and call.asker is not None:
            request = with_logs(request)
        if self._name:
            body = params_for(pair, self._name, request, number, STAMPS)
            if self.task_support != "forbidden":
                body = self._with_task(call, body)
        else:
            body = request_params(pair, request.params, request, number, STAMPS)
        return jsonrpc.request(number, self.method, body)

    def _with_task(self, call: Call, body: bytes) -> bytes:
        from mcp_workbench.protocol.task_messages import task_wish

        call.task_wish = wish = task_wish(
            self.task_support, call.request, takes_tasks=call.takes_tasks
        )
        return body if wish is None else b'%b,"task":%b}' % (body[:-1], wish.task)

    def send_again(self, call: Call) -> None:
        """Send a call once more that was let pass, and that its server has refused without running it."""
        call.number = self._pending.add(call, monotonic() + self._timeout)
        self._channel.send(self._frame(call, call.number))
        self._pool.watch_deadlines()

    def send_on(self, call: Call, method: str, params: Members, until: float) -> None:
        """Send another request of a call that was let pass, about its task."""
        call.number = number = self._pending.add(call, until)
        request = msgspec.structs.replace(call.request, meta={})
        pair = PAIRS[request.modern_host, self.connection.modern]
        body = request_params(pair, params, request, number, STAMPS)
        self._channel.send(jsonrpc.request(number, method, body))
        self._pool.watch_deadlines()

    def _passes(self, call: Call) -> bool:
        """Whether the call may be sent now; otherwise it was refused, or is sent after a wait."""
        for interceptor in self.before:
            if interceptor in call.passed:
                continue
            decision = decide(interceptor, call)
            if isinstance(decision, Refusal):
                call.fail(decision.error)
                return False
            if isinstance(decision, EndCall):
                call.finish(decision.outcome)
                return False
            if isinstance(decision, Wait):
                call.run(_wait(call, interceptor, decision), f"hold {self.tool}")
                return False
        return True


async def _wait(call: Call, interceptor: Interceptor, wait: Wait) -> None:
    """Send the call when the interceptor's work is done, unless that refuses it."""
    call.connection = None  # it may be another by then
    try:
        refusal = await decide_later(interceptor, call, wait)
        if refusal is not None:
            raise refusal.error
        if not interceptor.checks_again:
            call.passed += (interceptor,)
            call.has_details = True
        await call.view.dispatch(call)
    except WorkbenchError as error:
        call.fail(error)


class Routes:
    """The routes of one view, by the host's spelling of their target; dead ones are dropped."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Route] = {}
        self.get = self._known.get

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Route]:
        return iter(self._known.values())

    def keep(self, key: Hashable, route: Route) -> None:
        if isinstance(key, bytes) and len(key) > LONGEST_KEY:
            return
        for old in [old for old, known in self._known.items() if known.is_gone]:
            del self._known[old]
        if len(self._known) >= MOST_ROUTES:
            self._known.clear()
        self._known[key] = route

    def drop(self, key: Hashable) -> None:
        self._known.pop(key, None)

    def leave(self, connection: Connection) -> None:
        """Drop those that use this connection."""
        for key in [key for key, route in self._known.items() if route.connection is connection]:
            del self._known[key]
