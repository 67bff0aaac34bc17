"""A tool is named by its whole identifier, or by its last parts where they are unique."""

from __future__ import annotations

import pytest

from mcp_workbench.cli.tool_names import choose, identify, needed_lists
from mcp_workbench.core.errors import InvalidCall, NotFound, WorkbenchError
from mcp_workbench.core.spec import ServerAddress, ToolIdentifier
from tests.kit.config import snapshot, spec, tool

CONFIG = snapshot(
    spec("files"), spec("git"), spec("git", toolbox="ops"), spec("mail", toolbox="ops")
)
LISTS = {
    ServerAddress("dev", "files"): ("read", "write", "a/b", "x/y/z"),
    ServerAddress("dev", "git"): ("log", "push"),
    ServerAddress("ops", "git"): ("log", "blame"),
    ServerAddress("ops", "mail"): ("send", "read", "mail/send"),
}


@pytest.mark.parametrize(
    ("name", "identified"),
    [
        ("dev/files/read", tool("files", "read")),
        ("dev/files/nope", tool("files", "nope")),
        ("dev/files/a/b", tool("files", "a/b")),
        ("dev/nope/read", tool("nope", "read")),
        ("files/read", tool("files", "read")),
        ("files/nope", tool("files", "nope")),
        ("files/a/b", tool("files", "a/b")),
        ("git/log", None),
        ("read", None),
        ("nope", None),
        ("nope/read", None),
        ("no/such/tool", None),
    ],
)
def test_some_names_need_no_lists(name: str, identified: ToolIdentifier | None) -> None:
    assert identify(name, CONFIG) == identified


@pytest.mark.parametrize(
    ("name", "identified"),
    [
        ("write", tool("files", "write")),
        ("send", tool("mail", "send", "ops")),
        ("git/push", tool("git", "push")),
        ("git/blame", tool("git", "blame", "ops")),
        ("a/b", tool("files", "a/b")),
        ("x/y/z", tool("files", "x/y/z")),
        ("no/such/tool", ToolIdentifier("no", "such", "tool")),  # its toolbox is not found
    ],
)
def test_others_are_chosen_from_the_lists(name: str, identified: ToolIdentifier) -> None:
    assert choose(name, CONFIG, LISTS) == identified


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("read", InvalidCall, "'read' fits 2 tools:\ndev/files/read\nops/mail/read"),
        ("git/log", InvalidCall, "'git/log' fits 2 tools:\ndev/git/log\nops/git/log"),
        ("git/nope", NotFound, "Tool 'git/nope' not found in any server"),
        ("writ", NotFound, "Tool 'writ' not found in any server"),
        ("dev", InvalidCall, "'dev' is a toolbox, not a tool"),
        ("mail", InvalidCall, "'mail' is a server, not a tool"),
    ],
)
def test_a_name_that_fits_none_or_several_is_an_error(
    name: str, kind: type[WorkbenchError], message: str
) -> None:
    with pytest.raises(kind) as raised:
        choose(name, CONFIG, LISTS)
    assert raised.value.message == message
    if name == "writ":
        assert raised.value.hint == "Did you mean 'write'?"


@pytest.mark.parametrize(
    ("name", "field"),
    [("", "toolbox"), ("/b/c", "toolbox"), ("dev//c", "server"), ("dev/files/", "tool"),
     ("dev/files", "tool"), ("files/", "server")],
)  # fmt: skip
def test_no_part_is_empty(name: str, field: str) -> None:
    with pytest.raises(InvalidCall, match=f"{field} cannot be empty"):
        identify(name, CONFIG)


def test_a_server_that_is_named_limits_what_has_to_be_known() -> None:
    assert needed_lists("git/log", CONFIG) == [
        ServerAddress("dev", "git"),
        ServerAddress("ops", "git"),
    ]
    assert len(needed_lists("log", CONFIG)) == 4
