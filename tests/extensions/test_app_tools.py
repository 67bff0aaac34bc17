"""Apps in every mode: hosts that show them list their tools, and each call reaches its own server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extensions.scenes import (
    ERAS,
    LEGACY,
    MODERN,
    SHOWS_APPS,
    WAYS,
    Host,
    bench,
    shows_apps,
)
from tests.kit.blocking_http_host import HttpHost
from tests.kit.command import serving
from tests.kit.config import apps_entry, write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.results import META, json_text, open_toolbox, texts, use_tool
from tests.kit.shared import shared

pytestmark = pytest.mark.usefixtures("forked_commands")

OWN = ["open_toolbox", "use_tool", "search_tools"]
CHANGED = "notifications/tools/list_changed"


def known(config: Path, *toolboxes: str) -> Path:
    """The servers of the file have been connected before, by another workbench."""
    with PipeHost(config) as pipe:
        pipe.handshake()
        for toolbox in toolboxes or ("dev",):
            pipe.result("tools/call", open_toolbox(toolbox))
    return config


@pytest.mark.parametrize("way", WAYS)
def test_in_proxy_mode_tools_of_apps_are_listed_and_called_at_their_own_server(
    tmp_path: Path, way: str
) -> None:
    config = known(bench(tmp_path, way.split()[1], "one", "two"))

    with shows_apps(config, way) as host:
        tools = host.tools()
        called = [json_text(host.call(f"dev__{name}__poll")) for name in ("one", "two")]
        shown = json_text(host.call("dev__two__show"))

    names = [
        f"dev__{server}__{tool}"
        for server in ("one", "two")
        for tool in ("seen", "kind", "show", "poll")
    ]
    assert list(tools) == [*OWN, *names]
    assert called == [["one", "poll"], ["two", "poll"]]
    assert shown == ["two", "show"]
    for server in ("one", "two"):
        ui = {tool: tools[f"dev__{server}__{tool}"]["_meta"]["ui"] for tool in ("show", "seen")}
        assert ui["show"]["resourceUri"] == f"ui://workbench/dev/{server}/monitor/page"
        assert "visibility" not in ui["show"]  # for a model, too
        assert ui["seen"] == {"visibility": ["app"]}  # a model finds it in open_toolbox


@pytest.mark.parametrize("how", ["open", "call"])
def test_a_legacy_host_is_notified_when_an_app_becomes_known(tmp_path: Path, how: str) -> None:
    with PipeHost(bench(tmp_path, LEGACY, "one")) as pipe:
        host = Host(pipe, SHOWS_APPS)
        before = list(host.tools())
        host.result("tools/call", open_toolbox() if how == "open" else use_tool("one", "seen"))
        pipe.notice(CHANGED)
        after = list(host.tools())

    assert before == OWN
    assert "dev__one__show" in after


def test_a_modern_host_that_listens_is_notified_when_an_app_becomes_known(tmp_path: Path) -> None:
    with PipeHost(bench(tmp_path, MODERN, "one"), modern=True) as pipe:
        host = Host(pipe, SHOWS_APPS)
        assert list(host.tools()) == OWN
        declared = {META + "clientCapabilities": SHOWS_APPS}
        listening = {"notifications": {"toolsListChanged": True}, "_meta": declared}
        pipe.ask("subscriptions/listen", listening)
        pipe.notice("notifications/subscriptions/acknowledged")
        host.result("tools/call", use_tool("one", "seen"))
        pipe.notice(CHANGED)

        assert "dev__one__show" in host.tools()


@pytest.mark.parametrize("era", ERAS)
def test_without_apps_the_list_and_the_names_are_as_before(tmp_path: Path, era: str) -> None:
    config = known(bench(tmp_path, LEGACY, "one"))
    with PipeHost(config, modern=era == MODERN) as pipe:
        host = Host(pipe)
        listed = host.result("tools/list")
        refused = host.request("tools/call", {"name": "dev__one__poll", "arguments": {}})
        host.result("tools/call", open_toolbox())
        host.result("tools/call", use_tool("one", "seen"))

    assert [tool["name"] for tool in listed["tools"]] == OWN
    assert refused["error"]["code"] == -32602
    assert CHANGED not in [message.get("method") for message in pipe.others]


@pytest.mark.parametrize("way", ["stdio legacy", "http legacy"])
def test_in_dynamic_mode_apps_of_unopened_toolboxes_are_listed(tmp_path: Path, way: str) -> None:
    config = known(bench(tmp_path, LEGACY, "one", toolMode="dynamic"))
    with shows_apps(config, way) as host:
        before = host.tools()
        called = json_text(host.call("dev__one__poll"))
        host.result("tools/call", open_toolbox())
        after = host.tools()

    assert before["dev__one__seen"]["_meta"]["ui"] == {"visibility": ["app"]}
    assert "ui" not in after["dev__one__seen"]["_meta"]  # now a model is shown it
    assert before["dev__one__show"] == after["dev__one__show"]
    assert called == ["one", "poll"]


@pytest.mark.parametrize("way", WAYS)
def test_with_bare_names_tools_that_two_apps_share_are_told_apart(tmp_path: Path, way: str) -> None:
    era = way.split()[1]
    config = bench(tmp_path, era, "one", "two", toolMode="dynamic", naming="bare")
    with shows_apps(config, way) as host:
        tools = host.tools()
        called = [json_text(host.call(f"dev__{name}__poll")) for name in ("one", "two")]
    with PipeHost(config) as pipe:
        without = Host(pipe).request("tools/list")

    assert [name for name in tools if name.endswith("poll")] == ["dev__one__poll", "dev__two__poll"]
    assert called == [["one", "poll"], ["two", "poll"]]
    assert "have the same name" in without["error"]["message"]


def test_an_endpoint_of_one_toolbox_lists_its_apps_alone(tmp_path: Path) -> None:
    boxes = {name: {"mcpServers": {"one": apps_entry(name, MODERN)}} for name in ("a", "b")}
    config = known(write_config(tmp_path, {"toolboxes": boxes}), *boxes)
    with serving(config) as command:
        http = HttpHost(f"{command.url}/b", modern=True)
        host = Host(http, SHOWS_APPS)
        names = [name for name in host.tools() if "__" in name]
        other = host.request("tools/call", {"name": "a__one__poll", "arguments": {}})
        http.close()

    assert names == ["b__one__seen", "b__one__kind", "b__one__show", "b__one__poll"]
    assert other["error"]["code"] == -32602


def test_a_host_is_notified_when_an_app_leaves_the_configuration(tmp_path: Path) -> None:
    config = known(bench(tmp_path, LEGACY, "one", "two"))
    with PipeHost(config) as pipe:
        host = Host(pipe, SHOWS_APPS)
        before = host.tools()
        called = [json_text(host.call(f"dev__{name}__poll")) for name in ("one", "two")]
        assert CHANGED not in [message.get("method") for message in pipe.others]
        bench(tmp_path, LEGACY, "one")
        pipe.notice(CHANGED)
        after = host.tools()

    assert called == [["one", "poll"], ["two", "poll"]]
    assert "dev__two__show" in before
    assert "dev__two__show" not in after
    assert "dev__one__show" in after


@pytest.mark.parametrize("era", ERAS)
def test_hosts_of_a_shared_workbench_have_apps(tmp_path: Path, era: str) -> None:
    with (
        shared(bench(tmp_path, era, "one", flags=("html",))) as workbench,
        workbench.host(modern=era == MODERN) as pipe,
    ):
        host = Host(pipe, SHOWS_APPS)
        host.result("tools/call", open_toolbox())
        called = json_text(host.call("dev__one__poll"))
        uri = host.tools()["dev__one__show"]["_meta"]["ui"]["resourceUri"]
        page = host.read(uri)["text"]

    assert called == ["one", "poll"]
    assert "dev__one__" in page


def test_an_app_gets_results_whole(tmp_path: Path) -> None:
    boxes = {"dev": {"mcpServers": {"one": apps_entry("one", LEGACY)}, "resultBudget": 200}}
    config = write_config(tmp_path, {"toolboxes": boxes})
    with PipeHost(config) as pipe:
        host = Host(pipe, SHOWS_APPS)
        cut = texts(host.result("tools/call", use_tool("one", "seen")))
        whole = json_text(host.call("dev__one__seen"))

    assert "read_result" in cut[-1]
    assert whole[0]["method"] == "initialize"


def test_a_flat_name_is_read_as_the_server_that_has_the_tool(tmp_path: Path) -> None:
    """In proxy mode, names of toolboxes and servers may contain the separator."""
    boxes = {
        "a": {"mcpServers": {"b__c": apps_entry("first", LEGACY)}},
        "a__b": {"mcpServers": {"c": apps_entry("second", LEGACY)}},
        "d": {"mcpServers": {"e": apps_entry("third", LEGACY)}},
    }
    config = known(write_config(tmp_path, {"toolboxes": boxes}), *boxes)
    with PipeHost(config) as pipe:
        host = Host(pipe, SHOWS_APPS)
        called = [json_text(host.call(name)) for name in ("a__b__c__poll", "d__e__poll")]

    assert called == [["first", "poll"], ["third", "poll"]]
