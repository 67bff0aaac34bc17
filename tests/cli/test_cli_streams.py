"""Streams that take nothing: a pipe whose reader has left, a full disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit import command as kit
from tests.kit.command import Done, environ
from tests.kit.forked import Streams

if sys.platform == "win32":
    pytest.skip("pipes of another kind", allow_module_level=True)

FULL = "/dev/full"
NO_SPACE = "error: the system refused: No space left on device\n  WB-CLI-005\n"

full_disk = pytest.mark.skipif(not Path(FULL).exists(), reason="a disk that is always full")
at_once_or_later = pytest.mark.parametrize("unbuffered", ["", "1"])


@contextmanager
def opened(kind: str) -> Generator[int]:
    """A stream that takes nothing."""
    if kind == FULL:
        number = os.open(FULL, os.O_WRONLY)
    else:
        reader, number = os.pipe()
        os.close(reader)
    try:
        yield number
    finally:
        os.close(number)


class Shown(NamedTuple):
    """What a command shows where all is taken, and where it has run: the same command may run there again."""

    done: Done
    folder: Path
    home: str


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Shown]:
    """Each command runs once, whatever it is compared with."""

    @cache
    def of(command: str) -> Shown:
        folder = tmp_path_factory.mktemp("shown")
        home = str(folder / "state")
        return Shown(typed(command, folder, MCP_WORKBENCH_HOME=home), folder, home)

    return of


def typed(
    command: str, cwd: Path, out: int = subprocess.PIPE, err: int = subprocess.PIPE, **more: str
) -> Done:
    return kit.typed(command.split(), cwd, Streams("", out, err), environ(**more))


@at_once_or_later
@pytest.mark.parametrize(
    "command", ["version", "--version", "completion bash", "schema", "tools -q", "tour", "--help"]
)
def test_a_reader_that_has_left_ends_it_quietly(
    command: str, unbuffered: str, tmp_path: Path
) -> None:
    with opened("pipe") as pipe:
        status, _, err = typed(command, tmp_path, out=pipe, PYTHONUNBUFFERED=unbuffered)

    assert (status, err) == (0, "")


def test_a_shell_that_does_not_wait_for_the_answer_is_left_in_peace(tmp_path: Path) -> None:
    with opened("pipe") as pipe:
        status, _, err = typed("", tmp_path, out=pipe, _MCP_WORKBENCH_COMPLETE="ch")

    assert (status, err) == (0, "")


@full_disk
@at_once_or_later
@pytest.mark.parametrize("command", ["version", "--version", "completion bash", "tour", "--help"])
def test_a_full_disk_is_told(command: str, unbuffered: str, tmp_path: Path) -> None:
    with opened(FULL) as full:
        status, _, err = typed(command, tmp_path, out=full, PYTHONUNBUFFERED=unbuffered)

    assert (status, err) == (1, NO_SPACE)


@at_once_or_later
@pytest.mark.parametrize("kind", ["pipe", pytest.param(FULL, marks=full_disk)])
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("foo", 2),
        ("tools --odd --json", 2),
        ("check --config nope", 2),
        ("tools", 0),
        ("tools --refresh", 0),
    ],
)
def test_a_stderr_that_takes_nothing_costs_only_what_it_would_have_shown(
    command: str, expected: int, kind: str, unbuffered: str, shown: Callable[[str], Shown]
) -> None:
    plain, folder, home = shown(command)

    with opened(kind) as nobody:
        env = {"PYTHONUNBUFFERED": unbuffered, "MCP_WORKBENCH_HOME": home}
        mute = kit.typed(command.split(), folder, Streams(err=nobody), environ(**env))

    assert plain[0] == expected
    assert plain[2], "it has something to say on stderr"
    assert mute[:2] == plain[:2]


@pytest.mark.parametrize(("kind", "status"), [("pipe", 0), pytest.param(FULL, 1, marks=full_disk)])
@pytest.mark.parametrize("command", ["version", "check --connect", "tour"])
def test_the_status_survives_where_neither_stream_takes_anything(
    command: str, kind: str, status: int, tmp_path: Path
) -> None:
    with opened(kind) as nobody:
        assert typed(command, tmp_path, out=nobody, err=nobody)[0] == status
