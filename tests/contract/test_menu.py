"""What a host is shown before it calls anything, and toolboxes that hold little."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.config import entry, write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.results import texts

pytestmark = pytest.mark.usefixtures("forked_commands")

ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy host", "modern host"])
PASSWORD = "a-password-in-a-url"
URL = f"http://user:{PASSWORD}@127.0.0.1:1/mcp?key={PASSWORD}"  # where nobody listens


BOXES: dict[str, Any] = {
    "dev": {"a": entry(), "off": entry(disabled=True)},
    "empty": {},
    "disabled": {"off": entry(disabled=True)},
    "web": {"a": entry(), "web": {"url": URL}},
}


def host_of(folder: Path, boxes: dict[str, Any], *, modern: bool, mode: str) -> PipeHost:
    toolboxes = {name: {"mcpServers": servers} for name, servers in boxes.items()}
    return PipeHost(write_config(folder, {"toolMode": mode, "toolboxes": toolboxes}), modern=modern)


@pytest.fixture(scope="module", params=[False, True], ids=["legacy host", "modern host"])
def host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PipeHost]:
    folder = tmp_path_factory.mktemp("menu")
    with host_of(folder, BOXES, modern=request.param, mode="proxy") as host:
        host.handshake()
        yield host


def test_the_meta_tools_carry_hints_for_hosts_that_know_them(host: PipeHost) -> None:
    require_hints(host.result("tools/list")["tools"])


@ERAS
def test_they_carry_them_in_dynamic_mode_too(tmp_path: Path, *, modern: bool) -> None:
    with host_of(tmp_path, {"dev": {}}, modern=modern, mode="dynamic") as host:
        host.handshake()
        require_hints(host.result("tools/list")["tools"])


def require_hints(listed: list[dict[str, Any]]) -> None:
    tools = {tool["name"]: tool for tool in listed}
    for tool in tools.values():
        assert tool["_meta"]["anthropic/alwaysLoad"] is True
        assert tool["_meta"]["anthropic/maxResultSizeChars"] == 500_000
        assert len(tool["description"]) <= 2000
        assert tool["inputSchema"]["type"] == "object"
        assert not tool["inputSchema"].keys() & {"anyOf", "oneOf", "allOf"}
    assert tools["open_toolbox"]["annotations"]["readOnlyHint"] is True
    if "use_tool" in tools:  # what it calls may do anything: it claims nothing
        assert "annotations" not in tools["use_tool"]


def test_the_menu_is_the_same_to_the_byte_each_time(host: PipeHost) -> None:
    lists: set[bytes] = set()
    for _ in range(3):
        id = host.ask("tools/list")
        host.answer(id)
        lists.add(host.lines[-1].replace(b'"id":%d' % id, b'"id":0'))
        host.call("open_toolbox", {"toolbox_name": "dev"})

    assert len(lists) == 1


@pytest.mark.parametrize("toolbox", ["empty", "disabled"])
def test_a_toolbox_without_servers_opens_and_holds_nothing(host: PipeHost, toolbox: str) -> None:
    assert host.open(toolbox) == {
        "toolbox": toolbox,
        "description": "",
        "servers_connected": 0,
        "tools": [],
    }


def test_a_disabled_server_is_not_there(host: PipeHost) -> None:
    assert texts(host.use("off", "echo")) == ["Server 'off' not found in toolbox 'dev'"]
    assert "unavailable" not in host.open()


def test_a_server_behind_a_url_is_unavailable_and_its_secrets_stay_in_the_file(
    host: PipeHost,
) -> None:
    [missing] = host.open("web")["unavailable"]
    wish = {"tool": {"toolbox": "web", "server": "web", "tool": "echo"}}
    [text] = texts(host.call("use_tool", wish))

    assert missing["server"] == "web"
    assert text == f"Failed to connect to server 'web' in toolbox 'web': {missing['reason']}"
    assert PASSWORD.encode() not in b"".join(host.lines)
    assert PASSWORD not in host.stderr
