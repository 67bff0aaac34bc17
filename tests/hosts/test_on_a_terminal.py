"""The question on a terminal, and what may happen while a person thinks about it."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts.samples import FILES, demo, tree, write_home
from tests.kit.command import READS, Person, newcomer
from tests.kit.config import entry

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals here", allow_module_level=True)

from tests.kit.terminal import Terminal, terminal

pytestmark = pytest.mark.usefixtures("forked_commands")

CURSOR = FILES["cursor"][0]
QUESTION = "write this? [y/N]"


@contextmanager
def asked(person: Person) -> Generator[Terminal]:
    """The command has shown what it would write, and waits for an answer."""
    env = person.environ(TERM="xterm", NO_COLOR="1")
    with terminal("install", "cursor", cwd=person.folder, env=env) as screen:
        screen.expect(QUESTION)
        yield screen


def answered(screen: Terminal, text: str) -> int:
    screen.type(text + "\n")
    return screen.rest()


@pytest.fixture
def person(tmp_path: Path) -> Person:
    person = newcomer(tmp_path)
    write_home(person.home, person.folder, ("cursor",))
    person.types("import", "--yes")
    return person


def test_a_yes_is_a_yes(person: Person) -> None:
    with asked(person) as terminal:
        assert answered(terminal, "y") == 0

    assert "undo: mcp-workbench undo 2" in terminal.screen
    assert '"workbench"' in (person.home / CURSOR).read_text()


def test_everything_else_is_a_no_and_leaves_no_trace(person: Person) -> None:
    before = tree(person.home)
    with asked(person) as terminal:
        assert answered(terminal, "") == 0

    assert "nothing was changed" in terminal.screen
    assert tree(person.home) == before


def test_a_file_that_changed_while_somebody_thought_is_left_alone(person: Person) -> None:
    with asked(person) as terminal:
        (person.home / CURSOR).write_text('{"mcpServers": {}}')
        before = tree(person.home)
        assert answered(terminal, "y") == 1

    assert "has changed since it was previewed" in terminal.screen
    assert "WB-HOST-502" in terminal.screen
    assert tree(person.home) == before


@contextmanager
def asked_to_uninstall(person: Person) -> Generator[Terminal]:
    """The servers of Cursor were removed by `install --replace`, and now we go again."""
    (person.home / CURSOR).write_text(json.dumps({"mcpServers": {"a": demo()}}, indent=2))
    person.config.unlink()
    assert person.types("import", "--yes").status == 0
    assert person.types("install", "cursor", "--replace", "--yes").status == 0
    assert '"a"' not in (person.home / CURSOR).read_text()
    env = person.environ(TERM="xterm", NO_COLOR="1")
    with terminal("uninstall", "cursor", cwd=person.folder, env=env) as screen:
        screen.expect(
            "`install --replace` has removed entries of other servers:\n    a in cursor\n"
        )
        screen.expect("put them back? [Y/n]")
        yield screen


def test_uninstall_offers_to_put_back_what_was_removed(person: Person) -> None:
    with asked_to_uninstall(person) as screen:
        screen.type("\n")
        screen.expect('+    "a": {')
        screen.expect(QUESTION)
        assert answered(screen, "y") == 0

    assert "Removed from Cursor. Put back in Cursor: a. Restart Cursor." in screen.screen
    assert json.loads((person.home / CURSOR).read_text()) == {"mcpServers": {"a": demo()}}


def test_who_does_not_want_them_back_can_have_them_later(person: Person) -> None:
    with asked_to_uninstall(person) as screen:
        screen.type("n\n")
        screen.expect(QUESTION)
        assert answered(screen, "y") == 0

    assert json.loads((person.home / CURSOR).read_text()) == {"mcpServers": {}}
    assert "mcp-workbench uninstall cursor --restore, or mcp-workbench undo 3" in screen.screen


def test_install_says_whom_it_waits_for(person: Person) -> None:
    gate = person.folder / "gate"
    waits = f"until [ -e {gate} ]; do sleep 0.02; done; exit 1"
    sleepy = {"command": "sh", "args": ["-c", waits]}
    (person.home / CURSOR).write_text(json.dumps({"mcpServers": {"sleepy": sleepy}}))
    person.types("import", "--yes")
    env = person.environ(TERM="xterm", NO_COLOR="1")

    with terminal("install", "cursor", "--replace", cwd=person.folder, env=env) as screen:
        screen.expect("waiting for default/sleepy")
        gate.touch()
        screen.expect("! sleepy: default/sleepy is not available")
        screen.expect(QUESTION)
        assert answered(screen, "n") == 0


def test_ctrl_c_while_servers_are_read_leaves_everything_as_it_was(tmp_path: Path) -> None:
    person = newcomer(tmp_path)
    file = person.home / CURSOR
    file.parent.mkdir()
    file.write_text(json.dumps({"mcpServers": {"mute": entry("hang")}}))
    file.chmod(0o600)
    env = person.environ(TERM="xterm", NO_COLOR="1", **READS)

    with terminal("import", cwd=person.folder, env=env) as screen:
        screen.expect(QUESTION)
        screen.type("y\n")
        screen.expect("waiting for default/mute")
        screen.type("\x03")
        assert screen.rest() == 130

    assert "nothing was changed" in screen.screen
    assert not person.config.exists()
