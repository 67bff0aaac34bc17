"""A modern host gets the question as the reply, and sends the call again with the answer."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.approvals.scenes import (
    ALWAYS,
    CAN,
    NO,
    ONCE,
    call,
    guarded,
    is_denied,
    outcomes,
    says,
    with_answer,
)
from tests.kit.clock import eventually
from tests.kit.config import config_file, offers_entry, program_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import Message, enveloped, json_text, texts, use_tool
from tests.kit.servers import ASKER

HI: Message = {"text": "hi", "n": 1}


@pytest.fixture
def host(tmp_path: Path) -> Generator[PipeHost]:
    with PipeHost(guarded(tmp_path), modern=True) as host:
        yield host


def asked(host: PipeHost, params: Message | None = None) -> Message:
    result = host.result("tools/call", params or call(arguments=HI))
    assert result["resultType"] == "input_required", result
    return result


def sent(host: PipeHost) -> int:
    """How many calls of `echo` have reached the server."""
    lines = json_text(host.result("tools/call", call("last_line")))
    return sum('"echo"' in line for line in lines[:-1])


def test_the_call_is_sent_when_it_comes_back_with_a_yes(host: PipeHost, tmp_path: Path) -> None:
    question = asked(host)
    [[key, request]] = question["inputRequests"].items()
    before = sent(host)
    result = host.result("tools/call", call(arguments=HI, **with_answer(question, says(ONCE))))

    assert (key, before) == ("approval", 0)
    assert request["method"] == "elicitation/create"
    assert '"test-host 1" wants to call the tool "echo"' in request["params"]["message"]
    assert '{"text":"hi","n":1}' in request["params"]["message"]
    assert json_text(result)["arguments"] == HI
    lines = [("echo", "input_required"), ("last_line", "ok"), ("echo", "ok")]
    eventually(lambda: outcomes(tmp_path) == lines, "all are on record")


@pytest.mark.parametrize("answer", [says(NO), {"action": "decline"}, {"action": "cancel"}, {}, 7])
def test_only_a_yes_is_one(host: PipeHost, tmp_path: Path, answer: Any) -> None:
    question = asked(host)
    result = host.result("tools/call", call(arguments=HI, **with_answer(question, answer)))

    assert is_denied(result)
    assert sent(host) == 0
    assert outcomes(tmp_path)[1] == ("echo", "denied")


def test_an_answer_under_another_name_is_none(host: PipeHost) -> None:
    state = asked(host)["requestState"]
    more: Message = {"inputResponses": {"q1": says(ONCE)}, "requestState": state}

    assert is_denied(host.result("tools/call", call(arguments=HI, **more)))


def test_a_yes_is_used_once(host: PipeHost) -> None:
    again = call(arguments=HI, **with_answer(asked(host), says(ONCE)))
    host.result("tools/call", again)
    result = host.result("tools/call", again)

    assert is_denied(result, "was used before")


def test_a_no_can_not_be_turned_into_a_yes(host: PipeHost) -> None:
    question = asked(host)
    host.result("tools/call", call(arguments=HI, **with_answer(question, says(NO))))
    result = host.result("tools/call", call(arguments=HI, **with_answer(question, says(ONCE))))

    assert is_denied(result, "was used before")
    assert sent(host) == 0


@pytest.mark.parametrize(
    "written",
    [
        b'{"text":"hi","n":1 }',  # white space
        b'{"n":1,"text":"hi"}',  # another order
        b'{"text":"ho","text":"hi","n":1}',  # a server may take the first
        b'{"text":"\\u0068i","n":1}',
        b'{"text":"hi","n":1.0}',
    ],
)
def test_one_other_byte_and_it_is_not_sent(host: PipeHost, written: bytes) -> None:
    """Even where JSON means the same: a server may read it differently."""

    def line(id: int, arguments: bytes, more: Message) -> bytes:
        params = enveloped(call(arguments="ARGUMENTS", **more))
        message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        return json.dumps(message).encode().replace(b'"ARGUMENTS"', arguments) + b"\n"

    host.write(line(901, b'{"text":"hi","n":1}', {}))
    question = host.answer(901)["result"]
    host.write(line(902, written, with_answer(question, says(ONCE))))
    answer = host.answer(902)

    if "error" in answer:
        assert answer["error"]["message"] == "Invalid or expired requestState"
    else:
        assert is_denied(answer["result"], "not the call that was approved")
    assert sent(host) == 0


@pytest.mark.parametrize("changes", [{"text": "ho", "n": 1}, {"text": "hi", "n": 1, "force": True}])
def test_other_arguments_are_another_call(host: PipeHost, changes: Message) -> None:
    more = with_answer(asked(host), says(ONCE))
    error = host.error("tools/call", call(arguments=changes, **more))

    assert error["message"] == "Invalid or expired requestState"
    assert sent(host) == 0


def test_an_answer_is_for_its_own_tool(tmp_path: Path) -> None:
    with PipeHost(guarded(tmp_path, ("echo", "slow")), modern=True) as host:
        more = with_answer(asked(host, call("slow", HI)), says(ONCE))
        error = host.error("tools/call", call("echo", HI, **more))

    assert error["message"] == "Invalid or expired requestState"


def test_a_forged_state_is_refused(host: PipeHost) -> None:
    state = asked(host)["requestState"]
    middle = len(state) // 2
    flipped = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
    for forged in (flipped, state[:-1], "wb1.AAAA", ""):
        more: Message = {"inputResponses": {"approval": says(ONCE)}, "requestState": forged}
        error = host.error("tools/call", call(arguments=HI, **more))
        assert error["message"] == "Invalid or expired requestState"
    assert sent(host) == 0


def test_the_answer_of_another_session_does_not_count(host: PipeHost, tmp_path: Path) -> None:
    more = with_answer(asked(host), says(ONCE))
    (tmp_path / "other").mkdir()
    with PipeHost(guarded(tmp_path / "other"), modern=True) as other:
        asked(other)
        error = other.error("tools/call", call(arguments=HI, **more))
        count = sent(other)

    assert error["message"] == "Invalid or expired requestState"
    assert count == 0


def test_answers_without_a_question_are_none(host: PipeHost) -> None:
    asked(host, call(arguments=HI, inputResponses={"approval": says(ONCE)}))
    assert sent(host) == 0


def test_always_counts_in_this_session(host: PipeHost) -> None:
    host.result("tools/call", call(arguments=HI, **with_answer(asked(host), says(ALWAYS))))
    result = host.result("tools/call", call(arguments={"text": "other"}))

    assert json_text(result)["arguments"] == {"text": "other"}


def test_without_elicitation_the_call_is_denied(host: PipeHost) -> None:
    result = host.result("tools/call", use_tool("a", "echo", HI))

    assert is_denied(result, "nobody can be asked")
    assert sent(host) == 0


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_server_may_ask_within_an_approved_call_and_is_approved_once(
    tmp_path: Path, era: str
) -> None:
    ada: Message = {"action": "accept", "content": {"name": "Ada"}}
    servers = {"a": program_entry(ASKER, era=era, approve=True)}
    with PipeHost(config_file(tmp_path, servers), modern=True) as host:
        first = asked(host, call("twice"))
        second = asked(host, call("twice", **with_answer(first, says(ONCE))))
        third = asked(host, call("twice", **with_answer(second, ada)))
        last = host.result("tools/call", call("twice", **with_answer(third, ada)))
        replayed = host.request("tools/call", call("twice", **with_answer(third, ada)))

    assert "approval" in first["inputRequests"]
    assert "approval" not in {**second["inputRequests"], **third["inputRequests"]}
    assert "Ada" in texts(last)[0]
    if era == "modern":
        assert "approval" in replayed["result"]["inputRequests"], "it is another run"
    else:
        assert "gone" in replayed["error"]["message"]


def test_a_server_without_a_state_of_its_own_may_ask_too(tmp_path: Path) -> None:
    ada: Message = {"action": "accept", "content": {"name": "Ada"}}
    servers = {"a": program_entry(ASKER, "stateless", era="modern", approve=True)}
    with PipeHost(config_file(tmp_path, servers), modern=True) as host:
        first = asked(host, call("name"))
        second = asked(host, call("name", **with_answer(first, says(ONCE))))
        last = host.result("tools/call", call("name", **with_answer(second, ada)))

    assert "Ada" in texts(last)[0]


def test_a_server_s_own_question_is_not_taken_for_ours(tmp_path: Path) -> None:
    """Whatever it asks names the server, and its answers approve nothing."""
    servers = {"a": program_entry(ASKER, era="modern", approve=["twice"])}
    with PipeHost(config_file(tmp_path, servers), modern=True) as host:
        theirs = asked(host, call("name"))
        yes = dict.fromkeys(["approval", *theirs["inputRequests"]], says(ONCE))
        more: Message = {"inputResponses": yes, "requestState": theirs["requestState"]}
        host.result("tools/call", call("name", **more))
        error = host.error("tools/call", call("twice", **more))
        ours = asked(host, call("twice"))

    [question] = theirs["inputRequests"].values()
    assert question["params"]["message"].startswith("[dev/a] ")
    assert error["message"] == "Invalid or expired requestState"
    assert list(ours["inputRequests"]) == ["approval"]


def test_a_resource_is_read_after_a_yes(tmp_path: Path) -> None:
    servers = {"a": {**offers_entry("one", "modern"), "approve": ["resource:*own"]}}
    with PipeHost(config_file(tmp_path, servers), modern=True) as host:
        uri = "note://one/own"
        params: Message = {"uri": uri, "_meta": CAN}
        question = host.result("resources/read", params)
        answer = with_answer(question, says(ONCE))
        read = host.result("resources/read", {**params, **answer})
        replayed = host.error("resources/read", {**params, **answer})
        other = host.error("resources/read", {**params, "uri": "note://shared", **answer})

    assert read["contents"][0]["uri"] == uri
    assert "was used before" in replayed["message"]
    assert other["message"] == "Invalid or expired requestState"
