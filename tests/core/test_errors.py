"""Every error says the contract's sentence, letter by letter."""

import pytest

from mcp_workbench.core import errors
from mcp_workbench.core.errors import (
    CallFailed,
    ConfigError,
    Problem,
    ServerError,
    WorkbenchError,
    did_you_mean,
    no_server,
    no_tool,
    no_toolbox,
    not_connected,
)
from mcp_workbench.core.spec import ToolIdentifier


@pytest.mark.parametrize(
    ("error", "text", "code"),
    [
        (no_toolbox("production", []), "Toolbox 'production' not found", "unknown_toolbox"),
        (
            no_server("database", "dev", []),
            "Server 'database' not found in toolbox 'dev'",
            "unknown_server",
        ),
        (
            no_tool(ToolIdentifier("dev", "filesystem", "delete_all"), []),
            "Tool 'delete_all' not found in server 'filesystem' (toolbox 'dev')",
            "unknown_tool",
        ),
        (
            not_connected("api", "staging", "connection timeout"),
            "Failed to connect to server 'api' in toolbox 'staging': connection timeout",
            "connect_failed",
        ),
    ],
)
def test_the_contract_s_examples_are_worded_exactly(
    error: WorkbenchError, text: str, code: str
) -> None:
    assert str(error) == text
    assert error.message == text
    assert error.code == code
    assert error.hint == ""


@pytest.mark.parametrize("field", ["toolbox", "server", "tool"])
def test_an_empty_component_is_named(field: str) -> None:
    assert errors.empty_component(field) == f"Invalid tool identifier: {field} cannot be empty"


def test_a_failed_call_names_its_tool_first() -> None:
    error = CallFailed("timeout", ToolIdentifier("a", "b", "c"), "timed out", may_have_run=True)

    assert str(error) == "[a/b/c] Error: timed out"
    assert error.may_have_run
    assert error.reason == "timed out"


def test_the_nearest_name_is_suggested_and_a_far_one_is_not() -> None:
    assert did_you_mean("box", ["bax", "tools"]) == "Did you mean 'bax'?"
    assert did_you_mean("zzz", ["bax", "tools"]) == ""
    assert no_toolbox("dve", ["prod", "dev"]).hint == "Did you mean 'dev'?"
    assert no_server("filesystm", "dev", ["filesystem"]).hint == "Did you mean 'filesystem'?"


def test_a_server_s_error_keeps_code_and_bytes() -> None:
    error = ServerError(-32000, "odd", b'{"code":-32000,"message":"odd","data":1.0}')

    assert (error.number, str(error)) == (-32000, "odd")
    assert error.error.endswith(b"1.0}")


def test_a_configuration_error_lists_every_problem_with_path_and_remedy() -> None:
    problems = (
        Problem("toolboxes.dev", "is wrong", "make it right", "WB-1", 3, 5),
        Problem("", "is odd"),
    )

    told = str(ConfigError("my.json", problems))

    assert "my.json has 2 problems" in told
    assert ":3:5 toolboxes.dev: is wrong (fix: make it right)" in told
    assert "is odd" in told
    assert "1 problem" in str(ConfigError("my.json", problems[:1]))
