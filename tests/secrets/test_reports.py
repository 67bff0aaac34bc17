"""What `check` and `doctor` say of variables: where each comes from, and what is wrong, without a value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config.load import load_config
from mcp_workbench.core.errors import ConfigError
from tests.kit.command import Person, newcomer, run_command, serving
from tests.kit.config import entry, write_config
from tests.kit.results import INITIALIZE
from tests.secrets.scenes import needing, private, variables

VALUE = "a-value-that-is-not-shown"
SECRETS = {
    "FROM_STORE": "store",
    "FROM_KEYRING": "keyring",
    "FROM_COMMAND": {"command": ["printf", VALUE]},
    "FROM_FILE": {"file": "value"},
    "NO_STORE": "store",
    "NO_COMMAND": {"command": ["no-such-program"]},
    "NO_FILE": {"file": "none"},
}
SOURCES = {
    "FROM_STORE": "store",
    "FROM_KEYRING": "keyring",
    "FROM_COMMAND": "command",
    "FROM_FILE": "file",
    "NO_STORE": "missing",
    "NO_COMMAND": "missing",
    "NO_FILE": "missing",
    "HERE": "environment",
    "GONE": "missing",
    "OPTIONAL": "default",
}
CODES = {"NO_STORE": "WB-SEC-604", "NO_COMMAND": "WB-SEC-602", "NO_FILE": "WB-SEC-603"}


@pytest.fixture
def ada(tmp_path: Path) -> Person:
    person = newcomer(tmp_path)
    names = [name for name in SOURCES if name != "OPTIONAL"]
    server = needing(*names)
    server["env"]["OPTIONAL"] = "${OPTIONAL:-x}"
    write_config(person.folder, {"secrets": SECRETS, "mcpServers": {"a": server}})
    private(person.folder / "value", VALUE)
    person.types("secret", "set", "FROM_STORE", stdin=VALUE)
    return person


def test_check_says_where_each_variable_comes_from(ada: Person) -> None:
    done = ada.types("check", HERE=VALUE)

    assert done.status == 0
    assert (
        "variables: HERE from the environment; OPTIONAL with the default of the file; FROM_STORE from "
        "the encrypted store; FROM_KEYRING from the keyring; FROM_COMMAND from a command; FROM_FILE "
        "from a file; NO_STORE, NO_COMMAND, NO_FILE, GONE missing" in done.out
    )
    assert all(code in done.err for code in CODES.values())
    assert VALUE not in done.out + done.err


def test_the_same_is_data(ada: Person) -> None:
    data: dict[str, Any] = ada.types("check", "--json", HERE=VALUE).data

    assert {one["name"]: one["source"] for one in data["variables"]} == SOURCES
    assert {one["name"]: one["code"] for one in data["variables"] if one["code"]} == CODES
    assert {tuple(one["usedBy"]) for one in data["variables"]} == {("default/a",)}
    assert set(CODES.values()) <= {problem["code"] for problem in data["problems"]}
    assert VALUE not in json.dumps(data)


def test_doctor_says_it_too_with_the_fix(ada: Person) -> None:
    done = ada.types("doctor", "--json", HERE=VALUE)
    lines = [line for line in done.data["lines"] if line["subject"] == "variables"]
    server = next(line for line in done.data["lines"] if line["subject"] == "default/a")

    assert "FROM_STORE from the encrypted store" in lines[0]["message"]
    assert {line["code"] for line in lines[1:]} == set(CODES.values())
    assert "mcp-workbench secret set NO_STORE" in server["fix"]
    assert VALUE not in done.out + done.err


@pytest.mark.parametrize("code", ["WB-SEC-601", "WB-SEC-605", "WB-SEC-606", "WB-CONF-046"])
def test_every_code_is_explained(code: str, ada: Person) -> None:
    assert ada.types("explain", code).status == 0


# The section itself


@pytest.mark.parametrize(
    "source",
    [
        "my-token-itself",
        17,
        {},
        {"file": "a", "command": ["b"]},
        {"command": []},
        {"command": "pass show it"},
        {"keyring": ""},
        {"username": "alice"},
    ],
)
def test_a_source_that_is_none_is_an_error_that_does_not_quote_it(
    source: Any, tmp_path: Path
) -> None:
    config = write_config(tmp_path, {"secrets": {"IT": source}, "mcpServers": {"a": entry()}})

    with pytest.raises(ConfigError) as caught:
        load_config(config, {})

    assert "secrets.IT" in str(caught.value)
    assert "my-token-itself" not in str(caught.value)


def test_a_secret_in_an_argument_is_a_warning(tmp_path: Path) -> None:
    file = {"secrets": {"IT": "store"}, "mcpServers": {"a": entry("--token=${IT}")}}

    (warning,) = load_config(write_config(tmp_path, file), {}).warnings

    assert warning.code == "WB-CONF-047"
    assert "IT" in warning.message


# The port


def served(folder: Path) -> Path:
    file = {
        "secrets": {"PORT_TOKEN": {"file": "token"}},
        "http": {"token": "${PORT_TOKEN}"},
        "mcpServers": {"a": entry()},
    }
    return write_config(folder, file)


def test_a_token_of_the_port_comes_from_its_source(tmp_path: Path) -> None:
    config = served(tmp_path)
    private(tmp_path / "token", f"{VALUE}\n")
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE})

    with serving(config, env=variables(tmp_path, MCP_WORKBENCH_HTTP_TOKEN="")) as command:
        wrong, *_ = command.post(body.encode(), authorization="Bearer another")
        right, *_ = command.post(body.encode(), authorization=f"Bearer {VALUE}")

    assert (wrong, right) == (401, 200)
    assert VALUE not in command.line + command.remark


def test_a_port_without_its_token_does_not_open(tmp_path: Path) -> None:
    done = run_command("serve", "--config", str(served(tmp_path)), "--http", "0", cwd=tmp_path)

    assert done.status == 2
    assert "WB-SEC-603" in done.err
