"""Hosts of the shared workbench: a task goes on without the host that has created it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.results import META, Json, text, use_tool
from tests.kit.shared import shared
from tests.tasks.scenes import ERAS, HAS_TASKS, LEGACY, TERMINAL, bench

pytestmark = pytest.mark.usefixtures("forked_commands")

DECLARED: Json = {"_meta": {META + "clientCapabilities": HAS_TASKS}}


@pytest.mark.parametrize("scope", ["shared", "session"])
@pytest.mark.parametrize("era", ERAS)
def test_the_next_modern_host_hears_of_the_end(tmp_path: Path, era: str, scope: str) -> None:
    with shared(bench(tmp_path, era, entry={"scope": scope})) as workbench:
        with workbench.host(modern=True) as first:
            call = use_tool("jobs", "slow_compute", {"seconds": 0.5})
            task = first.result("tools/call", {**call, **DECLARED})["taskId"]
        with workbench.host(modern=True) as second:
            second.ask("subscriptions/listen", {"notifications": {"taskIds": [task]}, **DECLARED})
            acknowledged = second.notice("notifications/subscriptions/acknowledged")["params"]
            while (state := second.notice("notifications/tasks")["params"])["status"] == "working":
                pass

    assert acknowledged["notifications"] == {"taskIds": [task]}
    assert (state["taskId"], state["status"]) == (task, "completed")
    assert text(state["result"]) == "computed: done after 0.5 s"


def test_the_next_legacy_host_fetches_the_result(tmp_path: Path) -> None:
    config = bench(tmp_path, LEGACY, toolMode="dynamic", entry={"scope": "session"})
    with shared(config) as workbench:
        with workbench.host("--toolbox", "dev") as first:
            first.initialize()
            task = first.call("dev__jobs__slow_compute", {"seconds": 0.5}, task={})["task"]
        with workbench.host("--toolbox", "dev") as second:
            second.initialize()
            result = second.result("tasks/result", {"taskId": task["taskId"]})
            got = second.result("tasks/get", {"taskId": task["taskId"]})

    assert text(result) == "computed: done after 0.5 s"
    assert got["status"] in TERMINAL
