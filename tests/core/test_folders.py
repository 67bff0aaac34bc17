"""Which servers depend on the folder in which they are started."""

from typing import Any

import pytest

from mcp_workbench.core.spec import HttpEndpoint, ServerAddress, ServerSpec, StdioCommand

A = ServerAddress("dev", "a")


@pytest.mark.parametrize(
    "argument", [".", "..", "./src", "../lib", "--root=.", "-r=./src", "--path=..", ".\\src"]
)
def test_a_relative_path_does(argument: str) -> None:
    spec = ServerSpec(A, StdioCommand("npx", ("-y", "files", argument)))

    assert spec.follows_hosts == f"'{argument}' in its args"


@pytest.mark.parametrize(
    "argument",
    ["/srv", "...", ".env", "..x", "a.b", "@scope/files", "--dot=.x", "http://x/.", "src", ""],
)
def test_anything_else_does_not(argument: str) -> None:
    assert ServerSpec(A, StdioCommand("npx", (argument,))).follows_hosts == ""


@pytest.mark.parametrize(
    ("target", "keys", "why"),
    [
        (StdioCommand("x", (".",), cwd="sub"), {}, ""),
        (StdioCommand("x", (".",)), {"scope": "shared"}, ""),
        (StdioCommand("x", (".",)), {"scope": "session"}, ""),
        (StdioCommand("x"), {"scope": "folder"}, "scope: folder"),
        (StdioCommand("x", cwd="sub"), {"scope": "folder"}, ""),
        (HttpEndpoint("http://x/mcp"), {"scope": "folder"}, ""),
    ],
)
def test_the_entry_decides(target: Any, keys: dict[str, Any], why: str) -> None:
    assert ServerSpec(A, target, **keys).follows_hosts == why


def test_a_server_in_a_folder_is_the_same_otherwise() -> None:
    spec = ServerSpec(A, StdioCommand("x", (".",), folder="/config"))

    assert spec.in_folder("/a ${B}").target == StdioCommand(
        "x", (".",), cwd="/a $${B}", folder="/config"
    )
    assert spec.in_folder("") is spec
