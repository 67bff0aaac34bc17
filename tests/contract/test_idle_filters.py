"""A filter that matches nothing is named while serving: in the opened toolbox, and once in the log."""

from pathlib import Path
from typing import Any

import pytest

from tests.kit.config import config_file, entry, offers_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import json_text

pytestmark = pytest.mark.usefixtures("forked_commands")


def warning(pattern: str) -> str:
    return f"dev/a: toolFilters: '{pattern}' matches none of its tools"


@pytest.mark.parametrize("more", [{}, {"toolMode": "dynamic"}], ids=["proxy", "dynamic"])
def test_the_opened_toolbox_and_the_log_name_it(tmp_path: Path, more: dict[str, Any]) -> None:
    odd = entry(toolFilters=["ec*", "stats", "flop", "!slwo"])
    file = config_file(tmp_path, {"a": odd, "b": entry(toolFilters=["!flip"])}, **more)
    with PipeHost(file) as host:
        host.handshake()
        first, again = host.open(), host.open()

    assert first["warnings"] == again["warnings"] == [warning("flop"), warning("!slwo")]
    lines = [line for line in host.stderr.splitlines() if "toolFilters" in line]
    assert lines == [f"mcp-workbench: {text}" for text in first["warnings"]]


def test_a_call_alone_names_it_in_the_log(tmp_path: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": entry(toolFilters=["echo", "flop"])})) as host:
        host.handshake()
        assert json_text(host.use("a", "echo"))

    assert host.stderr.count(warning("flop")) == 1


def test_a_server_without_tools_and_without_a_filter_is_fine(tmp_path: Path) -> None:
    none = tmp_path / "tools.json"
    none.write_text("[]")
    with PipeHost(config_file(tmp_path, {"a": entry(f"tools={none}")})) as host:
        host.handshake()
        opened = host.open()

    assert opened["tools"] == []
    assert "warnings" not in opened


def test_a_filter_is_fine_again_when_the_server_has_learned_the_tool(tmp_path: Path) -> None:
    learner = offers_entry("one", "legacy") | {"toolFilters": ["learn", "dance"]}
    with PipeHost(config_file(tmp_path, {"a": learner})) as host:
        host.handshake()
        assert host.open()["warnings"] == [warning("dance")]
        host.use("a", "learn", {"tool": "dance"})
        assert json_text(host.use("a", "dance")) is not None
        assert "warnings" not in host.open()
