"""A legacy host's person is asked by a request of ours while the call waits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.approvals.scenes import (
    ALWAYS,
    NO,
    ONCE,
    guarded,
    is_denied,
    opened,
    outcomes,
    question,
    reply,
    says,
)
from tests.kit.clock import eventually
from tests.kit.config import config_file, entry, offers_entry, program_entry, write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.results import Message, error_code, json_text, texts, use_tool
from tests.kit.servers import ASKER


def methods(host: PipeHost) -> list[str]:
    """What reached the server, by a tool that needs no approval."""
    return json_text(host.use("a", "stats"))["methods"]


def refused_question(host: PipeHost, tool: str, arguments: Message | None = None) -> str:
    """What the person is asked about this call, which they refuse."""
    id = host.begin_use("a", tool, arguments)
    asked = question(host)
    reply(host, asked, says(NO))
    assert is_denied(host.answer(id)["result"])
    return asked["params"]["message"]


def test_a_call_is_sent_after_a_yes_and_the_question_says_who_wants_what(tmp_path: Path) -> None:
    with PipeHost(guarded(tmp_path)) as host:
        opened(host)
        id = host.begin_use("a", "echo", {"text": "hi"})
        asked = question(host)
        before = methods(host).count("tools/call")
        reply(host, asked, says(ONCE))
        result = host.answer(id)["result"]

    message = asked["params"]["message"]
    assert before == 1, "only the one that asks what there was"
    assert json_text(result)["arguments"] == {"text": "hi"}
    assert message == (
        'MCP Workbench asks for approval: "test-host 1" wants to call the tool "echo" of the server '
        'dev/a with these arguments:\n{"text":"hi"}'
    )
    decision = asked["params"]["requestedSchema"]["properties"]["decision"]
    assert decision["enum"] == [ONCE, ALWAYS, NO]
    assert outcomes(tmp_path) == [("stats", "ok"), ("echo", "ok")]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (says(NO), "said no"),
        ({"action": "decline"}, "said no"),
        ({"action": "cancel"}, "closed without an answer"),
        ({"action": "accept"}, "closed without an answer"),
        ({"action": "accept", "content": {"decision": "YES"}}, "closed without an answer"),
        ({"action": "accept", "content": {"decision": True}}, "closed without an answer"),
        ({"action": ["accept"], "content": {"decision": ONCE}}, "closed without an answer"),
    ],
)
def test_only_a_yes_is_one(tmp_path: Path, answer: Message, why: str) -> None:
    with PipeHost(guarded(tmp_path)) as host:
        opened(host)
        id = host.begin_use("a", "echo")
        reply(host, question(host), answer)
        result = host.answer(id)["result"]
        sent = methods(host).count("tools/call")

    assert is_denied(result, "dev/a/echo", why)
    assert sent == 1
    assert outcomes(tmp_path)[0] == ("echo", "denied")


def test_a_host_that_fails_to_ask_has_not_approved(tmp_path: Path) -> None:
    with PipeHost(guarded(tmp_path)) as host:
        opened(host)
        id = host.begin_use("a", "echo")
        error = {"code": -32603, "message": "no window"}
        host.send({"id": question(host)["id"], "error": error})

        assert is_denied(host.answer(id)["result"], "the host could not ask")


@pytest.mark.parametrize("capabilities", [{"roots": {}}, {"elicitation": {"url": {}}}])
def test_without_anybody_to_ask_the_call_is_denied(tmp_path: Path, capabilities: Any) -> None:
    with PipeHost(guarded(tmp_path)) as host:
        opened(host, **capabilities)
        result = host.use("a", "echo")
        sent = methods(host).count("tools/call")

    assert is_denied(result, "nobody can be asked", "does not support elicitation", "'approve'")
    assert sent == 1
    assert outcomes(tmp_path) == [("echo", "denied"), ("stats", "ok")]


def test_a_yes_counts_once(tmp_path: Path) -> None:
    with PipeHost(guarded(tmp_path)) as host:
        opened(host)
        first = host.begin_use("a", "echo", {"text": "x"})
        asked = question(host)
        reply(host, asked, says(ONCE))
        host.answer(first)
        second = host.begin_use("a", "echo", {"text": "x"})
        again = question(host)
        reply(host, asked, says(ONCE))  # the same answer once more
        reply(host, again, says(NO))

        assert again["id"] != asked["id"]
        assert is_denied(host.answer(second)["result"])


def test_always_counts_for_the_tool_in_this_session_alone(tmp_path: Path) -> None:
    config = guarded(tmp_path, ("echo", "progress"))
    with PipeHost(config) as host:
        opened(host)
        first = host.begin_use("a", "echo", {"text": "x"})
        reply(host, question(host), says(ALWAYS))
        host.answer(first)
        other = host.use("a", "echo", {"text": "other arguments"})
        about = refused_question(host, "progress")
    with PipeHost(config) as host:
        opened(host)

        assert '"echo"' in refused_question(host, "echo", {"text": "x"})
    assert json_text(other)["arguments"] == {"text": "other arguments"}
    assert '"progress"' in about


def test_always_ends_when_the_definition_changes(tmp_path: Path) -> None:
    tool: Message = {"name": "tidy", "description": "Tidies up", "inputSchema": {"type": "object"}}
    other = {**tool, "description": "Deletes everything"}

    def redefine(definition: Message) -> None:
        told = {"name": "tidy", "definition": json.dumps(definition)}
        host.use("a", "flip", told)
        eventually(lambda: shown() == definition["description"], "the new list is there")

    def shown() -> str:
        return next((t["description"] for t in host.open()["tools"] if t["name"] == "tidy"), "")

    with PipeHost(guarded(tmp_path, ("tidy",))) as host:
        opened(host)
        redefine(tool)
        first = host.begin_use("a", "tidy")
        reply(host, question(host), says(ALWAYS))
        host.answer(first)
        host.use("a", "tidy")
        redefine(other)
        id = host.begin_use("a", "tidy")
        reply(host, question(host), says(NO))

        assert is_denied(host.answer(id)["result"])


def test_a_cancelled_call_takes_its_question_back_and_is_not_sent(tmp_path: Path) -> None:
    with PipeHost(guarded(tmp_path)) as host:
        opened(host)
        id = host.begin_use("a", "echo")
        asked = question(host)
        host.notify("notifications/cancelled", {"requestId": id})
        withdrawn = host.notice("notifications/cancelled")
        reply(host, asked, says(ONCE))
        sent = methods(host).count("tools/call")

    assert withdrawn["params"]["requestId"] == asked["id"]
    assert sent == 1
    assert outcomes(tmp_path)[0] == ("echo", "cancelled")


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_server_may_ask_within_an_approved_call_and_is_approved_once(
    tmp_path: Path, era: str
) -> None:
    ada: Message = {"action": "accept", "content": {"name": "Ada"}}
    servers = {"a": program_entry(ASKER, era=era, approve=True)}
    with PipeHost(config_file(tmp_path, servers)) as host:
        opened(host)
        id = host.begin_use("a", "twice")
        asked = [question(host)]
        reply(host, asked[0], says(ONCE))
        for _ in range(2):
            asked.append(question(host))
            reply(host, asked[-1], ada)
        result = host.answer(id)["result"]

    starts = [one["params"]["message"].partition(" ")[0] for one in asked]
    assert starts == ["MCP", "[dev/a]", "[dev/a]"]
    assert "Ada" in texts(result)[0]


def test_other_tools_are_not_asked_about(tmp_path: Path) -> None:
    with PipeHost(guarded(tmp_path, ["*", "!echo"])) as host:
        opened(host)
        assert json_text(host.use("a", "echo", {"text": "x"}))["arguments"] == {"text": "x"}
        assert '"stats"' in refused_question(host, "stats")


@pytest.mark.parametrize("naming", ["full", "bare"])
def test_it_holds_for_every_name_of_a_tool(tmp_path: Path, naming: str) -> None:
    dev = {"mcpServers": {"a": entry()}, "approve": "writes"}
    top = {"toolboxes": {"dev": dev}, "toolMode": "dynamic", "naming": naming}
    with PipeHost(write_config(tmp_path, top)) as host:
        opened(host)
        names = ["echo"] if naming == "bare" else ["dev__a__echo"]
        for name in names:
            id = host.begin(name, {"text": "x"})
            reply(host, question(host), says(NO))
            assert error_code(host.answer(id)["result"]) == "denied"
        if naming == "full":
            id = host.ask("tools/call", use_tool("a", "echo"))
            reply(host, question(host), says(NO))
            assert error_code(host.answer(id)["result"]) == "denied"


def test_resources_and_prompts_are_asked_about_by_their_own_patterns(tmp_path: Path) -> None:
    approve = ["resource:*own*", "prompt:*"]
    servers = {"a": {**offers_entry("one", "legacy"), "approve": approve}}
    with PipeHost(config_file(tmp_path, servers, audit={"file": "calls.jsonl"})) as host:
        opened(host)
        host.open()
        uris = [one["uri"] for one in host.result("resources/list")["resources"]]
        note = next(uri for uri in uris if "own" in uri)
        other = next(uri for uri in uris if "own" not in uri)
        host.result("resources/read", {"uri": other})
        id = host.ask("resources/read", {"uri": note})
        asked = question(host)
        reply(host, asked, says(NO))
        error = host.answer(id)["error"]
        id = host.ask("resources/read", {"uri": note})
        reply(host, question(host), says(ALWAYS))
        read = host.answer(id)["result"]
        again = host.result("resources/read", {"uri": note})
        prompt = host.result("prompts/list")["prompts"][0]["name"]
        id = host.ask("prompts/get", {"name": prompt})
        about = question(host)
        reply(host, about, says(NO))
        host.answer(id)

    assert f'wants to read the resource "{note}" of the server dev/a.' in asked["params"]["message"]
    assert "said no. Nothing was sent" in error["message"]
    assert error["data"]["mcp-workbench/code"] == "denied"
    assert read["contents"] == again["contents"]
    assert "wants to get the prompt" in about["params"]["message"]
    assert ("resources/read", "denied") in outcomes(tmp_path)
