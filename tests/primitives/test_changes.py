"""What hosts hear unasked: changes of lists and of resources, in every pair of eras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.clock import eventually
from tests.kit.config import offers_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import META, Message
from tests.primitives.scenes import ERAS, LEGACY, MODERN, begin, bench, names, seen, use

pairs = pytest.mark.parametrize(("host_era", "server_era"), [(h, s) for h in ERAS for s in ERAS])
SHARED = "note://shared"
OTHER = "mcp-workbench://dev/two/note://shared"
TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"


def scene(folder: Path, host_era: str, server_era: str, **more: Any) -> PipeHost:
    servers = {"one": offers_entry("one", server_era), "two": offers_entry("two", server_era)}
    return PipeHost(bench(folder, {"dev": servers}, **more), modern=host_era == MODERN)


def listen(host: PipeHost, **wanted: Any) -> tuple[Any, Message]:
    """Begin to listen; the id, and what is honoured."""
    id = host.ask("subscriptions/listen", {"notifications": wanted})
    first = host.until(lambda message: message.get("id") == id or "method" in message)
    assert first["method"] == "notifications/subscriptions/acknowledged", first
    assert first["params"]["_meta"] == {META + "subscriptionId": id}
    return id, first["params"]["notifications"]


def watch(host: PipeHost, *uris: str, **kinds: bool) -> Message:
    """Hear of changes in the way of the host's era; the `_meta` that notices then have."""
    if not host.modern:
        for uri in uris:
            assert host.result("resources/subscribe", {"uri": uri}) == {}
        return {}
    id, _ = listen(host, resourceSubscriptions=list(uris), **kinds)
    return {"_meta": {META + "subscriptionId": id}}


@pairs
def test_a_change_of_a_list_is_heard_where_the_list_was_seen(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    with scene(tmp_path, host_era, server_era) as host:
        begin(host, "dev")
        host.result("prompts/list")
        host.result("resources/list")
        tag = watch(host, promptsListChanged=True, resourcesListChanged=True)

        use(host, "dev", "one", "learn", prompt="late")
        heard = host.notice(PROMPTS)
        use(host, "dev", "two", "learn", resource="note://late")
        also = host.notice(RESOURCES)

        assert heard.get("params", {}) == also.get("params", {}) == tag
        assert "dev__one__late" in names(host.result("prompts/list"), "prompts")
        assert "note://late" in names(host.result("resources/list"), "resources", "uri")


@pairs
def test_a_false_alarm_and_what_was_never_seen_are_not_told(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    with scene(tmp_path, host_era, server_era) as host:
        begin(host, "dev")
        host.result("prompts/list")
        watch(host, promptsListChanged=True)
        use(host, "dev", "one", "learn")
        use(host, "dev", "one", "learn", resource="note://late")
        use(host, "dev", "two", "learn", prompt="late")
        host.notice(PROMPTS)

        assert [m["method"] for m in host.others if m.get("method") in (PROMPTS, RESOURCES)] == []
        assert len(seen(host, "dev", "one", "resources/list")) == 0


@pairs
def test_a_resource_s_changes_are_heard_under_the_uri_that_the_host_knows(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    with scene(tmp_path, host_era, server_era) as host:
        begin(host, "dev")
        host.result("resources/list")
        tag = watch(host, SHARED, OTHER)

        use(host, "dev", "two", "touch", uri=SHARED)
        second = host.notice(UPDATED)
        use(host, "dev", "one", "touch", uri=SHARED)
        first = host.notice(UPDATED)

        assert second["params"] == {"uri": OTHER, **tag}
        assert first["params"] == {"uri": SHARED, **tag}


@pairs
def test_whoever_unsubscribes_hears_no_more_and_the_server_knows(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    with scene(tmp_path, host_era, server_era) as host:
        begin(host, "dev")
        host.result("resources/list")
        own = "note://one/own"
        tag = watch(host, SHARED, own)
        if host.modern:
            host.notify(
                "notifications/cancelled", {"requestId": tag["_meta"][META + "subscriptionId"]}
            )
            watch(host, own)
        else:
            assert host.result("resources/unsubscribe", {"uri": SHARED}) == {}
            assert host.result("resources/unsubscribe", {"uri": "note://never"}) == {}

        use(host, "dev", "one", "touch", uri=SHARED)
        use(host, "dev", "one", "touch", uri=own)
        heard = host.notice(UPDATED)

        assert heard["params"]["uri"] == own
        if server_era == LEGACY:
            gone = [params["uri"] for params in seen(host, "dev", "one", "resources/unsubscribe")]
            assert SHARED in gone
        else:
            last = seen(host, "dev", "one", "subscriptions/listen")[-1]
            assert last["notifications"] == {"resourceSubscriptions": [own]}


def test_a_legacy_server_s_refusal_to_subscribe_reaches_a_legacy_host(tmp_path: Path) -> None:
    with scene(tmp_path, LEGACY, LEGACY) as host:
        begin(host, "dev")
        error = host.error("resources/subscribe", {"uri": "item://one/7"})
        unknown = host.error("resources/subscribe", {"uri": "note://nowhere"})

    assert error == {
        "code": -32000,
        "message": "items are not watched",
        "data": {"uri": "item://one/7"},
    }
    assert unknown["code"] == -32002


def test_what_can_t_be_honoured_is_left_out_of_the_acknowledgement(tmp_path: Path) -> None:
    with scene(tmp_path, MODERN, LEGACY) as host:
        uris = [SHARED, "note://nowhere", "item://one/7"]
        _, honoured = listen(host, toolsListChanged=True, resourceSubscriptions=uris)

    assert honoured == {"toolsListChanged": True, "resourceSubscriptions": [SHARED]}


@pytest.mark.parametrize("server_era", ERAS)
def test_a_modern_host_hears_of_a_list_that_nobody_has_read(
    tmp_path: Path, server_era: str
) -> None:
    with scene(tmp_path, MODERN, server_era) as host:
        host.open("dev")
        watch(host, promptsListChanged=True, resourcesListChanged=True)
        use(host, "dev", "one", "learn", resource="note://late")
        host.notice(RESOURCES)
        use(host, "dev", "one", "learn", prompt="late")
        host.notice(PROMPTS)

        assert [message.get("method") for message in host.others] == []
        assert seen(host, "dev", "one", "prompts/list") == []


def test_a_modern_host_hears_of_tools_in_dynamic_mode(tmp_path: Path) -> None:
    with scene(tmp_path, MODERN, LEGACY, mode="dynamic") as host:
        _, honoured = listen(host, toolsListChanged=True, promptsListChanged=False)

    assert honoured == {"toolsListChanged": True}


@pairs
def test_in_proxy_mode_the_tools_of_a_server_are_not_in_the_menu_that_changes(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    with scene(tmp_path, host_era, server_era) as host:
        begin(host, "dev")
        menu = host.result("tools/list")["tools"]
        host.result("prompts/list")
        watch(host, toolsListChanged=True, promptsListChanged=True)

        host.use("one", "learn", {"tool": "dance"})
        eventually(lambda: "dance" in str(host.open("dev")), "its new tool is listed")
        use(host, "dev", "one", "learn", prompt="late")
        host.notice(PROMPTS)

        assert TOOLS not in [message.get("method") for message in host.others]
        assert host.result("tools/list")["tools"] == menu


def test_listening_ends_with_a_result_when_the_host_leaves(tmp_path: Path) -> None:
    with scene(tmp_path, MODERN, LEGACY) as host:
        id, _ = listen(host, promptsListChanged=True)
        host.close()
        (last,) = [message for message in host.rest() if message.get("id") == id]

    assert last["result"]["resultType"] == "complete"
    assert last["result"]["_meta"][META + "subscriptionId"] == id


def test_opening_a_toolbox_tells_of_lists_that_the_host_has_looked_at(tmp_path: Path) -> None:
    boxes = {
        "full": {"s": offers_entry("s", LEGACY)},
        "bare": {"p": offers_entry("p", LEGACY, "bare")},
    }
    with PipeHost(bench(tmp_path, boxes)) as host:
        begin(host)
        assert host.result("prompts/list") == {"prompts": []}
        host.open("bare")
        host.open("full")
        host.notice(PROMPTS)
        host.result("ping")

        assert host.others == []  # one for one, and nothing about resources


@pytest.mark.parametrize("era", ERAS)
def test_each_era_has_its_own_way_to_subscribe(tmp_path: Path, era: str) -> None:
    with scene(tmp_path, era, LEGACY) as host:
        begin(host)
        if era == LEGACY:
            absent = ["subscriptions/listen"]
        else:
            absent = ["resources/subscribe", "resources/unsubscribe", "logging/setLevel"]
        for method in absent:
            assert host.error(method, {"uri": SHARED, "level": "info"})["code"] == -32601


def test_an_odd_wish_to_listen_is_refused(tmp_path: Path) -> None:
    with scene(tmp_path, MODERN, LEGACY) as host:
        params = {"notifications": {"resourceSubscriptions": "all"}}
        assert host.error("subscriptions/listen", params)["code"] == -32602


@pytest.mark.parametrize("server_era", ERAS)
def test_a_server_that_comes_back_is_subscribed_to_again(tmp_path: Path, server_era: str) -> None:
    with scene(tmp_path, LEGACY, server_era) as host:
        begin(host, "dev")
        watch(host, SHARED)
        host.use("one", "die")
        use(host, "dev", "one", "touch", uri=SHARED)

        assert host.notice(UPDATED)["params"] == {"uri": SHARED}
