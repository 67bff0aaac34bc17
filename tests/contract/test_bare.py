"""Bare names: a transparent endpoint that shows the servers' own tools and nothing of ours."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config.load import load_config
from mcp_workbench.core.errors import ConfigError
from tests.kit.config import config_file, entry, offers_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import json_text

pytestmark = pytest.mark.usefixtures("forked_commands")

BARE: dict[str, Any] = {"toolMode": "dynamic", "naming": "bare"}
ONE: list[dict[str, Any]] = [{"name": "use_tool", "inputSchema": {}, "x-new": 1.50}]
TWO: list[dict[str, Any]] = [{"name": "echo", "description": "Say", "inputSchema": {}}]


def offering(folder: Path, name: str, tools: list[dict[str, Any]]) -> dict[str, Any]:
    file = folder / f"{name}.json"
    file.write_text(json.dumps(tools))
    return entry(f"tools={file}")


@pytest.fixture(scope="module", params=[False, True], ids=["legacy host", "modern host"])
def host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PipeHost]:
    folder = tmp_path_factory.mktemp("bare")
    servers = {"a": offering(folder, "a", ONE), "b": offering(folder, "b", TWO)}
    with PipeHost(config_file(folder, servers, **BARE), modern=request.param) as host:
        host.handshake()
        yield host


def test_the_servers_own_definitions_are_shown_from_the_start(host: PipeHost) -> None:
    assert host.result("tools/list")["tools"] == ONE + TWO


def test_a_call_by_its_own_name_reaches_its_server(host: PipeHost) -> None:
    assert json_text(host.call("echo", {"text": "hi"}))["arguments"] == {"text": "hi"}


def test_a_tool_may_even_be_called_like_one_of_ours(host: PipeHost) -> None:
    answer = host.request("tools/call", {"name": "use_tool", "arguments": {"x": 1}})

    assert "Invalid parameters" not in json.dumps(answer)


def test_an_unknown_name_is_refused_as_a_server_would(host: PipeHost) -> None:
    error = host.error("tools/call", {"name": "nobody"})

    assert (error["code"], error["message"]) == (-32602, "Unknown tool: nobody")


def test_two_tools_of_one_name_are_an_error_that_names_both(tmp_path: Path) -> None:
    servers = {"a": offering(tmp_path, "a", TWO), "b": offering(tmp_path, "b", TWO)}
    with PipeHost(config_file(tmp_path, servers, **BARE)) as host:
        host.initialize()
        for told in (host.error("tools/list"), host.error("tools/call", {"name": "echo"})):
            assert "dev/a/echo and dev/b/echo" in told["message"]


@pytest.mark.parametrize("modern", [False, True])
def test_two_prompts_of_one_name_are_an_error_that_names_both(
    tmp_path: Path, *, modern: bool
) -> None:
    servers = {name: offers_entry(name, "legacy") for name in ("a", "b")}
    with PipeHost(config_file(tmp_path, servers, **BARE), modern=modern) as host:
        host.handshake()
        ref = {"type": "ref/prompt", "name": "greet"}
        for told in (
            host.error("prompts/list"),
            host.error("prompts/get", {"name": "greet"}),
            host.error("completion/complete", {"ref": ref, "argument": {"name": "x", "value": ""}}),
        ):
            assert told["code"] == -32603
            assert "dev/a and dev/b both have a prompt named 'greet'" in told["message"]


def test_bare_names_need_dynamic_mode(tmp_path: Path) -> None:
    file = config_file(tmp_path, {"a": entry()}, naming="bare")

    with pytest.raises(ConfigError) as refused:
        load_config(file)

    assert [(p.path, p.code) for p in refused.value.problems] == [("naming", "WB-CONF-028")]
