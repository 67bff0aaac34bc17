"""Scripts that wait for people go with their host: any process with the same state folder goes on with them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.approvals.scenes import CAN, NO, ONCE, says
from tests.kit.clock import eventually
from tests.kit.config import entry, program_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import children, cmdline
from tests.kit.results import Message, json_text, texts
from tests.kit.servers import ASKER
from tests.kit.shared import shared
from tests.scripts.scenes import failure, recorded, scripted, value

CODE = (
    "print('before')\nseen = [(await call('dev/a/echo', text='1'))['arguments']]\n"
    "seen.append((await call('dev/b/echo', text='2'))['arguments'])\n"
    "print('after')\nseen"
)
NAMED = {"action": "accept", "content": {"name": "Ada"}}


def params(code: str, **more: Any) -> Message:
    return {"name": "run_script", "arguments": {"code": code}, "_meta": CAN, **more}


def answering(asked: Message, answer: Message, *keys: str) -> Message:
    """What a host sends along with the same request."""
    answers = dict.fromkeys(keys or asked["inputRequests"], answer)
    return {"inputResponses": answers, "requestState": asked["requestState"]}


def guarded(folder: Path, **more: Any) -> Path:
    """A server that is called freely, one whose calls are approved, and one that asks."""
    servers = {
        "a": entry(),
        "b": entry(approve=["echo"]),
        "c": entry(approve=["echo"]),
        "modern": program_entry(ASKER, era="modern"),
        "legacy": program_entry(ASKER, era="legacy"),
    }
    return scripted(folder, servers, **more)


def asked_then_killed(config: Path, code: str) -> Message:
    """The question of a script whose process is killed before its host answers."""
    with PipeHost(config, modern=True) as host:
        asked = host.result("tools/call", params(code))
        host.statuses = (-9,)
        host.process.kill()
        host.process.wait()
    assert asked["resultType"] == "input_required"
    return asked


def answered(config: Path, code: str, asked: Message, answer: Message) -> Message:
    """What another process returns to the host that brings this answer."""
    with PipeHost(config, modern=True) as host:
        return host.result("tools/call", {**params(code), **answering(asked, answer)})


def calls(folder: Path) -> list[tuple[str, str, str]]:
    return [(line["server"], line["tool"], line["outcome"]) for line in recorded(folder)]


def test_a_script_goes_on_in_another_process_and_repeats_no_call(tmp_path: Path) -> None:
    config = guarded(tmp_path)
    asked = asked_then_killed(config, CODE)
    result = answered(config, CODE, asked, says(ONCE))

    assert texts(result) == ['before\nafter\n[{"text":"1"},{"text":"2"}]']
    assert calls(tmp_path) == [
        ("a", "echo", "ok"),
        ("b", "echo", "input_required"),
        ("b", "echo", "ok"),
    ]
    assert len({line["parent"] for line in recorded(tmp_path)}) == 1, "it is one script"
    assert len({line["pid"] for line in recorded(tmp_path)}) == 2, "in two processes"
    assert "mcp-workbench/held" not in asked.get("_meta", {})


def test_a_question_of_a_modern_server_is_answered_in_another_process(tmp_path: Path) -> None:
    config = guarded(tmp_path)
    code = "r = await call('dev/modern/twice')\nn = await call('dev/modern/name')\n[r, n]"
    asked = asked_then_killed(config, code)
    for _ in range(2):
        with PipeHost(config, modern=True) as host:
            asked = host.result("tools/call", {**params(code), **answering(asked, NAMED)})
    result = answered(config, code, asked, NAMED)

    assert value(result) == [[{"a": NAMED}, {"a": NAMED}], {"a": NAMED}]


def test_all_questions_of_calls_at_the_same_time_are_answered_in_another_process(
    tmp_path: Path,
) -> None:
    config = guarded(tmp_path)
    code = (
        "first = call('dev/a/echo', text='unsent')\n"
        "r = await asyncio.gather(call('dev/b/echo', text='1'), call('dev/modern/name'), "
        "call('dev/c/echo', text='2'))\n[r[0]['arguments'], r[1], r[2]['arguments']]"
    )
    asked = asked_then_killed(config, code)
    messages = [one["params"]["message"] for one in asked["inputRequests"].values()]
    answers = {
        key: NAMED if "name?" in one["params"]["message"] else says(ONCE)
        for key, one in asked["inputRequests"].items()
    }
    with PipeHost(config, modern=True) as host:
        answer = {"inputResponses": answers, "requestState": asked["requestState"]}
        result = host.result("tools/call", {**params(code), **answer})

    assert len(messages) == 3
    assert value(result) == [{"text": "1"}, {"a": NAMED}, {"text": "2"}]
    assert ("a", "echo", "ok") in calls(tmp_path), "a gather dispatches all that waits"


def test_what_is_not_answered_is_asked_again(tmp_path: Path) -> None:
    config = guarded(tmp_path)
    code = (
        "r = await asyncio.gather(call('dev/b/echo', text='1'), call('dev/modern/name'))\n"
        "[r[0]['arguments'], r[1]]"
    )
    asked = asked_then_killed(config, code)
    questions = asked["inputRequests"].items()
    (name,) = [key for key, one in questions if "name?" in one["params"]["message"]]
    with PipeHost(config, modern=True) as host:
        again = host.result("tools/call", {**params(code), **answering(asked, NAMED, name)})
    result = answered(config, code, again, says(ONCE))

    (message,) = [one["params"]["message"] for one in again["inputRequests"].values()]
    assert '"echo" of the server dev/b' in message
    assert value(result) == [{"text": "1"}, {"a": NAMED}]


def test_a_no_in_another_process_is_an_exception(tmp_path: Path) -> None:
    config = guarded(tmp_path)
    asked = asked_then_killed(config, CODE)
    told = failure(answered(config, CODE, asked, says(NO)))

    assert "the person who was asked said no" in told
    assert "1 call was sent to servers" in told
    assert "- line 2: dev/a/echo: ok\n- line 3: dev/b/echo: not sent" in told


def test_a_script_counts_once_in_all_processes(tmp_path: Path) -> None:
    config = guarded(tmp_path)
    asked = asked_then_killed(config, CODE)
    again = {**params(CODE), **answering(asked, says(ONCE))}
    with PipeHost(config, modern=True) as host, PipeHost(config, modern=True) as other:
        ids = [one.ask("tools/call", again) for one in (host, other)]
        outcomes = [one.answer(id) for one, id in zip((host, other), ids, strict=True)]
        late = host.error("tools/call", again)

    (done,) = [outcome["result"] for outcome in outcomes if "result" in outcome]
    (refused,) = [outcome["error"] for outcome in outcomes if "error" in outcome]
    assert texts(done)[0].endswith('{"text":"2"}]')
    assert refused == late
    assert refused["code"] == -32602
    assert "The requestState was used before" in refused["message"]
    assert [line["outcome"] for line in recorded(tmp_path)].count("ok") == 2


@pytest.mark.parametrize("change", ["changed", "cut", "other code", "other folder"])
def test_a_state_that_is_not_of_this_request_is_refused(tmp_path: Path, change: str) -> None:
    config = guarded(tmp_path)
    asked = asked_then_killed(config, CODE)
    state, code, env = asked["requestState"], CODE, dict[str, str]()
    middle = len(state) // 2
    if change == "changed":
        state = f"{state[:middle]}{'A' if state[middle] != 'A' else 'B'}{state[middle + 1 :]}"
    elif change == "cut":
        state = state[:-8]
    elif change == "other code":
        code = f"{CODE}\n"
    else:
        (tmp_path / "other").mkdir()
        env = {"MCP_WORKBENCH_HOME": str(tmp_path / "other")}
    with PipeHost(config, modern=True, env=env) as host:
        again: Message = {**params(code), "inputResponses": {}, "requestState": state}
        refused = host.error("tools/call", again)

    assert refused["code"] == -32602
    assert refused["message"].startswith("Invalid or expired requestState: it was changed, or")
    assert [call for call in calls(tmp_path) if call[0]] == [
        ("a", "echo", "ok"),
        ("b", "echo", "input_required"),
    ]


def test_a_server_whose_entry_has_changed_ends_the_script(tmp_path: Path) -> None:
    config = guarded(tmp_path)
    asked = asked_then_killed(config, CODE)
    written = json.loads(config.read_text())
    written["toolboxes"]["dev"]["mcpServers"]["b"]["approve"] = ["ech*"]
    config.write_text(json.dumps(written))
    told = failure(answered(config, CODE, asked, says(ONCE)))

    assert "the configuration of dev/b/echo has changed since its question" in told
    assert "- line 2: dev/a/echo: ok" in told


@pytest.mark.parametrize(
    ("much", "most"),
    [
        ("big = [str(i) for i in range(200_000)]", "256 KiB"),
        ("import random\nbig = [random.random() for _ in range(15_000)]", "64 KiB"),
        ("print('x' * 3_999_000)\nbig = [0]", "64 KiB"),
    ],
)
def test_a_script_with_much_to_remember_stays_in_its_process(
    tmp_path: Path, much: str, most: str
) -> None:
    config = guarded(tmp_path)
    code = f"{much}\nawait call('dev/b/echo', text='x')\nlen(big)"
    with PipeHost(config, modern=True) as host:
        asked = host.result("tools/call", params(code))
        result = host.result("tools/call", {**params(code), **answering(asked, says(ONCE))})

    assert most in asked["_meta"]["mcp-workbench/held"]
    assert len(asked["requestState"]) < 2000
    assert "isError" not in result, result


def test_a_script_whose_legacy_server_waits_stays_in_its_process(tmp_path: Path) -> None:
    config = guarded(tmp_path)
    code = "await asyncio.gather(call('dev/legacy/name'), call('dev/modern/name'))"
    with PipeHost(config, modern=True) as host:
        asked = host.result("tools/call", params(code))
        held = asked["_meta"]["mcp-workbench/held"]
        while asked["resultType"] == "input_required":
            asked = host.result("tools/call", {**params(code), **answering(asked, NAMED)})

    assert held == "a server waits for the answer"
    assert value(asked) == [{"a": NAMED}] * 2


def test_a_call_in_flight_ends_before_its_script_leaves(tmp_path: Path) -> None:
    config = guarded(tmp_path)
    code = (
        "r = await asyncio.gather(call('dev/a/slow', seconds=0.3), call('dev/b/echo', text='x'))\n"
        "r[1]['arguments']"
    )
    asked = asked_then_killed(config, code)
    result = answered(config, code, asked, says(ONCE))

    assert value(result) == {"text": "x"}
    assert [tool for _, tool, _ in calls(tmp_path)].count("slow") == 1


def test_the_worker_of_a_script_that_has_left_is_released(tmp_path: Path) -> None:
    config = guarded(tmp_path)
    with PipeHost(config, modern=True) as host:
        for _ in range(3):
            asked = host.result("tools/call", params(CODE))
            assert asked["requestState"].startswith("wbs1.")
        engine = json_text(host.result("tools/call", params("1"))) == 1
        eventually(lambda: len(workers(host.process.pid)) <= 1, "only a spare worker is there")

    assert engine


def workers(pid: int) -> list[int]:
    """The processes of the interpreter below this one."""
    below: list[int] = []
    for child in children(pid):
        below += [child] if b"monty" in cmdline(child).split(b"\0")[0] else []
        below += workers(child)
    return below


def test_limits_are_those_of_the_whole_script(tmp_path: Path) -> None:
    config = guarded(tmp_path)
    code = (
        "for _ in range(49):\n    await call('dev/a/echo')\nawait call('dev/b/echo', text='x')\n"
        "print('fifty')\nawait call('dev/a/echo')"
    )
    asked = asked_then_killed(config, code)
    told = failure(answered(config, code, asked, says(ONCE)), "script_limit")

    assert "ended at the limit 'calls': it makes more than 50 calls" in told
    assert "50 calls were sent to servers" in told
    assert "fifty" in told


def test_marks_and_key_are_private(tmp_path: Path) -> None:
    config = guarded(tmp_path)
    asked = asked_then_killed(config, CODE)
    answered(config, CODE, asked, says(ONCE))
    folder = Path(os.environ["MCP_WORKBENCH_HOME"]) / "scripts"

    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert modes == {"scripts": 0o700, "key": 0o600, "used": 0o700}
    assert list((folder / "used").iterdir())


def test_calls_that_wait_for_others_are_made_after_them(tmp_path: Path) -> None:
    """Eight calls run at once; the person of the others is asked when those have ended."""
    config = guarded(tmp_path)
    code = (
        "try:\n    await call('nothing/a/echo')\nexcept LookupError:\n    pass\n"
        "r = await asyncio.gather(*[call('dev/b/echo', text=str(n)) for n in range(10)])\n"
        "[x['arguments']['text'] for x in r]"
    )
    asked = asked_then_killed(config, code)
    again = answered(config, code, asked, says(ONCE))
    result = answered(config, code, again, says(ONCE))

    assert [len(one["inputRequests"]) for one in (asked, again)] == [8, 2]
    assert value(result) == [str(n) for n in range(10)]
    assert [outcome for _, _, outcome in calls(tmp_path)].count("ok") == 10


def test_a_script_waits_while_the_shared_workbench_is_killed(tmp_path: Path) -> None:
    with shared(guarded(tmp_path)) as bench, bench.host(modern=True) as host:
        asked = host.result("tools/call", params(CODE))
        os.kill(bench.pid, signal.SIGKILL)
        result = host.result("tools/call", {**params(CODE), **answering(asked, says(ONCE))})

    assert texts(result) == ['before\nafter\n[{"text":"1"},{"text":"2"}]']
    assert [outcome for _, _, outcome in calls(tmp_path)].count("ok") == 2
