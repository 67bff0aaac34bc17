"""The rules of scripts: what a call of a script is, what it gives, and what it leaves behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.approvals.scenes import NO, ONCE, opened, question, reply, says, with_answer
from tests.kit.clock import eventually
from tests.kit.config import config_file, entry, program_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import META, Message, error_code, json_text, texts
from tests.kit.servers import ASKER
from tests.scripts.scenes import failure, recorded, returns, script, scripted, value

CAN: Message = {META + "clientCapabilities": {"elicitation": {}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scripts")


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[PipeHost]:
    """A host with a server whose results a script can choose, and one that has no scripts."""
    closed = {"description": "", "scripts": False, "mcpServers": {"a": entry()}}
    dev = {"description": "", "mcpServers": {"a": entry(), "filtered": entry(toolFilters=["echo"])}}
    config = scripted(folder)
    written = json.loads(config.read_text())
    written["toolboxes"] = {"dev": dev, "closed": closed}
    config.write_text(json.dumps(written))
    with PipeHost(config) as host:
        yield host.handshake()


# 1. Every call takes the one path


def test_calls_of_a_script_are_on_record_with_the_script_as_parent(
    host: PipeHost, folder: Path
) -> None:
    before = len(recorded(folder))
    result = script(
        host,
        "await call('dev/a/echo', text='x')\nawait call('dev/a/stats')\nawait call('dev/a/nix')",
    )

    lines = recorded(folder)[before:]
    failure(result)
    assert [(line["tool"], line["outcome"]) for line in lines] == [
        ("echo", "ok"),
        ("stats", "ok"),
        ("nix", "unknown_tool"),
    ]
    (parent,) = {line["parent"] for line in lines}
    assert parent.startswith("script-")
    assert {line["host"] for line in lines} == {"test-host"}
    assert {line["door"] for line in lines} == {"stdio"}


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        ("dev/filtered/stats", "Tool 'stats' not found in server 'filtered'"),
        ("nothing/a/echo", "Toolbox 'nothing' not found"),
        ("dev/b/echo", "Server 'b' not found in toolbox 'dev'"),
        ("closed/a/echo", "Scripts may not call tools of the toolbox 'closed'"),
    ],
)
def test_what_the_host_may_not_call_its_script_may_not(host: PipeHost, tool: str, why: str) -> None:
    told = failure(script(host, f"await call({tool!r})"))

    assert why in told
    assert "No call was sent to a server" in told


def test_a_person_approves_a_call_of_a_script_while_the_script_waits(tmp_path: Path) -> None:
    with PipeHost(scripted(tmp_path, {"a": entry(approve=["echo"])})) as host:
        opened(host)
        code = "try:\n    r = await call('dev/a/echo', text='x')\nexcept RuntimeError as e:\n    r = str(e)\nr"
        first = host.begin("run_script", {"code": code})
        asked = question(host)
        reply(host, asked, says(ONCE))
        approved = value(host.answer(first)["result"])
        second = host.begin("run_script", {"code": code})
        reply(host, question(host), says(NO))
        refused = texts(host.answer(second)["result"])[0]

    assert '"echo" of the server dev/a' in asked["params"]["message"]
    assert approved["arguments"] == {"text": "x"}
    assert "needs the approval of a person: the person who was asked said no" in refused
    assert [(line["outcome"], bool(line["parent"])) for line in recorded(tmp_path)] == [
        ("ok", True),
        ("denied", True),
    ]


# 2. The value of a call


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"content": [], "structuredContent": {"a": [1, None]}}, {"a": [1, None]}),
        ({"content": [], "structuredContent": {"result": [1, 2]}}, [1, 2]),
        ({"content": [], "structuredContent": {"result": 1, "b": 2}}, {"result": 1, "b": 2}),
        ({"content": [{"type": "text", "text": '{"a": 1}'}]}, {"a": 1}),
        ({"content": [{"type": "text", "text": "3"}]}, 3),
        ({"content": [{"type": "text", "text": "1.10"}]}, "1.10"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": []}, ""),
    ],
)
def test_a_call_gives_data_or_text(host: PipeHost, result: Message, expected: Any) -> None:
    shown = script(host, f"import json\nr = {returns(result)}\njson.dumps(r)")

    assert value(shown) == expected


def test_an_image_is_a_handle_which_a_script_can_return(host: PipeHost) -> None:
    image = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
    shown = script(host, f"r = {returns({'content': [image]})}\nr")
    ignored = script(host, f"r = {returns({'content': [image]})}\nr['mimeType']")

    assert value(shown) == {"content": "content-1", "type": "image", "mimeType": "image/png"}
    assert shown["content"][1:] == [image]
    assert ignored["content"] == [{"type": "text", "text": "image/png"}]


def test_a_call_that_may_have_run_is_an_exception_of_its_own(host: PipeHost) -> None:
    code = (
        "try:\n    await call('dev/a/die')\nexcept RuntimeError:\n    r = 'refused'\n"
        "except OSError as e:\n    r = 'may have run: ' + str(e)\nr"
    )
    told = texts(script(host, code))[0]

    assert told.startswith("may have run: [dev/a/die] Error: ")
    assert told.endswith("The call may have run.")


# 3. Never replayed


def test_after_an_error_the_calls_are_listed_that_were_made(host: PipeHost) -> None:
    code = (
        "await call('dev/a/echo')\nawait call('dev/a/echo')\ntry:\n    await call('dev/a/die')\n"
        "except OSError:\n    pass\n1 / 0"
    )
    told = failure(script(host, code))

    assert "ZeroDivisionError: division by zero" in told
    assert told.endswith(
        "3 calls were sent to servers, and a script that is run again repeats them:\n"
        "- line 1: dev/a/echo: ok\n- line 2: dev/a/echo: ok\n- line 4: dev/a/die: may have run"
    )


def test_a_call_is_dispatched_when_the_script_waits_for_it(host: PipeHost) -> None:
    code = (
        "a = call('dev/a/echo', text='first')\nseen = (await call('dev/a/stats'))['methods']\n"
        "await a\n[seen.count('tools/call'), (await call('dev/a/stats'))['methods'].count('tools/call')]"
    )
    before, after = value(script(host, code))

    assert after == before + 2


# 4. Questions


def test_a_legacy_host_is_asked_while_the_script_waits(tmp_path: Path) -> None:
    servers = {era: program_entry(ASKER, era=era) for era in ("legacy", "modern")}
    with PipeHost(scripted(tmp_path, servers)) as host:
        opened(host)
        for era in servers:
            id = host.begin("run_script", {"code": f"await call('dev/{era}/name')"})
            asked = question(host)
            reply(host, asked, {"action": "accept", "content": {"name": era}})
            result = host.answer(id)["result"]

            assert asked["params"]["message"] == f"[dev/{era}] Your name?"
            assert era in texts(result)[0]


def test_a_modern_host_comes_back_with_the_answer_and_the_script_goes_on(tmp_path: Path) -> None:
    servers = {
        **{era: program_entry(ASKER, era=era) for era in ("legacy", "modern")},
        "a": entry(approve=["echo"]),
    }
    code = (
        "seen = []\nfor era in ('legacy', 'modern'):\n    seen.append(str(await call(f'dev/{era}/name')))\n"
        "seen.append(str(await call('dev/a/echo', text='x')))\nseen"
    )
    params = {"name": "run_script", "arguments": {"code": code}, "_meta": CAN}
    answers = [
        {"action": "accept", "content": {"name": "Ada"}},
        {"action": "accept", "content": {"name": "Bob"}},
        says(ONCE),
    ]
    with PipeHost(scripted(tmp_path, servers), modern=True) as host:
        result = host.result("tools/call", params)
        for answer in answers:
            assert result["resultType"] == "input_required", result
            result = host.result("tools/call", {**params, **with_answer(result, answer)})
        replayed = host.error("tools/call", {**params, **with_answer_of(result)})

    ada, bob, echo = value(result)
    assert ("Ada" in ada, "Bob" in bob, "'text': 'x'" in echo) == (True, True, True)
    assert "requestState" in replayed["message"]


def test_questions_of_calls_at_the_same_time_all_reach_a_modern_host(tmp_path: Path) -> None:
    servers = {era: program_entry(ASKER, era=era) for era in ("legacy", "modern")}
    code = (
        "[str(r) for r in await asyncio.gather(call('dev/legacy/name'), call('dev/modern/name'))]"
    )
    params = {"name": "run_script", "arguments": {"code": code}, "_meta": CAN}
    asked: list[str] = []
    with PipeHost(scripted(tmp_path, servers), modern=True) as host:
        result = host.result("tools/call", params)
        while result["resultType"] == "input_required":
            questions = result["inputRequests"]
            asked += [question["params"]["message"] for question in questions.values()]
            answers = {key: {"action": "accept", "content": {"name": key}} for key in questions}
            state = {"inputResponses": answers, "requestState": result["requestState"]}
            result = host.result("tools/call", {**params, **state})

    assert sorted(asked) == ["[dev/legacy] Your name?", "[dev/modern] Your name?"]
    assert len(value(result)) == 2


def with_answer_of(result: Message) -> Message:
    """An answer to no question."""
    return {"inputResponses": {}, "requestState": "made up"}


# 5. Limits: each has its name in the error; see test_limits.py


def test_the_answer_is_cut_at_the_budget_and_read_on_with_read_result(tmp_path: Path) -> None:
    with PipeHost(scripted(tmp_path, {"a": entry(resultBudget=1000)})) as host:
        host.handshake()
        result = script(host, "r = await call('dev/a/big', n=5000)\nprint(len(r))\nr")
        shown, notice = texts(result)
        handle = json.loads(notice.partition("read_result ")[2])
        rest = host.call("read_result", handle)

    assert shown.startswith("5000\nxxxx"), "the script itself got everything"
    assert len(shown) == 1000
    assert set(texts(rest)[0]) == {"x"}


def test_one_progress_notification_for_each_call_that_has_ended(host: PipeHost) -> None:
    code = "for i in range(3):\n    await call('dev/a/echo', text='x')\n'done'"
    script(host, code, _meta={"progressToken": "p"})
    notices = [host.notice("notifications/progress")["params"] for _ in range(3)]

    assert [notice["progress"] for notice in notices] == [1, 2, 3]
    assert {notice["progressToken"] for notice in notices} == {"p"}
    assert {notice["message"] for notice in notices} == {"dev/a/echo"}


def test_a_cancelled_script_ends_with_its_worker_and_its_calls(host: PipeHost) -> None:
    asked = 0

    def stats() -> Message:
        nonlocal asked
        asked += 1
        return json_text(host.use("a", "stats"))

    before = stats()
    others = before["methods"].count("tools/call") - asked
    id = host.begin("run_script", {"code": "await call('dev/a/hang')"})
    eventually(
        lambda: stats()["methods"].count("tools/call") - asked > others, "the server was called"
    )
    host.notify("notifications/cancelled", {"requestId": id})
    eventually(lambda: len(stats()["cancelled"]) > len(before["cancelled"]), "the server was told")

    assert stats()["pid"] == before["pid"]
    assert not any(message.get("id") == id for message in host.others)


# 6. stdout and crashes


def test_what_a_script_prints_is_part_of_its_answer_alone(host: PipeHost) -> None:
    told = texts(script(host, "print('{\"jsonrpc\":\"2.0\"}')\nprint('two')\n[1]"))

    assert told == ['{"jsonrpc":"2.0"}\ntwo\n[1]']


def test_without_a_value_only_what_was_printed_comes_back(host: PipeHost) -> None:
    assert texts(script(host, "print('x')"))[0] == "x\n"
    assert "printed nothing" in texts(script(host, "x = 1"))[0]


def test_scripts_are_off_unless_they_are_switched_on(tmp_path: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": entry()})) as host:
        host.handshake()
        names = [tool["name"] for tool in host.result("tools/list")["tools"]]
        error = host.error("tools/call", {"name": "run_script", "arguments": {"code": "1"}})

    assert names == ["open_toolbox", "use_tool", "search_tools"]
    assert error["message"] == "Unknown tool: run_script"


def test_arguments_that_are_no_script_are_refused(host: PipeHost) -> None:
    for wrong in ({}, {"code": 1}, {"code": "1", "more": 2}):
        result = host.call("run_script", wrong)

        assert error_code(result) == "invalid_parameters"
        assert '{"code": "…"}' in texts(result)[1]
