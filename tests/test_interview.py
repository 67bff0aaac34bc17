"""A person can be asked while a call runs, by servers of either era."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

from mcp_workbench.core.errors import CallFailed, ServerError
from mcp_workbench.core.spec import ServerAddress, ServerSpec, Snapshot, StdioCommand
from mcp_workbench.gateway.interactive import interactive_session
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.protocol.elicitation import Question
from tests.kit.clock import PATIENCE
from tests.kit.config import snapshot, tool
from tests.kit.servers import FOLDER

ERAS = ["legacy", "modern"]

Json = dict[str, Any]


class Ada:
    """Answers forms, visits addresses, and remembers what she was asked."""

    capabilities: Json = {"elicitation": {"form": {}, "url": {}}}  # noqa: RUF012

    def __init__(self, action: str = "accept") -> None:
        self.action = action
        self.asked: list[Json] = []
        self.waiting = asyncio.Event()
        self.taken_back = asyncio.Event()
        self.patience = 0.0

    async def answer(self, question: Question) -> Json | None:
        self.asked.append(json.loads(question.params))
        self.waiting.set()
        try:
            await asyncio.sleep(self.patience)
        except asyncio.CancelledError:
            self.taken_back.set()
            raise
        content = {"content": {"name": "Ada"}} if self.action == "accept" else {}
        return {"action": self.action, **content}


class Mute(Ada):
    """Can't be asked anything."""

    capabilities: Json = {}  # noqa: RUF012


def server(script: str, era: Any, *args: str, **wishes: Any) -> Snapshot:
    command = StdioCommand(sys.executable, (str(FOLDER / script), *args))
    return snapshot(ServerSpec(ServerAddress("dev", "it"), command, era=era, **wishes))


async def told(config: Snapshot, person: Ada, name: str) -> Any:
    async with (
        asyncio.timeout(PATIENCE),
        Gateway(config) as gateway,
        interactive_session(gateway.view, person) as it,
    ):
        result = await it.use_tool(tool("it", name), {})
    return result["content"][0]["text"]


@pytest.mark.parametrize("era", ERAS)
async def test_the_answer_comes_back_to_the_server_that_asked(era: str) -> None:
    ada = Ada()
    answer = json.loads(await told(server("asker.py", era), ada, "name"))
    assert answer == {"a": {"action": "accept", "content": {"name": "Ada"}}}
    assert [asked["message"] for asked in ada.asked] == ["[dev/it] Your name?"]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_no_is_an_answer_too(era: str, action: str) -> None:
    answer = json.loads(await told(server("asker.py", era), Ada(action), "name"))
    assert answer == {"a": {"action": action}}


@pytest.mark.parametrize("era", ERAS)
async def test_two_questions_in_a_row(era: str) -> None:
    ada = Ada()
    await told(server("asker.py", era), ada, "twice")
    assert len(ada.asked) == 2


@pytest.mark.parametrize("era", ERAS)
async def test_servers_are_told_what_they_may_ask_for(era: str) -> None:
    declared = json.loads(await told(server("asker.py", era), Ada(), "can"))
    assert declared == {"elicitation": {"form": {}, "url": {}}}
    assert json.loads(await told(server("asker.py", era), Mute(), "can")) == {}


async def test_what_only_a_model_can_answer_is_refused() -> None:
    answer = json.loads(await told(server("asker.py", "legacy"), Ada(), "model"))
    assert answer["a"]["error"]["code"] == -32601
    with pytest.raises(CallFailed, match="sampling/createMessage"):
        await told(server("asker.py", "modern"), Ada(), "model")


async def test_nobody_to_ask_is_said_so() -> None:
    answer = json.loads(await told(server("asker.py", "legacy"), Mute(), "name"))
    assert "takes no elicitation" in answer["a"]["error"]["message"]
    # A modern server asks all the same: it hears that nobody wanted to answer.
    answer = json.loads(await told(server("asker.py", "modern"), Mute(), "name"))
    assert answer == {"a": {"action": "cancel"}}


@pytest.mark.parametrize("era", ERAS)
async def test_an_address_is_visited_and_the_call_made_again(era: str) -> None:
    ada = Ada()
    await told(server("addresses.py", era), ada, "login")
    assert [asked["url"] for asked in ada.asked] == ["https://login.example/visit"]


async def test_an_address_that_is_not_visited_leaves_the_server_s_own_error() -> None:
    with pytest.raises(ServerError) as refused:
        await told(server("addresses.py", "legacy"), Ada("decline"), "login")
    assert refused.value.number == -32042


async def test_a_server_that_asks_nothing_is_called_again_ever_later() -> None:
    await told(server("addresses.py", "modern"), Ada(), "patience")


async def test_the_clock_of_a_call_stands_while_a_person_thinks() -> None:
    ada = Ada()
    ada.patience = 1.5
    answer = json.loads(await told(server("asker.py", "legacy", timeout=0.6), ada, "name"))
    assert answer["a"]["action"] == "accept"


@pytest.mark.parametrize("era", ERAS)
async def test_whoever_leaves_is_not_asked_any_more(era: str) -> None:
    ada = Ada()
    ada.patience = PATIENCE
    call = asyncio.ensure_future(told(server("asker.py", era), ada, "name"))
    async with asyncio.timeout(PATIENCE):
        await ada.waiting.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await ada.taken_back.wait()
