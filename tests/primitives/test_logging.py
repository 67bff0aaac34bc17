"""The log of servers reaches hosts that want it, in every pair of eras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.config import offers_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import META, Message
from tests.primitives.scenes import ERAS, LEGACY, MODERN, begin, bench, seen

pairs = pytest.mark.parametrize(("host_era", "server_era"), [(h, s) for h in ERAS for s in ERAS])


def scene(folder: Path, host_era: str, server_era: str) -> PipeHost:
    boxes = {"dev": {"one": offers_entry("one", server_era)}}
    return PipeHost(bench(folder, boxes), modern=host_era == MODERN)


def let_log(host: PipeHost, level: str) -> list[Message]:
    """Have the server say something at three levels; what the host heard."""
    more: dict[str, Any] = {}
    if host.modern and level:
        more = {"_meta": {META + "logLevel": level}}
    elif level:
        assert host.result("logging/setLevel", {"level": level}) == {}
    host.use("one", "log", **more)
    heard = [m["params"] for m in host.others if m.get("method") == "notifications/message"]
    host.others.clear()
    return heard


@pairs
def test_a_level_lets_through_what_is_at_least_as_grave(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    with scene(tmp_path, host_era, server_era) as host:
        begin(host)
        for level, through in (("info", ["info", "error"]), ("debug", ["debug", "info", "error"])):
            heard = let_log(host, level)
            assert [message["level"] for message in heard] == through
        assert heard[0] == {
            "level": "debug",
            "logger": "one",
            "data": {"say": "debug", "x-odd": [1, None]},
        }


@pairs
def test_without_a_level_each_era_has_its_rule(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    with scene(tmp_path, host_era, server_era) as host:
        begin(host, "dev")
        heard = let_log(host, "")

    # A modern host hears nothing that it has not asked for; a legacy one what its servers choose.
    assert len(heard) == (0 if host_era == MODERN else 3)


@pairs
def test_the_server_learns_the_level_in_its_own_way(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    with scene(tmp_path, host_era, server_era) as host:
        begin(host)
        let_log(host, "warning")
        let_log(host, "info")
        let_log(host, "info")
        calls = seen(host, "dev", "one", "tools/call")
        levels = [params["level"] for params in seen(host, "dev", "one", "logging/setLevel")]

    told = [params.get("_meta", {}).get(META + "logLevel") for params in calls[:3]]
    assert told == (["warning", "info", "info"] if server_era == MODERN else [None] * 3)
    assert levels == ([] if server_era == MODERN else ["warning", "info"])


def test_a_level_holds_for_servers_that_come_later(tmp_path: Path) -> None:
    with scene(tmp_path, LEGACY, LEGACY) as host:
        begin(host)
        host.result("logging/setLevel", {"level": "error"})

        assert [m["level"] for m in let_log(host, "")] == ["error"]


@pytest.mark.parametrize("era", ERAS)
def test_an_unknown_level_is_refused(tmp_path: Path, era: str) -> None:
    with scene(tmp_path, era, LEGACY) as host:
        begin(host)
        for level in ("loud", 3, None):
            if era == LEGACY:
                error = host.error("logging/setLevel", {"level": level})
            else:
                error = host.error("prompts/list", {"_meta": {META + "logLevel": level}})
            assert error["code"] == -32602, level
