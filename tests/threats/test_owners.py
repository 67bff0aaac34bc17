"""A server answers for its own resources, and for no other's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.config import offers_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import Message
from tests.primitives.scenes import ERAS, MODERN, begin, bench, use

pytestmark = pytest.mark.usefixtures("forked_commands")

SHARED = "note://shared"  # both servers have one


def text(host: PipeHost, uri: str) -> str:
    [content] = host.result("resources/read", {"uri": uri})["contents"]
    return content["text"]


def servers(era: str) -> dict[str, dict[str, Message]]:
    return {"dev": {"one": offers_entry("one", era), "two": offers_entry("two", era)}}


@pytest.mark.parametrize("era", ERAS)
def test_a_later_server_does_not_answer_while_only_its_own_list_is_known(
    tmp_path: Path, era: str
) -> None:
    with PipeHost(bench(tmp_path, servers(era)), modern=era == MODERN) as host:
        begin(host, "dev")
        host.result("resources/list")
        assert text(host, SHARED) == f"one has {SHARED}"

        host.use("one", "die")  # its next self has not been asked for a list

        assert text(host, SHARED) == f"one has {SHARED}"


def test_nor_while_the_earlier_one_can_not_be_reached(tmp_path: Path) -> None:
    switch = tmp_path / "on"
    switch.touch()
    entry = offers_entry("one", "legacy")
    line = f'test -e {switch} && exec "$@"'
    entry = {**entry, "command": "sh", "args": ["-c", line, "sh", entry["command"], *entry["args"]]}
    boxes = {"dev": {"one": entry, "two": offers_entry("two", "legacy")}}
    with PipeHost(bench(tmp_path, boxes)) as host:
        begin(host, "dev")
        host.result("resources/list")
        switch.unlink()
        host.use("one", "die")

        for _ in range(2):
            error = host.error("resources/read", {"uri": SHARED})
            assert "two has" not in str(error)
            assert "one" in error["message"]
        assert text(host, "note://two/own") == "two has note://two/own"


@pytest.mark.parametrize("era", ERAS)
def test_nobody_keeps_the_view_of_another_servers_tool(tmp_path: Path, era: str) -> None:
    with PipeHost(bench(tmp_path, servers(era)), modern=era == MODERN) as host:
        begin(host, "dev")
        use(host, "dev", "two", "learn", resource="ui://one/view")
        host.result("resources/list")

        assert text(host, "ui://one/view") == "one has ui://one/view"


def test_the_only_one_that_answers_does_not_get_what_may_be_anothers(tmp_path: Path) -> None:
    boxes = {"dev": {"one": {"command": "false"}, "two": offers_entry("two", "legacy")}}
    with PipeHost(bench(tmp_path, boxes)) as host:
        begin(host, "dev")

        error = host.error("resources/read", {"uri": "wild:thing"})

    assert error["message"] == "Resource not found: wild:thing"
