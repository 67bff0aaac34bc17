"""What servers and hosts declare, agree on and subscribe to may be as long as a message: it is not taken apart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.approve_rules import approve_rule
from mcp_workbench.core.apps import has_page, is_for_model
from mcp_workbench.core.errors import InvalidCall
from mcp_workbench.protocol.handshake import (
    DISCOVER,
    MODERN,
    Answered,
    Probing,
    read_capabilities,
    step,
)
from mcp_workbench.protocol.task_messages import TASKS, acknowledged_tasks, requires_tasks
from mcp_workbench.server.tool_requests import read_use_tool
from mcp_workbench.transport import jsonrpc
from mcp_workbench.upstream.primitives import read_page
from mcp_workbench.upstream.tool_list import Unlistable
from tests.kit.config import snapshot
from tests.kit.inside import InsideWorkbench
from tests.kit.memory_host import MemoryHost
from tests.threats.growth import peak, ratio

pytestmark = pytest.mark.cost

SIZE = 16 << 20  # bytes
SPARE = 1 << 20


def members(size: int) -> bytes:
    """An object of very many members."""
    return b"{" + b",".join(b'"%x":0' % n for n in range(size // 10)) + b"}"


def names(size: int) -> bytes:
    return b"[" + b",".join(b'"%x"' % n for n in range(size // 9)) + b"]"


def numbers(size: int) -> bytes:
    """Numbers that the codec takes very long for."""
    return b"[" + b",".join([b"1e-320"] * (size // 7)) + b"]"


def refused_use(arguments: bytes) -> None:
    with pytest.raises(InvalidCall):
        read_use_tool(arguments)


def wrapped(path: str, value: bytes) -> bytes:
    for name in reversed(path.split("/")):
        value = b'{"%b":%b}' % (name.encode(), value)
    return value


def met(result: bytes) -> Any:
    return step(Probing(fallback=True), Answered(DISCOVER, result))


def listed(result: bytes) -> None:
    """A page of a list; one whose cursor is long is none."""
    with suppress(Unlistable):
        asyncio.run(read_page("prompts", msgspec.Raw(result)))


READERS: dict[str, tuple[Callable[[bytes], Any], Callable[[int], bytes]]] = {
    "capabilities that an error names": (
        lambda raw: requires_tasks(msgspec.Raw(raw)),
        lambda size: wrapped("data/requiredCapabilities/extensions", members(size)),
    ),
    "tasks that a server agrees to announce": (
        acknowledged_tasks,
        lambda size: wrapped("notifications/taskIds", names(size)),
    ),
    "revisions of a server": (met, lambda size: wrapped("supportedVersions", names(size))),
    "what a server says of itself": (met, lambda size: wrapped("_meta", members(size))),
    "calls that a server runs as tasks": (
        lambda raw: read_capabilities(msgspec.Raw(raw)),
        lambda size: wrapped("tasks/requests/tools/call", members(size)),
    ),
    "who may see a tool": (
        is_for_model,
        lambda size: wrapped("_meta/ui/visibility", numbers(size)),
    ),
    "the page of a tool": (has_page, lambda size: wrapped("_meta/ui/resourceUri", numbers(size))),
    "what a tool does": (
        lambda raw: approve_rule(("destructive",)).applies_to_tool("a", raw),
        lambda size: wrapped("annotations/readOnlyHint", numbers(size)),
    ),
    "lines around those that are wanted": (
        refused_use,
        lambda size: (
            b'{"context":%b,"tool":{"toolbox":"a","server":"b","tool":"c"}}' % numbers(size)
        ),
    ),
    "who may keep a list": (listed, lambda size: wrapped("cacheScope", numbers(size))),
    "how long a list lasts": (listed, lambda size: wrapped("ttlMs", members(size))),
    "where a list goes on": (
        listed,
        lambda size: wrapped("nextCursor", b'"%b"' % (b"\\n" * (size // 2))),
    ),
    "tasks that a server cancels": (
        lambda raw: read_capabilities(msgspec.Raw(raw)),
        lambda size: wrapped("tasks/cancel", members(size)),
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_it_costs_little_more_than_to_find_its_end(name: str) -> None:
    read, made = READERS[name]
    line = made(SIZE)

    assert ratio(lambda: read(line), lambda: msgspec.json.decode(line, type=msgspec.Raw), 6) <= 6
    assert peak(lambda: read(line)) <= len(line) + SPARE


def test_what_is_short_is_read() -> None:
    error: Any = {"data": {"requiredCapabilities": {"extensions": {TASKS: {}}}}}
    agreed: Any = {"notifications": {"taskIds": ["a", "b"]}}
    tasks: Any = {"tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
    odd: Any = {"tasks": {"cancel": None, "requests": {"tools": {"call": 5}}}}

    assert requires_tasks(msgspec.Raw(json.dumps(error).encode()))
    assert acknowledged_tasks(json.dumps(agreed).encode()) == {"a", "b"}
    known = read_capabilities(msgspec.Raw(json.dumps(tasks).encode()))
    assert (known.tasks, known.tasks_cancel) == (True, True)
    known = read_capabilities(msgspec.Raw(json.dumps(odd).encode()))
    assert (known.tasks, known.tasks_cancel) == (False, False)


@pytest.mark.parametrize("member", ["taskIds", "resourceSubscriptions"])
async def test_a_subscription_as_long_as_a_message_is_refused_unread(member: str) -> None:
    from mcp_workbench.server.session import HostSession
    from mcp_workbench.server.session_tools import ToolView
    from mcp_workbench.transport.tasks import task_scope

    host = MemoryHost()
    meta = (
        b'"_meta":{"io.modelcontextprotocol/protocolVersion":"%b",'
        b'"io.modelcontextprotocol/clientCapabilities":{}}' % MODERN.encode()
    )
    line = (
        b'{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{%b,"notifications":{"%b":%b}}}'
        % (
            meta,
            member.encode(),
            names(SIZE),
        )
    )
    async with InsideWorkbench(snapshot()) as workbench, task_scope() as requests:
        session = HostSession(workbench.view, host, requests, ToolView(workbench.view, ()))
        session.receive(jsonrpc.decode(line))
        await host.more.wait()
        session.close()

    error = json.loads(host.frames[0])["error"]
    assert error == {"code": -32602, "message": "params.notifications: longer than 4 MiB"}
