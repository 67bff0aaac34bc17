"""`lock` and its subcommands: what they record, show, approve and verify."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.results import Message, texts
from tests.kit.terminal import terminal
from tests.lock.scenes import ADD, ANNOUNCE, POISON, SERVER, Scene, opened, tool_names

CHANGED: Message = {**ADD, "description": f"Adds\u200b two\nnumbers\u202e. {POISON}"}
NEW: Message = {"name": "sub", "inputSchema": {"type": "object"}}


def test_lock_records_the_launch_line_and_every_definition(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.define(
        tools=[ADD],
        prompts=[{"name": "greet"}],
        templates=[{"uriTemplate": "note://{id}", "name": "n"}],
        instructions="Be kind",
        version="7",
    )
    done = scene.run("lock")

    entry = scene.locked()
    assert done.status == 0
    assert "dev/s: 4 definitions" in done.out
    assert set(entry) == {
        "launch", "launchLine", "server", "recorded", "hostCapabilities", "instructions", "tools",
        "prompts", "templates",
    }  # fmt: skip
    assert SERVER in entry["launchLine"]
    assert entry["server"] == "definer 7"
    assert set(entry["recorded"]) == {"at", "by", "version"}
    assert set(entry["tools"]) == {"add"}
    assert set(entry["prompts"]) == {"greet"}
    assert set(entry["templates"]) == {"note://{id}"}
    assert entry["instructions"].startswith("sha256:")
    assert "Adds" not in scene.lock.read_text()


def test_a_second_lock_changes_no_byte_and_verify_agrees(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.run("lock").status == 0
    before = scene.lock.read_bytes()

    again = scene.run("lock")
    verified = scene.run("lock", "verify")
    offline = scene.run("lock", "verify", "--offline")
    differs = scene.run("lock", "diff")

    assert scene.lock.read_bytes() == before
    assert "mcp-workbench.lock is unchanged" in again.err
    assert (verified.status, offline.status, differs.status) == (0, 0, 0)
    assert "nothing differs" in differs.err


def test_a_note_of_a_person_stays(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.run("lock").status == 0
    whole = json.loads(scene.lock.read_text())
    whole["servers"]["dev/s"]["note"] = "read by Anna"
    whole["servers"]["old/gone"] = {"note": "of another configuration in this folder"}
    scene.lock.write_text("// ours\n" + json.dumps(whole))
    scene.define(tools=[CHANGED])

    assert scene.run("lock").status == 0

    assert scene.locked()["note"] == "read by Anna"
    assert set(scene.locked()["tools"]) == {"add"}
    assert "old/gone" in scene.lock.read_text()


def test_diff_shows_old_and_new_escaped_with_warnings(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.run("lock").status == 0
    scene.define(tools=[CHANGED, NEW, ANNOUNCE])
    before = scene.lock.read_bytes()

    done = scene.run("lock", "diff")

    assert done.status == 1
    lines = [line.strip() for line in done.out.splitlines()]
    assert '- description: "Adds two numbers"' in lines
    [new] = [line for line in lines if line.startswith("+ description")]
    assert "Adds[U+200B ZERO WIDTH SPACE] two\\nnumbers[U+202E" in new
    assert "\u200b" not in done.out
    assert "\u202e" not in done.out
    assert any("concealed text" in line for line in lines)
    assert any("suspicious phrase (secrecy)" in line for line in lines)
    assert any(line.startswith("! dev/s: tool 'sub': new") for line in lines)
    assert '+ inputSchema.type: "object"' in lines
    assert scene.lock.read_bytes() == before
    assert scene.run("lock", "verify").status == 1


def test_diff_without_the_old_text_shows_the_whole_new_one(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.run("lock").status == 0
    for kept in (tmp_path / "state" / "lock").iterdir():
        assert kept.stat().st_mode & 0o777 == 0o600
        kept.unlink()
    scene.define(tools=[{**ADD, "title": "Sum"}, ANNOUNCE])

    done = scene.run("lock", "diff", "dev/s/add")

    assert "the recorded text is not on this machine" in done.out
    assert '+ title: "Sum"' in done.out
    assert '+ description: "Adds two numbers"' in done.out
    assert "mcp-workbench lock approve dev/s/add " in done.out


def test_a_person_approves_exactly_what_was_shown(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "pin")
    assert scene.run("lock").status == 0
    scene.define(tools=[CHANGED, NEW, ANNOUNCE])
    assert scene.run("lock").status == 1, "lock approves nothing"
    shown = scene.shown_hash()
    scene.define(tools=[{**CHANGED, "title": "!"}, NEW, ANNOUNCE])

    assert scene.decide("approve", "dev/s", shown, answer="") == 1, "it has moved"
    assert scene.decide("approve", "dev/s", scene.shown_hash(), answer="n\n") != 0
    assert [state for *_, state in scene.differences()] == ["changed", "new"]
    assert scene.decide("approve", "dev/s/add", scene.shown_hash("add")[:23]) == 0
    assert scene.differences() == [("tools", "sub", "new")]
    assert scene.decide("approve", "dev/s", scene.shown_hash()) == 0
    assert scene.differences() == []
    with scene.host() as host:
        assert tool_names(opened(host)) == ["add", "sub", "announce"]


@pytest.mark.parametrize("verb", ["approve", "reject"])
def test_nobody_but_a_person_at_a_terminal_decides(tmp_path: Path, verb: str) -> None:
    scene = Scene(tmp_path, "review")
    text = scene.shown_hash()

    piped = scene.run("lock", verb, "dev/s", text, "--json")
    argv = ("lock", verb, "dev/s", text, "--no-input", "--config", str(scene.config))
    with terminal(*argv, cwd=tmp_path, variables=scene.home) as screen:
        status = screen.rest()

    assert piped.status == 1
    assert piped.failure["code"] == "WB-LOCK-004"
    assert status == 1
    assert "only a person at a terminal" in screen.screen
    assert not scene.lock.exists()


@pytest.mark.parametrize("text", ["", "sha256:", "0" * 64, "sha256:" + "0" * 64])
def test_another_hash_or_a_short_one_approves_nothing(tmp_path: Path, text: str) -> None:
    scene = Scene(tmp_path, "review")
    short = scene.shown_hash().removeprefix("sha256:")[:15]

    for given in (text or "-", short):
        assert scene.decide("approve", "dev/s", given, answer="") != 0
    assert not scene.lock.exists()


def test_what_is_rejected_stays_hidden_without_a_warning(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "pin")
    assert scene.run("lock").status == 0
    scene.define(tools=[CHANGED, ANNOUNCE])
    assert scene.decide("reject", "dev/s/add", scene.shown_hash("add")) == 0

    with scene.host() as host:
        names = tool_names(opened(host))
        result = host.use("s", "add")
    assert names == ["announce"]
    assert "rejected" in " ".join(texts(result))
    assert "since it was recorded" not in host.stderr
    assert scene.run("lock", "verify").status == 0
    assert scene.differences() == [("tools", "add", "rejected")]

    scene.define(tools=[{**CHANGED, "title": "again"}, ANNOUNCE])
    assert scene.differences() == [("tools", "add", "changed")]
    scene.define(tools=[ADD, ANNOUNCE])
    assert scene.differences() == []


def test_a_rejected_server_is_not_started(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "pin")
    assert scene.decide("reject", "dev/s", scene.shown_hash()) == 0

    with scene.host() as host:
        opened(host)
        result = host.use("s", "add")

    assert "it was rejected" in " ".join(texts(result))


def test_a_tool_that_leaves_and_returns_is_no_fresh_start(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "pin")
    assert scene.run("lock").status == 0
    scene.define(tools=[ANNOUNCE])
    with scene.host() as host:
        assert tool_names(opened(host)) == ["announce"]
    assert scene.run("lock").status == 0
    scene.define(tools=[CHANGED, ANNOUNCE])

    assert scene.differences() == [("tools", "add", "changed")]


def test_verify_starts_no_server_that_is_not_in_the_file(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.run("lock").status == 0
    marker = tmp_path / "started"
    config = json.loads(scene.config.read_text())
    servers: dict[str, Any] = config["toolboxes"]["dev"]["mcpServers"]
    servers["new"] = {**scene.entry, "args": ["-c", f"open({str(marker)!r}, 'w')"]}
    scene.config.write_text(json.dumps(config))

    done = scene.run("lock", "verify")

    assert done.status == 1
    assert "dev/new: launch line: not in the lock file" in done.out
    assert not marker.exists()


def test_a_server_that_cannot_be_read_keeps_its_entry(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.run("lock").status == 0
    before = scene.lock.read_bytes()
    scene.definitions.unlink()

    locked, verified = scene.run("lock"), scene.run("lock", "verify")

    assert (locked.status, verified.status) == (4, 4)
    assert "not read" in locked.out
    assert scene.lock.read_bytes() == before


def test_secrets_of_an_entry_are_not_in_the_file(tmp_path: Path) -> None:
    secret = "s3cr3t-value-of-nobody"
    scene = Scene(tmp_path)
    scene.write_config(
        args=[*scene.entry["args"], "--token", secret], env={"API_KEY": f"{secret}-2"}
    )
    scene.define(tools=[{**ADD, "description": f"uses {secret}"}])

    assert scene.run("lock").status == 0

    kept = [f.read_text() for f in tmp_path.rglob("*") if f.is_file() and f.name.endswith(".json")]
    assert secret not in scene.lock.read_text()
    assert "API_KEY" not in scene.lock.read_text() or secret not in scene.lock.read_text()
    assert sum(secret in text for text in kept) == 2, "the configuration and the server's own file"


def test_without_a_configuration_there_is_no_lock_file(tmp_path: Path) -> None:
    from tests.kit.command import run_command

    done = run_command("lock", "--json", cwd=tmp_path, HOME=str(tmp_path))

    assert done.status == 2
    assert list(tmp_path.glob("*.lock")) == []
