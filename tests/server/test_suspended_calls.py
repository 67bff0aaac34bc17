"""How many requests may wait for people, whoever these are."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.spec import ServerAddress, ToolIdentifier
from mcp_workbench.gateway.interceptors import with_after
from mcp_workbench.protocol.elicitation import ELICIT, Question
from mcp_workbench.server.elicitation import InputRequests
from mcp_workbench.server.host_calls import HostCall, OpenRequests
from mcp_workbench.server.suspended_calls import MOST_PER_PRINCIPAL, MOST_SUSPENDED
from tests.kit.clock import PATIENCE, until

PRINCIPALS = MOST_SUSPENDED // MOST_PER_PRINCIPAL + 1


class Session:
    """Where the answers of one host go."""

    view = SimpleNamespace(without_route=with_after(()))

    def __init__(self) -> None:
        self.under_way = OpenRequests()
        self.replies: dict[bytes, Any] = {}

    def stop(self, id: bytes) -> None: ...
    def refuse(self, id: bytes, error: msgspec.Raw | bytes) -> None: ...
    def reply_own(self, id: bytes, result: bytes) -> None: ...
    def notify(self, method: str, params: bytes = b"", about: bytes = b"") -> None: ...

    def reply(self, id: bytes, result: msgspec.Raw | bytes) -> None:
        self.replies[id] = msgspec.json.decode(result)


async def test_a_process_holds_so_many_and_the_oldest_of_all_gives_way() -> None:
    suspended: dict[str, Any] = {}
    session: Any = Session()
    declined: list[int] = []
    address = ServerAddress("dev", "a")
    question = Question(address, ELICIT, msgspec.Raw(b"{}"))
    call = CallRequest(ToolIdentifier("dev", "a", "t"), {"arguments": msgspec.Raw(b"{}")}, {}, True)
    async with asyncio.timeout(PATIENCE):
        principals = [InputRequests(f"host {n}", suspended) for n in range(PRINCIPALS)]
        for number in range(MOST_SUSPENDED + 3):
            id = b"%d" % number
            host_call = session.under_way[id] = HostCall(session, id, call)
            suspended_calls = principals[number // MOST_PER_PRINCIPAL].suspended_calls
            suspended_calls.suspend(
                host_call, question, lambda result, error, n=number: declined.append(n)
            )
            await until(lambda id=id: id in session.replies)

    assert declined == [0, 1, 2], "the first host's, though it has no more than any other"
    assert len(suspended) == MOST_SUSPENDED
    principals[1].close()
    assert len(suspended) == MOST_SUSPENDED - MOST_PER_PRINCIPAL, "who is gone takes no room"
