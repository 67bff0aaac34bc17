"""Should we be killed, a shell ends whom we have started: those, and nobody else."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_workbench.transport.process import GUARDS, guard, running_child
from tests.kit.clock import PATIENCE, eventually, until, within
from tests.kit.processes import PROMISE, alive, guards, in_groups, pids_in
from tests.kit.vitals import open_fds
from tests.transport.test_process import CAT, known, python

if sys.platform != "linux":
    pytest.skip("reads /proc", allow_module_level=True)

LIMIT = 15.0


@pytest.fixture(autouse=True)
def a_guard_of_its_own() -> Generator[None]:
    """Tests may share a loop, and what one has closed stays closed."""
    GUARDS.clear()
    yield
    GUARDS.clear()


# A program that starts children as `process.py` does, and then is killed in the middle of something.
PROGRAM = """
import asyncio, os, signal, subprocess, sys
from mcp_workbench.transport.process import guard

def start(watched, *argv, tell=True):
    theirs, ours = os.pipe()
    with watched.starting(theirs) as started:
        child = subprocess.Popen(argv or ("sleep", "600"), stdin=theirs, start_new_session=True)
        print(child.pid, flush=True)
        if not tell:
            os.kill(os.getpid(), signal.SIGKILL)
        started(child.pid)
    os.close(theirs)
    return child

async def main():
    watched = guard()
    {body}
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@contextmanager
def killed(folder: Path, body: str) -> Generator[list[int]]:
    """The numbers that such a program told before it was killed; whoever still runs is ended."""
    said = folder / "said"
    argv = [sys.executable, "-c", PROGRAM.replace("{body}", body)]
    with said.open("w") as file:
        ended = subprocess.run(argv, stdout=file, timeout=PATIENCE).returncode
    pids = pids_in(said)
    try:
        assert ended == -signal.SIGKILL
        yield pids
    finally:
        for pid in filter(alive, pids):
            os.kill(pid, signal.SIGKILL)


def test_who_has_begun_is_ended_and_the_guard_with_it(tmp_path: Path) -> None:
    body = "start(watched); start(watched); print(watched._shell, flush=True)"
    with killed(tmp_path, body) as pids:
        assert len(pids) == 3
        assert within(PROMISE, lambda: not any(map(alive, pids)))


def test_a_start_that_was_under_way_is_found_by_its_standard_input(tmp_path: Path) -> None:
    with killed(tmp_path, "start(watched, tell=False)") as [pid]:
        assert within(PROMISE, lambda: not alive(pid))


def test_the_guard_does_not_look_for_whom_it_has_ended(tmp_path: Path) -> None:
    body = """
    theirs, ours = os.pipe()
    with watched.starting(theirs):
        marked = {"MCP_WORKBENCH_SERVER": watched.next_value()}
        child = subprocess.Popen(["/bin/sleep", "600"], stdin=theirs, env=marked, start_new_session=True)
        print(child.pid, watched._shell, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)"""
    with killed(tmp_path, body) as pids:
        assert len(pids) == 2
        assert within(PROMISE, lambda: not any(map(alive, pids)))


def test_a_start_whose_descriptors_are_closed_for_a_while_is_found_later(tmp_path: Path) -> None:
    """As those of a child are that has not reached its program, where our memory is closed to others."""
    hidden = "import ctypes, time; hide = ctypes.CDLL(None).prctl; hide(4, 0); "
    hidden += "print(flush=True); time.sleep(1); hide(4, 1); time.sleep(600)"
    body = f"""
    theirs, ours = os.pipe()
    with watched.starting(theirs):
        argv = [sys.executable, "-S", "-c", {hidden!r}]
        child = subprocess.Popen(argv, stdin=theirs, stdout=-1, start_new_session=True)
        child.stdout.readline()
        print(child.pid, watched._shell, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)"""
    with killed(tmp_path, body) as pids:
        assert within(PATIENCE, lambda: not any(map(alive, pids)))


def test_what_such_a_start_has_begun_in_its_turn_is_ended_too(tmp_path: Path) -> None:
    with killed(tmp_path, "start(watched, 'sh', '-c', 'sleep 600 & wait', tell=False)") as pids:
        assert within(PROMISE, lambda: not in_groups(pids))


def test_a_number_that_was_given_back_is_nobody_s(tmp_path: Path) -> None:
    """Until its leader is reaped a number is the group's; afterwards it may be anybody's."""
    body = "child = start(watched); start(watched); watched.ended(child.pid)"
    with killed(tmp_path, body) as [given_back, ours]:
        assert within(PROMISE, lambda: not alive(ours))
        assert alive(given_back)


def test_a_start_that_failed_leaves_nothing_to_look_for(tmp_path: Path) -> None:
    body = """
    start(watched)
    try:
        start(watched, "/no/such/program")
    except OSError:
        pass
    print(watched._shell, flush=True)"""
    with killed(tmp_path, body) as pids:
        assert within(1, lambda: not any(map(alive, pids)))  # a search would take longer


def test_a_copy_of_ourselves_does_not_hold_the_pipe(tmp_path: Path) -> None:
    body = """
    start(watched)
    if (copy := os.fork()) == 0:
        signal.pause()
    print(copy, flush=True)"""
    with killed(tmp_path, body) as [ours, copy]:
        assert within(PROMISE, lambda: not alive(ours))
        assert alive(copy)


# In a loop


async def test_one_guard_for_all_for_as_long_as_there_are_any() -> None:
    others = guards(os.getpid())
    before = open_fds()
    async with asyncio.timeout(LIMIT):
        async with running_child(python(CAT), print, print):
            [first] = mine(others)
            async with running_child(python(CAT), print, print):
                assert mine(others) == [first]
            assert mine(others) == [first]
        assert mine(others) == []
        assert not known(first)  # reaped, too
        await asyncio.sleep(0)
    assert open_fds() <= before


def mine(others: list[int]) -> list[int]:
    return [pid for pid in guards(os.getpid()) if pid not in others]


async def test_a_guard_that_was_killed_is_replaced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_workbench.transport.process.RESTART_PAUSE", 0.0)
    async with asyncio.timeout(LIMIT), running_child(python(CAT), print, print) as child:
        [first] = guards(os.getpid())
        os.kill(first, signal.SIGKILL)
        await until(lambda: guards(os.getpid()) not in ([], [first]))

        assert alive(child.pid)


async def test_a_guard_that_ends_at_once_is_started_again_after_a_pause() -> None:
    async with asyncio.timeout(LIMIT), running_child(python(CAT), print, print):
        [first] = guards(os.getpid())
        os.kill(first, signal.SIGKILL)
        await until(lambda: guards(os.getpid()) not in ([], [first]))


async def test_a_guard_that_ends_within_the_pause_is_started_for_the_next_server_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_workbench.transport.process.RESTART_PAUSE", 2 * LIMIT)
    async with asyncio.timeout(LIMIT), running_child(python(CAT), print, print):
        [first] = guards(os.getpid())
        os.kill(first, signal.SIGKILL)
        await until(lambda: not known(first))
        assert guards(os.getpid()) == []

        async with running_child(python(CAT), print, print):
            await until(lambda: len(guards(os.getpid())) == 1)


async def test_a_guard_that_was_stopped_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_workbench.transport.process.RESTART_PAUSE", 0.0)
    async with asyncio.timeout(LIMIT), running_child(python(CAT), print, print) as child:
        [first] = guards(os.getpid())
        os.kill(first, signal.SIGSTOP)
        for _ in range(20_000):  # more than its pipe takes
            guard().ended(2**22 + 1)

        assert guards(os.getpid()) != [first]
        eventually(lambda: not alive(first), "the old one is gone")
        assert alive(child.pid)


async def test_without_a_shell_servers_start_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mcp_workbench.transport.process.SHELL", "/no/such/shell")
    async with asyncio.timeout(LIMIT), running_child(python(CAT), print, print) as child:
        assert alive(child.pid)
        assert guards(os.getpid()) == []
    assert "servers would outlive a SIGKILL: /no/such/shell: No such file" in caplog.text


async def test_ending_all_is_at_once_and_for_good() -> None:
    async with asyncio.timeout(LIMIT), running_child(python(CAT), print, print) as child:
        guard().end_all()

        assert await child.gone_within(LIMIT)
        assert child.exit_status() == -signal.SIGKILL
        with pytest.raises(OSError, match="the workbench is shutting down"):
            async with running_child(python(CAT), print, print):
                raise AssertionError
