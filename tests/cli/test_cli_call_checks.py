"""What `call` finds out before it starts a server: the tool that is meant, wrong arguments, a recent failure."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from mcp_workbench.upstream.recent_failures import RECENT
from tests.kit.command import Done, run_command
from tests.kit.config import demo_server, entry, toolbox, write_config
from tests.kit.processes import pids_in

pytestmark = pytest.mark.usefixtures("forked_commands")

TYPED = """
import json, os, sys
open(os.environ["STARTS"], "a").write("x")
SCHEMA = {"type": "object", "properties": {
    "path": {"type": "string"}, "max_count": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "all": {"type": "boolean"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["path"]}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "typed", "version": "1"}},
        "tools/list": {"tools": [{"name": "log", "inputSchema": SCHEMA}]},
    }
    if message["method"] == "tools/call":
        text = json.dumps(message["params"]["arguments"])
        results["tools/call"] = {"content": [{"type": "text", "text": text}]}
    result = results.get(message["method"])
    answer = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"]} | answer), flush=True)
"""


class Scene:
    """A folder with a server `git` that notes its starts, and a state folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._starts = folder / "starts"
        (folder / "server.py").write_text(TYPED)
        args = ["-S", "-E", str(folder / "server.py")]
        env = {"STARTS": str(self._starts)}
        self.git = {"command": sys.executable, "args": args, "era": "legacy", "env": env}
        write_config(folder, toolbox(git=self.git))

    def run(self, *words: str, **env: str) -> Done:
        home = {"MCP_WORKBENCH_HOME": str(self.folder / "home")}
        return run_command(*words, cwd=self.folder, **(home | env))

    @property
    def starts(self) -> int:
        return len(self._starts.read_text()) if self._starts.exists() else 0


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_text_is_what_the_schema_wants(scene: Scene) -> None:
    words = ("path=2", "max_count=2", "all=true", 'tags=["a"]', "other=2")
    sent = json.loads(scene.run("call", "dev/git/log", *words, "-q").out)
    assert sent == {"path": "2", "max_count": 2, "all": True, "tags": ["a"], "other": "2"}
    sent = json.loads(scene.run("call", "git/log", "path=x", "max_count=null").out)
    assert sent == {"path": "x", "max_count": None}
    sent = json.loads(scene.run("call", "log", "path=x", "max_count=2", "--no-check").out)
    assert sent == {"path": "x", "max_count": "2"}


def test_wrong_arguments_are_refused_before_the_server_is_started(scene: Scene) -> None:
    assert scene.run("call", "log", "path=x").status == 0
    assert scene.starts == 1

    done = scene.run("call", "log", "max_count=many", "tags=a")

    assert (done.status, done.out, scene.starts) == (2, "", 1)
    assert done.err == (
        "error: missing argument 'path' for dev/git/log\n"
        "  argument 'max_count' takes int|null, not the text 'many'\n"
        "  argument 'tags' takes string[], not the text 'a': write tags:=JSON\n"
        "  log(path: string, max_count?: int|null, all?: bool, tags?: string[])\n"
        "  (from the cache, asked just now; --refresh asks the server)\n"
        "  WB-CLI-001\n"
    )
    refreshed = scene.run("call", "log", "max_count=many", "--refresh")
    assert (refreshed.status, scene.starts) == (2, 2)
    assert "from the cache" not in refreshed.err


def test_a_schema_that_has_changed_since_is_asked_for(scene: Scene) -> None:
    scene.run("call", "dev/git/log", "path=x")
    script = scene.folder / "server.py"
    script.write_text(script.read_text().replace('"required": ["path"]', '"required": []'))

    assert scene.run("call", "dev/git/log").status == 2
    assert scene.run("call", "dev/git/log", "--refresh").out == "{}\n"
    assert scene.run("call", "dev/git/log").out == "{}\n"


def test_a_name_that_is_not_unique_is_refused_with_the_candidates(scene: Scene) -> None:
    boxes = {"dev": {"git": scene.git}, "ops": {"git": scene.git, "demo": demo_server()}}
    config = {name: {"description": "", "mcpServers": of} for name, of in boxes.items()}
    write_config(scene.folder, {"toolboxes": config})

    done = scene.run("call", "log", "path=x")

    assert done.status == 2
    assert done.err.startswith(
        "error: 'log' fits 2 tools:\n  dev/git/log\n  ops/git/log\n  fix: write more of its name"
    )
    assert scene.run("call", "git/log", "path=x").status == 2
    assert scene.run("call", "ops/git/log", "path=x").status == 0
    assert scene.run("call", "add", "a=1", "b=2").out == "3\n"
    assert scene.run("call", "ad", "a=1", "b=2").err.startswith(
        "error: Tool 'ad' not found in any server\n  Did you mean 'add'?\n"
    )


def test_a_name_that_nobody_has_names_the_servers_that_could_not_be_asked(scene: Scene) -> None:
    write_config(scene.folder, toolbox(git=scene.git, bad={"command": "no-such-command"}))
    done = scene.run("call", "nope")
    assert done.err.startswith(
        "error: Tool 'nope' not found in any server\n  dev/bad is not available: "
    )
    assert scene.run("call", "log", "path=x").status == 0


# Recent failures


def failing(folder: Path, **more: Any) -> Path:
    """A configuration whose server fails until the file `works` is there; every start is noted."""
    server = entry(**more)
    script = folder / "server.sh"
    script.write_text(
        f"#!/bin/sh\necho $$ >> {folder}/starts\n[ -e {folder}/works ] || exit 7\n"
        f'exec {quote(server["command"])} "$@"\n'
    )
    script.chmod(0o755)
    write_config(folder, toolbox(a={**server, "command": str(script)}))
    return folder / "starts"


def run(folder: Path, *words: str, **env: str) -> Done:
    return run_command(*words, cwd=folder, MCP_WORKBENCH_HOME=str(folder / "home"), **env)


def test_a_server_that_just_failed_is_not_started_by_every_command(tmp_path: Path) -> None:
    starts = failing(tmp_path)

    first = run(tmp_path, "call", "dev/a/echo")
    others = [
        run(tmp_path, "call", "dev/a/echo"),
        run(tmp_path, "call", "dev/a/echo", "--no-check"),
        run(tmp_path, "tools"),
        run(tmp_path, "search", "echo"),
        run(tmp_path, "cost"),
    ]

    assert (first.status, "--refresh" in first.err) == (4, False)
    assert len(pids_in(starts)) == 1
    assert [done.status for done in others] == [4, 4, 4, 1, 4]
    for done in others:
        text = done.err + done.out
        assert "(exit status 7) (it failed " in text
        assert f"and is not started again within {RECENT:g} s; --refresh starts it now)" in text


@pytest.mark.parametrize(
    "words",
    [
        ("call", "dev/a/echo", "--refresh"),
        ("tools", "--refresh"),
        ("search", "echo", "--refresh"),
        ("check", "--connect"),
    ],
)
def test_a_command_that_asks_for_it_starts_the_server(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    starts = failing(tmp_path)
    assert run(tmp_path, "call", "dev/a/echo").status == 4
    (tmp_path / "works").touch()

    assert run(tmp_path, *words).status == 0

    assert run(tmp_path, "call", "dev/a/echo").status == 0, "the failure is forgotten"
    assert len(pids_in(starts)) == 3


def test_a_failure_is_forgotten_after_a_while(tmp_path: Path) -> None:
    starts = failing(tmp_path)
    run(tmp_path, "call", "dev/a/echo")
    [record] = (tmp_path / "home" / "failures").iterdir()
    content = json.loads(record.read_text())
    record.write_text(json.dumps(content | {"at": time.time() - RECENT}))
    os.utime(record, (0, 0))

    assert "it failed" not in run(tmp_path, "call", "dev/a/echo").err

    assert len(pids_in(starts)) == 2
    assert len(list((tmp_path / "home" / "failures").iterdir())) == 1


def test_another_value_of_a_variable_is_another_attempt(tmp_path: Path) -> None:
    starts = failing(tmp_path, env={"TOKEN": "${WB_TOKEN}"})
    unset = run(tmp_path, "call", "dev/a/echo")
    assert "WB_TOKEN" in unset.err
    assert not starts.exists()

    run(tmp_path, "call", "dev/a/echo", WB_TOKEN="one")
    run(tmp_path, "call", "dev/a/echo", WB_TOKEN="one")
    run(tmp_path, "call", "dev/a/echo", WB_TOKEN="two")

    assert len(pids_in(starts)) == 2
    kept = "".join(path.read_text() for path in (tmp_path / "home" / "failures").iterdir())
    assert "one" not in kept


def test_nothing_is_remembered_if_nothing_may_be_kept(tmp_path: Path) -> None:
    starts = failing(tmp_path)
    for _ in range(2):
        run(tmp_path, "call", "dev/a/echo", MCP_WORKBENCH_CACHE="off")
    assert len(pids_in(starts)) == 2
    assert not (tmp_path / "home" / "failures").exists()
