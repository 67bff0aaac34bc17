"""`doctor` looks at our entry in every host, says what is wrong with it, and mends what is safe."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench import __version__
from mcp_workbench.hosts.table import HOSTS
from tests.hosts.samples import FILES, demo, tree, write_home
from tests.kit.command import Done, Person, newcomer
from tests.kit.config import entry as lean_server

pytestmark = pytest.mark.usefixtures("no_self_test")

CURSOR, CODEX, DESKTOP = (FILES[host][0] for host in ("cursor", "codex", "claude-desktop"))
OFF = {**demo(), "disabled": True}  # few tests need one that `doctor` starts


@pytest.fixture
def person(tmp_path: Path) -> Person:
    """Somebody whose only server is switched off, so that all is well but for what a test does."""
    person = newcomer(tmp_path)
    write_config(person.config, {"basics": OFF})
    return person


def write_config(path: Path, servers: dict[str, Any]) -> None:
    path.write_text(json.dumps({"toolboxes": {"dev": {"mcpServers": servers}}}))
    path.chmod(0o600)


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=2))
    return path


def entry(person: Person, *words: str, **more: Any) -> dict[str, Any]:
    """Our entry as `install` writes it for Cursor, or with other words."""
    given = words or (
        sys.executable,
        "-P",
        "-m",
        "mcp_workbench",
        "serve",
        "--config",
        str(person.config),
    )
    return {"command": given[0], "args": list(given[1:]), **more}


def cursor(person: Person, ours: dict[str, Any], **others: Any) -> Path:
    return write(person.home / CURSOR, {"mcpServers": {**others, "workbench": ours}})


def program(folder: Path, text: str) -> str:
    folder.mkdir()
    path = folder / "mcp-workbench"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def lines(done: Done, subject: str) -> list[dict[str, Any]]:
    return [line for line in done.data["lines"] if line["subject"] == subject]


def told(person: Person, subject: str = "cursor", *argv: str) -> dict[str, Any]:
    """The only line about this host."""
    (line,) = lines(person.types("doctor", "--json", *argv), subject)
    return line


def test_what_install_wrote_is_well_in_every_host(person: Person) -> None:
    write_config(person.config, {"basics": demo()})
    write_home(person.home, person.folder)
    assert person.types("install", "--all", "--yes").status == 0
    before = tree(person.home)

    done = person.types("doctor", "--json")

    assert done.status == 0
    written = {host.id for host in HOSTS.values() if not host.import_only}
    good = {line["subject"] for line in done.data["lines"] if line["state"] == "good"}
    assert written <= good
    about_hosts = [line for line in done.data["lines"] if line["code"].startswith("WB-HOST")]
    assert [(line["code"], line["fix"]) for line in about_hosts] == [
        ("WB-HOST-513", "mcp-workbench install claude-code --replace")  # it has basics, too
    ]
    assert tree(person.home) == before
    (unread,) = lines(done, "hosts")
    assert unread["message"].endswith("their files are YAML: goose, continue")


def test_a_host_without_us_is_named_and_it_is_a_doubt_if_none_has_us(person: Person) -> None:
    write(person.home / CURSOR, {"mcpServers": {}})
    write(person.home / CODEX, "")

    alone = told(person, "hosts")
    person.types("install", "codex", "--yes", "--edit")
    beside = told(person, "hosts")

    assert (alone["state"], alone["fix"]) == ("doubtful", "mcp-workbench install HOST")
    assert alone["message"].endswith(": cursor, codex")
    assert (beside["state"], beside["message"]) == (
        "good",
        "without an entry of this program: cursor",
    )


def test_a_file_that_its_host_can_t_read_is_shown_with_its_place(person: Person) -> None:
    broken = write(person.home / CURSOR, '{\n  "mcpServers": {,}\n}\n')
    also = write(person.home / CODEX, "model = \n")

    done = person.types("doctor", "--json")

    assert (done.status, done.data["ok"]) == (1, False)
    (line,), (toml,) = lines(done, "cursor"), lines(done, "codex")
    assert (line["state"], line["code"]) == ("bad", "WB-HOST-501")
    assert line["place"] == f"{broken}:2:18"
    assert toml["place"] == f"{also}:1:9"
    assert "~/.cursor/mcp.json:2:18   WB-HOST-501" in person.types("doctor").out


def test_a_command_that_is_gone_is_renewed_on_wish_and_undone_again(person: Person) -> None:
    """The environment that it lay in was removed; what the person added to the entry stays."""
    mine = {"env": {"MY_OWN": "kept"}, "timeout": 9}
    gone = ("/gone/bin/mcp-workbench", "serve", "--config", str(person.config), "--toolbox", "dev")
    file = cursor(person, entry(person, *gone, **mine), other={"command": "x"})
    before = file.read_bytes()

    line = told(person)
    assert (line["state"], line["code"]) == ("bad", "WB-HOST-510")
    assert line["message"] == "'workbench' starts /gone/bin/mcp-workbench, which is not there"
    assert (line["fix"], line["place"]) == ("mcp-workbench install cursor", f"{file}:6:5")
    assert person.types("doctor", "-q").status == 1
    assert file.read_bytes() == before

    done = person.types("doctor", "--fix", "--json")
    (mended,) = lines(done, "cursor")
    assert (done.status, mended["state"], mended["fixed"]) == (0, "good", True)
    assert mended["message"].endswith("; undo: mcp-workbench undo 1")
    after = json.loads(file.read_bytes())["mcpServers"]
    assert after["other"] == {"command": "x"}
    ours = after["workbench"]
    assert Path(ours["command"]).exists()
    assert ours["args"][-4:] == ["--config", str(person.config), "--toolbox", "dev"]
    assert {key: ours[key] for key in mine} == mine
    assert told(person)["state"] == "good"

    assert person.types("undo", "1").status == 0
    assert file.read_bytes() == before


def test_a_configuration_that_is_gone_is_exchanged_for_this_one(person: Person) -> None:
    lost = str(person.folder / "moved" / "workbench-config.json")
    file = cursor(
        person,
        entry(person, sys.executable, "-P", "-m", "mcp_workbench", "serve", "--config", lost),
    )

    line = told(person)
    assert (line["state"], line["code"]) == ("bad", "WB-HOST-511")
    assert lost in line["message"]
    assert person.types("doctor", "--fix", "-q").status == 0
    assert json.loads(file.read_bytes())["mcpServers"]["workbench"]["args"][-1] == str(
        person.config
    )


def test_without_a_configuration_there_is_nothing_to_mend_with(person: Person) -> None:
    file = cursor(person, entry(person))
    person.config.unlink()
    before = file.read_bytes()

    line = told(person, "cursor", "--fix")

    assert (line["state"], line["code"], line["fixed"]) == ("bad", "WB-HOST-511", False)
    assert line["fix"].startswith("mcp-workbench import makes a configuration")
    assert file.read_bytes() == before


def test_a_broken_configuration_keeps_nobody_from_looking_at_hosts(person: Person) -> None:
    cursor(person, entry(person, "/gone/mcp-workbench", "serve", "--config", str(person.config)))
    person.config.write_text("{")

    done = person.types("doctor", "--json", "--fix")

    assert done.status == 2
    (line,) = lines(done, "cursor")
    assert (line["code"], line["fixed"]) == ("WB-HOST-510", False)


def test_what_may_be_meant_is_a_doubt_that_fix_leaves_alone(person: Person, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    write_config(other, {"basics": OFF})
    older = program(tmp_path / "older", "echo mcp-workbench 0.0.7")
    config = ("serve", "--config", str(person.config))
    module = (sys.executable, "-P", "-m", "mcp_workbench")
    cases: dict[str, dict[str, Any]] = {
        f"serves another configuration: {other}": entry(
            person, *module, "serve", "--config", str(other)
        ),
        f"{older}, which has version 0.0.7; this one is {__version__}": entry(
            person, older, *config
        ),
        "is switched off there": entry(person, disabled=True),
        "it does not start this program": {"command": "somebody-else", "args": []},
    }
    for words, ours in cases.items():
        file = cursor(person, ours)
        before = file.read_bytes()
        line = told(person, "cursor", "--fix")
        assert (line["state"], line["code"]) == ("doubtful", "WB-HOST-512"), words
        assert words in line["message"]
        assert line["fix"] == "if that is not intended: mcp-workbench install cursor"
        assert file.read_bytes() == before


def test_an_installation_that_fails_is_as_good_as_none(person: Person, tmp_path: Path) -> None:
    broken = program(tmp_path / "broken", "echo 'No module named mcp_workbench' >&2; exit 1")
    cursor(person, entry(person, broken, "serve", "--config", str(person.config)))

    line = told(person)

    assert (line["state"], line["code"]) == ("bad", "WB-HOST-510")
    assert line["message"].endswith("which fails: No module named mcp_workbench")


def test_a_place_that_uvx_would_fetch_us_from_must_be_there(person: Person, tmp_path: Path) -> None:
    runner = Path(program(tmp_path / "bin", "exit 7")).rename(
        tmp_path / "bin" / "uvx"
    )  # never tried
    wheel = tmp_path / "some.whl"
    words = (
        str(runner),
        "--from",
        str(wheel),
        "mcp-workbench",
        "serve",
        "--config",
        str(person.config),
    )
    cursor(person, entry(person, *words))

    gone = told(person)
    wheel.write_text("")

    assert (gone["code"], gone["message"]) == (
        "WB-HOST-510",
        f"'workbench' starts {wheel}, which is not there",
    )
    assert told(person)["state"] == "good"


def test_what_depends_on_the_host_s_folder_or_path_is_a_doubt(
    person: Person, tmp_path: Path
) -> None:
    program(tmp_path / "bin", f"echo mcp-workbench {__version__}")
    somebody = person._replace(path=f"{tmp_path / 'bin'}:{person.path}")
    cursor(somebody, entry(somebody, "mcp-workbench"))

    found = lines(somebody.types("doctor", "--json"), "cursor")

    assert [line["code"] for line in found] == ["WB-HOST-514"] * 2
    assert "without its folder" in found[0]["message"]
    assert "names no configuration" in found[1]["message"]


def test_an_entry_that_runs_files_of_the_folder_it_is_started_in_is_a_doubt(person: Person) -> None:
    serve = ("-m", "mcp_workbench", "serve", "--config", str(person.config))
    cursor(person, entry(person, sys.executable, *serve))

    line = told(person)

    assert (line["state"], line["code"]) == ("doubtful", "WB-HOST-514")
    assert "without -P" in line["message"]
    assert line["fix"] == "mcp-workbench install cursor"
    for option in ("-P", "-I"):
        cursor(person, entry(person, sys.executable, option, *serve))
        assert told(person)["state"] == "good"


def test_variables_that_servers_need_must_reach_us(person: Person, tmp_path: Path) -> None:
    env = {"A": "${NEEDED}", "B": "${HAS_A_DEFAULT:-x}", "C": "${HOME}"}
    write_config(person.config, {"basics": lean_server(env=env)})
    ours = program(tmp_path / "bin", f"echo mcp-workbench {__version__}")
    command = entry(person, ours, "serve", "--config", str(person.config))
    write(person.home / DESKTOP, {"mcpServers": {"workbench": command}})
    cursor(person, command)

    done = person.types("doctor", "--json", NEEDED="1")
    (desktop,), (line,) = lines(done, "claude-desktop"), lines(done, "cursor")

    assert done.status == 0
    assert (line["state"], line["code"]) == ("doubtful", "WB-HOST-515")
    assert line["message"].endswith("servers of this configuration need: NEEDED")
    assert line["fix"] == "mcp-workbench install cursor"
    assert desktop["fix"].startswith("write their values into the env of this entry")
    cursor(person, command | {"env": {"NEEDED": "${env:NEEDED}"}})
    assert lines(person.types("doctor", "--json", NEEDED="1"), "cursor")[0]["state"] == "good"


def test_a_toolbox_that_is_gone_is_told_and_not_guessed(person: Person) -> None:
    words = (sys.executable, "-P", "-m", "mcp_workbench", "serve", "--config", str(person.config))
    file = cursor(person, entry(person, *words, "--toolbox", "old"))
    before = file.read_bytes()

    line = told(person, "cursor", "--fix")

    assert (line["state"], line["code"]) == ("bad", "WB-HOST-511")
    assert "names the toolbox 'old'" in line["message"]
    assert file.read_bytes() == before


def test_entries_of_the_folder_and_under_other_names_are_found(person: Person) -> None:
    gone = entry(person, "/gone/mcp-workbench", "serve", "--config", str(person.config))
    write(person.folder / ".mcp.json", {"mcpServers": {"workbench": gone, "mine": gone}})

    found = lines(person.types("doctor", "--json"), "claude-code")

    assert [line["fix"] for line in found] == [
        "mcp-workbench install claude-code --scope project",
        "correct 'mine' by hand, or remove it and run mcp-workbench install claude-code --scope project",
    ]


def test_a_port_of_ours_is_left_to_answer_for_itself(person: Person) -> None:
    cursor(person, {"url": "http://127.0.0.1:7411/mcp"})

    assert told(person)["message"] == "'workbench' in ~/.cursor/mcp.json leads to a port"


def test_with_a_server_named_no_host_is_looked_at(person: Person) -> None:
    write_config(person.config, {"basics": lean_server()})
    write(person.home / CURSOR, "{")

    assert person.types("doctor", "dev/basics").status == 0


@pytest.mark.parametrize("host", ["opencode", "codex", "claude-code", "copilot"])
def test_every_shape_of_an_entry_is_understood_and_renewed(person: Person, host: str) -> None:
    place = person.home / FILES[host][0]
    write_home(person.home, person.folder, (host,))
    person.types("install", host, "--yes", "--edit")
    broken = place.read_text().replace(sys.executable, "/gone/python")
    broken = broken.replace(
        str(Path(sys.executable).with_name("mcp-workbench")), "/gone/mcp-workbench"
    )
    place.write_text(broken)

    (dead,) = [
        x for x in lines(person.types("doctor", "--json"), host) if x["code"] == "WB-HOST-510"
    ]
    mended = person.types("doctor", "--fix", "--json")

    assert dead["place"].startswith(f"{place}:")
    assert [line["fixed"] for line in lines(mended, host) if line["code"] == "WB-HOST-510"] == [
        True
    ]
    assert "good" in {line["state"] for line in lines(person.types("doctor", "--json"), host)}


@pytest.mark.parametrize(
    "odd",
    [
        None,
        [],
        {"command": 5, "args": {}},
        {"command": "mcp-workbench", "args": "serve", "env": []},
        {"command": sys.executable, "args": ["-m", "mcp_workbench", "a\0b", "serve"]},
        {"command": "/x/mcp-workbench", "args": ["serve", "--config", "/a\0b"]},
    ],
)
def test_an_entry_of_whatever_form_is_told_about_and_nothing_breaks(
    person: Person, odd: Any
) -> None:
    cursor(person, odd)

    found = lines(person.types("doctor", "--json"), "cursor")

    assert found
    assert {line["code"][:8] for line in found} == {"WB-HOST-"}
