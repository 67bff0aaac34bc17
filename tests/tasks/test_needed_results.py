"""Scripts, and calls that want a part of the result, get the result of a task, whatever tasks their host has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clock import eventually
from tests.kit.pipe_host import PipeHost
from tests.kit.results import INITIALIZE, META, Json, error_code, text, use_tool
from tests.scripts.scenes import recorded, script, value
from tests.tasks.scenes import ASKABLE, ERAS, HAS_TASKS, LEGACY, MODERN, YES, bench

pytestmark = pytest.mark.usefixtures("forked_commands")

DECLARED: Json = {**HAS_TASKS, **ASKABLE}
PAIRS = [(host, server) for host in ERAS for server in ERAS]
ASKS = "(await call('dev/jobs/required_question', filename='a.txt'))"


def scripted(folder: Path, era: str, **more: Any) -> Path:
    return bench(folder, era, scripts=True, audit={"file": "calls.jsonl"}, **more)


def opened(host: PipeHost) -> Json:
    """Open as a host that can be asked, and return what its requests add."""
    if host.modern:
        return {"_meta": {META + "clientCapabilities": DECLARED}}
    host.result("initialize", {**INITIALIZE, "capabilities": ASKABLE})
    host.notify("notifications/initialized")
    return {}


class Hosts:
    """A host of each pair, with scripts: opened by the first test of its pair, used by all of them."""

    def __init__(self, folder: Path, ends: ExitStack) -> None:
        self._folder = folder
        self._ends = ends
        self._opened: dict[tuple[str, str], tuple[PipeHost, Json]] = {}

    def of(self, host_era: str, server_era: str) -> tuple[PipeHost, Json]:
        """The host, and what its requests add."""
        pair = (host_era, server_era)
        if pair not in self._opened:
            folder = self.folder(*pair)
            folder.mkdir()
            config = scripted(folder, server_era)
            host = self._ends.enter_context(PipeHost(config, modern=host_era == MODERN))
            self._opened[pair] = host, opened(host)
        return self._opened[pair]

    def folder(self, host_era: str, server_era: str) -> Path:
        return self._folder / f"{host_era}-{server_era}"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory, forked_commands: None) -> Iterator[Hosts]:
    with ExitStack() as ends:
        yield Hosts(tmp_path_factory.mktemp("hosts"), ends)


def answered(host: PipeHost, call: Json) -> tuple[list[str], Json]:
    """The questions that the host is asked in a call, all of them answered with yes, and the result."""
    asked: list[str] = []
    id = host.ask("tools/call", call)
    if not host.modern:
        question = host.notice("elicitation/create")
        asked.append(question["params"]["message"])
        host.send({"id": question["id"], "result": YES})
        return asked, host.answer(id)["result"]
    result = host.answer(id)["result"]
    while result["resultType"] == "input_required":
        questions = result["inputRequests"]
        asked += [question["params"]["message"] for question in questions.values()]
        back = {"inputResponses": dict.fromkeys(questions, YES)}
        result = host.result("tools/call", {**call, **back, "requestState": result["requestState"]})
    return asked, result


def calls_of_script(folder: Path, tool: str) -> list[str]:
    """The tools on record that the script has called which has called this one; no other has."""
    calls = recorded(folder)
    scripts = {call["parent"] for call in calls if call["tool"] == tool}
    return [call["tool"] for call in calls if call["parent"] in scripts]


def part(tool: str, arguments: Json, pattern: str) -> Json:
    call = use_tool("jobs", tool, arguments)
    call["arguments"]["lines"] = pattern
    return call


def shown(result: Json) -> str:
    """The part; a note about the rest follows."""
    return result["content"][0]["text"]


@pytest.mark.parametrize(("host_era", "server_era"), PAIRS)
def test_a_script_gets_the_results_of_tasks(hosts: Hosts, host_era: str, server_era: str) -> None:
    code = """
import asyncio
done = await asyncio.gather(*[call('dev/jobs/required_job', what=what) for what in ('this', 'that')])
try:
    await call('dev/jobs/failing_job')
except Exception as error:
    done.append(str(error))
done.append(await call('dev/jobs/slow_compute', seconds=0))
done
"""
    host, meta = hosts.of(host_era, server_era)
    result = script(host, code, **meta)

    this, that, failed, computed = value(result)
    assert [this, that, computed] == ["Did this", "Did that", "computed: done after 0 s"]
    assert "The job failed" in failed
    folder = hosts.folder(host_era, server_era)
    eventually(lambda: bool(calls_of_script(folder, "slow_compute")), "its last call is recorded")
    assert calls_of_script(folder, "slow_compute").count("required_job") == 2


@pytest.mark.parametrize(("host_era", "server_era"), PAIRS)
def test_a_task_of_a_script_asks_its_host(hosts: Hosts, host_era: str, server_era: str) -> None:
    call: Json = {"name": "run_script", "arguments": {"code": f"[{ASKS}, {ASKS}]"}}
    host, meta = hosts.of(host_era, server_era)
    if not host.modern:  # one answer there; the modern host answers as often as it is asked
        call["arguments"]["code"] = f"[{ASKS}]"
    asked, result = answered(host, {**call, **meta})

    assert set(asked) == {"[dev/jobs] Delete a.txt?"}
    assert value(result) == ["Deleted a.txt"] * len(asked)
    assert len(asked) == (2 if host_era == MODERN else 1)


@pytest.mark.parametrize(("host_era", "server_era"), PAIRS)
def test_a_part_of_the_result_of_a_task(hosts: Hosts, host_era: str, server_era: str) -> None:
    host, meta = hosts.of(host_era, server_era)
    call = part("required_job", {"what": "one\ntwo\nthree"}, "two")
    result = host.result("tools/call", {**call, **meta})

    assert shown(result) == "2:two"


@pytest.mark.parametrize(("host_era", "server_era"), PAIRS)
def test_the_task_of_a_part_asks_its_host(hosts: Hosts, host_era: str, server_era: str) -> None:
    host, meta = hosts.of(host_era, server_era)
    call = {**part("required_question", {"filename": "a.txt"}, "Deleted"), **meta}
    asked, result = answered(host, call)

    assert asked == ["[dev/jobs] Delete a.txt?"]
    assert shown(result) == "1:Deleted a.txt"


@pytest.mark.parametrize("server_era", ERAS)
def test_a_task_that_a_cancelled_script_waits_for_is_cancelled(
    tmp_path: Path, server_era: str
) -> None:
    code = "await call('dev/jobs/greet')\nawait call('dev/jobs/required_job', seconds=600)"
    arguments = {"name": "run_script", "arguments": {"code": code}}
    with PipeHost(scripted(tmp_path, server_era)) as host:
        opened(host)
        id = host.ask("tools/call", {**arguments, "_meta": {"progressToken": "mine"}})
        host.notice("notifications/progress")  # the first call has ended
        while text(host.use("jobs", "task_statuses")) != "working":
            pass
        host.notify("notifications/cancelled", {"requestId": id})
        while (statuses := text(host.use("jobs", "task_statuses"))) == "working":
            pass

    assert statuses == "cancelled"


@pytest.mark.parametrize("server_era", ERAS)
def test_a_task_of_a_script_that_takes_too_long_is_cancelled(
    tmp_path: Path, server_era: str
) -> None:
    config = scripted(tmp_path, server_era, entry={"timeout": 0.5})
    with PipeHost(config) as host:
        opened(host)
        late = script(host, "await call('dev/jobs/required_job', seconds=600)")
        statuses = host.use("jobs", "task_statuses")

    assert "timed out after 0.5 s" in late["content"][0]["text"]
    assert error_code(late) == "script_failed"
    assert text(statuses) == "cancelled"


def test_a_no_reaches_the_task_of_a_part(tmp_path: Path) -> None:
    no: Json = {"action": "decline"}
    with PipeHost(bench(tmp_path, MODERN), modern=True) as host:
        call = {**part("required_question", {"filename": "a.txt"}, "Kept"), **opened(host)}
        asked = host.result("tools/call", call)
        back = {"inputResponses": dict.fromkeys(asked["inputRequests"], no)}
        result = host.result("tools/call", {**call, **back, "requestState": asked["requestState"]})

    assert shown(result) == "1:Kept a.txt"


@pytest.mark.parametrize("server_era", [LEGACY, MODERN])
def test_a_modern_host_that_cannot_be_asked_gets_an_error(tmp_path: Path, server_era: str) -> None:
    meta = {"_meta": {META + "clientCapabilities": HAS_TASKS}}
    with PipeHost(bench(tmp_path, server_era), modern=True) as host:
        call = {**part("required_question", {"filename": "a.txt"}, "a.txt"), **meta}
        result = host.result("tools/call", call)
        statuses = host.use("jobs", "task_statuses")

    if server_era == MODERN:
        assert error_code(result) == "protocol_error"
        assert "this host can't be asked for that" in result["content"][0]["text"]
        assert text(statuses) == "cancelled"
    else:  # it asks in a request of its own, which is refused; then it goes on
        assert shown(result) == "1:Kept a.txt"
