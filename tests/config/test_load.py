"""What the configuration file holds, sentence by sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config.expand import Unexpandable, expand_target
from mcp_workbench.core.errors import Problem
from mcp_workbench.core.spec import (
    HttpEndpoint,
    Limits,
    ServerAddress,
    ServerSpec,
    StdioCommand,
    ToolFilter,
)
from tests.config.scenes import CONTRACT, load, one_server, problems, warnings


def test_the_example_of_the_contract_loads(tmp_path: Path) -> None:
    snapshot = load(tmp_path, CONTRACT, {"ISSUES_TOKEN": "t"})

    dev = snapshot.toolbox("dev")
    assert dev.description == "Development toolbox"
    assert dev.server("filesystem") == ServerSpec(
        ServerAddress("dev", "filesystem"),
        StdioCommand(
            "npx",
            ("-y", "@modelcontextprotocol/server-filesystem", "."),
            (("TOKEN", "${TOKEN:-none}"),),
            folder=str(tmp_path),
        ),
        ToolFilter(("read_*",), ("read_media_file",)),
        place="toolboxes.dev.mcpServers.filesystem",
    )
    assert dev.server("issues").target == HttpEndpoint(
        "https://example.com/mcp", (("Authorization", "Bearer ${ISSUES_TOKEN}"),)
    )
    assert snapshot.origin == str(tmp_path / "workbench-config.json")
    assert snapshot.warnings == ()


def test_the_tool_mode_is_proxy_unless_the_file_says_dynamic(tmp_path: Path) -> None:
    assert load(tmp_path, {"mcpServers": {}}).tool_mode == "proxy"
    assert load(tmp_path, {"mcpServers": {}, "toolMode": "proxy"}).tool_mode == "proxy"
    assert load(tmp_path, {"mcpServers": {}, "toolMode": "dynamic"}).tool_mode == "dynamic"


def test_another_tool_mode_is_an_error(tmp_path: Path) -> None:
    [problem] = problems(tmp_path, {"mcpServers": {}, "toolMode": "dynamics"})

    assert (problem.path, problem.message) == ("toolMode", 'must be "proxy" or "dynamic"')
    assert problem.fix == "Did you mean 'dynamic'?"


@pytest.mark.parametrize("beside", [{"command": "x", "cwd": "sub"}, {"url": "http://x/mcp"}])
def test_a_scope_that_has_no_effect_is_a_warning(tmp_path: Path, beside: dict[str, str]) -> None:
    [(path, message, fix)] = warnings(tmp_path, {**beside, "scope": "folder"})

    assert (path, fix) == ("scope", "remove it")
    assert message == f"\"folder\" has no effect beside '{list(beside)[-1]}'"


def test_people_have_sign_ins_of_their_own_at_urls_only(tmp_path: Path) -> None:
    [(path, message, fix)] = warnings(tmp_path, {"command": "x", "scope": "principal"})
    assert (path, fix) == ("scope", "remove it")
    assert message == "\"principal\" has no effect beside 'command'"
    assert warnings(tmp_path, {"url": "https://x.example/mcp", "scope": "principal"}) == []


@pytest.mark.parametrize(
    "shared",
    [
        {"headers": {"authorization": "Bearer ${TOKEN:-x}"}},
        {"auth": {"grant": "client_credentials", "clientId": "c", "clientSecret": "${S:-s}"}},
    ],
)
def test_what_people_would_share_contradicts_sign_ins_of_their_own(
    tmp_path: Path, shared: dict[str, Any]
) -> None:
    entry = {"url": "https://x.example/mcp", "scope": "principal", **shared}
    [problem] = problems(tmp_path, {"mcpServers": {"s": entry}})

    assert problem.path.endswith("s.scope")
    assert problem.message.startswith('"principal" contradicts ')
    assert problem.fix == "keep one of the two"


@pytest.mark.parametrize("word", ["type", "transport"])
@pytest.mark.parametrize(
    ("given_", "meant"), [("http", "http"), ("streamable-http", "http"), ("sse", "sse")]
)
def test_a_url_with_a_transport(tmp_path: Path, word: str, given_: str, meant: str) -> None:
    target = one_server(tmp_path, {"url": "http://x/", word: given_}).target

    assert target == HttpEndpoint("http://x/", (), meant)  # type: ignore[arg-type]


def test_the_transport_is_inferred_where_absent(tmp_path: Path) -> None:
    assert one_server(tmp_path, {"url": "http://x/"}).target == HttpEndpoint("http://x/")
    assert isinstance(one_server(tmp_path, {"command": "x"}).target, StdioCommand)
    assert isinstance(one_server(tmp_path, {"command": "x", "type": "stdio"}).target, StdioCommand)


def test_disabled_skips_a_server_but_not_its_neighbours(tmp_path: Path) -> None:
    servers = {"a": {"command": "x", "disabled": True}, "b": {"command": "x", "disabled": False}}

    assert list(load(tmp_path, {"mcpServers": servers}).toolbox("default").servers) == ["b"]


def test_a_disabled_server_may_be_unfinished_but_not_nonsense(tmp_path: Path) -> None:
    assert (
        load(tmp_path, {"mcpServers": {"a": {"disabled": True, "type": "${NOPE}"}}}).warnings == ()
    )
    [problem] = problems(tmp_path, {"mcpServers": {"a": {"disabled": True, "args": 3}}})
    assert problem.path == "mcpServers.a.args"


def test_a_relative_folder_counts_from_the_file(tmp_path: Path) -> None:
    target = one_server(tmp_path, {"command": "x", "cwd": "sub"}).target

    assert isinstance(target, StdioCommand)
    assert (target.cwd, target.folder) == ("sub", str(tmp_path))


def test_times_and_era_have_defaults_and_can_be_set(tmp_path: Path) -> None:
    usual = one_server(tmp_path, {"command": "x"})
    own = one_server(
        tmp_path, {"command": "x", "timeout": 5, "connectTimeout": 0.5, "era": "legacy"}
    )

    assert (usual.connect_timeout, usual.timeout, usual.era) == (120.0, 600.0, "auto")
    assert (own.connect_timeout, own.timeout, own.era) == (0.5, 5.0, "legacy")


def test_limits_can_be_set_one_by_one(tmp_path: Path) -> None:
    limits = {"messageBytes": 2048, "openWait": 1}

    assert load(tmp_path, {"mcpServers": {}, "limits": limits}).limits == Limits(
        message_bytes=2048, open_wait=1.0
    )
    assert (
        load(tmp_path, {"mcpServers": {}, "limits": {"queueBytes": 4096.0}}).limits.queue_bytes
        == 4096
    )


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (None, ToolFilter(("*",))),
        (["*"], ToolFilter(("*",))),
        ([], ToolFilter(())),
        (["!a"], ToolFilter(("*",), ("a",))),
        (["a", "b_*", "!b_c"], ToolFilter(("a", "b_*"), ("b_c",))),
    ],
)
def test_tool_filters(tmp_path: Path, patterns: list[str] | None, expected: ToolFilter) -> None:
    entry = {"command": "x"} | ({} if patterns is None else {"toolFilters": patterns})

    assert one_server(tmp_path, entry).tools == expected


def test_variables_stay_unexpanded_in_the_snapshot(tmp_path: Path) -> None:
    target = one_server(tmp_path, {"command": "${BIN:-x}"}, {"BIN": "secret-bin"}).target

    assert isinstance(target, StdioCommand)
    assert target.command == "${BIN:-x}"


def test_an_unset_variable_costs_its_server_and_no_other(tmp_path: Path) -> None:
    snapshot = load(tmp_path, CONTRACT)
    dev = snapshot.toolbox("dev")

    with pytest.raises(Unexpandable, match="ISSUES_TOKEN"):
        expand_target(dev.server("issues"), {})
    assert isinstance(expand_target(dev.server("filesystem"), {}), StdioCommand)


def test_an_unset_variable_is_a_warning_that_names_variable_place_and_remedy(
    tmp_path: Path,
) -> None:
    [warning] = load(tmp_path, CONTRACT).warnings

    assert warning == Problem(
        "toolboxes.dev.mcpServers.issues.headers.Authorization",
        "variable ISSUES_TOKEN is not set and has no default; the server is unavailable",
        "export ISSUES_TOKEN=…   or write ${ISSUES_TOKEN:-}",
        "WB-CONF-021",
        line=9,
        column=91,
        severity="warning",
    )
    assert CONTRACT.splitlines()[8][90:].startswith("${ISSUES_TOKEN}")


def test_the_strings_that_decide_what_is_shown_are_expanded_at_once(tmp_path: Path) -> None:
    entry = {
        "url": "http://x/",
        "type": "${T}",
        "era": "${E:-legacy}",
        "toolFilters": ["${F}_*", "!${F}"],
    }

    spec = one_server(tmp_path, entry, {"T": "sse", "F": "read"})

    assert spec.target == HttpEndpoint("http://x/", (), "sse")
    assert (spec.era, spec.tools) == ("legacy", ToolFilter(("read_*",), ("read",)))


def test_an_unset_variable_in_a_filter_hides_everything_and_says_why(tmp_path: Path) -> None:
    snapshot = load(tmp_path, {"mcpServers": {"s": {"command": "x", "toolFilters": ["a", "${F}"]}}})

    spec = snapshot.toolbox("default").server("s")
    assert "variable F is not set" in spec.problem
    assert "mcpServers.s.toolFilters[1]" in spec.problem
    assert not spec.tools.shows("a")
    assert [w.path for w in snapshot.warnings] == ["mcpServers.s.toolFilters[1]"]


@pytest.mark.parametrize("text", ["Bearer ${env:TOKEN}", "${A:-${B}}", "${input:id}"])
def test_what_only_looks_like_a_variable_is_a_warning(tmp_path: Path, text: str) -> None:
    [(path, message, _)] = warnings(tmp_path, {"url": "http://x/", "headers": {"X": text}})

    assert path == "headers.X"
    assert message == "a '${' in it is no variable and stays as it is"
