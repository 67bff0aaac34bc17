"""The question on a terminal, and what may happen while a person thinks about it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hosts.samples import FILES, tree, write_home
from tests.kit.command import TIMEOUT, Person, newcomer

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals here", allow_module_level=True)

import pty
import select

CURSOR = FILES["cursor"][0]
QUESTION = b"write this? [y/N]"


class Terminal:
    """A run of the command with a person before it."""

    def __init__(self, person: Person, *argv: str) -> None:
        self.screen = b""
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mcp_workbench", *argv],
            cwd=person.folder,
            env=person.environ(TERM="xterm", NO_COLOR="1"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)

    def wait_for(self, text: bytes) -> None:
        while text not in self.screen:
            assert select.select([self.ours], [], [], TIMEOUT)[0], self.screen
            self.screen += os.read(self.ours, 65536)

    def answer(self, text: bytes) -> int:
        os.write(self.ours, text + b"\n")
        try:
            while select.select([self.ours], [], [], TIMEOUT)[0]:
                chunk = os.read(self.ours, 65536)
                if not chunk:
                    break
                self.screen += chunk
        except OSError:  # Linux says so when the last writer has gone
            pass
        os.close(self.ours)
        return self.process.wait(TIMEOUT)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    person = newcomer(tmp_path)
    write_home(person.home, person.folder, ("cursor",))
    person.types("import", "--yes")
    return person


def test_a_yes_is_a_yes(person: Person) -> None:
    terminal = Terminal(person, "install", "cursor")
    terminal.wait_for(QUESTION)

    assert terminal.answer(b"y") == 0
    assert b"undo: mcp-workbench undo 2" in terminal.screen
    assert '"workbench"' in (person.home / CURSOR).read_text()


def test_everything_else_is_a_no_and_leaves_no_trace(person: Person) -> None:
    before = tree(person.home)
    terminal = Terminal(person, "install", "cursor")
    terminal.wait_for(QUESTION)

    assert terminal.answer(b"") == 0
    assert b"nothing was changed" in terminal.screen
    assert tree(person.home) == before


def test_a_file_that_changed_while_somebody_thought_is_left_alone(person: Person) -> None:
    terminal = Terminal(person, "install", "cursor")
    terminal.wait_for(QUESTION)
    (person.home / CURSOR).write_text('{"mcpServers": {}}')
    before = tree(person.home)

    assert terminal.answer(b"y") == 1
    assert b"has changed since it was previewed" in terminal.screen
    assert b"WB-HOST-502" in terminal.screen
    assert tree(person.home) == before
