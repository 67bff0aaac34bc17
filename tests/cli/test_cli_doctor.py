"""`doctor` looks at everything for real, and says what to do."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from mcp_workbench import __version__
from mcp_workbench.cli.doctor import check_programs, program_version
from mcp_workbench.config.load import MOST_BYTES
from mcp_workbench.core.spec import ServerAddress, ServerSpec, StdioCommand
from mcp_workbench.gateway.remedies import missing, outside_path
from tests.kit.command import Done, run_command
from tests.kit.config import demo_server, entry, toolbox, write_config

ROOT = Path(__file__).parents[2]

no_self_test = pytest.mark.usefixtures("no_self_test")


def doctor(*argv: str, cwd: Path, **variables: str) -> Done:
    """With a home of its own, so that nobody's state is looked at."""
    home = {"HOME": str(cwd / "home"), "MCP_WORKBENCH_HOME": str(cwd / "state")}
    return run_command("doctor", *argv, cwd=cwd, **(home | variables))


def lines(done: Done, subject: str) -> list[dict[str, Any]]:
    return [line for line in done.data["lines"] if line["subject"] == subject]


def test_the_demo_is_well(tmp_path: Path) -> None:
    done = doctor(cwd=tmp_path)
    assert done.status == 0
    assert f"✔ program        mcp-workbench {__version__}, Python " in done.out
    assert "✔ self-test      the demo toolbox answered in both eras, " in done.out
    assert "✔ demo/basics    demo-basics 1.0.0, 2026-07-28, 4 tools, " in done.out
    assert "\nall is well, " in done.out
    assert not (tmp_path / "state").exists()  # looking makes nothing


def test_json_has_every_line(tmp_path: Path) -> None:
    done = doctor("--json", cwd=tmp_path)
    assert (done.status, done.err, done.data["ok"], done.data["config"]) == (0, "", True, None)
    assert {"program", "state folder", "config", "self-test", "demo/basics", "demo/workshop"} <= {
        line["subject"] for line in done.data["lines"]
    }
    keys = {"state", "subject", "message", "fix", "code", "place", "fixed"}
    assert all(set(line) == keys for line in done.data["lines"])


@no_self_test
def test_each_server_that_fails_has_its_remedy(tmp_path: Path) -> None:
    noisy = {
        "command": "sh",
        "args": [
            "-c",
            f"echo listening; exec {quote(sys.executable)} -m mcp_workbench.demo basics",
        ],
    }
    servers = {
        "gone": {"command": "no-such-command-anywhere"},
        "dead": {"command": "sh", "args": ["-c", "echo no licence >&2; exit 3"]},
        "unset": {"command": "true", "env": {"KEY": "${NO_SUCH_VARIABLE}"}},
        "noisy": noisy,
    }
    write_config(tmp_path, toolbox(**servers))
    done = doctor("--json", cwd=tmp_path)
    assert (done.status, done.data["ok"]) == (4, False)
    (gone,), (dead,), (unset,) = (lines(done, f"dev/{name}") for name in ("gone", "dead", "unset"))
    assert (gone["state"], gone["code"]) == ("bad", "WB-CONN-101")
    assert gone["fix"] == "install no-such-command-anywhere, or write its absolute path"
    assert "no licence" in dead["message"]
    assert unset["fix"].startswith("export NO_SUCH_VARIABLE=…")
    (config,) = [line for line in lines(done, "config") if line["code"] == "WB-CONF-021"]
    assert config["place"].endswith("workbench-config.json:18:21")
    (doubt,) = lines(done, "tools")
    assert (doubt["code"], doubt["state"]) == ("WB-CONN-102", "doubtful")
    assert "1 line on its stdout held no message; the last one: listening" in doubt["message"]
    assert lines(done, "dev/noisy")[0]["state"] == "good"


@pytest.mark.parametrize(
    ("name", "code"),
    [("nope.json", "001"), ("folder", "002"), ("empty.json", "004"), ("huge.json", "005")],
)
def test_a_file_that_can_t_be_used_is_named(name: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    write_config(tmp_path, "", "empty.json")
    write_config(tmp_path, " " * (MOST_BYTES + 1), "huge.json")

    told = doctor(cwd=tmp_path, WORKBENCH_CONFIG=name)
    done = doctor("--json", cwd=tmp_path, WORKBENCH_CONFIG=name)

    assert (told.status, done.status) == (2, 2)
    assert f"\n                {name}   WB-CONF-{code}\n" in told.out
    (line,) = lines(done, "config")
    assert (line["code"], line["place"]) == (f"WB-CONF-{code}", str(tmp_path / name))


@no_self_test
def test_a_server_that_speaks_something_else_is_not_to_be_waited_for(tmp_path: Path) -> None:
    web = "echo Listening on http://localhost:3000; while read line; do :; done"
    write_config(
        tmp_path, toolbox(web={"command": "sh", "args": ["-c", web], "connectTimeout": 0.5})
    )
    done = doctor("--json", cwd=tmp_path)
    (line,) = lines(done, "dev/web")
    assert (done.status, line["code"]) == (4, "WB-CONN-101")
    assert line["message"].endswith("such as: Listening on http://localhost:3000")
    assert "stdio mode" in line["fix"]
    assert "connectTimeout" not in line["fix"]


@no_self_test
def test_what_can_not_be_started_says_what_to_write_instead(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    script = tmp_path / "script"
    script.write_text("#!/no/such/python3\n")
    script.chmod(0o755)
    servers = {
        "folder": {"command": str(tmp_path)},
        "script": {"command": str(script)},
        "file": {"command": "true", "cwd": "plain"},
        "homeless": {"command": "true", "cwd": "nowhere"},
        "line": {"command": "npx -y @scope/server ."},
        "liar": {"command": "sh", "args": ["-c", "echo 'no; write to me' >&2; exit 3"]},
    }
    fixes = {
        "folder": "correct 'command'",
        "script": "correct that line, or install /no/such/python3",
        "file": "correct 'cwd'",
        "homeless": "correct 'cwd'",
        "line": 'write "command": "npx", "args": ["-y", "@scope/server", "."]',
        "liar": "run its command by hand and see what it says",
    }
    write_config(tmp_path, toolbox(**servers))
    done = doctor("--json", cwd=tmp_path)
    found = {name: lines(done, f"dev/{name}")[0] for name in servers}
    assert {name: line["fix"] for name, line in found.items()} == fixes
    assert found["line"]["message"] == "command is a whole command line: npx -y @scope/server ."


@no_self_test
def test_one_server_alone(tmp_path: Path) -> None:
    write_config(tmp_path, toolbox(a=entry(), gone={"command": "no-such-command"}))
    for which in ("a", "dev/a"):
        assert doctor(which, cwd=tmp_path).status == 0
    assert doctor("dev", cwd=tmp_path).status == 4
    wrong = doctor("dve", cwd=tmp_path)
    assert wrong.status == 2
    assert "no toolbox or server 'dve'\n  Did you mean 'dev'?" in wrong.err


@no_self_test
def test_names_that_hosts_cut_are_told(tmp_path: Path) -> None:
    config = toolbox("a-toolbox-of-a-long-name", **{"and-a-server-of-one": demo_server("workshop")})
    write_config(tmp_path, config | {"toolMode": "dynamic"})
    done = doctor("--json", cwd=tmp_path)
    assert done.status == 0
    told = [line["message"] for line in lines(done, "tools") if line["code"] == "WB-TOOL-302"]
    assert any("Cursor drops the tool" in message for message in told)


def test_a_broken_configuration_is_told_whole(tmp_path: Path) -> None:
    write_config(tmp_path, {"toolboxes": {"a b": {"mcpServers": {"x": {}}}}})
    done = doctor(cwd=tmp_path)
    assert done.status == 2
    assert "✘ config" in done.out
    assert {"WB-CONF-013", "WB-CONF-018"} <= set(done.out.split())
    assert "workbench-config.json:" in done.out


@pytest.mark.skipif(os.name != "posix", reason="there are no such rights here")
@no_self_test
def test_a_configuration_that_everybody_can_change_is_closed_on_wish(tmp_path: Path) -> None:
    path = write_config(tmp_path, toolbox(a=entry()))
    path.chmod(0o646)
    done = doctor(cwd=tmp_path)
    assert (done.status, path.stat().st_mode & 0o777) == (2, 0o646)
    assert "fix: chmod o-w " in done.out
    mended = doctor("--fix", cwd=tmp_path)
    assert (mended.status, path.stat().st_mode & 0o777) == (0, 0o644)
    assert "could change this file (fixed)" in mended.out


def program(folder: Path, name: str, says: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def specs(*commands: str) -> list[ServerSpec]:
    return [ServerSpec(ServerAddress("dev", c), StdioCommand(c)) for c in commands]


@pytest.mark.skipif(os.name != "posix", reason="these are shell scripts")
def test_a_command_that_lies_elsewhere_is_found(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for version in ("v18.0.0", "v22.3.0"):
        found = program(tmp_path / ".nvm" / "versions" / "node" / version / "bin", "some-npx", "")
    assert outside_path("some-npx") == str(found)
    assert missing("some-npx").startswith(f'it is at {found}: write "command": "{found}"')
    assert missing("no-such-npx") == "install no-such-npx, or write its absolute path"
    assert outside_path("no-such-npx") == ""


@pytest.mark.skipif(os.name != "posix", reason="these are shell scripts")
def test_the_remedy_for_a_script_names_the_path_of_its_runtime(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """`npx` begins with `env node`: its own full path alone would start nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".nvm" / "versions" / "node" / "v22.3.0" / "bin"
    npx = program(folder, "npx", "8.1.0")
    told = missing("npx")
    members = told.removeprefix(f"it is at {npx}: write ").partition(", or add")[0]
    entry = json.loads(f"{{{members}}}")
    assert entry == {"command": str(npx), "env": {"PATH": f"{folder}:${{PATH}}"}}


@pytest.mark.skipif(os.name != "posix", reason="these are shell scripts")
def test_an_old_program_is_told_and_so_is_a_path_of_one_s_own(tmp_path: Path) -> None:
    program(tmp_path, "npx", "8.1.0")
    node = program(tmp_path, "node", "v16.20.2")
    uv = program(tmp_path, "uv", "uv 0.5.1 (abc 2024-01-01)")
    program(tmp_path, "only-here", "")
    assert (program_version(str(node)), program_version(str(uv))) == ((16, 20, 2), (0, 5, 1))
    found = list(check_programs(specs("npx", "uv", "only-here"), {"PATH": str(tmp_path)}))
    assert [(line.state, line.code) for line in found] == [
        ("doubtful", "WB-CONN-104"),
        ("good", ""),
        ("doubtful", "WB-CONN-103"),
    ]
    assert found[0].message == "node 16.20.2 is older than 20, which most servers need"
    assert found[1].message == "uv 0.5.1"
    assert "only-here" in found[2].message
