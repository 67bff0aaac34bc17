"""Whoever can read a folder can hold its lock: nobody waits for that. Our own writers wait for each other."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_workbench.config import file_access
from mcp_workbench.config.expand import environment
from mcp_workbench.config.file_access import LockHeld, exclusive
from mcp_workbench.config.lock_file import NotYetWritten, change_lock
from mcp_workbench.core.spec import LockedServer, LockFile, ServerAddress, ServerSpec, StdioCommand
from mcp_workbench.transport.tasks import task_scope
from mcp_workbench.upstream.definition_locks import DefinitionLocks
from tests.kit.clock import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")

HOLD = """
import fcntl, os, sys
is_folder = os.path.isdir(sys.argv[1])
fd = os.open(sys.argv[1], os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(fd, fcntl.LOCK_EX)
print(os.getpid(), flush=True)
sys.stdin.read()
"""
NAME = "mcp-workbench.lock"
WRITING = "mcp-workbench.lock.writing"  # what its writers hold
SERVERS = 12  # more than there are threads


class Holder:
    """A process that holds the lock of a folder or a file."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.pid = int(process.stdout.readline())

    def release(self) -> None:
        self._process.communicate(timeout=PATIENCE)


@contextmanager
def held(path: Path) -> Generator[Holder]:
    pipe = subprocess.PIPE
    argv = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        holder = Holder(process)
        try:
            yield holder
        finally:
            if process.poll() is None:
                holder.release()


def locked_server(number: int) -> ServerSpec:
    address = ServerAddress("dev", f"s{number}")
    return ServerSpec(address, StdioCommand(sys.executable), lock="pin")


def of_file(path: Path) -> DefinitionLocks:
    home = {"MCP_WORKBENCH_HOME": str(path.with_name("state"))}
    return DefinitionLocks(LockFile(str(path)), environment(home))


async def admitted(locks: DefinitionLocks, number: int) -> bool:
    """Whether a tool that is seen for the first time is shown."""
    tools = {"a": b'{"name":"a"}'}
    review = await locks.admit(locked_server(number), "tools", tools, ())
    return not review.blocked


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux says who holds a lock")
def test_who_holds_a_lock_is_named(tmp_path: Path) -> None:
    with (
        held(tmp_path) as holder,
        pytest.raises(LockHeld, match=rf"pid {holder.pid}\) is writing it"),
        exclusive(str(tmp_path), 0.0),
    ):
        pass
    with exclusive(str(tmp_path), 0.0):
        pass


async def all_admitted_with_one_thread(folder: Path) -> list[bool]:
    """Who is shown, once the lock that they wait for is released."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    locks = of_file(folder / NAME)
    async with asyncio.timeout(PATIENCE), task_scope() as scope:
        with held(folder / WRITING) as holder:
            waiting = [scope.start(admitted(locks, n), f"server {n}") for n in range(SERVERS)]
            for _ in range(20):
                assert await asyncio.to_thread(int) == 0
            assert not any(one.done() for one in waiting)
            holder.release()
            return [await one for one in waiting]


def test_servers_that_wait_for_the_lock_file_leave_the_threads_to_others(tmp_path: Path) -> None:
    """In a loop of its own: other tests need more than one thread."""
    shown = asyncio.run(all_admitted_with_one_thread(tmp_path))

    path = tmp_path / NAME
    assert shown == [True] * SERVERS
    assert len(json.loads(path.read_text())["servers"]) == SERVERS


async def test_what_can_not_be_recorded_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_workbench.upstream.definition_locks.LOCK_WAIT", 0.1)
    locks = of_file(tmp_path / NAME)
    with held(tmp_path / WRITING):
        assert not await admitted(locks, 1)

    assert await admitted(locks, 1)


def test_a_command_that_can_not_write_the_file_says_who_holds_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_access, "LOCK_WAIT", 0.05)
    with (
        held(tmp_path / WRITING),
        pytest.raises(NotYetWritten, match=r"can't be written: another process.* is writing it"),
    ):
        change_lock(str(tmp_path / NAME), lambda servers: servers)


async def test_who_can_only_read_the_folder_delays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_workbench.upstream.definition_locks.LOCK_WAIT", 0.0)
    monkeypatch.setattr(file_access, "LOCK_WAIT", 0.0)
    path = tmp_path / NAME
    locks = of_file(path)
    with held(tmp_path):
        assert await admitted(locks, 1)
        with held(path):
            assert await admitted(locks, 2)
            change_lock(str(path), lambda servers: {"dev/s1": servers["dev/s1"]})

    assert list(json.loads(path.read_text())["servers"]) == ["dev/s1"]


def test_nobody_else_can_open_what_writers_hold_and_it_is_gone_afterwards(tmp_path: Path) -> None:
    path, own = tmp_path / NAME, tmp_path / WRITING
    modes: list[int] = []

    def change(servers: dict[str, LockedServer]) -> dict[str, LockedServer]:
        modes.append(own.stat().st_mode & 0o777)
        with pytest.raises(NotYetWritten):
            change_lock(str(path), lambda others: others, 0.0)
        return servers

    own.touch(0o600)  # of a process that was killed
    change_lock(str(path), change)

    assert modes == [0o600]
    assert not own.exists()
