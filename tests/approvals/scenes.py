"""Hosts whose person is asked, and what came of their calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import INITIALIZE, META, Message, error_code, texts, use_tool

CAN: Message = {META + "clientCapabilities": {"elicitation": {}}}
ONCE, ALWAYS, NO = "yes, once", "always in this session", "no"


def says(decision: str) -> Message:
    """The answer of a person who fills in the form."""
    return {"action": "accept", "content": {"decision": decision}}


def guarded(folder: Path, approve: Any = ("echo",), *flags: str, **more: Any) -> Path:
    """A configuration whose server `a` is the fixture; calls are recorded in `calls.jsonl`."""
    servers = {"a": entry(*flags, approve=approve, **more)}
    return config_file(folder, servers, audit={"file": "calls.jsonl"})


def outcomes(folder: Path) -> list[tuple[str, str]]:
    """The calls on record: what was called, and how it ended."""
    lines = map(json.loads, (folder / "calls.jsonl").read_text().splitlines())
    return [(line.get("tool") or line["method"], line["outcome"]) for line in lines]


def opened(host: PipeHost, **capabilities: Any) -> PipeHost:
    """A legacy host that can be asked, or as it says."""
    host.result("initialize", {**INITIALIZE, "capabilities": capabilities or {"elicitation": {}}})
    host.notify("notifications/initialized")
    return host


def question(host: PipeHost) -> Message:
    """The next question that a legacy host is asked."""
    return host.notice("elicitation/create")


def reply(host: PipeHost, asked: Message, answer: Message) -> None:
    host.send({"id": asked["id"], "result": answer})


def with_answer(asked: Message, answer: Message) -> Message:
    """What a modern host sends along with the same call."""
    return {
        "inputResponses": dict.fromkeys(asked["inputRequests"], answer),
        "requestState": asked["requestState"],
    }


def call(tool: str = "echo", arguments: Any = None, **more: Any) -> Message:
    """The parameters of a modern host's call that may be asked about."""
    return {**use_tool("a", tool, arguments or {}), "_meta": CAN, **more}


def is_denied(result: Message, *words: str) -> bool:
    """Was it refused with these words, and with a next step?"""
    told = " ".join(texts(result))
    assert error_code(result) == "denied", result
    assert "Nothing was sent to the server" in told
    for word in words:
        assert word in told
    return True
