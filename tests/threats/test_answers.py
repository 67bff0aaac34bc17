"""Attacks that once stopped the workbench, or made it write what is no JSON: each as it was made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.cli.terminal import say_json
from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.catalogue import Definition
from mcp_workbench.core.raw_json import TooComplex
from mcp_workbench.core.spec import ToolIdentifier
from mcp_workbench.gateway.arguments import UNEXPLAINED, hint_for, misfit, result_with_hint
from tests.kit.results import raw, texts
from tests.search.test_hosts import FILES, Place
from tests.threats import worst

pytestmark = pytest.mark.usefixtures("forked_commands")

DOUBLING = {**FILES[2], "inputSchema": worst.doubling(28 * 60)}  # of the tool `fail`
SHAPES = ['"boom"', "5", "null", "true", "{}", '{"type":"text","text":"x"}', "[]"]


def call(arguments: Any) -> CallRequest:
    return CallRequest(ToolIdentifier("dev", "a", "edit"), {"arguments": raw(arguments)})


@pytest.mark.timeout(20)
def test_a_schema_that_doubles_with_each_level_is_too_complex() -> None:
    tool = Definition("edit", worst.definition(worst.doubling(28 * 60)))
    assert len(tool.raw) < 3000

    assert hint_for(tool, call({"a": "x"})) == UNEXPLAINED
    with pytest.raises(TooComplex):
        misfit(tool, call({"a": "x"}))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("validate", [False, True])
def test_a_failed_call_of_such_a_tool_holds_nobody_up(place: Place, *, validate: bool) -> None:
    place.tools.write_text(json.dumps([*FILES[:2], DOUBLING]))
    servers = {"bad": place.server(validate=validate), "a": place.server()}
    with place.host(dev={"mcpServers": servers}) as host:
        host.handshake()
        host.open()
        failed = host.use("bad", "fail", {"a": "x"})
        echoed = host.use("a", "echo", {"note": "here"})

    assert texts(failed) == ["no such file", UNEXPLAINED]
    assert "isError" not in echoed or echoed["isError"] is False


def test_what_was_found_before_the_steps_ran_out_is_told() -> None:
    schema = {**worst.doubling(28 * 60), "required": ["b"]}

    told = hint_for(Definition("edit", worst.definition(schema)), call({"a": "x"}))

    assert told.startswith("b: Required\nedit(b: any")


@pytest.mark.parametrize("content", SHAPES)
@pytest.mark.parametrize("mode", ["proxy", "dynamic"])
def test_whatever_a_failed_result_has_for_content_the_host_gets_json(
    place: Place, mode: str, content: str
) -> None:
    said = f'{{"content":{content},"isError":true}}'
    with place.host(mode=mode, dev={"mcpServers": {"a": place.server()}}) as host:
        host.handshake()
        host.open()
        arguments = {"result": said, "path": 5}
        if mode == "proxy":
            result = host.use("a", "result", arguments)
        else:
            result = host.call("dev__a__result", arguments)

    if content == "[]":
        assert texts(result)[-1].startswith("path: Expected string, received number")
    else:
        assert result == json.loads(said)


def test_a_result_without_content_or_with_too_many_members_stays_as_it_is() -> None:
    many = b'{"content":[],' + worst.objects(1 << 20)[0][1:]
    for result in (b'{"isError":true}', many):
        assert result_with_hint(result, "words") == result


UNSEEN = "\x9b31m\u202eevil\u2066\u200b\x7f"


def test_data_for_programs_has_nothing_that_a_terminal_would_obey(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    for pretty in (False, True):
        say_json({"text": UNSEEN, "kept": "é\N{GRINNING FACE}"}, pretty=pretty)
        text = capsysbinary.readouterr().out.decode()

        assert all(line.isprintable() for line in text.splitlines())
        assert json.loads(text) == {"text": UNSEEN, "kept": "é\N{GRINNING FACE}"}
        assert "é\N{GRINNING FACE}" in text
