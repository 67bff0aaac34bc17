"""Sandboxes in hosts' files: what VS Code confines stays confined after an import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.hosts.files import HostFile, Machine
from mcp_workbench.hosts.read import HostServer, servers_in
from mcp_workbench.hosts.table import HOSTS

AROUND = Machine(Path("/home/ada"), Path("/home/ada/work"), {}, "linux")
FILESYSTEM = {"allowWrite": ["./out", "~/x"], "denyRead": ["~/.ssh"], "denyWrite": ["./out/.git"]}


def server(entry: dict[str, Any], **top: Any) -> HostServer:
    file = {"servers": {"s": {"type": "stdio", "command": "x", **entry}}, **top}
    mine = HostFile(HOSTS["vscode"], Path("/home/ada/work/.vscode/mcp.json"), "project")
    (found,) = servers_in(mine, json.dumps(file), AROUND)
    return found


def test_the_lists_of_vs_code_become_ours() -> None:
    found = server({"sandboxEnabled": True, "sandbox": {"filesystem": FILESYSTEM}})

    assert found.entry["sandbox"] == {
        "read": ["/", "/home/ada/work/out/.git"],
        "write": ["/home/ada/work/out", "~/x"],
        "hide": ["~/.ssh"],
        "network": False,
    }
    assert found.notes == ()


def test_the_sandbox_at_the_top_is_for_those_that_are_enabled() -> None:
    top = {"filesystem": {"allowWrite": ["${workspaceFolder}/out"]}}

    enabled = server({"sandboxEnabled": True}, sandbox=top)
    assert enabled.entry["sandbox"]["write"] == ["/home/ada/work/out"]
    for other in ({"sandboxEnabled": False}, {}):
        assert "sandbox" not in server(other, sandbox=top).entry


def test_domains_are_not_kept_and_that_is_said() -> None:
    box = {"network": {"allowedDomains": ["a.example", "b.example", "c.example", "d.example"]}}

    found = server({"sandboxEnabled": True, "sandbox": box})

    assert found.entry["sandbox"]["network"] is True
    shown = "a.example, b.example, c.example, …"
    assert found.notes == (f"its sandbox has the whole network, not only {shown}",)


def test_a_launcher_keeps_what_it_needs_to_download() -> None:
    found = server({"command": "/usr/bin/npx", "args": ["x"], "sandboxEnabled": True})

    assert found.entry["sandbox"] == {"read": ["/"], "write": ["~/.npm"], "network": True}
    assert found.notes == ("its sandbox has the whole network, because npx downloads",)


@pytest.mark.parametrize("own", ["process", "auto", {"read": ["/a"], "network": True}], ids=str)
def test_a_sandbox_of_ours_is_carried(own: Any) -> None:
    assert server({"sandbox": own}).entry["sandbox"] == own


@pytest.mark.parametrize("other", [True, 1, "seatbelt", {"image": "x"}], ids=str)
def test_a_sandbox_of_another_kind_is_named(other: Any) -> None:
    found = server({"sandbox": other})

    assert "sandbox" not in found.entry
    assert found.notes == ("not carried: sandbox",)
