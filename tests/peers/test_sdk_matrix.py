"""Every official SDK as the host before the workbench, and every one as the server behind it.

One visit for each host; what it saw is looked at sentence by sentence. A visit is a program of its
own (host_v1.py and so on), for the versions exclude each other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from rawpeer import peers_config
from shop import (
    SECONDS,
    TOOLS,
    Visitor,
    open_street,
    program,
    visitors,
    workbench_on_a_port,
)

from tests.kit.processes import MARK, assert_all_gone
from tests.kit.results import Json

# The first test of a visitor makes the visit: on a busy machine that is more than one call.
pytestmark = [pytest.mark.peers, pytest.mark.timeout(SECONDS + 30)]


class Visit(NamedTuple):
    """Who came, and what they saw."""

    who: Visitor
    seen: Json

    def every(self, errand: str) -> Json:
        """What came of an errand, shop by shop."""
        return {shop: done[errand] for shop, done in self.seen["shops"].items()}

    def all_of(self, value: object) -> Json:
        return dict.fromkeys(self.who.shops, value)


@pytest.fixture(scope="module")
def street(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Json]]:
    file = tmp_path_factory.mktemp("street") / "stderr"
    with file.open("wb") as complaints, open_street(workplace, complaints) as entries:
        yield entries


@pytest.fixture(scope="module", params=visitors(), ids=" ".join)
def visit(
    request: pytest.FixtureRequest,
    workplace: Path,
    street: dict[str, Json],
    tmp_path_factory: pytest.TempPathFactory,
) -> Visit:
    who: Visitor = request.param
    folder = tmp_path_factory.mktemp("visit")
    mark = f"{folder}"
    servers = {shop: {**street[shop], "scope": who.scope(shop)} for shop in who.shops}
    config = peers_config(folder, servers, tools=who.tools, mark=mark)
    bench = [sys.executable, "-m", "mcp_workbench", "serve", "--config", str(config)]
    env = {**os.environ, MARK: mark}
    host = [*program(workplace, "host", who.sdk), who.tools, who.mode, ",".join(who.shops)]
    if who.road == "pipe":
        seen = run([*host, *bench], env)
    else:
        with workbench_on_a_port(bench, env) as url:
            seen = run([*host, url], env)
    assert_all_gone(mark)
    return Visit(who, seen)


def run(argv: list[str], env: dict[str, str]) -> Json:
    done = subprocess.run(
        argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_the_host_gets_the_era_that_it_asks_for(visit: Visit) -> None:
    assert visit.seen["revision"] == visit.who.revision
    if visit.who.sdk != "python-2" or visit.who.mode in ("legacy", "auto"):
        assert visit.seen["server"] == "mcp-workbench"  # a pinned one asks nobody for a name


def test_the_lists_are_those_of_mode_and_era(visit: Visit) -> None:
    who, seen = visit
    dynamic = who.tools == "dynamic"
    own = ["open_toolbox"] if dynamic and who.modern else ["open_toolbox", "use_tool"]
    own += [] if dynamic else ["search_tools"]
    opened = [tool["name"] for tool in seen["opened"]["tools"]]

    assert seen["opened"]["servers_connected"] == len(who.shops)
    assert len(opened) >= TOOLS * len(who.shops)
    if not dynamic:
        assert seen["before"] == seen["after"] == own
    else:
        assert seen["before"] == (own + opened if who.modern else own)
        assert seen["after"] == own + opened


def test_a_call_brings_text_structure_and_errors(visit: Visit) -> None:
    texts = {shop: result["content"] for shop, result in visit.every("echo").items()}
    sums = {shop: result["structuredContent"] for shop, result in visit.every("add").items()}
    failed = {
        shop: (result["isError"], result["content"][0]["text"])
        for shop, result in visit.every("fail").items()
    }

    assert texts == visit.all_of([{"type": "text", "text": "Grüße 🙂"}])
    assert sums == visit.all_of({"sum": 5})
    assert failed == visit.all_of((True, "no paper"))


def test_a_tool_that_is_not_there_is_told_in_words(visit: Visit) -> None:
    for shop, result in visit.every("unknown").items():
        assert result["isError"] is True
        assert f"Tool 'ecco' not found in server '{shop}'" in result["content"][0]["text"]


def test_progress_comes_in_order(visit: Visit) -> None:
    for counted in visit.every("count").values():
        assert counted["text"] == "5 steps"
        progress = counted["progress"]
        # The last ones may be lost in a host in TypeScript, see visit.mjs.
        least = 1 if visit.who.sdk.startswith("typescript") else 5
        assert least <= len(progress)
        assert progress == [1, 2, 3, 4, 5][: len(progress)]


def test_a_call_taken_back_is_taken_back_at_its_server(visit: Visit) -> None:
    assert visit.every("cancelled") == visit.all_of("yes")


def test_prompts_and_resources_arrive(visit: Visit) -> None:
    books = {shop: f"This is shop://{shop}/book" for shop in visit.who.shops}

    assert visit.every("prompt") == visit.all_of("Hello Ada")
    assert visit.every("resource") == books


def test_a_server_s_questions_are_answered(visit: Visit) -> None:
    asked = {shop: visit.who.may_be_asked_by(shop) for shop in visit.who.shops}
    told = {shop: answer for shop, answer in visit.every("ask").items() if asked[shop]}
    model = {shop: answer for shop, answer in visit.every("sample").items() if asked[shop]}

    assert told == {
        shop: {"text": "accept Ada", "asked": [f"[peers/{shop}] Who?"]}
        for shop in visit.who.shops
        if asked[shop]
    }
    assert model == {shop: "yes" for shop in visit.who.shops if asked[shop]}


def test_a_legacy_server_that_is_shared_asks_nobody(visit: Visit) -> None:
    for shop in visit.who.shops:
        if not visit.who.may_be_asked_by(shop):
            assert "the host takes no elicitation" in str(visit.every("ask")[shop])
            assert "the host takes no sampling" in str(visit.every("sample")[shop])


def test_the_log_reaches_a_host_that_wants_it(visit: Visit) -> None:
    assert visit.every("logged") == visit.all_of(True)


def test_a_changed_resource_is_told_to_who_wants_to_know(visit: Visit) -> None:
    assert visit.every("updated") == visit.all_of(True)


def test_a_new_tool_is_announced_and_found(visit: Visit) -> None:
    assert visit.seen["learned"] == {"said": visit.all_of("newly learned"), "unseen": []}


def test_a_host_that_loses_patience_goes_on(visit: Visit) -> None:
    """Version 1 in Python can do that alone: it stops waiting and tells nobody."""
    if visit.who.sdk == "python-1":
        assert visit.seen["patience"].startswith("Timed out while waiting")
        assert visit.seen["afterwards"] == "still here"
