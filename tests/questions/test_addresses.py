"""Addresses that a person is sent to, progress that starts again, roots that change: between the eras."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.config import config_file, program_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import INITIALIZE, META, Message, texts, use_tool
from tests.kit.servers import ADDRESSES

URL: Message = {META + "clientCapabilities": {"elicitation": {"form": {}, "url": {}}}}
FORM: Message = {META + "clientCapabilities": {"elicitation": {}}}
VISIT = "https://login.example/visit"


def scene(folder: Path, era: str, *, modern: bool) -> PipeHost:
    entry = program_entry(ADDRESSES, era=era)
    return PipeHost(config_file(folder, {"s": entry}), modern=modern)


def use(tool: str, **more: Any) -> Message:
    return use_tool("s", tool, {}, **more)


def open_legacy(host: PipeHost, **capabilities: Any) -> None:
    host.result("initialize", {**INITIALIZE, "capabilities": capabilities})


def test_a_modern_host_is_sent_to_the_address_and_calls_again(tmp_path: Path) -> None:
    with scene(tmp_path, "legacy", modern=True) as host:
        asked = host.result("tools/call", use("login", _meta=URL))
        [(key, question)] = asked["inputRequests"].items()
        back: Message = {
            "inputResponses": {key: {"action": "accept"}},
            "requestState": asked["requestState"],
        }
        result = host.result("tools/call", use("login", **back, _meta=URL))

    assert question["method"] == "elicitation/create"
    assert question["params"] == {
        "mode": "url",
        "url": VISIT,
        "message": "[dev/s] Log in first",
    }
    assert texts(result) == ["logged in"]


def test_a_modern_host_that_opens_no_addresses_is_told_what_it_lacks(tmp_path: Path) -> None:
    with scene(tmp_path, "legacy", modern=True) as host:
        error = host.error("tools/call", use("login", _meta=FORM))

    assert error["code"] == -32021
    assert error["data"] == {"requiredCapabilities": {"elicitation": {"url": {}}}}


def test_a_legacy_host_gets_the_error_as_it_is_and_hears_when_it_is_done(tmp_path: Path) -> None:
    with scene(tmp_path, "legacy", modern=False) as host:
        open_legacy(host, elicitation={"url": {}})
        error = host.error("tools/call", use("login"))
        done = host.notice("notifications/elicitation/complete")

    [wanted] = error["data"]["elicitations"]
    assert (error["code"], wanted["elicitationId"]) == (-32042, "e1")
    assert done["params"] == {"elicitationId": "e1"}


def test_a_legacy_host_gets_a_name_for_the_address_of_a_modern_server(tmp_path: Path) -> None:
    with scene(tmp_path, "modern", modern=False) as host:
        open_legacy(host, elicitation={"url": {}})
        id = host.ask("tools/call", use("login"))
        question = host.until(lambda message: message.get("method") == "elicitation/create")
        host.send({"id": question["id"], "result": {"action": "accept"}})
        result = host.answer(id)["result"]

    assert question["params"]["url"] == VISIT
    assert len(question["params"]["elicitationId"]) >= 16
    assert texts(result) == ["logged in"]


@pytest.mark.parametrize("modern", [False, True])
def test_a_host_that_only_fills_in_forms_is_not_sent_anywhere(
    tmp_path: Path, *, modern: bool
) -> None:
    with scene(tmp_path, "modern", modern=modern) as host:
        if not modern:
            open_legacy(host, elicitation={})
        result = host.result("tools/call", use("login", **({"_meta": FORM} if modern else {})))

    assert result["isError"] is True
    assert "elicitation" in texts(result)[0]


def test_progress_only_rises_for_a_legacy_host(tmp_path: Path) -> None:
    """The modern server is called twice and begins anew each time."""
    with scene(tmp_path, "modern", modern=False) as host:
        open_legacy(host, elicitation={})
        id = host.ask("tools/call", use("work", _meta={"progressToken": "p"}))
        question = host.until(lambda message: message.get("method") == "elicitation/create")
        host.send({"id": question["id"], "result": {"action": "accept", "content": {}}})
        host.answer(id)
        told = [m["params"] for m in host.others if m["method"] == "notifications/progress"]

    assert [(one["progressToken"], one["progress"]) for one in told] == [
        ("p", 0),
        ("p", 1),
        ("p", 2),
    ]


def test_a_server_that_asks_nothing_is_called_again_in_growing_pauses(tmp_path: Path) -> None:
    with scene(tmp_path, "modern", modern=False) as host:
        open_legacy(host, elicitation={})
        result = host.result("tools/call", use("patience"))
        pauses = json.loads(texts(result)[0])

    assert len(pauses) == 5  # the first at once, then 0.05 s, 0.1 s, 0.2 s, 0.4 s
    assert pauses[2] >= 0.09
    assert pauses[3] >= 0.19
    assert pauses[4] >= 0.39


def test_a_legacy_host_s_other_roots_are_made_known_to_legacy_servers(tmp_path: Path) -> None:
    with scene(tmp_path, "legacy", modern=False) as host:
        open_legacy(host, roots={"listChanged": True})
        host.result("tools/call", use("seen"))
        host.notify("notifications/roots/list_changed")
        seen = texts(host.result("tools/call", use("seen")))

    assert seen == ["notifications/roots/list_changed"]


def test_a_host_without_roots_has_none_that_change(tmp_path: Path) -> None:
    with scene(tmp_path, "legacy", modern=False) as host:
        open_legacy(host)
        host.result("tools/call", use("seen"))
        host.notify("notifications/roots/list_changed")
        seen = texts(host.result("tools/call", use("seen")))

    assert seen == [""]
