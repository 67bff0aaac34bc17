"""The user's own configuration in every command, and the demo, which every command names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config.load import DEMO_NOTICE
from tests.hosts.samples import FILES, demo
from tests.kit.command import Person, newcomer
from tests.kit.results import INITIALIZE

pytestmark = pytest.mark.usefixtures("forked_commands", "no_self_test")

NOTICE = f"{DEMO_NOTICE}\n"


@pytest.fixture
def person(tmp_path: Path) -> Person:
    """Somebody with a configuration of their own, in a folder that has none."""
    person = newcomer(tmp_path)
    write(own_config(person), {"toolboxes": {"mine": {"mcpServers": {"basics": demo()}}}})
    return person


def own_config(person: Person) -> Path:
    return person.home / ".config" / "mcp-workbench" / "config.json"


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def greeted(person: Person, **variables: str) -> tuple[str, str]:
    """The instructions of `serve`, and its stderr."""
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
    done = person.types("serve", stdin=json.dumps(hello) + "\n", **variables)
    assert done.status == 0
    return done.data["result"]["instructions"], done.err


def test_every_command_uses_it(person: Person) -> None:
    assert person.types("check", "--json").data["config"] == str(own_config(person))
    assert person.types("call", "mine/basics/add", "a:=2", "b:=3").out == "5\n"
    assert person.types("call", "mine/basics/add", "a:=2", "b:=3").err == ""
    assert "mine/basics" in person.types("list").out
    instructions, err = greeted(person)
    assert "- mine (1 server)" in instructions
    assert err == ""
    completed = person.types(_MCP_WORKBENCH_COMPLETE="tools\nmi")
    assert completed.out.split() == ["plain", "mine/"]


def test_the_file_of_the_folder_comes_first(person: Person) -> None:
    write(person.config, {"toolboxes": {"here": {"mcpServers": {"basics": demo()}}}})

    assert person.types("check", "--json").data["config"] == str(person.config)


def test_a_place_of_ones_own_choice(person: Person, tmp_path: Path) -> None:
    shutil.move(own_config(person).parent, tmp_path / "there" / "mcp-workbench")

    done = person.types("check", "--json", XDG_CONFIG_HOME=str(tmp_path / "there"))

    assert done.data["config"] == str(tmp_path / "there" / "mcp-workbench" / "config.json")


def test_hosts_share_it(person: Person) -> None:
    assert person.types("up").status == 0
    try:
        assert "- mine (1 server)" in greeted(person, MCP_WORKBENCH_SERVE_ATTACH="always")[0]
        status = person.types("status", "--json").data
        assert (status["running"], status["config"]) == (True, str(own_config(person)))
    finally:
        assert person.types("down").status == 0


def test_import_and_install_use_it(person: Person) -> None:
    cursor = person.home / FILES["cursor"][0]
    write(cursor, {"mcpServers": {"more": demo("workshop")}})

    assert person.types("import", "--yes", "--toolbox", "mine").status == 0
    assert person.types("install", "cursor", "--yes").status == 0

    assert [s["server"] for s in person.types("list", "--json").data] == ["basics", "more"]
    args = json.loads(cursor.read_text())["mcpServers"]["workbench"]["args"]
    assert args[-2:] == ["--config", str(own_config(person))]


@pytest.mark.parametrize("open_to_all", ["file", "folder"])
def test_it_is_refused_if_another_user_could_have_written_it(
    person: Person, open_to_all: str
) -> None:
    file = own_config(person)
    (file if open_to_all == "file" else file.parent).chmod(0o777)

    for command in (["check"], ["up"], ["add", "x", "--no-check", "--yes", "--", "y"]):
        done = person.types(*command, "--json")
        codes = done.out + done.err
        expected = "WB-CONF-006" if open_to_all == "file" else "WB-CONF-009"
        assert (done.status, expected in codes) == (2, True), done
    named = person.types("check", "--config", str(file))
    assert named.status == (2 if open_to_all == "file" else 0)


# The demo


@pytest.mark.parametrize(
    "command",
    [
        ["check"],
        ["tools"],
        ["search", "add"],
        ["call", "demo/basics/echo", "text=x"],
        ["cost"],
        ["list"],
    ],
)
def test_every_command_says_that_it_uses_the_demo(tmp_path: Path, command: list[str]) -> None:
    person = newcomer(tmp_path)

    done = person.types(*command)

    assert done.status == 0
    assert done.err.startswith(NOTICE)
    assert done.err.count(NOTICE) == 1
    for quiet in ("--json", "--quiet"):
        assert NOTICE not in person.types(*command, quiet).err


def test_a_host_hears_of_the_demo_through_its_agent_alone(tmp_path: Path) -> None:
    instructions, err = greeted(newcomer(tmp_path))

    assert "This is the built-in demo, because no configuration file was found" in instructions
    assert "`mcp-workbench add`" in instructions
    assert err == ""  # hosts show it as an error


def test_a_wrong_port_with_the_demo_is_reported_once(tmp_path: Path) -> None:
    done = newcomer(tmp_path).types("serve", "--http", "192.0.2.1:9")

    assert done.status != 0
    assert done.err.count(NOTICE) == 1


def test_doctor_warns_of_the_demo(tmp_path: Path) -> None:
    done = newcomer(tmp_path).types("doctor", "--json")

    (line,) = [line for line in done.data["lines"] if line["subject"] == "config"]
    assert (line["state"], line["fix"]) == (
        "doubtful",
        "mcp-workbench import, add or init makes one",
    )


# What hosts really start


def installed(person: Person, config: Path, host: str = "cursor") -> None:
    assert person.types("install", host, "--config", str(config), "--yes").status == 0


def test_doctor_judges_in_any_folder_what_the_hosts_start(tmp_path: Path) -> None:
    person = newcomer(tmp_path)
    boxes = {"dev": {"mcpServers": {"basics": demo(), "gone": {"command": "no-such-command"}}}}
    config = write(tmp_path / "project" / "workbench-config.json", {"toolboxes": boxes})
    installed(person, config)

    done = person.types("doctor", "--json")

    states = {line["subject"]: line["state"] for line in done.data["lines"]}
    assert (done.status, done.data["config"]) == (4, str(config))
    assert (states["dev/basics"], states["dev/gone"], states["cursor"]) == ("good", "bad", "good")
    assert f"{config}, what cursor starts: 1 toolbox, 2 servers" in json.dumps(done.data["lines"])


def test_beside_the_configuration_of_the_folder(person: Person, tmp_path: Path) -> None:
    broken = write(tmp_path / "project" / "a.json", {"toolboxes": {"dev": {"mcpServers": {}}}})
    installed(person, broken)
    broken.write_text('{"toolboxes": 7}')

    done = person.types("doctor", "--json")

    config = [line for line in done.data["lines"] if line["subject"] == "config"]
    assert [line["state"] for line in config] == ["good", "bad"]
    assert config[1]["place"].startswith(str(broken))
    assert done.status == 2
    named = person.types("doctor", "--json", "--config", str(own_config(person)))
    assert named.status == 0  # it was asked about that one


def test_a_folder_can_not_make_doctor_start_its_servers(tmp_path: Path) -> None:
    person = newcomer(tmp_path)
    mark = tmp_path / "started"
    evil = {"command": "touch", "args": [str(mark)]}
    config = write(person.folder / "x.json", {"mcpServers": {"evil": evil}})
    entry = {"command": "mcp-workbench", "args": ["serve", "--config", str(config)]}
    write(person.folder / ".cursor" / "mcp.json", {"mcpServers": {"workbench": entry}})

    person.types("doctor")

    assert not mark.exists()
