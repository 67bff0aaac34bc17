"""How many requests may wait for people, whoever these are."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec

from mcp_workbench.core.call import CallRequest
from mcp_workbench.core.names import ServerAddress, ToolIdentifier
from mcp_workbench.era.questions import ELICIT, Question
from mcp_workbench.surface.asking import Asking
from mcp_workbench.surface.calls import HostCall, UnderWay
from mcp_workbench.surface.holding import MOST_HELD, MOST_OF_ONE
from tests.kit.clock import PATIENCE, until

PRINCIPALS = MOST_HELD // MOST_OF_ONE + 1


class Session:
    """Where the answers of one host go."""

    view = SimpleNamespace(after=())

    def __init__(self) -> None:
        self.under_way = UnderWay()
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
        askings = [Asking(f"host {n}", suspended) for n in range(PRINCIPALS)]
        for number in range(MOST_HELD + 3):
            id = b"%d" % number
            held = session.under_way[id] = HostCall(session, id, call)
            asking = askings[number // MOST_OF_ONE]
            asking.holding.hold(held, question, lambda told, error, n=number: declined.append(n))
            await until(lambda id=id: id in session.replies)

    assert declined == [0, 1, 2], "the first host's, though it has no more than any other"
    assert len(suspended) == MOST_HELD
    askings[1].close()
    assert len(suspended) == MOST_HELD - MOST_OF_ONE, "who is gone takes no room"
