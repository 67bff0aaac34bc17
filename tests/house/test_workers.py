"""The suite's own machinery: tests that are shared out among processes, and what they leave behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAD = """
import os, sys, tempfile, threading
from pathlib import Path
import pytest

STDERR = sys.stderr  # as a function keeps it whose parameter has it as its default

def note(word):
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(f"{word}\\n")

@pytest.fixture(scope="module")
def scene():
    note(f"begin {os.getpid()}")
    yield os.getpid()
    note(f"end {os.getpid()}")
"""
MANY = """
@pytest.mark.parametrize("n", range(20))
def test_many(n, scene, tmp_path):
    assert scene == os.getpid()
    print(f"written in {n}", file=STDERR)
    note(f"{n} {tmp_path} {os.environ['MCP_WORKBENCH_HOME']}")
"""
FAILS = """
def test_fails():
    print("printed before it failed", file=STDERR)
    assert [1] == [2]

def test_is_skipped():
    pytest.skip("a reason")
"""
DIES = """
def test_dies():
    os._exit(3)
"""
WAITS = """
@pytest.mark.timeout(0.2)
def test_waits():
    never = threading.Event()
    threading.Thread(target=never.wait, name="one that waits as well", daemon=True).start()
    never.wait()
"""
HANGS = """
@pytest.mark.timeout(0.2)
def test_hangs():
    while True:
        try:
            threading.Event().wait()
        except BaseException:
            continue
"""
LEAVES = """
@pytest.mark.parametrize("n", range(2))
def test_leaves(n):
    tempfile.mkdtemp(prefix='forgotten-')
"""


def run_sample(folder: Path, tests: str, *options: str) -> tuple[int, str, list[str]]:
    """The exit status of a suite with these tests, what it printed, and what the tests have noted."""
    (folder / "test_sample.py").write_text(HEAD + tests, "utf-8")
    argv = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml")]
    root = folder / "tmp"  # of its own: pytest removes what it finds there of earlier runs
    root.mkdir()
    done = subprocess.run(
        [*argv, "-p", "tests.conftest", "-p", "no:cacheprovider", *options, str(folder)],
        cwd=ROOT,
        env=os.environ | {"NOTES": str(folder / "notes"), "PYTEST_DEBUG_TEMPROOT": str(root)},
        capture_output=True,
        text=True,
    )
    notes = folder / "notes"
    return done.returncode, done.stdout, notes.read_text().split("\n") if notes.exists() else []


def test_workers_run_each_test_once_and_report_all_of_them(tmp_path: Path) -> None:
    status, printed, notes = run_sample(tmp_path, MANY + FAILS, "--workers", "3")

    assert status == 1
    assert "1 failed, 20 passed, 1 skipped" in printed
    assert "assert [1] == [2]" in printed
    assert "printed before it failed" in printed
    assert "written in" not in printed
    assert "a reason" in printed
    numbered = [note.split() for note in notes if note[:1].isdigit()]
    assert sorted(int(number) for number, *_ in numbered) == list(range(20))
    assert len({folder for _, folder, _ in numbered}) == 20
    assert len({Path(folder).parents[1] for _, folder, _ in numbered}) == 1
    assert len({home for _, _, home in numbered}) == 20
    begun = sorted(note.removeprefix("begin ") for note in notes if note.startswith("begin"))
    assert begun == sorted(note.removeprefix("end ") for note in notes if note.startswith("end"))
    assert 1 <= len(begun) <= 3


def test_a_worker_that_dies_fails_its_test_and_the_others_are_run(tmp_path: Path) -> None:
    status, printed, notes = run_sample(tmp_path, DIES + MANY, "--workers", "2")

    assert status == 1
    assert "1 failed, 20 passed" in printed
    assert re.search(r"test_dies.*ended, with status 3", printed, re.DOTALL)
    assert len([note for note in notes if note[:1].isdigit()]) == 20


def test_a_test_that_is_over_its_time_is_shown_with_what_all_threads_did(tmp_path: Path) -> None:
    status, printed, _ = run_sample(tmp_path, WAITS + MANY, "--workers", "2")

    assert status == 1
    assert "1 failed, 20 passed" in printed
    assert "Timeout (>0.2s)" in printed
    assert "Stack of one that waits as well" in printed


@pytest.mark.parametrize("stop", [(), ("-x",)], ids=["", "stop"])
def test_a_test_that_can_not_be_ended_is_ended_with_its_process(
    tmp_path: Path, stop: tuple[str, ...]
) -> None:
    options = ("--workers", "2", "--grace", "0.2", *stop)
    status, printed, _ = run_sample(tmp_path, HANGS + MANY + FAILS, *options)

    assert status == 1
    if stop:
        assert "stopping after 1 failures" in printed
    else:
        assert "2 failed, 20 passed" in printed
        assert re.search(
            r"test_hangs.*did not end when its time was over: its process was aborted",
            printed,
            re.DOTALL,
        )


def test_a_run_that_is_to_stop_at_the_first_failure_does(tmp_path: Path) -> None:
    status, printed, notes = run_sample(tmp_path, FAILS + MANY, "--workers", "2", "-x")

    assert status == 1
    assert "stopping after 1 failures" in printed
    assert len([note for note in notes if note.startswith("begin")]) <= 2


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_is_left_fails_the_suite(tmp_path: Path, workers: str) -> None:
    status, printed, _ = run_sample(tmp_path, LEAVES, "--workers", workers)

    assert status == 1
    assert "forgotten-" in printed
    assert "2 passed" in printed
