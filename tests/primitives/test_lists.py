"""Prompts, resources and templates: listed, got and read, for every pair of eras."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.config import offers_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import META, Message
from tests.primitives.scenes import ERAS, LEGACY, MODERN, begin, bench, names, seen

SHARED = "note://shared"
OTHER = "mcp-workbench://dev/two/note://shared"


@pytest.fixture(scope="module", params=[(h, s) for h in ERAS for s in ERAS], ids="-".join)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PipeHost]:
    """A host of one era, and behind the workbench two servers of one era that offer the same."""
    host_era, server_era = request.param
    servers = {"one": offers_entry("one", server_era), "two": offers_entry("two", server_era)}
    bare = {"plain": offers_entry("plain", server_era, "bare")}
    config = bench(tmp_path_factory.mktemp("pair"), {"dev": servers, "bare": bare})
    with PipeHost(config, modern=host_era == MODERN) as host:
        yield begin(host, "dev")


def test_prompts_are_named_like_tools(pair: PipeHost) -> None:
    found = pair.result("prompts/list")

    assert names(found, "prompts") == [
        "dev__one__greet",
        "dev__one__bare__name",
        "dev__two__greet",
        "dev__two__bare__name",
    ]
    first, second = found["prompts"][:2]
    assert first["description"] == "[dev/one] Greets"
    assert first["arguments"] == [{"name": "who", "required": True}]
    assert second["description"] == "[dev/one] bare__name"
    assert second["x-odd"] == [1, None]
    assert second["_meta"]["original_name"] == "bare__name"


@pytest.mark.parametrize("name", ["greet", "bare__name"])
def test_a_prompt_comes_from_its_server_as_it_is(pair: PipeHost, name: str) -> None:
    got = pair.result("prompts/get", {"name": f"dev__two__{name}", "arguments": {"who": "you"}})

    assert got["messages"][0]["content"]["text"] == f'two: {name} {{"who": "you"}}'
    assert got["x-odd"] == [1, None]
    assert ("resultType" in got) == pair.modern


def test_progress_of_a_prompt_reaches_the_host(pair: PipeHost) -> None:
    pair.result("prompts/get", {"name": "dev__one__greet", "_meta": {"progressToken": "mine"}})

    assert pair.notice("notifications/progress")["params"] == {
        "progressToken": "mine",
        "progress": 1,
    }


@pytest.mark.parametrize("name", ["greet", "dev__none__greet", "dev__one__", "dev__one__none", 7])
def test_an_unknown_prompt_is_an_error_in_every_era(pair: PipeHost, name: object) -> None:
    assert pair.error("prompts/get", {"name": name})["code"] == -32602


def test_resources_keep_their_uris_while_these_are_unique(pair: PipeHost) -> None:
    found = pair.result("resources/list")

    assert names(found, "resources", "uri") == [
        SHARED,
        "note://one/own",
        OTHER,
        "note://two/own",
    ]
    assert found["resources"][0] == {"uri": SHARED, "name": "shared", "x-odd": [1, None]}
    assert found["resources"][2] == {"uri": OTHER, "name": "shared", "x-odd": [1, None]}


@pytest.mark.parametrize(
    ("uri", "owner", "own"),
    [
        (SHARED, "one", SHARED),
        (OTHER, "two", SHARED),
        ("note://two/own", "two", "note://two/own"),
        ("mcp-workbench://dev/two/note://two/own", "two", "note://two/own"),
        ("item://two/7", "two", "item://two/7"),
        ("file:///a%20b", "one", "file:///a%20b"),
        ("mcp-workbench://dev/two/file:///a%20b", "two", "file:///a%20b"),
        ("ui://two/view", "two", "ui://two/view"),
    ],
)
def test_a_resource_is_read_where_it_belongs(
    pair: PipeHost, uri: str, owner: str, own: str
) -> None:
    (content,) = pair.result("resources/read", {"uri": uri})["contents"]

    assert content == {"uri": uri, "text": f"{owner} has {own}", "x-odd": [1, None]}


def test_every_listed_resource_is_read_where_it_was_listed(pair: PipeHost) -> None:
    listed = names(pair.result("resources/list"), "resources", "uri")

    read = [pair.result("resources/read", {"uri": uri})["contents"] for uri in listed]

    assert [content["text"] for [content] in read] == [
        f"one has {SHARED}",
        "one has note://one/own",
        f"two has {SHARED}",
        "two has note://two/own",
    ]


def test_templates_collide_as_resources_do(pair: PipeHost) -> None:
    found = pair.result("resources/templates/list")

    assert names(found, "resourceTemplates", "uriTemplate") == [
        "item://one/{id}",
        "file:///{path}",
        "item://two/{id}",
        "mcp-workbench://dev/two/file:///{path}",
    ]


@pytest.mark.parametrize(
    "uri", ["note://nowhere", "mcp-workbench://dev/none/x:y", "mcp-workbench://dev/one/note://no"]
)
def test_a_resource_that_is_not_there_has_the_code_of_the_host_s_era(
    pair: PipeHost, uri: str
) -> None:
    error = pair.error("resources/read", {"uri": uri})

    assert error["code"] == (-32602 if pair.modern else -32002)
    assert error["data"]["uri"] == uri


def test_lists_say_how_long_they_may_be_kept_where_the_era_wants_to_know(pair: PipeHost) -> None:
    for method in ("prompts/list", "resources/list", "resources/templates/list"):
        found = pair.result(method)
        fields = {"ttlMs", "cacheScope", "resultType"} & found.keys()
        assert fields == ({"ttlMs", "cacheScope", "resultType"} if pair.modern else set())
    read = pair.result("resources/read", {"uri": SHARED})
    assert ("ttlMs" in read, "cacheScope" in read) == (pair.modern, pair.modern)


def test_there_is_one_page(pair: PipeHost) -> None:
    assert pair.error("prompts/list", {"cursor": "1"})["code"] == -32602
    assert "nextCursor" not in pair.result("resources/list", {"cursor": None})


def test_completion_asks_the_owner_by_its_own_name(pair: PipeHost) -> None:
    argument = {"name": "who", "value": "a"}

    def completed(**ref: str) -> list[str]:
        params = {"ref": ref, "argument": argument}
        return pair.result("completion/complete", params)["completion"]["values"]

    assert completed(type="ref/prompt", name="dev__two__greet") == [
        "two",
        '{"type": "ref/prompt", "name": "greet"}',
        "a",
    ]
    assert completed(type="ref/resource", uri="item://two/{id}")[0] == "two"
    addressed = completed(type="ref/resource", uri="mcp-workbench://dev/two/file:///{path}")
    assert addressed[:2] == ["two", '{"type": "ref/resource", "uri": "file:///{path}"}']


def test_a_server_that_completes_nothing_completes_with_nothing(pair: PipeHost) -> None:
    ref = {"type": "ref/prompt", "name": "bare__plain__x"}

    done = pair.result("completion/complete", {"ref": ref, "argument": {"name": "a", "value": ""}})

    assert done["completion"] == {"values": []}


def test_a_wrong_reference_is_refused(pair: PipeHost) -> None:
    refs: list[Any] = [{}, {"type": "ref/tool"}, [], {"type": "ref/prompt", "name": "x"}]
    for ref in refs:
        params: Message = {"ref": ref, "argument": {"name": "a", "value": ""}}
        assert pair.error("completion/complete", params)["code"] == -32602


def test_a_list_is_read_from_its_server_once(pair: PipeHost) -> None:
    for _ in range(3):
        pair.result("prompts/list")
        pair.result("resources/list")

    assert len(seen(pair, "dev", "one", "prompts/list")) == 2  # two pages
    assert len(seen(pair, "dev", "one", "resources/list")) == 2


def test_a_server_that_declares_nothing_is_not_asked(pair: PipeHost) -> None:
    pair.result("prompts/list")

    assert seen(pair, "bare", "plain", "prompts/list") == []


@pytest.mark.parametrize("era", ERAS)
def test_only_opened_toolboxes_are_seen_by_a_legacy_host(tmp_path: Path, era: str) -> None:
    boxes = {name: {"s": offers_entry(name, LEGACY)} for name in ("a", "b")}
    with PipeHost(bench(tmp_path, boxes), modern=era == MODERN) as host:
        begin(host)
        before = names(host.result("prompts/list"), "prompts")
        host.open("b")
        after = names(host.result("prompts/list"), "prompts")

    everything = [f"{box}__s__{name}" for box in "ab" for name in ("greet", "bare__name")]
    assert before == ([] if era == LEGACY else everything)
    assert after == (everything[2:] if era == LEGACY else everything)


def test_what_was_not_opened_can_still_be_asked_for_by_its_full_name(tmp_path: Path) -> None:
    with PipeHost(bench(tmp_path, {"a": {"s": offers_entry("s", LEGACY)}})) as host:
        begin(host)
        got = host.result("prompts/get", {"name": "a__s__greet"})
        read = host.result("resources/read", {"uri": "mcp-workbench://a/s/wild:x"})
        wild = host.result("resources/read", {"uri": "wild:y"})  # the only one that has any

    assert got["messages"][0]["content"]["text"].startswith("s: greet")
    assert read["contents"][0]["uri"] == "mcp-workbench://a/s/wild:x"
    assert wild["contents"][0]["text"] == "s has wild:y"


def test_names_with_separators_are_told_apart_in_proxy_mode(tmp_path: Path) -> None:
    boxes = {"a": {"b__bare": offers_entry("one", LEGACY), "b": offers_entry("two", LEGACY)}}
    with PipeHost(bench(tmp_path, boxes)) as host:
        begin(host, "a")
        outer = host.result("prompts/get", {"name": "a__b__bare__name"})
        inner = host.result("prompts/get", {"name": "a__b__bare__greet"})

    assert outer["messages"][0]["content"]["text"].startswith("two: bare__name")
    assert inner["messages"][0]["content"]["text"].startswith("one: greet")


def test_a_dead_server_costs_itself_alone(tmp_path: Path) -> None:
    dead: Any = {"command": "no-such-command-here", "args": []}
    boxes = {"dev": {"dead": dead, "one": offers_entry("one", MODERN)}}
    with PipeHost(bench(tmp_path, boxes), modern=True) as host:
        found = host.result("prompts/list")
        error = host.error("prompts/get", {"name": "dev__dead__x"})

    assert names(found, "prompts") == ["dev__one__greet", "dev__one__bare__name"]
    assert found["ttlMs"] == 0
    assert error["code"] == -32603
    assert error["message"].startswith("Failed to connect to server 'dead' in toolbox 'dev'")


def test_a_server_without_templates_has_none(tmp_path: Path) -> None:
    boxes = {"dev": {"one": offers_entry("one", LEGACY, "no_templates", "quiet")}}
    with PipeHost(bench(tmp_path, boxes)) as host:
        begin(host, "dev")

        assert host.result("resources/templates/list") == {"resourceTemplates": []}
        host.result("resources/list")
        host.result("resources/list")
        assert len(seen(host, "dev", "one", "resources/list")) == 4  # it announces no change


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("host_era", ERAS)
def test_a_server_learns_that_the_host_shows_views_and_no_other_extension(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    views = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
    capabilities = {"extensions": {**views, "example.com/other": {}}, "experimental": {}}
    config = bench(tmp_path, {"dev": {"one": offers_entry("one", server_era)}})
    with PipeHost(config, modern=host_era == MODERN) as host:
        if host_era == LEGACY:
            info = {"name": "h", "version": "1"}
            opening = {
                "protocolVersion": "2025-11-25",
                "capabilities": capabilities,
                "clientInfo": info,
            }
            host.result("initialize", opening)
        stamp = {META + "clientCapabilities": capabilities} if host_era == MODERN else {}
        host.result("prompts/get", {"name": "dev__one__greet", "_meta": stamp})

        if server_era == LEGACY:
            (opened,) = seen(host, "dev", "one", "initialize")
            declared = opened["capabilities"]
        else:
            (got,) = seen(host, "dev", "one", "prompts/get")
            declared = got["_meta"][META + "clientCapabilities"]
    assert declared == {"extensions": views}


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("host_era", ERAS)
def test_a_legacy_host_is_spared_what_it_can_t_read_of_a_modern_server(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    config = bench(tmp_path, {"dev": {"one": offers_entry("one", server_era)}}, mode="dynamic")
    with PipeHost(config, modern=host_era == MODERN) as host:
        begin(host, "dev")
        tools = {tool["name"]: tool for tool in host.result("tools/list")["tools"]}
        result = host.call("dev__one__numbers")

    spared = (host_era, server_era) == (LEGACY, MODERN)
    assert ("outputSchema" in tools["dev__one__numbers"]) is not spared
    assert ("structuredContent" in result) is not spared
    assert result["content"] == ([{"type": "text", "text": "[1, 2.0]"}] if spared else [])


def test_a_view_is_found_before_anything_else_was_asked(tmp_path: Path) -> None:
    boxes = {"dev": {name: offers_entry(name, LEGACY) for name in ("one", "two")}}
    with PipeHost(bench(tmp_path, boxes), modern=True) as host:
        (content,) = host.result("resources/read", {"uri": "ui://two/view"})["contents"]

    assert content["text"] == "two has ui://two/view"
