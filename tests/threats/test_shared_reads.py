"""Nobody waits for another server, nor behind another request: one reading is shared, with one deadline."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clock import PATIENCE, eventually
from tests.kit.config import offers_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import let_through
from tests.kit.results import Message, use_tool
from tests.primitives.scenes import begin, bench, use

pytestmark = pytest.mark.usefixtures("forked_commands")

FIXTURE = Path(__file__).with_name("listing_server.py")
TIMEOUT = 1.0  # seconds that a server's entry gives it
ENOUGH = 10 * TIMEOUT  # what is left to a busy machine; before, each waited for half a minute


def trouble(**wishes: Any) -> dict[str, Any]:
    args = ["-E", "-S", str(FIXTURE), json.dumps(wishes)]
    timeout = wishes.get("timeout", TIMEOUT)
    return {"command": sys.executable, "args": args, "timeout": timeout, "era": "legacy"}


def two(folder: Path, **wishes: Any) -> PipeHost:
    """A host before a server of trouble and one that is well, in one toolbox."""
    servers = {"bad": trouble(**wishes), "well": offers_entry("well", "legacy")}
    return PipeHost(bench(folder, {"dev": servers}))


def all_answers(host: PipeHost, asked: list[int]) -> dict[int, Message]:
    """Answers to all of these, in whatever order they come."""
    answers: dict[int, Message] = {}
    while len(answers) < len(asked):
        answer = host.until(lambda message: message.get("id") in asked)
        answers[answer["id"]] = answer
    return answers


def count(host: PipeHost, method: str) -> int:
    """How often the server of trouble was asked."""
    return use(host, "dev", "bad", "seen").get(method, 0)


@pytest.mark.parametrize(
    "wishes",
    [
        {"hangs": ["resources/list", "resources/templates/list"]},
        {"drips": ["resources/list", "resources/templates/list"], "seconds": 0.3},
    ],
    ids=["never", "page by page"],
)
def test_requests_at_once_end_together_after_the_servers_own_time(
    tmp_path: Path, wishes: dict[str, Any]
) -> None:
    with two(tmp_path, **wishes) as host:
        begin(host, "dev")
        since = time.monotonic()
        asked = [
            host.ask("resources/list"),
            host.ask("resources/list"),
            host.ask("resources/read", {"uri": "note://well/own"}),
            host.ask("resources/templates/list"),
        ]
        answers = all_answers(host, asked)
        took = time.monotonic() - since

        assert took < ENOUGH
        assert [one["uri"] for one in answers[asked[0]]["result"]["resources"]] == [
            "note://shared",
            "note://well/own",
        ]
        [content] = answers[asked[2]]["result"]["contents"]
        assert content["text"] == "well has note://well/own"


def test_one_reading_serves_all_who_ask_meanwhile(tmp_path: Path) -> None:
    with two(tmp_path, hangs=["resources/list"]) as host:
        begin(host, "dev")
        asked = [host.ask("resources/list") for _ in range(5)]
        assert all("result" in answer for answer in all_answers(host, asked).values())

        assert count(host, "resources/list") == 1


def test_whoever_gives_up_leaves_the_reading_to_the_others(tmp_path: Path) -> None:
    with two(tmp_path, drips=["resources/list"], seconds=0.2) as host:
        begin(host, "dev")
        first, second = host.ask("resources/list"), host.ask("resources/list")
        host.notify("notifications/cancelled", {"requestId": first})

        assert "result" in host.answer(second)


def test_who_was_silent_is_not_waited_for_again_at_once(tmp_path: Path) -> None:
    with two(tmp_path, hangs=["resources/list"], timeout=2 * TIMEOUT) as host:
        begin(host, "dev")
        host.result("resources/list")
        since = time.monotonic()
        host.result("resources/read", {"uri": "note://well/own"})

        assert time.monotonic() - since < 2 * TIMEOUT


@pytest.mark.parametrize("method", ["prompts/list", "resources/templates/list"])
def test_other_lists_end_as_well(tmp_path: Path, method: str) -> None:
    with two(tmp_path, drips=[method], seconds=0.1) as host:
        begin(host, "dev")
        since = time.monotonic()
        host.result(method)

        assert time.monotonic() - since < ENOUGH


def test_tools_that_are_listed_again_without_end_hold_up_no_call(tmp_path: Path) -> None:
    with two(tmp_path, drips=["tools/list"], tools_from=2, seconds=0.3) as host:
        begin(host, "dev")
        time_up = time.monotonic() + 1.5 * PATIENCE
        use(host, "dev", "bad", "change")
        since = time.monotonic()
        while count(host, "tools/list") < 2:  # it is read again now
            assert time.monotonic() < time_up
        host.use("bad", "unknown")

        assert time.monotonic() - since < ENOUGH


def unknown_tools(host: PipeHost, number: int) -> list[int]:
    """Calls of tools that the server may have by now: it has to be asked."""
    params = [use_tool("bad", f"unknown{one}") for one in range(number)]
    return [host.ask("tools/call", one) for one in params]


def test_one_reading_of_tools_serves_all_who_want_it_and_ends_in_the_servers_own_time(
    tmp_path: Path,
) -> None:
    with two(tmp_path, drips=["tools/list"], tools_from=2, seconds=PATIENCE) as host:
        begin(host, "dev")
        use(host, "dev", "bad", "change")
        eventually(lambda: count(host, "tools/list") == 2, "they are read again")
        since = time.monotonic()
        answers = all_answers(host, unknown_tools(host, 5))

        assert time.monotonic() - since < ENOUGH
        assert all("not found" in str(answer) for answer in answers.values())
        assert count(host, "tools/list") == 2


def test_tools_that_change_while_they_are_read_are_read_once_more_for_all(tmp_path: Path) -> None:
    second, third = tmp_path / "gate2", tmp_path / "gate3"
    os.mkfifo(second)
    os.mkfifo(third)
    with two(tmp_path, gate=str(tmp_path / "gate"), tools_from=2, timeout=PATIENCE) as host:
        begin(host, "dev")
        use(host, "dev", "bad", "change")
        eventually(lambda: count(host, "tools/list") == 2, "they are read again")
        use(host, "dev", "bad", "change")
        asked = unknown_tools(host, 5)
        assert count(host, "tools/list") == 2  # none of them begins another

        eventually(lambda: let_through(second), "the first reading ends")
        eventually(lambda: count(host, "tools/list") == 3, "they are read once more")
        eventually(lambda: let_through(third), "the second one ends")
        answers = all_answers(host, asked)

        assert all("not found" in str(answer) for answer in answers.values())
        assert count(host, "tools/list") == 3


def test_a_subscription_that_is_not_answered_ends_in_the_servers_own_time(tmp_path: Path) -> None:
    with two(tmp_path, hangs=["resources/subscribe"]) as host:
        begin(host, "dev")
        since = time.monotonic()
        host.error("resources/subscribe", {"uri": "mcp-workbench://dev/bad/x:y"})

        assert time.monotonic() - since < ENOUGH
