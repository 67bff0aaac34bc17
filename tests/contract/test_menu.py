"""What a host is shown before it calls anything, and toolboxes that hold little."""

from pathlib import Path
from typing import Any

import pytest

from tests.makers import entry, texts, written
from tests.rawhost import RawHost

ERAS = pytest.mark.parametrize("modern", [False, True], ids=["legacy host", "modern host"])
PASSWORD = "a-password-in-a-url"
URL = f"http://user:{PASSWORD}@127.0.0.1:1/mcp?key={PASSWORD}"  # where nobody listens


def host_of(folder: Path, boxes: dict[str, Any], *, modern: bool, mode: str = "proxy") -> RawHost:
    toolboxes = {name: {"mcpServers": servers} for name, servers in boxes.items()}
    return RawHost(written(folder, {"toolMode": mode, "toolboxes": toolboxes}), modern=modern)


def greet(host: RawHost) -> None:
    if not host.modern:
        host.initialize()


@ERAS
@pytest.mark.parametrize("mode", ["proxy", "dynamic"])
def test_the_meta_tools_carry_hints_for_hosts_that_know_them(
    tmp_path: Path, mode: str, *, modern: bool
) -> None:
    with host_of(tmp_path, {"dev": {}}, modern=modern, mode=mode) as host:
        greet(host)
        tools = {tool["name"]: tool for tool in host.result("tools/list")["tools"]}

    for tool in tools.values():
        assert tool["_meta"]["anthropic/alwaysLoad"] is True
        assert tool["_meta"]["anthropic/maxResultSizeChars"] == 500_000
        assert len(tool["description"]) <= 2000
        assert tool["inputSchema"]["type"] == "object"
        assert not tool["inputSchema"].keys() & {"anyOf", "oneOf", "allOf"}
    assert tools["open_toolbox"]["annotations"]["readOnlyHint"] is True
    if "use_tool" in tools:  # what it calls may do anything: it claims nothing
        assert "annotations" not in tools["use_tool"]


@ERAS
def test_the_menu_is_the_same_to_the_byte_each_time(tmp_path: Path, *, modern: bool) -> None:
    with host_of(tmp_path, {"dev": {"a": entry()}, "ops": {}}, modern=modern) as host:
        greet(host)
        lists: set[bytes] = set()
        for _ in range(3):
            id = host.ask("tools/list")
            host.answer(id)
            lists.add(host.lines[-1].replace(b'"id":%d' % id, b'"id":0'))
            host.call("open_toolbox", {"toolbox_name": "dev"})

    assert len(lists) == 1


@ERAS
@pytest.mark.parametrize("servers", [{}, {"off": entry(disabled=True)}], ids=["empty", "disabled"])
def test_a_toolbox_without_servers_opens_and_holds_nothing(
    tmp_path: Path, servers: dict[str, Any], *, modern: bool
) -> None:
    with host_of(tmp_path, {"dev": servers}, modern=modern) as host:
        greet(host)

        assert host.open() == {
            "toolbox": "dev",
            "description": "",
            "servers_connected": 0,
            "tools": [],
        }


@ERAS
def test_a_disabled_server_is_not_there(tmp_path: Path, *, modern: bool) -> None:
    servers = {"a": entry(), "off": entry(disabled=True)}
    with host_of(tmp_path, {"dev": servers}, modern=modern) as host:
        greet(host)

        assert texts(host.use("off", "echo")) == ["Server 'off' not found in toolbox 'dev'"]
        assert "unavailable" not in host.open()


@ERAS
def test_a_server_behind_a_url_is_unavailable_and_its_secrets_stay_in_the_file(
    tmp_path: Path, *, modern: bool
) -> None:
    with host_of(tmp_path, {"dev": {"a": entry(), "web": {"url": URL}}}, modern=modern) as host:
        greet(host)

        [missing] = host.open()["unavailable"]
        [text] = texts(host.use("web", "echo"))

    assert missing["server"] == "web"
    assert text == f"Failed to connect to server 'web' in toolbox 'dev': {missing['reason']}"
    assert PASSWORD.encode() not in b"".join(host.lines)
    assert PASSWORD not in host.stderr
