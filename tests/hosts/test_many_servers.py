"""Importing or removing many servers takes a time that grows with their number, not with its square."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from mcp_workbench.hosts.merge import merge
from mcp_workbench.hosts.own_config import OwnServer
from mcp_workbench.hosts.plan import Member, edited, editor
from mcp_workbench.hosts.read import HostServer
from mcp_workbench.hosts.secrets import masked

pytestmark = pytest.mark.cost

FEW, MANY = 50, 200


def entry(number: int, package: str = "") -> dict[str, Any]:
    secret = f"sk-{number:020}"
    args = ["-y", package or f"package-{number}", "--token", secret]
    return {"command": "npx", "args": args, "env": {"API_KEY": secret, "MODE": "x"}}


def calls(action: Callable[[], object]) -> int:
    """How many functions it calls: the same on a busy machine, unlike its time."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def imported(count: int) -> None:
    servers = [HostServer(f"s{n}", "cursor", "mcp.json", entry(n)) for n in range(count)]
    existing = [OwnServer("b", f"old{n}", (), entry(n, f"other-{n}")) for n in range(count)]
    new = {choice.name: choice.entry for choice in merge(servers, existing).new}
    assert len(new) == count
    members = [Member(("mcpServers", name), value) for name, value in new.items()]
    after = edited("", "json", members)
    again = [Member(("mcpServers", f"{m.keys[-1]}-2"), m.value) for m in members]
    edited(after, "json", again)


def hidden(count: int) -> None:
    text = edited("", "json", [Member(("servers", f"s{n}"), entry(n)) for n in range(count)])
    assert masked(text, "json").count("[hidden]") == 2 * count


def removed(count: int, format: str) -> None:
    members = [Member(("servers", f"s{n}"), entry(n)) for n in range(count)]
    text = edited("", format, members)
    every_second = [member.keys for member in members[::2]]
    left = edited(text, format, remove=every_second)
    assert list(editor(format).lookup(left, ("servers",))) == [f"s{n}" for n in range(1, count, 2)]
    assert edited(left, format, remove=[member.keys for member in members]).count("s1") == 0


@pytest.mark.parametrize(
    "action", [imported, hidden, partial(removed, format="json"), partial(removed, format="toml")]
)
def test_four_times_the_servers_take_four_times_the_work(action: Callable[[int], None]) -> None:
    assert calls(lambda: action(MANY)) < 1.5 * (MANY / FEW) * calls(lambda: action(FEW))
