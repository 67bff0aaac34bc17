"""A person sees which server asks, and a server asks only so much."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench.protocol.elicitation import (
    MOST_A_MINUTE,
    MOST_OPEN,
    SAMPLE,
    asked_by,
    read_input_required,
    read_needed,
)
from mcp_workbench.upstream.server_requests import MINUTE
from tests.kit.asking_server import ADDRESS, AskingServer
from tests.kit.config import write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.results import Message
from tests.questions.test_pairs import Person, host, pairs, use

pytestmark = pytest.mark.usefixtures("forked_commands")

SAY: Message = {"role": "user", "content": {"type": "text", "text": "Say yes", "x-odd": [1]}}
PICTURE: Message = {"role": "user", "content": {"type": "image", "data": "AA==", "mimeType": "i/p"}}


def sampled(**params: Any) -> Message:
    return json.loads(asked_by(ADDRESS, SAMPLE, json.dumps(params).encode()).params)


def test_the_first_text_of_a_sampling_question_names_the_server() -> None:
    asked = sampled(messages=[PICTURE, SAY, SAY], maxTokens=5, **{"x-odd": [None]})

    named = {**SAY, "content": {**SAY["content"], "text": "[dev/s] Say yes"}}
    assert asked == {"messages": [PICTURE, named, SAY], "maxTokens": 5, "x-odd": [None]}


def test_so_does_the_first_of_several_blocks() -> None:
    blocks = [PICTURE["content"], SAY["content"], SAY["content"]]

    asked = sampled(messages=[{"role": "user", "content": blocks}])

    [message] = asked["messages"]
    assert [block.get("text") for block in message["content"]] == [
        None,
        "[dev/s] Say yes",
        "Say yes",
    ]


@pytest.mark.parametrize("messages", [[PICTURE], [], "odd", None, [1], [{"content": []}]])
def test_without_a_text_the_prompt_names_it(messages: Any) -> None:
    assert sampled(messages=messages, systemPrompt="Be kind")["systemPrompt"] == "[dev/s] Be kind"
    assert sampled(messages=messages)["systemPrompt"] == "[dev/s] "
    assert sampled(messages=messages)["messages"] == messages


class Curious(Person):
    """Remembers what its model was asked."""

    async def sample(self, context: Any, params: Any) -> Any:
        self.asked.append(params.messages[0].content.text)
        return await super().sample(context, params)


@pairs
async def test_a_person_sees_who_asks_their_model(tmp_path: Path, mode: str, server: str) -> None:
    person = Curious()
    async with host(tmp_path, mode, person) as client:
        await use(client, server, "model")

    assert person.asked == [f"[lab/{server}] Say yes"]


# How many

FLOOD = """
import json, sys
def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()
COUNT, refused, call = 2000, [], None
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        info = {"name": "flood", "version": "1"}
        can = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        send({"id": id, "result": can})
    elif method == "tools/list":
        send({"id": id, "result": {"tools": [{"name": "flood", "inputSchema": {"type": "object"}}]}})
    elif method == "tools/call":
        call = id
        text = {"role": "user", "content": {"type": "text", "text": "Say yes"}}
        for number in range(COUNT):
            params = {"messages": [text], "maxTokens": 5}
            send({"id": f"q{number}", "method": "sampling/createMessage", "params": params})
    elif method is None and "error" in message:
        refused.append(message["error"]["message"])
        if len(refused) == COUNT - MOST_OPEN:
            said = json.dumps([len(refused), sorted(set(refused))])
            send({"id": call, "result": {"content": [{"type": "text", "text": said}]}})
"""


def test_of_two_thousand_questions_at_once_a_host_gets_a_few_and_the_server_plain_answers(
    tmp_path: Path,
) -> None:
    script = tmp_path / "flood.py"
    script.write_text(FLOOD.replace("MOST_OPEN", str(MOST_OPEN)))
    entry = {"command": sys.executable, "args": ["-E", "-S", str(script)], "era": "legacy"}
    config = write_config(tmp_path, {"toolboxes": {"dev": {"mcpServers": {"flood": entry}}}})
    with PipeHost(config) as raw:
        info = {"name": "rawhost", "version": "1"}
        can: Message = {"protocolVersion": "2025-11-25", "capabilities": {"sampling": {}}}
        raw.result("initialize", {**can, "clientInfo": info})
        raw.notify("notifications/initialized")

        result = raw.use("flood", "flood")

        questions = [one for one in raw.others if one.get("method") == SAMPLE]
        count, reasons = json.loads(result["content"][0]["text"])
        assert len(questions) == MOST_OPEN
        assert count == 2000 - MOST_OPEN
        assert all(reason.startswith("too many questions: ") for reason in reasons)


class Silent(AskingServer):
    """A server that asks a host that does not answer."""

    def put(self, count: int) -> int:
        """Ask so often; how often there was an answer."""
        self.sent.clear()
        for number in range(count):
            message = {"jsonrpc": "2.0", "id": number, "method": "roots/list"}
            self.talk.receive(json.dumps(message).encode() + b"\n")
        return sum("result" in one for one in self.sent)


class Asked(Silent):
    """The same with a host that answers at once."""

    def ask(self, question: Any, caller: Any, answered: Any) -> Any:
        answered(b'{"roots":[]}', b"")
        return lambda: None


def test_one_question_after_another_is_put_so_often_in_a_minute() -> None:
    server = Asked()

    assert server.put(MOST_A_MINUTE + 50) == MOST_A_MINUTE
    assert server.put(5) == 0
    assert server.sent[-1]["error"]["message"] == "too many questions: more than 120 in a minute"
    server.now = MINUTE + 1
    assert server.put(5) == 5


def test_a_second_question_under_the_id_of_an_open_one_is_put_to_nobody() -> None:
    server = Silent()

    for _ in range(5):
        server.put(1)

    assert len(server.asked) == 1
    assert server.sent[-1]["error"]["message"] == "a question under way has this id"


def test_a_modern_result_holds_only_so_many() -> None:
    def result(count: int) -> msgspec.Raw:
        wanted = {f"q{n}": {"method": "roots/list"} for n in range(count)}
        return msgspec.Raw(json.dumps({"inputRequests": wanted}).encode())

    assert len(read_input_required(ADDRESS, result(MOST_OPEN)).questions) == MOST_OPEN
    with pytest.raises(msgspec.DecodeError, match="at once"):
        read_input_required(ADDRESS, result(MOST_OPEN + 1))


def test_so_does_an_error_of_a_legacy_server_that_sends_a_person_elsewhere() -> None:
    def error(count: int) -> msgspec.Raw:
        visits = [{"url": "https://example.com", "message": "Go"}] * count
        return msgspec.Raw(json.dumps({"data": {"elicitations": visits}}).encode())

    assert len(read_needed(ADDRESS, error(MOST_OPEN))) == MOST_OPEN
    with pytest.raises(msgspec.DecodeError, match="at once"):
        read_needed(ADDRESS, error(MOST_OPEN + 1))
