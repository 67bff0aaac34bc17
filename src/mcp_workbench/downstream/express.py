"""The commonest call, sent in one step: to a legacy server that is ready, shared and not busy.

Between two calls everybody sleeps, and a processor that wakes up has to fetch again whatever it runs:
what counts is how little that is. Everything else takes the longer way of `Workbench.begin`."""

import time
from typing import Any, Protocol

from mcp_workbench.core.call import ToolCall
from mcp_workbench.core.spec import ToolboxSpec
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.pool import ConnectionPool
from mcp_workbench.downstream.waiters import Waiter

FEW = 64  # calls in flight, and
LITTLE = 1 << 16  # bytes on their way: where there are more, limits have to be looked at


class Begun(Waiter, Protocol):
    """Whoever makes the call: told where it went, and on which way."""

    connection: Connection | None
    number: int
    way: Any


def send_plainly(
    toolboxes: dict[str, ToolboxSpec],
    pool: ConnectionPool,
    call: ToolCall,
    caller: Begun,
    way: object,
) -> bool:
    """Send it now, if it is such a call; otherwise nothing is done."""
    tool = call.tool
    box = toolboxes.get(tool.toolbox)
    spec = None if box is None else box.servers.get(tool.server)
    connection = None if spec is None else pool.shared.get(spec.address)
    if spec is None or connection is None or not connection.plain or connection.over:
        return False
    name = connection.visible(spec.tools).get(tool.tool)
    talk = connection.conversation
    pending, channel = talk.pending, talk.channel
    count = len(pending.waiting)
    most = pool.around.limits.calls_per_server
    if name is None or count >= FEW or count >= most or channel.backlog > LITTLE:
        return False
    number = pending.add(caller, time.monotonic() + spec.timeout)
    channel.send(
        b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%b,"arguments":%b}}\n'
        % (number, name, call.params["arguments"])
    )
    caller.connection, caller.number, caller.way = connection, number, way
    if pool.clock is None:
        pool.watch_deadlines()
    return True
