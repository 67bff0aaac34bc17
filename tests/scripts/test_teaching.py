"""An agent that has never seen it: the definition, one search answer, and errors that say what to write instead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.core.catalogue import Definition
from mcp_workbench.core.script_texts import traceback_text
from mcp_workbench.server.own_tools import signature_line
from tests.kit.config import demo_server, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import texts
from tests.kit.sdk_host import sdk_entry
from tests.kit.tokens import o200k_tokens
from tests.scripts.scenes import Engine, failure, script, scripted, value

MOST_TOKENS = 160  # of the definition


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeHost]:
    folder = tmp_path_factory.mktemp("teaching")
    with PipeHost(scripted(folder, {"basics": demo_server(), "a": entry()})) as host:
        yield host.handshake()


def test_the_definition_is_short_and_names_no_tool(host: PipeHost) -> None:
    tools = host.result("tools/list")["tools"]
    definition = next(tool for tool in tools if tool["name"] == "run_script")
    shown = {name: definition[name] for name in ("name", "description", "inputSchema")}

    assert o200k_tokens(json.dumps(shown, ensure_ascii=False)) <= MOST_TOKENS
    assert "dev" not in definition["description"]


def test_a_script_can_be_written_from_a_search_answer(host: PipeHost) -> None:
    """The heading of a server and the name of a tool are what `call` takes."""
    found = texts(host.call("search_tools", {"query": "add two numbers"}))[0]
    (heading,) = [line for line in found.splitlines() if line == "# dev/basics"]
    signature = next(line for line in found.splitlines() if line.startswith("add("))
    name = f"{heading.removeprefix('# ')}/{signature.partition('(')[0]}"

    assert value(script(host, f"await call({name!r}, a=2, b=3)")) == 5


WRONG = {
    "a missing await": (
        "r = call('dev/basics/add', a=1, b=2)\nprint(r + 1)",
        ("Line 2", "print(r + 1)", "~~~~~", "not awaited", "r = await call("),
    ),
    "a wrong argument name": (
        "await call('dev/basics/add', a=1, c=2)",
        ("Line 1", "~~~~", "unknown argument 'c'", "add(a: num, b: num)"),
    ),
    "a wrong type": (
        "await call('dev/basics/add', a='one', b=2)",
        ("Line 1", "a: Expected number, received string", "add(a: num, b: num)"),
    ),
    "a missing argument": (
        "await call('dev/basics/add', a=1)",
        ("Line 1", "b: Required", "add(a: num, b: num)"),
    ),
    "an unknown tool": (
        "await call('dev/basics/ad', a=1, b=2)",
        ("Line 1", "Tool 'ad' not found", "Did you mean 'add'?"),
    ),
    "an unknown toolbox": ("await call('def/basics/add')", ("Line 1", "Did you mean 'dev'?")),
    "half a name": ("await call('add', a=1, b=2)", ("Line 1", '"toolbox/server/tool"')),
    "arguments without names": (
        "await call('dev/basics/add', 1, 2)",
        ("Line 1", "by name", 'await call("toolbox/server/tool", name=value)'),
    ),
    "a function of another product": (
        "tools.add(a=1, b=2)",
        ("Line 1", "name 'tools' is not defined", "await call("),
    ),
    "yield": ("def f():\n    yield 1\nf()", ("Line 2", "~~~~~~~", "can't use yield", "list")),
    "del": ("d = {1: 2}\ndel d[1]", ("Line 2", "can't use", "d.pop(key)")),
    "inheritance": ("class A(dict):\n    pass", ("Line 1", "inheritance", "functions and dicts")),
    "async with": ("async with x:\n    pass", ("Line 1", "async with", "await call(...)")),
    "create_task": ("asyncio.create_task(call('a/b/c'))", ("Line 1", "asyncio.gather(call(...)")),
    "return_exceptions": (
        "await asyncio.gather(call('a/b/c'), return_exceptions=True)",
        ("Line 1", "Catch exceptions in a function"),
    ),
    "a module": ("import requests", ("Line 1", "No module named 'requests'", "datetime, decimal")),
    "a file": ("open('x')", ("Line 1", "Scripts have no files")),
    "the environment": ("import os\nos.environ", ("Line 2", "Scripts have no files")),
    "syntax": ("x = (1", ("Line 1", "SyntaxError")),
    "a function that is not awaited": (
        "async def main():\n    await call('dev/basics/add', a=1, b=2)\nmain()\nprint('done')",
        ("Line 3 calls main() without await, so it did nothing", "Write: await main()"),
    ),
    "the value of a function that is not awaited": (
        "async def main():\n    await call('dev/basics/add', a=1, b=2)\nmain()",
        ("never awaited", "Write: await main()"),
    ),
    "a part before its value": (
        "await call('dev/basics/add', a=1, b=2)['sum']",
        (
            "Line 1",
            "~~~~",
            "not awaited",
            'r = await call("toolbox/server/tool", name=value), then r[',
        ),
    ),
    "a list for gather": (
        "calls = [call('dev/basics/add', a=1, b=2)]\nawait asyncio.gather(calls)",
        ("Line 2", "await asyncio.gather(*calls)"),
    ),
    "a gather that is not awaited": (
        "r = asyncio.gather(call('dev/basics/add', a=1, b=2))\n1",
        ("Line 1", "not awaited", "Write: r = await asyncio.gather("),
    ),
    "a value that is awaited": (
        "r = await call('dev/basics/add', a=1, b=2)\nawait r",
        ("Line 2", "leave await out"),
    ),
    "data that is parsed again": (
        "r = await call('dev/a/stats')\njson.loads(r)",
        ("Line 2", "returns data, not its text"),
    ),
    "a result with an envelope": (
        "r = await call('dev/basics/add', a=1, b=2)\nr.content[0].text",
        ("Line 2", "the data itself"),
    ),
    "an attribute of data": ("r = await call('dev/a/stats')\nr.pid", ("Line 2", 'r["key"]')),
    "a key that is not there": (
        "r = await call('dev/a/stats')\nr['result']",
        ("Line 2", "print(r)"),
    ),
    "a constant of JSON": ("x = null", ("Line 1", "In Python that is None")),
    "JavaScript": ("const r = await call('dev/a/stats');", ("Line 1", "A script is Python")),
    "a decorator": (
        "class A:\n    @staticmethod\n    def f(): return 1",
        ("Line 2", "a plain function"),
    ),
    "an async comprehension": ("[x async for x in y]", ("Line 1", "Use a for loop")),
    "sys.exit": ("import sys\nsys.exit(1)", ("Line 2", "with return")),
    "a value that is no JSON": (
        "await call('dev/a/echo', text=open)",
        ("no JSON", "lists and dicts"),
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_error_shows_the_place_and_what_to_write_instead(host: PipeHost, what: str) -> None:
    code, parts = WRONG[what]
    told = failure(script(host, code))

    for part in parts:
        assert part in told
    assert "monty" not in told


def test_a_long_line_does_not_fill_the_answer(host: PipeHost) -> None:
    told = failure(script(host, "(" * 10_000 + ")" * 10_000))

    assert "SyntaxError" in told
    assert len(told) < 1000


def test_what_a_failed_script_had_printed_is_shown_from_its_end(host: PipeHost) -> None:
    short = failure(script(host, "print('almost')\n1 / 0"))
    long = failure(script(host, "print('x' * 100_000)\nprint('almost')\n1 / 0"))

    assert "It had printed:\nalmost" in short
    assert long.endswith("x\nalmost\n")
    assert len(long) < 6000


def test_a_deep_traceback_is_cut_to_its_end() -> None:
    shown = "Traceback (most recent call last):\n" + "\n".join(f"  frame {n}" for n in range(100))

    lines = traceback_text(shown).splitlines()
    assert lines[0] == "  …"
    assert lines[-1] == "  frame 99"
    assert len(lines) == 25


def test_the_modules_that_the_advice_names_are_there(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    from mcp_workbench.core.script_texts import advice

    named = advice("ModuleNotFoundError", "").partition("Modules: ")[2].partition(".")[0]
    engine = Engine(tmp_path_factory.mktemp("modules"))
    try:
        assert not engine.finished(f"import {named}").kind
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        ({"type": "object", "properties": {"sum": {"type": "number"}}}, " -> {sum?: num}"),
        ({"type": "object", "properties": {"result": {"type": "integer"}}}, " -> int"),
        (
            {"type": "object", "properties": {f"member_{n}": {"type": "string"} for n in range(9)}},
            " -> {member_0, member_1, member_2, ",
        ),
        (None, ""),
    ],
)
def test_output_shapes_are_part_of_signatures_where_scripts_are_on(output: Any, shown: str) -> None:
    definition: dict[str, Any] = {"name": "t", "inputSchema": {"type": "object", "properties": {}}}
    if output is not None:
        definition["outputSchema"] = output
    tool = Definition("t", json.dumps(definition).encode())

    assert signature_line(tool, returns=True).text.startswith(f"t(){shown}")
    assert signature_line(tool).text == "t()"


def test_a_search_answer_says_what_is_returned(tmp_path: Path) -> None:
    with PipeHost(scripted(tmp_path, {"w": sdk_entry("workshop.py")})) as host:
        host.handshake()
        found = texts(host.call("search_tools", {"query": "dev/w/add"}))[0]
        total = value(script(host, "(await call('dev/w/add', a=2, b=3))['sum']"))

    assert "add(a: num, b?: num = 1.0) -> {sum: num}" in found
    assert total == 5


def test_a_function_that_is_not_awaited_is_named_after_other_calls(host: PipeHost) -> None:
    code = (
        "async def later(x):\n    await call('dev/basics/add', a=x, b=2)\n"
        "text = '''\nlater(1)\n'''\nlater(\n    1,\n)\nx = later\nr = await call('dev/basics/add', a=1, b=2)\n"
        "await later(2)\nawait asyncio.gather(later(1))\nr"
    )
    told = texts(script(host, code))[0]

    assert told == "3\nLine 6 calls later() without await, so it did nothing. Write: await later()"
