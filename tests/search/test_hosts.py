"""What a host gets of search, detail, budgets and lessons, from the real command."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.gateway.tool_search import MOST_READ
from tests.kit.clock import eventually
from tests.kit.config import entry, write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import pids_in
from tests.kit.results import texts

ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy host", "modern host"])
KINDS = pytest.mark.parametrize("server_era", ["legacy", "modern"])


def strict(name: str, about: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"name": name, "description": about, "inputSchema": schema}


TEXT = {"type": "string"}
FILES = [
    strict("echo", "Repeats a note. Twice, if asked.", note=TEXT, times={"type": "integer"}),
    strict("big", "Makes a long text.", n={"type": "integer"}),
    strict("fail", "Fails always.", path=TEXT),
    strict("error", "Refuses.", error=TEXT, path=TEXT),
    strict("result", "Answers what it is given.", result=TEXT, path=TEXT),
    strict("secret_plan", "Repeats a note in secret.", note=TEXT),
]


class Place:
    """A folder with servers that offer FILES, and a record of those that were started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pids = folder / "pids"
        self.tools = folder / "tools.json"
        self.tools.write_text(json.dumps(FILES))

    def server(self, *flags: str, **more: Any) -> dict[str, Any]:
        env = {"PIDFILE": str(self.pids)}
        return entry(f"tools={self.tools}", *flags, env=env, **more)

    def host(self, *, modern: bool = False, mode: str = "proxy", **boxes: Any) -> PipeHost:
        return PipeHost(
            write_config(self.folder, {"toolMode": mode, "toolboxes": boxes}), modern=modern
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def notes(place: Place, *, modern: bool = False) -> PipeHost:
    """A modern or legacy host of one toolbox `dev` with one server `a`."""
    box = {"description": "Notes", "mcpServers": {"a": place.server(toolFilters=["!secret_*"])}}
    return place.host(modern=modern, dev=box)


@pytest.fixture(scope="module", params=[False, True], ids=["legacy", "modern"])
def either(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[PipeHost]:
    """One for all that ask, and leave no trace."""
    place = Place(tmp_path_factory.mktemp("place"))
    with notes(place, modern=request.param) as host:
        host.handshake()
        yield host


@pytest.fixture(scope="module")
def legacy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeHost]:
    """The same of one era."""
    with notes(Place(tmp_path_factory.mktemp("place"))) as host:
        host.handshake()
        yield host


def told(host: PipeHost, tool: str, **arguments: Any) -> str:
    result = host.call(tool, arguments)
    assert "isError" not in result, result
    assert "structuredContent" not in result
    [text] = texts(result)
    return text


# Searching


@ERAS
def test_the_first_search_reads_servers_that_nobody_has_read(place: Place, *, modern: bool) -> None:
    boxes: dict[str, Any] = {
        "dev": {"mcpServers": {"a": place.server(toolFilters=["!secret_*"])}},
        "ops": {"mcpServers": {"b": place.server(toolFilters=["echo"]), "dead": {"command": "false"}}},
    }  # fmt: skip
    with place.host(modern=modern, **boxes) as host:
        host.handshake()
        first = told(host, "search_tools", query="repeat a note", limit=1)
        again = told(host, "search_tools", query="repeat a note", limit=1)

    *lines, failed = first.splitlines()
    assert lines[0] == "1 of 6 tools, under # toolbox/server; call with use_tool"
    assert "echo(note: string, times?: int) - Repeats a note." in lines
    assert failed.startswith("not available: ops/dead (")
    assert again.splitlines()[:-1] == lines
    assert len(pids_in(place.pids)) == 2


def test_a_search_reads_only_where_it_looks(place: Place) -> None:
    box = {"mcpServers": {"a": place.server()}}
    with place.host(dev=box, ops=box) as host:
        host.handshake()
        told(host, "search_tools", query="repeat a note", toolbox="ops")

    assert len(pids_in(place.pids)) == 1


@ERAS
def test_progress_is_reported_while_servers_are_read(place: Place, *, modern: bool) -> None:
    servers = {"a": place.server(), "b": place.server()}
    with place.host(modern=modern, dev={"mcpServers": servers}) as host:
        host.handshake()
        result = host.call("search_tools", {"query": "note"}, _meta={"progressToken": "p"})
        notices = [m["params"] for m in host.others if m["method"] == "notifications/progress"]

    assert "note: string" in texts(result)[0]
    assert [(n["progressToken"], n["total"]) for n in notices] == [("p", 2)] * len(notices)
    steps = [notice["progress"] for notice in notices]
    assert (steps[0], steps[-1], sorted(set(steps))) == (0, 2, steps)
    assert notices[0]["message"] == "reading dev/a, dev/b"


@ERAS
def test_a_lazy_toolbox_is_left_alone_and_says_so(place: Place, *, modern: bool) -> None:
    boxes: dict[str, Any] = {
        "dev": {"discover": "lazy", "mcpServers": {"a": place.server(toolFilters=["!secret_*"])}},
        "ops": {"discover": "lazy", "mcpServers": {"b": place.server()}},
    }
    with place.host(modern=modern, **boxes) as host:
        opened = host.result("server/discover") if modern else host.initialize()
        before = told(host, "search_tools", query="repeat a note")
        started = pids_in(place.pids)
        host.open("dev")
        after = told(host, "search_tools", query="repeat a note", limit=1)
        named = told(host, "search_tools", query="dev/a/echo", detail="full")

    assert "- dev (1 server; can be searched once it has been opened)" in opened["instructions"]
    assert before.splitlines() == [
        "No tools are known yet. Toolboxes: dev, ops",
        "not read yet (open_toolbox reads them): dev/a, ops/b",
    ]
    assert started == []
    assert len(pids_in(place.pids)) == 1
    assert after.splitlines() == [
        "1 of 5 tools, under # toolbox/server; call with use_tool",
        "# dev/a",
        "echo(note: string, times?: int) - Repeats a note.",
        "also in dev/a: big, fail, error, result",
        "not read yet (open_toolbox reads them): ops/b",
    ]
    assert named.splitlines()[1:4] == [
        "# dev/a",
        "echo(note: string, times?: int)",
        "  Repeats a note. Twice, if asked.",
    ]


def test_one_search_starts_a_bounded_number_of_servers_and_names_the_rest(place: Place) -> None:
    servers = {f"s{n}": {"command": "false"} for n in range(MOST_READ)}
    with place.host(dev={"mcpServers": {**servers, "last": place.server()}}) as host:
        host.handshake()
        first = told(host, "search_tools", query="repeat a note")
        again = told(host, "search_tools", query="repeat a note")

    assert first.startswith("No tools are known yet. Toolboxes: dev\nnot available: dev/s0 (")
    assert first.endswith("\nnot read yet (the next search reads them): dev/last")
    assert " of 6 tools" in again


@pytest.mark.usefixtures("short_deadlines")
def test_while_nothing_is_known_the_answer_says_what_is_being_read(place: Place) -> None:
    gate = place.folder / "gate"
    os.mkfifo(gate)
    with place.host(dev={"mcpServers": {"slow": place.server(f"gate={gate}")}}) as host:
        host.handshake()
        first = told(host, "search_tools", query="repeat a note")
        gate.open("w").close()  # the server may go on
        eventually(
            lambda: " of 6 tools" in told(host, "search_tools", query="repeat a note"),
            "the slow server is known",
        )

    assert first.splitlines() == [
        "No tools are known yet. Toolboxes: dev",
        "being read, for the next search: dev/slow",
    ]
    assert len(pids_in(place.pids)) == 1


@pytest.mark.usefixtures("short_deadlines")
def test_a_server_that_is_slow_is_learnt_in_the_background(place: Place) -> None:
    """A search waits for a while and goes; the next one finds what the first began."""
    gate = place.folder / "gate"
    os.mkfifo(gate)
    servers = {"a": place.server(), "slow": place.server(f"gate={gate}")}
    with place.host(dev={"mcpServers": servers}) as host:
        host.handshake()
        host.use("a", "echo")  # however long it takes: then the search waits for the slow one alone
        first = told(host, "search_tools", query="repeat a note")
        gate.open("w").close()  # the server may go on
        eventually(
            lambda: " of 12 tools" in told(host, "search_tools", query="repeat a note"),
            "the slow server is known",
        )
        after = told(host, "search_tools", query="slow/echo")

    assert " of 6 tools" in first
    assert first.endswith("being read, for the next search: dev/slow")
    assert after.splitlines()[1:] == ["# dev/slow", "echo(note: string, times?: int) - Repeats a note."]  # fmt: skip
    assert len(pids_in(place.pids)) == 2


def test_what_was_known_when_we_last_ran_is_found_without_starting_anything(place: Place) -> None:
    box = {"mcpServers": {"a": place.server()}}
    with place.host(dev=box) as host:
        host.handshake()
        host.open()
        before = told(host, "search_tools", query="repeat a note")
    started = len(pids_in(place.pids))
    with place.host(dev=box) as host:
        host.handshake()
        after = told(host, "search_tools", query="repeat a note")

    assert after == before
    assert "echo(note: string" in after
    assert len(pids_in(place.pids)) == started == 1


@pytest.mark.parametrize("query", ["secret note", "dev/a/secret_plan", "secret_plan"])
def test_a_hidden_tool_is_never_found(either: PipeHost, query: str) -> None:
    either.open()

    answer = told(either, "search_tools", query=query, limit=20)

    assert " of 5 tools" in answer
    assert [line for line in answer.splitlines() if "secret" in line] in (
        ["in no tool: secret"],
        ["in no tool: secret, plan"],
        [
            "No tool fits, of 5 tools that are known. None has: secret, plan. The tools are described in English: try other English words. Toolboxes: dev"
        ],
    )


@ERAS
def test_a_new_tool_is_found_as_soon_as_its_server_has_told_of_it(
    place: Place, *, modern: bool
) -> None:
    with place.host(modern=modern, dev={"mcpServers": {"a": entry()}}) as host:
        host.handshake()
        host.open()
        before = told(host, "search_tools", query="zebra stripes")
        host.use("a", "flip", {"name": "zebra_stripes"})

        eventually(
            lambda: "zebra_stripes()" in told(host, "search_tools", query="zebra stripes"),
            "the new tool is found",
        )

    assert before.startswith("No tool fits")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Invalid parameters: query: Required"),
        ({"query": ""}, "Invalid parameters: query: Query name cannot be empty"),
        ({"query": "x", "limit": 21}, "Invalid parameters: limit: must be a whole number from 1 to 20"),
        ({"query": "x", "detail": "x"}, "Invalid parameters: detail: must be one of schema, full, signature, names"),
        ({"query": "x", "toolbox": "dex"}, "Toolbox 'dex' not found"),
        ({"query": "x", "toolbox": "dev", "server": "b"}, "Server 'b' not found in toolbox 'dev'"),
        ({"query": "x", "server": "b"}, "Server 'b' not found in any toolbox"),
    ],
)  # fmt: skip
def test_a_wrong_search_is_told_what_is_wrong(
    legacy: PipeHost, arguments: dict[str, Any], text: str
) -> None:
    result = legacy.call("search_tools", arguments)

    assert result["isError"] is True
    assert texts(result)[0] == text


def test_the_menu_is_the_same_before_and_after_a_search(place: Place) -> None:
    with notes(place) as host:
        host.handshake()
        before = host.result("tools/list")
        host.open()
        told(host, "search_tools", query="note")
        after = host.result("tools/list")

    assert after == before
    assert [tool["name"] for tool in before["tools"]] == [
        "open_toolbox",
        "use_tool",
        "search_tools",
    ]


def test_dynamic_mode_has_none_of_it(place: Place) -> None:
    box = {"detail": "names", "resultBudget": 10, "mcpServers": {"a": place.server()}}
    with place.host(mode="dynamic", dev=box) as host:
        host.handshake()
        menu = host.result("tools/list")["tools"]
        result = host.call("search_tools", {"query": "x"})
        opened = host.open()
        long = host.call("dev__a__big", {"n": 500})

    assert [tool["name"] for tool in menu] == ["open_toolbox", "use_tool"]
    assert "detail" not in menu[0]["inputSchema"]["properties"]
    assert texts(result)[0].startswith("Error: Invalid tool name format 'search_tools'")
    assert opened["tools"][0]["name"] == "dev__a__echo"
    assert len(texts(long)[0]) > 500  # a native tool keeps to what it declares


# Levels


def test_a_toolbox_is_opened_in_the_detail_that_is_asked_for(either: PipeHost) -> None:
    whole = told(either, "open_toolbox", toolbox_name="dev")
    schema = told(either, "open_toolbox", toolbox_name="dev", detail="schema")
    signatures = told(either, "open_toolbox", toolbox_name="dev", detail="signature")
    names = told(either, "open_toolbox", toolbox_name="dev", detail="names")

    assert schema == whole
    assert len(json.loads(whole)["tools"]) == 5
    assert signatures.splitlines()[:3] == [
        "dev: Notes. 5 tools as signatures, under # toolbox/server; call with use_tool",
        "# dev/a",
        "echo(note: string, times?: int) - Repeats a note.",
    ]
    assert len(signatures.splitlines()) == 7
    assert names.splitlines()[1:] == ["dev/a: echo, big, fail, error, result"]


def test_a_toolbox_may_have_a_level_of_its_own_and_says_how_to_get_the_rest(place: Place) -> None:
    servers = {"a": place.server(), "dead": {"command": "false"}}
    with place.host(dev={"detail": "names", "mcpServers": servers}) as host:
        host.handshake()
        own = told(host, "open_toolbox", toolbox_name="dev")
        schema = told(host, "open_toolbox", toolbox_name="dev", detail="schema")

    lines = own.splitlines()
    assert lines[0].startswith("dev. 6 tools by name")
    assert lines[1] == "dev/a: echo, big, fail, error, result, secret_plan"
    assert lines[2].startswith("unavailable: dead (")
    assert lines[3] == 'detail "schema" gives whole definitions'
    assert json.loads(schema)["tools"][0]["inputSchema"] == FILES[0]["inputSchema"]


# Calls that miss


@ERAS
@KINDS
def test_a_refused_call_learns_what_the_tool_takes(
    place: Place, server_era: str, *, modern: bool
) -> None:
    flags = ("modern",) if server_era == "modern" else ()
    servers = {"a": place.server(*flags, era=server_era)}
    hint_for = "path: Expected string, received number\nfail(path: string)"
    with place.host(modern=modern, dev={"mcpServers": servers}) as host:
        host.handshake()
        wrong = host.use("a", "fail", {"path": 5})
        right = host.use("a", "fail", {"path": "x"})
        code = json.dumps({"code": -32602, "message": "bad", "data": {"n": 1}})
        refused = host.error("tools/call", {"name": "use_tool", "arguments": {"tool": {"toolbox": "dev", "server": "a", "tool": "error"}, "arguments": {"error": code, "path": 5}}})  # fmt: skip

    assert wrong["isError"] is True
    assert texts(wrong) == ["no such file", hint_for]
    assert texts(right) == ["no such file"]
    assert (refused["code"], refused["data"]) == (-32602, {"n": 1})
    assert refused["message"] == (
        "bad\npath: Expected string, received number\nerror(error: string, path?: string)"
    )


FAILURES = {
    "first": '{"isError":true,"content":[{"type":"text","text":"%s"}]}' % ("bad " * 200),
    "alone": '{"isError": true, "content":[]}',
    "before the rest": '{"content":[{"type":"text","text":"bad"}],"isError" : true,"_meta":{"by":"%s"}}' % ("x" * 99),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["proxy", "dynamic"])
def test_wherever_a_server_says_that_a_call_failed(place: Place, mode: str) -> None:
    with place.host(mode=mode, dev={"mcpServers": {"a": place.server()}}) as host:
        host.handshake()
        host.open()
        for where, said in FAILURES.items():
            arguments = {"result": said, "path": 5}
            if mode == "proxy":
                result = host.use("a", "result", arguments)
            else:
                result = host.call("dev__a__result", arguments)

            *words, hint_for = texts(result)
            assert words == texts(json.loads(said)), where
            assert hint_for.splitlines()[0] == "path: Expected string, received number", where


def test_a_result_that_only_speaks_of_errors_passes_as_it_is(legacy: PipeHost) -> None:
    said = '{"content":[{"type":"text","text":"true"}],"x":"\\"isError\\": true","isError":false}'
    result = legacy.use("a", "result", {"result": said, "path": 5})

    assert result == json.loads(said)


def test_arguments_are_looked_at_first_where_the_entry_says_so(place: Place) -> None:
    servers = {"a": place.server(validate=True), "b": place.server()}
    with place.host(dev={"mcpServers": servers}) as host:
        host.handshake()
        refused = host.use("a", "echo", {"nota": "x"})
        unlooked = host.use("b", "echo", {"nota": "x"})
        fine = host.use("a", "echo", {"note": "x"})
        missing = host.use("a", "no_such_tool")

    assert refused["isError"] is True
    assert refused["_meta"]["mcp-workbench/code"] == "invalid_parameters"
    assert texts(refused) == [
        "Invalid parameters: note: Required, got 'nota'",
        "echo(note: string, times?: int)",
    ]
    assert "isError" not in unlooked
    assert json.loads(texts(fine)[0])["arguments"] == {"note": "x"}
    assert texts(missing)[0] == "Tool 'no_such_tool' not found in server 'a' (toolbox 'dev')"


# Budgets


@ERAS
@KINDS
def test_a_long_result_is_read_in_parts(place: Place, server_era: str, *, modern: bool) -> None:
    flags = ("modern",) if server_era == "modern" else ()
    servers = {
        "a": place.server(*flags, era=server_era),
        "free": place.server(resultBudget=0),
    }
    with place.host(modern=modern, dev={"resultBudget": 100, "mcpServers": servers}) as host:
        host.handshake()
        menu = [tool["name"] for tool in host.result("tools/list")["tools"]]
        long = texts(host.use("a", "big", {"n": 500}))
        short = texts(host.use("a", "big", {"n": 50}))
        whole = texts(host.use("free", "big", {"n": 500}))
        head, notice = long
        wish = json.loads(re.findall(r"read_result (.*)$", notice)[0])
        rest, end = texts(host.call("read_result", {**wish, "length": 1000}))
        unknown = host.call("read_result", {"handle": "guessed"})

    assert menu == ["open_toolbox", "use_tool", "search_tools", "read_result"]
    assert len(head) == 100
    assert head + rest == whole[0] == json.dumps("x" * 500)
    assert end == "characters 100 to 502 of 502; the end"
    assert short == [json.dumps("x" * 50)]
    assert unknown["isError"] is True
    assert texts(unknown)[0] == "Result 'guessed' not found"


def test_without_a_budget_there_is_no_tool_to_read_with(legacy: PipeHost) -> None:
    assert "read_result" not in json.dumps(legacy.result("tools/list"))
    assert texts(legacy.call("read_result", {"handle": "x"}))[0] == "Result 'x' not found"


def test_another_configuration_brings_its_budgets_and_levels(place: Place) -> None:
    box: dict[str, Any] = {"mcpServers": {"a": place.server()}}
    with place.host(dev=box) as host:
        host.handshake()
        before = texts(host.use("a", "big", {"n": 500}))
        write_config(
            place.folder, {"toolboxes": {"dev": {**box, "resultBudget": 100, "detail": "names"}}}
        )
        host.notice("notifications/tools/list_changed")
        after = texts(host.use("a", "big", {"n": 500}))
        menu = [tool["name"] for tool in host.result("tools/list")["tools"]]
        opened = told(host, "open_toolbox", toolbox_name="dev")

    assert len(before) == 1
    assert len(after) == 2
    assert menu[-1] == "read_result"
    assert opened.startswith("dev. 6 tools by name")


def test_what_is_shortened_says_how_it_is_seen_whole(place: Place) -> None:
    inner = {"type": "object", "properties": {f"member_{n}": TEXT for n in range(40)}}
    tree = {"type": "object", "properties": {"child": {"$ref": "#/properties/node"}}}
    odd = [strict("draw", "Draws.", data=inner), strict("grow", "Grows a tree.", node=tree)]
    place.tools.write_text(json.dumps(odd))
    with place.host(dev={"mcpServers": {"a": place.server()}}) as host:
        host.handshake()
        short = told(host, "open_toolbox", toolbox_name="dev", detail="signature").splitlines()
        whole = told(host, "search_tools", query="dev/a/draw", detail="full")
        endless = told(host, "search_tools", query="dev/a/grow", detail="full").splitlines()

    assert short[2:4] == [
        "draw(data: {…}) - Draws.",
        "grow(node: {child?: {child?: …}}) - Grows a tree.",
    ]
    assert short[4] == (
        '… is shortened: search_tools {"query": "toolbox/server/tool", "detail": "full"} shows it whole'
    )
    assert "member_39?: string" in whole
    assert "…" not in whole
    assert endless[-1] == '… has no short form: detail "schema" has it'
