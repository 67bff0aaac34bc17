"""No tasks are declared to hosts or servers, so a request for one is an ordinary request."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.protocol.elicitation import asked_by
from tests.extensions.scenes import ERAS, MODERN, Host, bench
from tests.kit.pipe_host import PipeHost
from tests.kit.results import json_text, use_tool

pytestmark = pytest.mark.usefixtures("forked_commands")


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("host_era", ERAS)
def test_a_call_that_asks_for_a_task_is_an_ordinary_call(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    config = bench(tmp_path, server_era, "one", toolMode="dynamic")
    task = {"task": {"ttl": 60_000}, "x-other": 1}
    with PipeHost(config, "--toolbox", "dev", modern=host_era == MODERN) as pipe:
        host = Host(pipe)
        shown = host.result("tools/call", {"name": "dev__one__show", **task})
        used = host.result("tools/call", {**use_tool("one", "show"), **task})
        calls = host.seen("one", "tools/call")[:2]

    assert json_text(shown) == json_text(used) == ["one", "show"]
    assert ["task" in call for call in calls] == [False, False]
    assert [call["x-other"] for call in calls] == [1, 1]


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage"])
def test_a_question_that_asks_for_a_task_is_an_ordinary_question(method: str) -> None:
    params = b'{"task":{"ttl":1},"message":"Name?","messages":[],"x":1.50}'

    question = asked_by(ServerAddress("dev", "one"), method, params)

    assert b"task" not in question.params
    assert b'"x":1.50' in question.params
