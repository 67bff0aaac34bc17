"""A canary in every source: its value reaches its server, and no other place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.kit.clock import eventually
from tests.kit.command import Done, Person, newcomer
from tests.kit.config import config_file, entry, program_entry
from tests.kit.forked import COMMAND
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import cmdline, processes
from tests.kit.results import json_text
from tests.secrets.scenes import PLAINTEXT, in_keyring, needing, private

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals here", allow_module_level=True)

from tests.kit.terminal import terminal

CANARIES = {
    "OF_STORE": "canary/of+the=store-4711",
    "OF_KEYRING": "canary/of+the=keyring-4711",
    "OF_COMMAND": "canary/of+the=command-4711",
    "OF_FILE": "canary/of+the=file-4711",
}
SECRETS = {
    "OF_STORE": "store",
    "OF_KEYRING": "keyring",
    # The command itself must not have the value in it.
    "OF_COMMAND": {"command": ["cat", "command.txt"]},
    "OF_FILE": {"file": "file.txt"},
}
# Servers that print what they were given, and fail: at once, and in the middle of a call.
CRASHES = """
import os, sys
sys.stderr.write("no access with " + " ".join(v for k, v in os.environ.items() if k.startswith("OF_")) + "\\n")
sys.exit(3)
"""
TALKS = """
import os, sys
for name, value in os.environ.items():
    if name.startswith("OF_"):
        sys.stdout.write(f"debug {name} {value}\\n")
sys.stdout.flush()
sys.stdin.read()
"""
LISTS = """
import json, os, sys
about = os.environ["OF_STORE"]
for line in sys.stdin:
    message = json.loads(line)
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "lists", "version": "1"}, "instructions": about},
        "tools/list": {"tools": [{"name": "it", "description": about, "inputSchema": {"type": "object"}}]},
    }
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results.get(message["method"], {})}), flush=True)
"""


def spellings(value: str) -> list[str]:
    return [
        value,
        quote(value, safe=""),
        b64encode(value.encode()).decode().rstrip("="),
        json.dumps(value).strip('"').replace("/", "\\/"),
    ]


def leaks(text: str) -> list[str]:
    """The canaries that can be read in a text, in any spelling."""
    return [n for n, value in CANARIES.items() if any(form in text for form in spellings(value))]


def leaking_files(folder: Path, *allowed: str) -> list[str]:
    return [
        path.name
        for path in folder.rglob("*")
        if path.is_file()
        and path.name not in allowed
        and leaks(path.read_bytes().decode("latin-1"))
    ]


@pytest.fixture
def ada(tmp_path: Path) -> Person:
    person = newcomer(tmp_path)
    environ = person.environ(PYTHON_KEYRING_BACKEND=PLAINTEXT)
    in_keyring(environ, "mcp-workbench", "OF_KEYRING", CANARIES["OF_KEYRING"])
    private(person.folder / "file.txt", CANARIES["OF_FILE"])
    private(person.folder / "command.txt", CANARIES["OF_COMMAND"])
    assert person.types("secret", "set", "OF_STORE", stdin=CANARIES["OF_STORE"]).status == 0
    for name, text in (("crashes", CRASHES), ("talks", TALKS), ("lists", LISTS)):
        (person.folder / f"{name}.py").write_text(text)
    env = {name: f"${{{name}}}" for name in CANARIES}
    folder = person.folder
    servers = {
        "good": needing(*CANARIES),
        "crashes": program_entry(str(folder / "crashes.py"), env=env),
        "talks": program_entry(str(folder / "talks.py"), env=env, connectTimeout=2),
        "lists": program_entry(str(folder / "lists.py"), env=env, era="legacy"),
        "headers": {
            "url": "http://127.0.0.1:9/mcp?key=${OF_STORE}",
            "headers": {"Authorization": "Bearer ${OF_KEYRING}"},
        },
    }
    config_file(folder, servers, secrets=SECRETS)
    return person


COMMANDS = (
    ("check",),
    ("check", "--json"),
    ("check", "--connect", "-v"),
    ("check", "--connect", "--json"),
    ("doctor", "--json"),
    ("doctor",),
    ("tools", "--refresh"),
    ("tools", "dev/lists", "--json"),
    ("list", "--json"),
    ("secret", "list", "--json"),
    ("call", "dev/crashes/x"),
    ("call", "dev/headers/x", "--json", "-v"),
    ("call", "dev/good/die", "-v"),
    ("call", "dev/good/echo", "text=hi", "-v"),
    ("search", "echo"),
    ("cost",),
    ("install", "cursor", "--dry-run"),
)


def test_the_values_are_in_no_output_and_no_file(ada: Person) -> None:
    def typed(argv: tuple[str, ...]) -> Done:
        return ada.types(*argv, PYTHON_KEYRING_BACKEND=PLAINTEXT)

    with ThreadPoolExecutor(4) as threads:  # each waits for servers that fail in their own time
        done = threads.map(typed, COMMANDS)
        outputs = dict(zip(COMMANDS, done, strict=True))

    # What lists its secret shows it to whoever lists its tools; everything else is ours.
    shown = {argv: leaks(done.out + done.err) for argv, done in outputs.items()}
    listing = {argv for argv in shown if argv[0] in ("tools", "search")}
    assert {argv: found for argv, found in shown.items() if found and argv not in listing} == {}
    assert "[secret:OF_STORE]" in outputs["check", "--connect", "-v"].out
    assert leaking_files(ada.home, "keyring_pass.cfg") == []
    assert leaking_files(ada.folder, "file.txt", "command.txt") == []
    names = [path.name for path in (ada.home / ".mcp-workbench" / "catalogues").iterdir()]
    assert len(names) == 2, "the key, and what the good server offers"


@pytest.mark.usefixtures("forked_commands")
def test_the_values_are_in_no_log_and_no_error_of_serve(ada: Person) -> None:
    log = ada.folder / "calls.jsonl"
    env = ada.environ(
        PYTHON_KEYRING_BACKEND=PLAINTEXT,
        MCP_WORKBENCH_VERBOSE="1",
        MCP_WORKBENCH_HOME=str(ada.home / ".mcp-workbench"),
    )
    with PipeHost(ada.config, "--log-calls", str(log), env=env, cwd=ada.folder) as host:
        host.handshake()
        given = json_text(host.use("good", "env", {}))["env"]
        answers = [json.dumps(host.use(name, "x", {})) for name in ("crashes", "talks", "headers")]
        opened = json.dumps(host.use("good", "die", {}))

    assert {name: given[name] for name in CANARIES} == CANARIES
    assert leaks("".join([*answers, opened])) == []
    assert leaks(log.read_text()) == []
    assert "no access with [secret:" in host.stderr
    assert leaks(host.stderr) == []


def test_the_values_are_in_no_argument_of_any_process(ada: Person) -> None:
    gate = ada.folder / "gate"
    script = 'cat command.txt; while [ ! -e "$0" ]; do sleep 0.02; done'
    secrets = {**SECRETS, "OF_COMMAND": {"command": ["sh", "-c", script, str(gate)]}}
    config_file(ada.folder, {"good": needing(*CANARIES)}, secrets=secrets)
    seen: set[bytes] = set()
    with subprocess.Popen(
        [*COMMAND, "check", "--connect"],
        cwd=ada.folder,
        env=ada.environ(PYTHON_KEYRING_BACKEND=PLAINTEXT),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:

        def command_runs() -> bool:
            lines = {cmdline(one.pid) for one in processes()}
            seen.update(lines)
            return any(str(gate).encode() in line for line in lines)

        eventually(command_runs, "the command of the secret")
        gate.touch()
        while process.poll() is None:
            seen.update(cmdline(one.pid) for one in processes())
            with suppress(subprocess.TimeoutExpired):  # each look takes as long as this
                process.wait(0.005)
        assert process.stdout is not None
        out = process.stdout.read()

    assert "1 of 1 ready" in out
    assert leaks(b"\n".join(seen).decode("latin-1")) == []


ASKS = """#!/bin/sh
printf 'Password: ' > /dev/tty && read answer < /dev/tty && echo "$answer"
"""


@pytest.mark.usefixtures("real_commands")  # their sessions are the subject
@pytest.mark.parametrize("kind", ["command", "keyring"])
def test_nobody_is_asked_on_a_terminal(kind: str, tmp_path: Path) -> None:
    person = newcomer(tmp_path)
    private(person.folder / "asks", ASKS).chmod(0o700)
    source = {"command": ["./asks"]} if kind == "command" else "keyring"
    config_file(person.folder, {"a": needing("IT"), "b": entry()}, secrets={"IT": source})
    root = str(Path(__file__).parents[2])
    env = person.environ(
        TERM="xterm", PYTHON_KEYRING_BACKEND="tests.secrets.keyrings.Asking", PYTHONPATH=root
    )

    with terminal("check", "--connect", cwd=person.folder, env=env | {"NO_COLOR": "1"}) as screen:
        assert screen.rest() == 4

    assert "assword" not in screen.screen
    assert "1 of 2 ready" in screen.screen
    assert os.environ.get("IT") is None
