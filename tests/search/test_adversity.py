"""Searches and readings that no sensible host sends: each has a clear answer, and costs nobody else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clock import PATIENCE
from tests.kit.pipe_host import PipeHost
from tests.kit.results import ENVELOPE, texts
from tests.search.test_hosts import ERAS, Place, told

NINES = "9" * 5000
DEEP = "[" * 2000 + "]" * 2000
LIMIT = "limit: must be a whole number from 1 to 20"
OFFSET = "offset: must be a whole number from 0 up"
LENGTH = "length: must be a whole number from 1 up"
ENGLISH = "The tools are described in English: try other English words."
NO_WORD = "The query has no word to look for: common words and signs do not count. 6 tools known."


@pytest.fixture(scope="module", params=[False, True], ids=["legacy", "modern"])
def host(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[PipeHost]:
    """One for all: whatever it asks leaves no trace."""
    place = Place(tmp_path_factory.mktemp("place"))
    box = {"resultBudget": 100, "mcpServers": {"a": place.server()}}
    with place.host(modern=request.param, dev=box) as host:
        host.handshake()
        host.open()
        yield host


def answered(host: PipeHost, tool: str, arguments: str) -> dict[str, Any]:
    """The answer to a call whose arguments are these bytes."""
    meta = f',"_meta":{json.dumps(ENVELOPE)}' if host.modern else ""
    params = f'{{"name":"{tool}","arguments":{arguments}{meta}}}'
    frame = f'{{"jsonrpc":"2.0","id":7000,"method":"tools/call","params":{params}}}\n'
    host.write(frame.encode())
    return host.answer(7000)


@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        ("search_tools", "null", "query: Required"),
        ("search_tools", "[]", "Expected object, received array"),
        ("search_tools", '"x"', "Expected object, received string"),
        ("search_tools", '{"query":null}', "query: Expected string, received null"),
        ("search_tools", '{"query":["x"]}', "query: Expected string, received array"),
        *(
            ("search_tools", f'{{"query":"x","toolbox":null,"limit":{limit}}}', LIMIT)
            for limit in ("0", "-1", "-0", "1000000000", "1e9", "5.5", "1e999", "-1e999", NINES)
        ),
        ("search_tools", '{"query":"x","limit":true}', "limit: Expected number, received boolean"),
        ("search_tools", '{"query":"x","limit":"5"}', "limit: Expected number, received string"),
        ("search_tools", '{"query":"x","server":""}', "server: Server name cannot be empty"),
        (
            "search_tools",
            '{"query":"x","detail":5}',
            "detail: must be one of schema, full, signature, names",
        ),
        (
            "search_tools",
            json.dumps({"query": "note " * 20_000}),
            "query: must have at most 20000 characters",
        ),
        ("read_result", "null", "handle: Required"),
        ("read_result", '{"handle":null}', "handle: Expected string, received null"),
        *(
            ("read_result", f'{{"handle":"x","offset":{offset}}}', OFFSET)
            for offset in ("-1", "0.5", "1e999", NINES)
        ),
        *(
            ("read_result", f'{{"handle":"x","length":{length}}}', LENGTH)
            for length in ("0", "-1", "1.5", NINES)
        ),
    ],
    ids=lambda value: value[:40],
)
def test_wrong_arguments_are_told_what_is_wrong(
    host: PipeHost, tool: str, arguments: str, problem: str
) -> None:
    result = answered(host, tool, arguments)["result"]

    assert result["isError"] is True
    assert texts(result) == [f"Invalid parameters: {problem}"]


def test_what_is_nested_too_deeply_is_refused(host: PipeHost) -> None:
    answer = answered(host, "search_tools", f'{{"query":"note","x":{DEEP}}}')

    assert answer["error"]["message"] == "nested too deeply"


@pytest.mark.parametrize(
    "arguments",
    [
        {"limit": None, "toolbox": None, "server": None, "detail": None},
        {"limit": 5.0},
        {"strange": 10**40},
    ],
)
def test_what_says_nothing_is_no_problem(host: PipeHost, arguments: dict[str, Any]) -> None:
    plain = told_of(host, query="note")

    assert told_of(host, query="note", **arguments) == plain


def told_of(host: PipeHost, **arguments: Any) -> str:
    result = host.call("search_tools", arguments)
    assert "isError" not in result, result
    [text] = texts(result)
    return text


@pytest.mark.parametrize(
    "query", ["  \n", "the of and", "please", "?!…", "😀🎉", "\x00", "x" * 20_000]
)
def test_a_query_without_a_word_says_so(host: PipeHost, query: str) -> None:
    assert told_of(host, query=query) == f"{NO_WORD} Toolboxes: dev"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("ノートを", "ノー, ート, トを"),
        ("كرر الملاحظة", "كرر, الملاحظة"),
        ("वापस", "वापस"),
        ("\ud800zebra", "zebra"),
    ],
)
def test_words_of_other_scripts_are_looked_for_like_any(
    host: PipeHost, query: str, words: str
) -> None:
    text = told_of(host, query=query)

    assert (
        text
        == f"No tool fits, of 6 tools that are known. None has: {words}. {ENGLISH} Toolboxes: dev"
    )


def test_the_longest_query_holds_nobody_up(host: PipeHost) -> None:
    """Thousands of words that nobody has met: all but some hundreds are left unread."""
    query = " ".join("".join(letters) for letters in product("bcdfghjk", repeat=4))[:20_000]
    since = time.monotonic()

    text = told_of(host, query=query)

    assert time.monotonic() - since < PATIENCE / 2
    assert text.startswith("No tool fits, of 6 tools that are known. None has: ")
    assert len(text) < 300


def test_named_tools_are_shown_once_each_and_those_beyond_twenty_are_named(tmp_path: Path) -> None:
    place = Place(tmp_path)
    tools = [{"name": f"tool_{n:02}", "inputSchema": {"type": "object"}} for n in range(25)]
    place.tools.write_text(json.dumps(tools))
    names = [f"dev/a/{tool['name']}" for tool in tools]
    with place.host(dev={"mcpServers": {"a": place.server()}}) as host:
        host.handshake()
        host.open()
        twice = told(host, "search_tools", query="dev/a/tool_01 dev/a/tool_02 dev/a/tool_01")
        many = told(host, "search_tools", query=", ".join(names))

    assert twice.splitlines()[2:] == ["tool_01()", "tool_02()"]
    *_, last, note = many.splitlines()
    assert (last, many.count("()")) == ("tool_19()", 20)
    assert note == f"not shown, 20 at a time: {', '.join(names[20:])}"


def test_reading_beyond_the_end_says_where_the_end_is(host: PipeHost) -> None:
    _, notice = texts(host.use("a", "big", {"n": 500}))
    handle = json.loads(notice.partition("read_result ")[2])["handle"]

    def read(**wish: Any) -> list[str]:
        return texts(host.call("read_result", {"handle": handle, **wish}))

    assert read(offset=600) == ["The result ends at character 502: there is nothing from 600 on"]
    assert read(offset=10**30)[0].startswith("The result ends at character 502: ")
    assert read(offset=501.0, length=10**30) == ['"', "characters 501 to 502 of 502; the end"]
    assert read(offset=None, length=None, find=None)[1].startswith("characters 0 to 100 of 502; ")
    assert len(read(find="y" * 100_000)[0]) < 200


def test_a_handle_is_not_told_back_at_length(host: PipeHost) -> None:
    result = host.call("read_result", {"handle": "x" * 100_000})

    assert result["isError"] is True
    assert texts(result)[0] == f"Result '{'x' * 100}…' not found"


@ERAS
def test_two_hosts_of_one_configuration_do_not_read_each_other(
    tmp_path: Path, *, modern: bool
) -> None:
    place = Place(tmp_path)
    box = {"resultBudget": 100, "mcpServers": {"a": place.server()}}
    with place.host(modern=modern, dev=box) as one, place.host(modern=modern, dev=box) as other:
        one.handshake()
        other.handshake()
        _, notice = texts(one.use("a", "big", {"n": 500}))
        handle = json.loads(notice.partition("read_result ")[2])["handle"]
        mine = one.call("read_result", {"handle": handle})
        theirs = other.call("read_result", {"handle": handle})

    assert "isError" not in mine
    assert texts(theirs)[0] == f"Result '{handle}' not found"
