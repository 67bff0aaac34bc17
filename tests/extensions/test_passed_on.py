"""Extensions that we do not know reach a server that the request of a host can only mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.protocol.extensions import MOST, MOST_BYTES, is_known, read_extensions
from tests.extensions.scenes import ERAS, LEGACY, MODERN, SETTINGS, UI, Host, bench
from tests.kit.blocking_http_host import HttpHost
from tests.kit.command import serving
from tests.kit.pipe_host import PipeHost
from tests.kit.results import Json, raw, use_tool

pytestmark = pytest.mark.usefixtures("forked_commands")

ECHO = "example.com/echo"
OTHER = "example.com/other"
FLAGS = (f"extension={ECHO}", "extension=io.modelcontextprotocol/tasks")
DECLARES = {"extensions": {ECHO: {"v": 1.0}, OTHER: {}, "io.modelcontextprotocol/tasks": {}}}


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("host_era", ERAS)
def test_a_host_that_sees_one_server_has_its_extensions(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    config = bench(tmp_path, server_era, "one", flags=FLAGS)
    modern = host_era == MODERN
    with PipeHost(config, modern=modern) as pipe:  # the first one ever: nothing is known yet
        first = pipe.result("server/discover") if modern else Host(pipe).opening
        pipe.use("one", "seen")

    with PipeHost(config, modern=modern) as pipe:
        host = Host(pipe, DECLARES)
        opening = host.result("server/discover") if modern else host.opening
        echoed = host.result("example/echo", {"a": 1.50, "name": "x"})
        tasks = host.request("tasks/get", {"taskId": "x"})
        unknown = host.request("example/unknown")
        told = host.declared("one", "initialize" if server_era == LEGACY else "tools/call")[-1]

    assert "extensions" not in first["capabilities"]
    assert opening["capabilities"]["extensions"] == {ECHO: {"by": "one"}}
    assert echoed["params"] == {"a": 1.5, "name": "x"}
    assert (tasks["error"]["code"], unknown["error"]["code"]) == (-32601, -32601)
    assert told == {"extensions": {UI: SETTINGS, ECHO: {"v": 1.0}}}


def test_a_result_of_a_kind_that_an_extension_defines_is_for_hosts_that_declare_it(
    tmp_path: Path,
) -> None:
    config = bench(tmp_path, MODERN, "one", flags=FLAGS)
    with PipeHost(config, modern=True) as pipe:
        without = Host(pipe).result("tools/call", use_tool("one", "kind"))
        with_it = Host(pipe, DECLARES).result("tools/call", use_tool("one", "kind"))

    assert without["isError"] is True
    assert with_it["resultType"] == "example"


def test_among_several_servers_a_request_names_its_own(tmp_path: Path) -> None:
    config = bench(tmp_path, LEGACY, "one", "two", flags=FLAGS)
    with PipeHost(config) as pipe:
        host = Host(pipe, DECLARES)
        pipe.open()
        named = {
            "name": host.result("example/echo", {"name": "dev__two__thing"}),
            "uri": host.result("example/echo", {"uri": "mcp-workbench://dev/two/note://a"}),
            "page": host.result("example/echo", {"uri": "ui://workbench/dev/two/monitor/page"}),
        }
        nobody = [host.request("example/echo", params) for params in ({}, {"name": "dev__no__x"})]
        told = host.declared("two", "initialize")

    assert "extensions" not in host.opening["capabilities"]
    assert [result["by"] for result in named.values()] == ["two"] * 3
    assert [result["params"] for result in named.values()] == [
        {"name": "thing"},
        {"uri": "note://a"},
        {"uri": "ui://monitor/page"},
    ]
    assert [answer["error"]["code"] for answer in nobody] == [-32601] * 2
    assert told == [{"extensions": {UI: SETTINGS}}]


def test_a_request_that_may_have_run_is_not_repeated(tmp_path: Path) -> None:
    config = bench(tmp_path, LEGACY, "one", flags=FLAGS)
    with PipeHost(config) as pipe:
        host = Host(pipe)
        pipe.use("one", "seen")
        died = host.request("example/die")
        after = host.seen("one", "example/die")

    assert "may have run" in died["error"]["message"]
    assert after == []


def test_a_server_whose_calls_are_approved_has_no_such_requests(tmp_path: Path) -> None:
    config = bench(tmp_path, LEGACY, "one", flags=FLAGS, approve=["poll"])
    with PipeHost(config) as pipe:
        host = Host(pipe)
        pipe.use("one", "seen")
        answer = host.request("example/echo")

    assert answer["error"]["code"] == -32601


def test_an_endpoint_with_one_server_passes_extensions_on_over_http(tmp_path: Path) -> None:
    with serving(bench(tmp_path, MODERN, "one", flags=FLAGS)) as command:
        host = HttpHost(command.url, modern=True)
        host.request("tools/call", use_tool("one", "seen"))
        opening = host.request("server/discover", {})
        echoed = host.request("example/echo", {"a": 1})
        host.close()

    assert opening["result"]["capabilities"]["extensions"] == {ECHO: {"by": "one"}}
    assert echoed["result"]["params"] == {"a": 1}


TOO_MANY: Json = {f"e{number}": {} for number in range(MOST + 1)}
ODD: list[Any] = [[], 5, TOO_MANY, {"e": "x" * MOST_BYTES}]


@pytest.mark.parametrize(
    "extensions",
    ODD,
    ids=["list", "number", "too many", "too large"],
)
def test_extensions_of_no_usable_form_count_as_none(extensions: object) -> None:
    assert read_extensions({"extensions": raw(extensions)}) == {}


@pytest.mark.parametrize(
    ("method", "known"),
    [
        ("tools/new", True),
        ("ping", True),
        ("tasks/get", True),
        ("example/tools", False),
        ("x", False),
    ],
)
def test_methods_of_the_protocol_are_never_passed_on(method: str, known: bool) -> None:
    assert is_known(method) is known
