"""Scripts that wait for people, over HTTP: two workbenches with one state folder, several principals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcp_workbench.core import script_slots
from mcp_workbench.core.script_slots import MOST_SCRIPTS, may_start, refusal_text
from mcp_workbench.core.spec import HttpSettings, NamedToken
from mcp_workbench.gateway import suspended_scripts
from mcp_workbench.server import moved_scripts
from mcp_workbench.transport.tasks import task_scope
from tests.approvals.scenes import CAN, ONCE, says, with_answer
from tests.kit.config import snapshot, spec
from tests.kit.http_host import port
from tests.kit.results import Message, json_text
from tests.scripts.scenes import failure
from tests.scripts.test_hosts import CODE, with_scripts

PARAMS = {"name": "run_script", "arguments": {"code": CODE}, "_meta": CAN}
TWO = HttpSettings(tokens=(NamedToken("ann", "a" * 40), NamedToken("bob", "b" * 40)))
ANN, BOB = ({"authorization": f"Bearer {letter * 40}"} for letter in "ab")


def guarded() -> Any:
    return with_scripts(snapshot(spec("a", approve=("echo",))))


def again(question: Message) -> Message:
    return {**PARAMS, **with_answer(question, says(ONCE))}


async def test_another_workbench_takes_the_answer_but_from_the_same_principal_alone() -> None:
    async with port(guarded(), TWO) as first, port(guarded(), TWO) as second:
        question = (await first.ask_modern("tools/call", PARAMS, **ANN)).result
        stolen = [
            await one.ask_modern("tools/call", again(question), **BOB) for one in (first, second)
        ]
        result = (await second.ask_modern("tools/call", again(question), **ANN)).result
        twice = await first.ask_modern("tools/call", again(question), **ANN)

    for refused in stolen:
        assert refused.status == 400
        assert "belongs to another request, principal or state folder" in str(refused.message)
    assert json_text(result) == {"text": "x"}
    assert "was used before" in twice.message["error"]["message"]


async def test_an_answer_that_comes_too_late_ends_the_script(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_at = suspended_scripts.now()
    async with port(guarded()) as opened:
        question = (await opened.ask_modern("tools/call", PARAMS)).result
        monkeypatch.setattr(moved_scripts, "now", lambda: asked_at + 301)
        told = failure((await opened.ask_modern("tools/call", again(question))).result)
        monkeypatch.setattr(moved_scripts, "now", lambda: asked_at - 61)
        early = failure((await opened.ask_modern("tools/call", again(question))).result)

    assert "nobody answered within 5 minutes" in told
    assert "No call was sent to a server" in told
    assert told == early, "a state from the future is none of ours"


async def test_another_version_of_the_interpreter_gets_no_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with port(guarded()) as opened:
        question = (await opened.ask_modern("tools/call", PARAMS)).result
        real = suspended_scripts.ScriptSeals.open

        def older(*args: Any) -> Any:
            script = real(*args)
            assert script is not None
            engine = suspended_scripts.msgspec.structs.replace(script.engine, version="0.1")
            return suspended_scripts.msgspec.structs.replace(script, engine=engine)

        monkeypatch.setattr(suspended_scripts.ScriptSeals, "open", older)
        told = failure((await opened.ask_modern("tools/call", again(question))).result)

    assert "suspended by a process with Monty 0.1, and this one has" in told


def test_one_principal_always_leaves_a_slot_for_another() -> None:
    running: dict[str, int] = {}
    for name in (f"p{n}" for n in range(MOST_SCRIPTS)):
        while may_start(running, name):
            running[name] = running.get(name, 0) + 1

    half, quarter = MOST_SCRIPTS // 2, MOST_SCRIPTS // 4
    assert list(running.values()) == [half, quarter] + [1] * quarter
    assert sum(running.values()) == MOST_SCRIPTS
    assert "32 of them yours" in refusal_text({"p0": half}, "p0")


async def test_a_principal_with_many_scripts_is_refused_and_another_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(script_slots, "MOST_SCRIPTS", 4)
    waits = {**PARAMS, "arguments": {"code": "await call('dev/a/hang')"}}
    short = {**PARAMS, "arguments": {"code": "1"}}
    async with port(guarded(), TWO) as opened, task_scope() as scope:
        tasks = [
            scope.start(opened.ask_modern("tools/call", waits, **ANN), "waits") for _ in range(3)
        ]
        (done,), running = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        other = (await opened.ask_modern("tools/call", short, **BOB)).result
        for task in running:
            task.cancel()

    told = failure(done.result().result, "scripts_unavailable")
    assert "2 scripts are running, 2 of them yours" in told
    assert json_text(other) == 1


def test_hosts_without_tokens_have_all_slots() -> None:
    assert may_start({"": MOST_SCRIPTS - 1}, "")
    assert not may_start({"": MOST_SCRIPTS}, "")
    assert not may_start({"a": MOST_SCRIPTS}, "b")
