"""Apps behind the workbench: servers learn of them, models see no tool of an app, pages have one owner."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.core import apps
from mcp_workbench.core.primitive_names import PrimitiveRef, read_addressed
from mcp_workbench.core.spec import ServerAddress
from tests.extensions.scenes import (
    ERAS,
    LEGACY,
    MODERN,
    PAGE,
    SETTINGS,
    SHOWS_APPS,
    UI,
    Host,
    bench,
)
from tests.kit.blocking_http_host import HttpHost
from tests.kit.command import run_command, serving
from tests.kit.pipe_host import PipeHost
from tests.kit.results import json_text, open_toolbox, text, use_tool

pytestmark = pytest.mark.usefixtures("forked_commands")

OWNER = ServerAddress("dev", "one")

# What servers are told


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("host_era", ERAS)
def test_a_server_is_told_of_apps_whatever_the_host_declares(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    config = bench(tmp_path, server_era, "one")
    with PipeHost(config, modern=host_era == MODERN) as pipe:
        host = Host(pipe, {"roots": {}})
        tools = json_text(host.result("tools/call", open_toolbox()))["tools"]
        host.result("resources/list")
        first = "initialize" if server_era == LEGACY else "server/discover"
        told = host.declared("one", first)
        if server_era == MODERN:
            told += host.declared("one", "tools/list") + host.declared("one", "resources/list")
            told += host.declared("one", "tools/call")[-1:]

    if server_era == LEGACY:
        assert told == [{"roots": {}, "extensions": {UI: SETTINGS}}]
    else:
        assert told == [{"roots": {}, "extensions": {UI: SETTINGS}}] * 4
    assert "show" in [tool["name"] for tool in tools]


@pytest.mark.parametrize("server_era", ERAS)
def test_a_server_that_hosts_on_a_port_share_is_told_of_apps(
    tmp_path: Path, server_era: str
) -> None:
    with serving(bench(tmp_path, server_era, "one")) as command:
        host = HttpHost(command.url, modern=True)
        answer = host.request("tools/call", use_tool("one", "seen"))
        host.close()

    requests = {one["method"]: one["params"] for one in json_text(answer["result"])}
    if server_era == LEGACY:
        told = requests["initialize"]["capabilities"]
    else:
        told = requests["tools/list"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    assert told == {"extensions": {UI: SETTINGS}}


# Tools for apps alone


@pytest.mark.parametrize("host_era", ERAS)
def test_a_tool_for_apps_alone_is_in_no_text_for_a_model(tmp_path: Path, host_era: str) -> None:
    config = bench(tmp_path, MODERN, "one")
    with PipeHost(config, modern=host_era == MODERN) as pipe:
        host = Host(pipe, SHOWS_APPS)
        opened = host.result("tools/call", open_toolbox())
        by_words = host.result("tools/call", search("gauge"))
        by_name = host.result("tools/call", search("dev/one/poll"))
        unknown = host.result("tools/call", use_tool("one", "polls"))
        called = host.result("tools/call", use_tool("one", "poll"))

    assert [tool["name"] for tool in json_text(opened)["tools"]] == ["seen", "kind", "show"]
    assert "show(" in text(by_words)
    assert "poll(" not in text(by_words) + text(by_name)
    assert unknown["isError"] is True
    assert "'poll'" not in text(unknown)
    assert json_text(called) == ["one", "poll"]  # for the app, whose calls come from its host


def search(query: str) -> dict[str, object]:
    return {"name": "search_tools", "arguments": {"query": query}}


@pytest.mark.parametrize("naming", ["full", "bare"])
@pytest.mark.parametrize("capabilities", [{}, SHOWS_APPS], ids=["no apps", "apps"])
def test_only_a_host_that_shows_apps_lists_their_own_tools(
    tmp_path: Path, capabilities: dict[str, object], naming: str
) -> None:
    config = bench(tmp_path, LEGACY, "one", toolMode="dynamic", naming=naming)
    with PipeHost(config, "--toolbox", "dev") as pipe:
        tools = Host(pipe, capabilities).tools()

    prefix = "" if naming == "bare" else "dev__one__"
    assert (f"{prefix}poll" in tools) is bool(capabilities)
    assert f"{prefix}show" in tools


@pytest.mark.parametrize("servers", [("one", "one__more"), ("one__more", "one")])
def test_a_flat_name_with_two_readings_is_that_of_the_server_with_the_tool(
    tmp_path: Path, servers: tuple[str, str]
) -> None:
    """It might as well be a tool `more__show` of the server `one`."""
    with PipeHost(bench(tmp_path, LEGACY, *servers)) as pipe:
        host = Host(pipe, SHOWS_APPS)
        host.result("tools/call", open_toolbox())
        listed = host.tools()
        called = host.call("dev__one__more__show")

    assert {"dev__one__show", "dev__one__more__show"} <= listed.keys()
    assert json_text(called) == ["one__more", "show"]


def test_commands_show_a_tool_for_apps_to_people(tmp_path: Path) -> None:
    bench(tmp_path, LEGACY, "one")

    done = run_command("tools", "--json", cwd=tmp_path)

    assert '"poll"' in done.out


# Pages


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("host_era", ERAS)
def test_two_servers_with_one_page_address_each_have_their_own_page(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    config = bench(tmp_path, server_era, "one", "two", toolMode="dynamic")
    with PipeHost(config, "--toolbox", "dev", modern=host_era == MODERN) as pipe:
        host = Host(pipe, SHOWS_APPS)
        tools = host.tools()
        listed = [resource["uri"] for resource in host.result("resources/list")["resources"]]
        pages = {
            name: host.read(tools[f"dev__{name}__show"]["_meta"]["ui"]["resourceUri"])
            for name in ("one", "two")
        }

    addresses = [f"ui://workbench/dev/{name}/monitor/page" for name in ("one", "two")]
    assert listed == addresses
    assert [page["uri"] for page in pages.values()] == addresses
    assert [page["text"] for page in pages.values()] == ["<p>one", "<p>two"]
    meta = tools["dev__two__show"]["_meta"]
    assert meta["ui/resourceUri"] == meta["ui"]["resourceUri"] == addresses[1]
    assert meta["ui"]["x-odd"] == 1.0


def test_a_host_without_apps_reads_addresses_as_they_were(tmp_path: Path) -> None:
    config = bench(tmp_path, LEGACY, "one", "two", toolMode="dynamic")
    with PipeHost(config, "--toolbox", "dev") as pipe:
        host = Host(pipe)
        tools = host.tools()
        listed = [resource["uri"] for resource in host.result("resources/list")["resources"]]

    assert tools["dev__two__show"]["_meta"]["ui"]["resourceUri"] == PAGE
    assert listed == [PAGE, f"mcp-workbench://dev/two/{PAGE}"]


@pytest.mark.parametrize("uri", ["ui://a", "ui://a/b?c#d", "ui://workbench/x/y/z"])
def test_an_address_leads_back_to_its_page(uri: str) -> None:
    assert read_addressed(apps.page_address(OWNER, uri)) == PrimitiveRef(OWNER, uri)


@pytest.mark.parametrize(
    "uri", ["ui://workbench/", "ui://workbench/dev/one", "ui://workbench//a/b"]
)
def test_an_incomplete_address_is_a_uri_like_any_other(uri: str) -> None:
    assert apps.read_page_address(uri) is None


@pytest.mark.parametrize(
    ("meta", "is_for_model"),
    [
        (b"{}", True),
        (b'{"ui":{}}', True),
        (b'{"ui":{"visibility":["model","app"]}}', True),
        (b'{"ui":{"visibility":["app"]}}', False),
        (b'{"ui":{"visibility":[]}}', False),
        (rb'{"ui":{"visib\u0069lity":["app"]}}', False),
        (b'{"ui":{"visibility":"app"}}', True),  # of no known form
        (b'{"ui":{"resourceUri":5,"visibility":["app"]}}', False),
        (b'{"ui":null}', True),
    ],
)
def test_a_tool_is_for_a_model_unless_its_visibility_says_otherwise(
    meta: bytes, is_for_model: bool
) -> None:
    assert apps.is_for_model(b'{"name":"x","_meta":%b}' % meta) is is_for_model


@pytest.mark.parametrize(
    "raw",
    [
        b'{"name":"x"}',
        b'{"name":"x","_meta":{"ui":{"resourceUri":"https://example.com/page"}}}',
        b'{"name":"x","_meta":{"ui":{"resourceUri":5}}}',
        b'{"name":"x","_meta":null}',
    ],
)
def test_a_definition_without_a_page_keeps_its_bytes(raw: bytes) -> None:
    assert apps.with_page_address(raw, OWNER) == raw
