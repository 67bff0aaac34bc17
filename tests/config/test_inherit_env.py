"""`inheritEnv`: which variables of ours a server gets, and whose key decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config.expand import expand_target, secrets_of
from mcp_workbench.core.spec import ServerAddress, ServerSpec, StdioCommand
from mcp_workbench.upstream.launch import child_environment
from tests.config.scenes import load, one_server, problems, warnings

OWN = {
    "PATH": "/bin",
    "AWS_PROFILE": "work",
    "AWS_REGION": "eu",
    "KUBECONFIG": "/k",
    "GITHUB_TOKEN": "ghp_0123456789",
    "BASH_FUNC_ls%%": "() { evil; }",
    "MCP_WORKBENCH_HTTP_TOKEN": "our own",
}


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (False, ""),
        ([], ""),
        (["KUBECONFIG"], "KUBECONFIG"),
        (["AWS_*", "NOT_SET"], "AWS_PROFILE AWS_REGION"),
        (["AWS_*", "!*_REGION"], "AWS_PROFILE"),
        (["!*_TOKEN"], "AWS_PROFILE AWS_REGION KUBECONFIG"),
        (True, "AWS_PROFILE AWS_REGION KUBECONFIG GITHUB_TOKEN"),
        (["MCP_WORKBENCH_HTTP_TOKEN"], "MCP_WORKBENCH_HTTP_TOKEN"),
    ],
)
def test_the_child_gets_these_besides_the_usual_ones(
    tmp_path: Path, value: Any, names: str
) -> None:
    spec = one_server(tmp_path, {"command": "x", "inheritEnv": value})
    target = expand_target(spec, OWN)

    assert isinstance(target, StdioCommand)
    assert child_environment(OWN, target) == {name: OWN[name] for name in ["PATH", *names.split()]}


def test_what_the_entry_sets_wins() -> None:
    target = StdioCommand("x", env=(("KUBECONFIG", "/other"),), inherit=("*",))

    assert child_environment(OWN, target)["KUBECONFIG"] == "/other"


def test_the_nearest_key_decides(tmp_path: Path) -> None:
    plain, own = {"command": "x"}, {"command": "x", "inheritEnv": ["SERVER"]}
    boxes = {
        "one": {"inheritEnv": ["BOX"], "mcpServers": {"plain": plain, "own": own}},
        "two": {"mcpServers": {"plain": plain, "own": own}},
        "three": {"inheritEnv": False, "mcpServers": {"plain": plain}},
    }

    snapshot = load(tmp_path, {"inheritEnv": ["FILE"], "toolboxes": boxes})

    inherited = {
        str(spec.address): spec.target.inherit
        for box in snapshot.toolboxes.values()
        for spec in box.servers.values()
        if isinstance(spec.target, StdioCommand)
    }
    assert inherited == {
        "one/plain": ("BOX",),
        "one/own": ("SERVER",),
        "two/plain": ("FILE",),
        "two/own": ("SERVER",),
        "three/plain": (),
    }


def test_the_key_of_a_file_without_toolboxes_holds_for_its_servers(tmp_path: Path) -> None:
    snapshot = load(tmp_path, {"inheritEnv": True, "mcpServers": {"s": {"command": "x"}}})

    target = snapshot.toolbox("default").server("s").target
    assert isinstance(target, StdioCommand)
    assert target.inherit == ("*",)


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ("AWS_*", "inheritEnv", "must be true, false or a list of strings, not a string"),
        ([1], "inheritEnv[0]", "must be a string, not a number"),
        ([""], "inheritEnv[0]", "must not be empty"),
        (["A=1"], "inheritEnv[0]", "is not the name of a variable"),
    ],
)
def test_another_value_is_an_error(tmp_path: Path, value: Any, path: str, message: str) -> None:
    entry = {"command": "x", "inheritEnv": value}

    [problem] = problems(tmp_path, {"mcpServers": {"s": entry}})

    assert (problem.path, problem.message) == (f"mcpServers.s.{path}", message)


def test_beside_a_url_it_has_no_effect(tmp_path: Path) -> None:
    [(path, message, _)] = warnings(tmp_path, {"url": "http://x/mcp", "inheritEnv": True})

    assert (path, message) == ("inheritEnv", "has no effect beside 'url'")


def test_a_url_in_a_toolbox_that_has_it_is_no_warning(tmp_path: Path) -> None:
    box = {"inheritEnv": True, "mcpServers": {"s": {"url": "http://x/mcp"}}}

    assert load(tmp_path, {"toolboxes": {"dev": box}}).warnings == ()


def test_an_inherited_secret_is_masked() -> None:
    spec = ServerSpec(ServerAddress("a", "b"), StdioCommand("x", inherit=("*",)))

    assert secrets_of(spec, OWN) == {"ghp_0123456789": "GITHUB_TOKEN"}
