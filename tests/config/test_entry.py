"""Server entries, mostly pasted from somewhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.core.spec import HttpEndpoint, StdioCommand
from tests.config.scenes import one_server, problems, warnings


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("cmd", "'cmd' (Goose's spelling) is 'command' here"),
        ("uri", "'uri' (Goose's spelling) is 'url' here"),
        ("serverUrl", "'serverUrl' (Windsurf's spelling) is 'url' here"),
        ("httpUrl", "'httpUrl' (Gemini CLI's spelling) is 'url' here"),
        ("nothing", "add 'command' for a program of this machine, or 'url' for a remote server"),
    ],
)
def test_neither_command_nor_url_is_an_error_that_knows_other_spellings(
    tmp_path: Path, key: str, fix: str
) -> None:
    [problem] = problems(tmp_path, {"mcpServers": {"s": {key: "x"}}})

    assert (problem.path, problem.message) == ("mcpServers.s", "neither 'command' nor 'url'")
    assert problem.fix == fix


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("envs", "'envs' (Goose's spelling) is 'env' here"),
        ("environment", "'environment' (opencode's spelling) is 'env' here"),
        ("enabled", "'enabled: false' is 'disabled: true' here"),
        ("autoApprove", "remove it; the host decides what needs approval"),
        ("alwaysAllow", "remove it; the host decides what needs approval"),
        ("disabledTools", "put each name into 'toolFilters' with a '!' before it"),
        ("toolfilter", "Did you mean 'toolFilters'?"),
        ("zzz", "remove it"),
    ],
)
def test_an_unknown_key_is_a_warning_that_names_the_nearest(
    tmp_path: Path, key: str, fix: str
) -> None:
    assert warnings(tmp_path, {"command": "x", key: False}) == [
        (key, "unknown key, it has no effect", fix)
    ]


def test_both_command_and_url_are_an_error(tmp_path: Path) -> None:
    [problem] = problems(tmp_path, {"mcpServers": {"s": {"command": "x", "url": "http://x/"}}})

    assert problem.message == "both 'command' and 'url'"


@pytest.mark.parametrize(
    ("entry", "path", "message"),
    [
        ({"command": "x", "type": "http"}, "type", "\"http\" does not go with 'command'"),
        (
            {"url": "http://x/", "transport": "stdio"},
            "transport",
            "\"stdio\" does not go with 'url'",
        ),
        (
            {"url": "http://x/", "type": "sse", "transport": "http"},
            "transport",
            "'type' and 'transport' contradict each other",
        ),
    ],
)
def test_a_transport_that_contradicts_is_an_error(
    tmp_path: Path, entry: dict[str, str], path: str, message: str
) -> None:
    [problem] = problems(tmp_path, {"mcpServers": {"s": entry}})

    assert (problem.path, problem.message) == (f"mcpServers.s.{path}", message)


def test_two_words_for_the_same_transport_agree(tmp_path: Path) -> None:
    entry = {"url": "http://x/", "type": "http", "transport": "streamable-http"}

    assert one_server(tmp_path, entry).target == HttpEndpoint("http://x/")


def test_numbers_and_truth_values_in_the_environment_are_taken_as_text(tmp_path: Path) -> None:
    entry = {"command": "x", "env": {"PORT": 8080, "RATE": 0.5, "ON": True, "BIG": 10**30}}
    target = one_server(tmp_path, entry).target

    assert isinstance(target, StdioCommand)
    assert dict(target.env) == {"PORT": "8080", "RATE": "0.5", "ON": "true", "BIG": str(10**30)}
    assert [path for path, _, _ in warnings(tmp_path, entry)] == [
        "env.PORT",
        "env.RATE",
        "env.ON",
        "env.BIG",
    ]


def test_a_time_above_an_hour_is_a_warning_about_milliseconds(tmp_path: Path) -> None:
    [(path, message, fix)] = warnings(tmp_path, {"command": "x", "timeout": 60_000})

    assert path == "timeout"
    assert message == "60000 seconds are 16.7 hours; probably meant as milliseconds"
    assert fix == "write 60: the unit here is a second"
    assert warnings(tmp_path, {"command": "x", "timeout": 3600}) == []


def test_a_key_of_the_other_transport_is_a_warning(tmp_path: Path) -> None:
    entry: dict[str, Any] = {"url": "http://x/", "args": [], "env": {}, "cwd": "."}

    assert [path for path, _, _ in warnings(tmp_path, entry)] == ["args", "env", "cwd"]
    assert [path for path, _, _ in warnings(tmp_path, {"command": "x", "headers": {}})] == [
        "headers"
    ]


@pytest.mark.parametrize(
    ("entry", "path", "message"),
    [
        ({"command": 3}, "command", "must be a string, not a number"),
        ({"command": ["npx", "x"]}, "command", "must be a string, not a list"),
        ({"command": ""}, "command", "must not be empty"),
        ({"command": "a\0b"}, "command", "must not contain a NUL character"),
        ({"command": None}, "command", "must be a string, not null"),
        ({"command": "x", "args": "-y"}, "args", "must be a list of strings, not a string"),
        ({"command": "x", "args": ["a", 1]}, "args[1]", "must be a string, not a number"),
        ({"command": "x", "env": []}, "env", "must be an object of strings, not a list"),
        ({"command": "x", "env": {"A": {}}}, "env.A", "must be a string, not an object"),
        ({"command": "x", "env": {"A": None}}, "env.A", "must be a string, not null"),
        ({"command": "x", "env": {"A=B": "x"}}, 'env["A=B"]', "is not the name of a variable"),
        ({"url": "x"}, "url", "must begin with http:// or https://"),
        ({"url": "file:///etc"}, "url", "must begin with http:// or https://"),
        ({"url": ""}, "url", "must not be empty"),
        (
            {"url": "http://x/", "headers": {"A:": "x"}},
            'headers["A:"]',
            "is not the name of a header",
        ),
        (
            {"url": "http://x/", "type": "streamableHttp"},
            "type",
            'must be "stdio" or "http" or "streamable-http" or "sse"',
        ),
        (
            {"url": "http://x/", "type": 3},
            "type",
            'must be "stdio" or "http" or "streamable-http" or "sse"',
        ),
        ({"command": "x", "disabled": "yes"}, "disabled", "must be true or false, not a string"),
        (
            {"command": "x", "toolFilters": "*"},
            "toolFilters",
            "must be a list of strings, not a string",
        ),
        (
            {"command": "x", "toolFilters": ["*", None]},
            "toolFilters[1]",
            "must be a string, not null",
        ),
        ({"command": "x", "timeout": 0}, "timeout", "must be a number of seconds above 0, not 0"),
        (
            {"command": "x", "timeout": True},
            "timeout",
            "must be a number of seconds above 0, not true",
        ),
        (
            {"command": "x", "timeout": 10**400},
            "timeout",
            "must be a number of seconds above 0, at most 9007199254740992",
        ),
        (
            {"command": "x", "timeout": 1e47},
            "timeout",
            "must be a number of seconds above 0, at most 9007199254740992",
        ),
        (
            {"command": "x", "timeout": -(10**400)},
            "timeout",
            "must be a number of seconds above 0, not -" + "1" + "0" * 18 + "…",
        ),
        (
            {"command": "x", "resultBudget": 2**53 + 1},
            "resultBudget",
            "must be a whole number from 0 up, at most 9007199254740992",
        ),
        ({"command": "x", "era": "old"}, "era", 'must be "auto" or "legacy" or "modern"'),
    ],
)
def test_a_wrong_value_is_an_error_with_its_path_and_a_remedy(
    tmp_path: Path, entry: dict[str, Any], path: str, message: str
) -> None:
    # Not encoded by msgspec, which refuses numbers beyond 64 bits.
    text = (
        str({"mcpServers": {"s": entry}})
        .replace("'", '"')
        .replace("True", "true")
        .replace("None", "null")
    )
    [problem] = problems(tmp_path, text.replace("\\x00", "\\u0000"))

    assert (problem.path, problem.message) == (f"mcpServers.s.{path}", message)
    assert problem.fix


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ({"toolboxes": []}, "toolboxes"),
        ({"toolboxes": {"a": 3}}, "toolboxes.a"),
        ({"toolboxes": {"a": {}}}, "toolboxes.a"),
        ({"toolboxes": {"a": {"mcpServers": 3}}}, "toolboxes.a.mcpServers"),
        ({"toolboxes": {"a": {"mcpServers": {"s": "npx"}}}}, "toolboxes.a.mcpServers.s"),
        ({"mcpServers": None}, "mcpServers"),
        ({"mcpServers": {}, "limits": 3}, "limits"),
        ({"mcpServers": {}, "limits": {"callsPerServer": 0}}, "limits.callsPerServer"),
        ({"mcpServers": {}, "limits": {"messageBytes": 1.5}}, "limits.messageBytes"),
    ],
)
def test_a_wrong_shape_is_one_error_with_its_path(
    tmp_path: Path, content: dict[str, Any], path: str
) -> None:
    [problem] = problems(tmp_path, content)

    assert problem.path == path
    assert problem.fix
