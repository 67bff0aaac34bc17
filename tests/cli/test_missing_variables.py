"""`doctor` names the variables that a server's failure mentions, and how to pass them on."""

import sys
from pathlib import Path

import pytest

from mcp_workbench.core.spec import StdioCommand
from mcp_workbench.gateway.missing_variables import mentioned_variables, variable_advice
from tests.kit.command import run_command
from tests.kit.config import toolbox, write_config

NONE = StdioCommand("x")
ENVIRON = {"PATH": "/bin", "AWS_PROFILE": "work", "DB_URL": "db", "KUBECONFIG": "/k", "LOUD": "1"}
EXITED = "the server exited (exit status 1). stderr: "


@pytest.mark.parametrize(
    ("stderr", "names"),
    [
        ("Error: DB_URL is required", ("DB_URL",)),
        ("KeyError: 'DB_URL'", ("DB_URL",)),
        ("Error: set GITHUB_TOKEN or GH_HOST first", ("GITHUB_TOKEN", "GH_HOST")),
        ("Missing env var API_BASE", ("API_BASE",)),
        ("no profile AWS_PROFILE", ("AWS_PROFILE",)),  # known to be a variable
        ("cannot open DISPLAY", ("DISPLAY",)),
        ("LOUD must be set", ("LOUD",)),
        ("PATH is required", ()),  # it had that one
        ("Error: ENOENT: a required file is missing", ()),
        ("Error [ERR_MODULE_NOT_FOUND]: missing package", ()),
        ("ssl CERTIFICATE_VERIFY_FAILED, a CA is missing", ()),
        ("connected to DATA_STORE", ()),  # nothing says that it is a variable
        ("HTTP and JSON are required", ()),
        ("", ()),
    ],
)
def test_names_that_are_variables_are_found(stderr: str, names: tuple[str, ...]) -> None:
    assert mentioned_variables(EXITED + stderr, NONE, ENVIRON) == names


def test_what_the_server_got_is_not_missing() -> None:
    reason = f"{EXITED}DB_URL and KUBECONFIG are required"

    assert mentioned_variables(reason, StdioCommand("x", inherit=("DB_*",)), ENVIRON) == (
        "KUBECONFIG",
    )
    assert mentioned_variables(reason, StdioCommand("x", inherit=("*",)), ENVIRON) == ()


def test_the_advice_tells_what_is_set_from_what_is_not() -> None:
    assert variable_advice(f"{EXITED}DB_URL, DB_USER and DB_KEY are required", NONE, ENVIRON) == (
        'DB_URL is set here and not passed on: add "inheritEnv": ["DB_URL"] to its entry; '
        "DB_USER, DB_KEY are not set here: export DB_USER=… DB_KEY=… and add "
        '"inheritEnv": ["DB_USER","DB_KEY"] to its entry'
    )


def test_doctor_names_them(tmp_path: Path) -> None:
    needy = {"command": sys.executable, "args": ["-c", "import os; os.environ['DB_URL']"]}
    write_config(tmp_path, toolbox(needy=needy))
    variables = {
        "DB_URL": "postgres://x",
        "HOME": str(tmp_path / "home"),
        "MCP_WORKBENCH_HOME": str(tmp_path / "state"),
    }

    done = run_command("doctor", "needy", "--json", cwd=tmp_path, **variables)

    [line] = [line for line in done.data["lines"] if line["subject"].endswith("/needy")]
    assert "stderr: KeyError: 'DB_URL'" in line["message"]
    assert line["fix"] == (
        'DB_URL is set here and not passed on: add "inheritEnv": ["DB_URL"] to its entry'
    )
    assert done.status == 4
