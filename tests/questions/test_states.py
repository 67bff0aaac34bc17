"""A question's state comes back as it left, once, from whom it went to; nothing else is taken."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.config import config_file, program_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import META, texts, use_tool
from tests.kit.servers import ASKER

CAN: dict[str, Any] = {
    META + "clientCapabilities": {"elicitation": {}, "sampling": {}, "roots": {}}
}
ADA = {"action": "accept", "content": {"name": "Ada"}}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Generator[PipeHost]:
    """A modern host before the asker in both eras; each test has questions of its own."""
    servers = {era: program_entry(ASKER, era=era) for era in ("legacy", "modern")}
    with PipeHost(config_file(tmp_path_factory.mktemp("states"), servers), modern=True) as host:
        yield host


def asked(host: PipeHost, server: str) -> tuple[str, str]:
    """Call the tool that asks for a name: the key of its question, and the state."""
    result = host.use(server, "name", {}, _meta=CAN)
    assert result["resultType"] == "input_required"
    [key] = result["inputRequests"]
    return key, result["requestState"]


def come_back(host: PipeHost, server: str, key: str, state: Any, tool: str = "name") -> Any:
    more: dict[str, Any] = {"inputResponses": {key: ADA}, "requestState": state, "_meta": CAN}
    return host.request("tools/call", use_tool(server, tool, {}, **more))


both = pytest.mark.parametrize("server", ["legacy", "modern"])


@both
def test_the_host_comes_back_with_the_answer(host: PipeHost, server: str) -> None:
    key, state = asked(host, server)

    result = come_back(host, server, key, state)["result"]

    assert result["resultType"] == "complete"
    assert "Ada" in texts(result)[0]


FORGERIES: list[Callable[[str], Any]] = [
    lambda state: state[:-1] + ("A" if state[-1] != "A" else "B"),
    lambda state: state[:30] + ("x" if state[30] != "x" else "y") + state[31:],
    lambda state: state + "AAAA",
    lambda _: "wb1." + "A" * 80,
    lambda _: "",
    lambda _: 5,
    lambda _: None,
]


@both
@pytest.mark.parametrize("change", FORGERIES)
def test_a_forged_state_is_refused(host: PipeHost, server: str, change: Any) -> None:
    key, state = asked(host, server)

    error = come_back(host, server, key, change(state))["error"]

    assert (error["code"], error["message"]) == (-32602, "Invalid or expired requestState")


@both
def test_a_state_is_good_for_its_own_call_only(host: PipeHost, server: str) -> None:
    key, state = asked(host, server)
    other = {"legacy": "modern", "modern": "legacy"}[server]

    for answer in (
        come_back(host, other, key, state),
        come_back(host, server, key, state, tool="model"),
    ):
        assert answer["error"]["code"] == -32602


def test_a_held_call_goes_on_once(host: PipeHost) -> None:
    key, state = asked(host, "legacy")
    come_back(host, "legacy", key, state)

    error = come_back(host, "legacy", key, state)["error"]

    assert error["code"] == -32602
    assert error["message"] == "The suspended call is gone; it may have run"


def test_an_answer_that_is_missing_is_asked_for_again(host: PipeHost) -> None:
    _, state = asked(host, "legacy")

    again = come_back(host, "legacy", "another", state)["result"]
    [key] = again["inputRequests"]
    result = come_back(host, "legacy", key, again["requestState"])["result"]

    assert "Ada" in texts(result)[0]


def test_a_call_that_ends_while_its_host_is_asked_is_answered_when_the_host_comes_back(
    tmp_path: Path,
) -> None:
    impatient = tmp_path / "impatient.py"
    impatient.write_text(
        Path(ASKER)
        .read_text("utf-8")
        .replace(
            "        ask(id, {key: {} for key in QUESTIONS[tool]}, QUESTIONS[tool])\n",
            "        ask(id, {key: {} for key in QUESTIONS[tool]}, QUESTIONS[tool])\n"
            '        import threading; threading.Timer(0.2, lambda: send({"id": id, "result": text("bored")})).start()\n',
        ),
        "utf-8",
    )
    beside = {"PYTHONPATH": str(Path(ASKER).parent)}  # what the server imports
    legacy = {"command": sys.executable, "args": [str(impatient)], "env": beside, "era": "legacy"}
    servers = {"legacy": legacy}
    with PipeHost(config_file(tmp_path, servers), modern=True) as host:
        key, state = asked(host, "legacy")
        host.use("legacy", "can", {}, _meta=CAN)

        result = come_back(host, "legacy", key, state)["result"]

    assert json.loads(texts(result)[0]) in ("bored", {"a": ADA})


def test_a_legacy_host_that_cancels_is_not_left_with_the_question(tmp_path: Path) -> None:
    servers = {"modern": program_entry(ASKER, era="modern")}
    with PipeHost(config_file(tmp_path, servers)) as host:
        params: dict[str, Any] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}},
        }
        host.result("initialize", {**params, "clientInfo": {"name": "x", "version": "1"}})
        call = host.begin_use("modern", "name", {})
        question = host.until(lambda message: message.get("method") == "elicitation/create")

        host.notify("notifications/cancelled", {"requestId": call})

        withdrawn = host.notice("notifications/cancelled")
        assert withdrawn["params"]["requestId"] == question["id"]
