"""A modern server that stops to announce its changes is listened to again, slowly, and not believed meanwhile."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.upstream.subscriptions import SHORTEST
from tests.kit.clock import eventually
from tests.kit.config import offers_entry
from tests.kit.pipe_host import PipeHost
from tests.primitives.scenes import ERAS, MODERN, begin, bench, names, seen, use
from tests.primitives.test_changes import PROMPTS, SHARED, UPDATED, watch

LISTEN = "subscriptions/listen"
pairs = pytest.mark.parametrize("host_era", ERAS)
ways = pytest.mark.parametrize("by", ["result", "error", "cancelled"])


def scene(folder: Path, host_era: str, *flags: str, **more: Any) -> PipeHost:
    boxes = {"dev": {"one": offers_entry("one", MODERN, *flags)}}
    return PipeHost(bench(folder, boxes, **more), modern=host_era == MODERN)


def listens(host: PipeHost) -> list[Any]:
    return [params["notifications"] for params in seen(host, "dev", "one", LISTEN)]


@ways
@pairs
def test_its_lists_are_read_anew_until_it_announces_again(
    tmp_path: Path, host_era: str, by: str
) -> None:
    with scene(tmp_path, host_era) as host:
        begin(host, "dev")
        host.result("prompts/list")
        watch(host, promptsListChanged=True)
        [wanted] = listens(host)
        since = time.monotonic()
        use(host, "dev", "one", "hang_up", by=by)
        use(host, "dev", "one", "learn", prompt="late")  # nobody hears of it

        assert "dev__one__late" in names(host.result("prompts/list"), "prompts")
        eventually(lambda: len(listens(host)) == 2, "it is listened to again")
        assert time.monotonic() - since >= SHORTEST * 0.9
        assert listens(host) == [wanted, wanted]
        use(host, "dev", "one", "learn", prompt="later")
        host.notice(PROMPTS)
        assert "dev__one__later" in names(host.result("prompts/list"), "prompts")


@pairs
def test_what_changed_in_between_is_told_afterwards(tmp_path: Path, host_era: str) -> None:
    with scene(tmp_path, host_era) as host:
        begin(host, "dev")
        host.result("prompts/list")
        tag = watch(host, SHARED, promptsListChanged=True)
        use(host, "dev", "one", "hang_up", by="result")
        use(host, "dev", "one", "learn", prompt="late")

        host.notice(PROMPTS)
        assert host.notice(UPDATED)["params"] == {"uri": SHARED, **tag}  # it may have changed
        use(host, "dev", "one", "touch", uri=SHARED)
        assert host.notice(UPDATED)["params"] == {"uri": SHARED, **tag}


@pytest.mark.parametrize("by", ["refusal", "result"])
def test_tools_are_read_anew_as_well(tmp_path: Path, by: str) -> None:
    with scene(tmp_path, MODERN, mode="dynamic") as host:
        before = names(host.result("tools/list"), "tools")
        host.call("dev__one__hang_up", {"by": by})
        host.call("dev__one__learn", {"tool": "late"})

        def learned() -> list[str]:
            after = names(host.result("tools/list"), "tools")
            return [name for name in after if name not in before]

        if by == "refusal":  # it is never listened to again
            assert learned() == ["dev__one__late"]
        eventually(lambda: learned() == ["dev__one__late"], "the new tool is listed")


def test_a_server_that_always_hangs_up_is_not_asked_in_a_storm(tmp_path: Path) -> None:
    with scene(tmp_path, MODERN, "hangs_up") as host:
        since = time.monotonic()
        host.open("dev")
        eventually(lambda: len(listens(host)) == 3, "it is listened to again")

        assert time.monotonic() - since >= SHORTEST * (1 + 2) * 0.9


def test_a_server_that_refuses_is_left_in_peace_and_not_believed(tmp_path: Path) -> None:
    with scene(tmp_path, MODERN) as host:
        host.result("prompts/list")
        use(host, "dev", "one", "hang_up", by="refusal")
        use(host, "dev", "one", "learn", prompt="late")
        time.sleep(SHORTEST * 2)  # in which others are listened to again
        assert len(listens(host)) == 1

        assert "dev__one__late" in names(host.result("prompts/list"), "prompts")
