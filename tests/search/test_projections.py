"""What a host gets that asks for a part of a result: over stdio and HTTP, in both eras and both modes."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.core.errors import InvalidCall
from mcp_workbench.core.projection import Projection, read_projection
from mcp_workbench.gateway.projected_results import ProjectResult, ResultReader
from mcp_workbench.gateway.result_budget import KeptResults
from mcp_workbench.server.own_tools import read_result
from tests.approvals.scenes import (
    CAN,
    ONCE,
    opened,
    outcomes,
    question,
    reply,
    says,
    with_answer,
)
from tests.kit.config import config_file, entry, program_entry, snapshot, spec, write_config
from tests.kit.http_host import port, rpc
from tests.kit.pipe_host import PipeHost
from tests.kit.results import Json, error_code, json_text, raw, texts, use_tool
from tests.kit.servers import ASKER
from tests.kit.turns import done

ME = object()
ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy host", "modern host"])
KINDS = pytest.mark.parametrize("server_era", ["legacy", "modern"])

LOG = "\n".join(f"{n:03} {'timeout' if n % 20 == 7 else 'fine'} {'x' * 60}" for n in range(100))
ROWS = [
    {"id": n, "state": "open" if n % 10 == 3 else "closed", "body": "y" * 60} for n in range(50)
]


def given(text: str, **more: Any) -> Json:
    """Arguments of the fixture's `result`, which answers with this text."""
    content = [{"type": "text", "text": text}]
    return {"result": json.dumps({"content": content, "resultType": "complete", **more})}


def wanting(server: str, arguments: Json, tool: str = "result", **wanted: Any) -> Json:
    params = use_tool(server, tool, arguments)
    return {**params, "arguments": {**params["arguments"], **wanted}}


def handle_in(notice: str) -> str:
    found = re.search(r'"handle":"([^"]+)"', notice)
    assert found is not None, notice
    return found[1]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# Hosts


@ERAS
@KINDS
def test_a_host_gets_the_part_that_it_asks_for_and_reads_on_without_another_run(
    tmp_path: Path, server_era: str, *, modern: bool
) -> None:
    flags = ("modern",) if server_era == "modern" else ()
    config = config_file(tmp_path, {"a": entry(*flags, era=server_era)})
    with PipeHost(config, modern=modern) as host:
        host.handshake()

        def ask(**wanted: Any) -> list[str]:
            result = host.result("tools/call", wanting("a", given(LOG), **wanted))
            assert "resultType" in result or not modern
            return texts(result)

        lines, notice = ask(lines="timeout", context=1)
        handle = handle_in(notice)
        before = json_text(host.use("a", "stats"))["methods"].count("tools/call")
        other, other_note = ask(handle=handle, lines="^01[23]")
        whole = ask(handle=handle)
        failed, why = ask(handle=handle, select="a.b")
        after = json_text(host.use("a", "stats"))["methods"].count("tools/call")
        foreign = host.result("tools/call", wanting("a", {}, handle="guessed"))
        data = given("50 rows", structuredContent={"rows": ROWS})
        selected, _ = texts(
            host.result("tools/call", wanting("a", data, select="rows[?state=='open'].id"))
        )

    assert lines.splitlines()[:3] == [
        f"7-{LOG.splitlines()[6]}",
        f"8:{LOG.splitlines()[7]}",
        f"9-{LOG.splitlines()[8]}",
    ]
    assert lines.count("timeout") == 5
    assert notice == (
        f"5 of 100 lines match. All {len(LOG)} characters: the same use_tool with "
        f'"handle":"{handle}", which does not run it again'
    )
    assert [line[:6] for line in other.splitlines()] == ["13:012", "14:013"]
    assert other_note == "2 of 100 lines match"
    assert whole[0] == LOG
    assert LOG.startswith(failed)
    assert why.startswith("select: the result has no structured content, and its text is not JSON")
    assert after == before + 1, "only the question itself"
    assert texts(foreign)[0] == "Result 'guessed' not found"
    assert json.loads(selected) == [3, 13, 23, 33, 43]


@ERAS
def test_a_part_is_within_the_budget_too(tmp_path: Path, *, modern: bool) -> None:
    dev = {"resultBudget": 300, "mcpServers": {"a": entry()}}
    with PipeHost(write_config(tmp_path, {"toolboxes": {"dev": dev}}), modern=modern) as host:
        host.handshake()
        menu = {tool["name"]: tool for tool in host.result("tools/list")["tools"]}
        rows = given(json.dumps(ROWS))
        few, notice = texts(host.result("tools/call", wanting("a", rows, select="[0].state")))
        handle = handle_in(notice)
        (many,) = texts(host.call("read_result", {"handle": handle, "select": "[*].id"}))
        long, cut = texts(host.call("read_result", {"handle": handle, "select": "[*].body"}))
        rest, end = texts(
            host.call(
                "read_result", {"handle": handle_in(cut), "offset": len(long), "length": 9999}
            )
        )
        head, why = texts(host.call("read_result", {"handle": handle, "select": "sum(@)"}))
        nothing, about = texts(host.call("read_result", {"handle": handle, "select": "rows"}))
        page, _ = texts(host.call("read_result", {"handle": handle, "lines": None, "length": 50}))

    assert "handle" not in menu["use_tool"]["inputSchema"]["properties"]
    assert {"lines", "context", "select"} <= menu["read_result"]["inputSchema"]["properties"].keys()
    assert few == "closed"
    assert notice == f'All {len(json.dumps(ROWS))} characters: read_result {{"handle":"{handle}"}}'
    assert json.loads(many) == list(range(50))
    assert len(long) <= 300
    assert json.loads(long + rest) == ["y" * 60] * 50
    assert end.endswith("; the end")
    assert why == (
        "select: sum() takes array-number, not dict. "
        'This is the beginning of a JSON list of 50, the first a JSON object with ["id","state","body"]'
    )
    assert json.dumps(ROWS).startswith(head)
    assert len(head) == 300
    assert (nothing, about[:31]) == ("null", "select finds nothing in a JSON ")
    assert page == json.dumps(ROWS)[:50]


def test_use_tool_of_dynamic_mode_takes_the_same(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry()}, toolMode="dynamic")
    with PipeHost(config) as host:
        host.handshake()
        shown = {tool["name"]: tool for tool in host.result("tools/list")["tools"]}
        lines, notice = texts(
            host.result("tools/call", wanting("a", given(LOG), lines="007|timeout"))
        )
        again = texts(
            host.result("tools/call", wanting("a", {}, handle=handle_in(notice), lines="^099"))
        )
        native = host.call("dev__a__echo", {"lines": "x", "select": "y"})

    assert "handle" in shown["use_tool"]["inputSchema"]["properties"]
    assert lines.count("\n") == 4
    assert again[0].startswith("100:099 fine")
    assert json_text(native)["arguments"] == {"lines": "x", "select": "y"}


def test_what_can_not_be_used_is_refused_before_the_tool_runs(tmp_path: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": entry()})) as host:
        host.handshake()

        def refused(**wanted: Any) -> str:
            result = host.result("tools/call", wanting("a", {}, "echo", **wanted))
            assert result["isError"] is True
            assert error_code(result) == "invalid_parameters"
            return texts(result)[0].removeprefix("Invalid parameters: ")

        reasons = [
            refused(lines="(a+)+(?=b)"),
            refused(select="nosuch(@)", lines="("),
            refused(lines=5, context="2", select=[], other=1),
            refused(context=1.5),
            refused(handle=None),
        ]
        calls = json_text(host.use("a", "stats"))["methods"].count("tools/call")

    assert calls == 1, "only the question itself"
    assert reasons[0] == "lines: lookahead is not supported, at character 6 of the pattern"
    assert reasons[1].startswith(
        "lines: a parenthesis is not closed, at character 2 of the pattern; "
        "select: there is no function nosuch(); there are abs"
    )
    assert reasons[2:] == [
        (
            "lines: Expected string, received number; context: Expected integer, received string; "
            'select: Expected string, received array; Unrecognized key: "other"'
        ),
        "context: Expected integer, received number",
        "handle: Expected string, received null",
    ]


def test_a_pattern_that_would_hang_others_does_not_hold_up_the_next_call(tmp_path: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": entry()})) as host:
        host.handshake()
        text = given("a" * 200_000 + "!")
        none = texts(host.result("tools/call", wanting("a", text, lines="^(a+)+$")))
        wide = texts(host.result("tools/call", wanting("a", text, lines="(a|b|ab)*a(a|b){90}c")))
        deep = texts(
            host.result("tools/call", wanting("a", given("[1]"), select="@" + " | [@, @]" * 90))
        )

    assert none[0].startswith("0 of 1 lines match. ")
    assert wide[0].startswith("0 of 1 lines match")
    assert deep[0] == "[1]"
    assert deep[1].startswith("select: too much work for one expression; select a part first. ")


def test_approval_and_record_are_those_of_the_whole_call(tmp_path: Path) -> None:
    servers = {"a": entry(approve=["result"])}
    config = config_file(tmp_path, servers, audit={"file": "calls.jsonl"})
    arguments = given(LOG)
    with PipeHost(config, modern=True) as host:
        params = {**wanting("a", arguments, lines="timeout"), "_meta": CAN}
        asked = host.result("tools/call", params)
        approved = host.result("tools/call", {**params, **with_answer(asked, says(ONCE))})
        replayed = host.result("tools/call", {**params, **with_answer(asked, says(ONCE))})

    message = asked["inputRequests"]["approval"]["params"]["message"]
    assert asked["resultType"] == "input_required"
    assert "000 fine" in message, "the arguments are shown"
    assert '"lines"' not in message
    assert texts(approved)[1].startswith("5 of 100 lines match. ")
    assert replayed["isError"] is True
    assert outcomes(tmp_path) == [
        ("result", "input_required"),
        ("result", "ok"),
        ("result", "denied"),
    ]
    (_, line, _) = map(json.loads, (tmp_path / "calls.jsonl").read_text().splitlines())
    assert line["result_bytes"] > len(LOG)


@ERAS
@KINDS
def test_a_call_whose_server_asks_something_is_projected_once_it_has_a_result(
    tmp_path: Path, server_era: str, *, modern: bool
) -> None:
    config = config_file(tmp_path, {"a": program_entry(ASKER, era=server_era)})
    ann = {"action": "accept", "content": {"name": "Ann"}}
    with PipeHost(config, modern=modern) as host:
        params = {**wanting("a", {}, "name", lines="Ann"), "_meta": CAN if modern else {}}
        if modern:
            asked = host.result("tools/call", params)
            result = host.result("tools/call", {**params, **with_answer(asked, ann)})
        else:
            opened(host)
            id = host.ask("tools/call", params)
            reply(host, question(host), ann)
            result = host.answer(id)["result"]

    shown, notice = texts(result)
    assert shown.startswith("1:")
    assert "Ann" in shown
    assert notice.startswith("1 of 1 lines match. All ")


def test_a_call_that_is_cancelled_is_one_line_on_record(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry()}, audit={"file": "calls.jsonl"})
    with PipeHost(config) as host:
        host.handshake()
        id = host.ask("tools/call", wanting("a", {}, "hang", lines="x"))
        host.notify("notifications/cancelled", {"requestId": id})
        lost = host.result("tools/call", wanting("a", {}, "fail", lines="x"))

    assert texts(lost) == ["no such file"]
    assert outcomes(tmp_path) == [("hang", "cancelled"), ("fail", "tool_error")]


@ERAS
async def test_over_http_it_is_the_same(*, modern: bool) -> None:
    async with port(snapshot(spec("a"))) as served:
        headers: dict[str, Any] = {} if modern else (await served.open()).headers

        async def ask(**wanted: Any) -> list[str]:
            params = wanting("a", given(LOG), **wanted)
            if modern:
                return texts((await served.ask_modern("tools/call", params)).result)
            return texts((await served.ask(rpc("tools/call", params, 7), headers)).result)

        lines, notice = await ask(lines="timeout")
        again, note = await ask(lines="^09[0-9] fine", handle=handle_in(notice))

    assert lines.count("\n") == 4
    assert again.splitlines()[-1] == f"100:{LOG.splitlines()[-1]}"
    assert note == "10 of 100 lines match"


# Results of every kind


def projected(result: Any, projection: Projection | None, store: KeptResults | None = None) -> Any:
    whole = result if isinstance(result, bytes) else json.dumps(result).encode()
    assert projection is not None
    reader = ResultReader(ME, 0, has_read_result=False)
    return bytes(done(ProjectResult(projection, store or KeptResults(), reader).of(whole)))


LINES = read_projection("", "b", 0)


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": "a\nb"}], "isError": True},
        {"resultType": "input_required", "inputRequests": {}},
        {"content": "b"},
        [1, 2],
    ],
    ids=["an error", "a question", "odd content", "no object"],
)
def test_what_is_no_complete_result_passes_byte_for_byte(result: Any) -> None:
    whole = json.dumps(result).encode()

    assert projected(whole, LINES) == whole


def test_a_result_that_can_not_be_kept_is_given_whole() -> None:
    whole = json.dumps({"content": [{"type": "text", "text": "b" * 200}]}).encode()

    assert projected(whole, LINES, KeptResults(most=100)) == whole


def test_images_and_other_members_stay() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    blocks = [{"type": "text", "text": "a\nb"}, image, {"type": "text", "text": "bb"}]

    shown = json.loads(
        projected({"content": blocks, "structuredContent": {"c": 1}, "_meta": {"n": 1}}, LINES)
    )

    text, picture, notice = shown["content"]
    assert text["text"] == "2:b\n3:bb"
    assert picture == image
    assert notice["text"].startswith("2 of 3 lines match. All 15 characters: ")
    assert shown["_meta"] == {"n": 1}
    assert "structuredContent" not in shown


def test_structured_content_is_selected_from_after_it_was_kept_too() -> None:
    store = KeptResults()
    result = {"content": [{"type": "text", "text": "[1]"}], "structuredContent": {"a": [5, 6]}}

    shown = json.loads(projected(result, read_projection("a[1]", "", 0), store))
    handle = handle_in(shown["content"][-1]["text"])
    again = json.loads(
        asyncio.run(read_result(store, ME, raw({"handle": handle, "select": "a[0]"})))
    )

    assert shown["content"][0]["text"] == "6"
    assert again["content"] == [{"type": "text", "text": "5"}]


def test_a_wrong_part_of_a_kept_result_is_said() -> None:
    store = KeptResults()
    handle = store.keep(ME, "text", 0)
    wrong: Json = {"handle": handle, "lines": 5, "context": "x", "select": {}}

    with pytest.raises(InvalidCall) as typed:
        asyncio.run(read_result(store, ME, raw(wrong)))
    with pytest.raises(InvalidCall, match=r"^Invalid parameters: lines: nothing to repeat"):
        asyncio.run(read_result(store, ME, raw({"handle": handle, "lines": "*"})))

    assert typed.value.message == (
        "Invalid parameters: lines: Expected string, received number; "
        "context: Expected integer, received string; select: Expected string, received object"
    )
