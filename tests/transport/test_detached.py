"""What a child starts outside of its process group is found by a variable, and ended with it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_workbench.transport.detached import VARIABLE, DetachedProcesses, find
from mcp_workbench.transport.process import ChildProcess, running_child
from tests.kit.clock import eventually, until, within
from tests.kit.processes import PROMISE, alive, cmdline, gone, guards, pids_in
from tests.kit.vitals import open_fds
from tests.transport.test_guard import killed
from tests.transport.test_process import python

if sys.platform != "linux":
    pytest.skip("reads /proc", allow_module_level=True)

LIMIT = 15.0

# Starts one process in a session of its own, and one as a daemon; each notes its number once it is ready.
DETACHING = """
import os, signal, sys

def note(text):
    with open(os.environ["PIDFILE"], "a") as file:
        file.write(text)

def detached(twice, term):
    if os.fork():
        return
    os.setsid()
    if twice and os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    signal.signal(signal.SIGTERM, term)
    note(f"{os.getpid()}\\n")
    while True:
        signal.pause()

def noted(number, frame):
    os.rename(os.environ["PIDFILE"], os.environ["PIDFILE"] + ".ended")
    os._exit(0)

"""
BOTH = "detached(False, signal.SIG_IGN); detached(True, signal.SIG_IGN); "
CAT = "\nwhile data := os.read(0, 65536): os.write(1, data)"


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    return tmp_path / "pids"


@contextmanager
def ended_afterwards(pids: Path) -> Generator[None]:
    try:
        yield
    finally:
        for pid in filter(alive, pids_in(pids)):
            os.kill(pid, signal.SIGKILL)


async def ready(pids: Path, count: int = 2) -> list[int]:
    await until(lambda: len(pids_in(pids)) == count)
    found = pids_in(pids)
    assert all(map(alive, found))
    return found


@pytest.mark.parametrize("life", [CAT, "\nsignal.pause()"], ids=["leaves", "must be told"])
async def test_what_has_left_the_group_ends_with_the_child(pids: Path, life: str) -> None:
    before = open_fds()
    with ended_afterwards(pids):
        async with asyncio.timeout(LIMIT):
            launch = python(DETACHING + BOTH + life, PIDFILE=str(pids))
            async with running_child(launch, print, print) as child:
                started = await ready(pids)
                assert all(os.getpgid(pid) != child.pid for pid in started)

            assert not any(map(alive, started))
    await asyncio.sleep(0)
    assert open_fds() <= before


async def test_it_ends_with_a_child_that_has_crashed(pids: Path) -> None:
    with ended_afterwards(pids):
        async with asyncio.timeout(LIMIT):
            launch = python(DETACHING + BOTH + CAT, PIDFILE=str(pids))
            async with running_child(launch, print, print) as child:
                started = await ready(pids)
                os.kill(child.pid, signal.SIGKILL)
                assert await child.gone_within(LIMIT)

            assert not any(map(alive, started))


@pytest.mark.parametrize("life", [CAT, "\nsignal.pause()"], ids=["leaves", "must be told"])
async def test_it_may_clean_up_before_that(pids: Path, life: str) -> None:
    with ended_afterwards(pids):
        async with asyncio.timeout(LIMIT):
            launch = python(DETACHING + "detached(True, noted)" + life, PIDFILE=str(pids))
            async with running_child(launch, print, print):
                [daemon] = await ready(pids, 1)

        assert not alive(daemon)
        assert pids.with_suffix(".ended").exists()


async def test_an_interrupted_end_is_an_end(pids: Path) -> None:
    with ended_afterwards(pids):
        launch = python(DETACHING + BOTH + "\nsignal.pause()", PIDFILE=str(pids))

        async def run() -> None:
            async with running_child(launch, print, print):
                await ready(pids)

        async with asyncio.timeout(LIMIT):
            task = asyncio.get_running_loop().create_task(run())
            await ready(pids)
            await asyncio.sleep(0.1)  # it waits for the child to leave
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        assert not any(map(alive, pids_in(pids)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({VARIABLE: ""}, "the entry says that nothing is to be looked for"),
        ({"DISPLAY": ":0"}, "it may be the browser of a person"),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "it may be the browser of a person"),
    ],
    ids=["opted out", "X11", "Wayland"],
)
async def test_what_is_left_alone(pids: Path, change: dict[str, str], reason: str) -> None:
    with ended_afterwards(pids):
        async with asyncio.timeout(LIMIT):
            launch = python(DETACHING + BOTH + CAT, PIDFILE=str(pids), **change)
            async with running_child(launch, print, print):
                started = await ready(pids)

        assert all(map(alive, started)), reason


async def test_nobody_else_s_processes_are_touched(pids: Path, tmp_path: Path) -> None:
    """Those of another child, of somebody who has the variable from elsewhere, and those without it."""
    others = [sleeping({}), sleeping({VARIABLE: ""}), sleeping({VARIABLE: f"{workbench()}.1"})]
    sibling_pids = tmp_path / "sibling"
    try:
        with ended_afterwards(pids), ended_afterwards(sibling_pids):
            async with asyncio.timeout(LIMIT):
                sibling = python(DETACHING + BOTH + CAT, PIDFILE=str(sibling_pids))
                async with running_child(sibling, print, print) as beside:
                    launch = python(DETACHING + BOTH + CAT, PIDFILE=str(pids))
                    async with running_child(launch, print, print):
                        started = await ready(pids)
                        theirs = await ready(sibling_pids)

                    assert not any(map(alive, started))
                    assert all(map(alive, theirs))
                    assert beside.exit_status() is None
                    assert all(other.poll() is None for other in others)
    finally:
        for other in others:
            other.kill()
            other.wait()


def workbench() -> str:
    """A name as the values of a workbench begin with. Tests that run at the same time have different ones."""
    return os.urandom(8).hex()


def sleeping(env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "600"], start_new_session=True, env={**os.environ, **env})


def test_a_value_is_compared_whole() -> None:
    """The first server of many must not end the processes of the tenth."""
    name = workbench()
    first, tenth = f"{name}.1", f"{name}.10"
    with sleeping({VARIABLE: tenth}) as other:
        eventually(lambda: other.pid in found(tenth), "it runs its program")

        assert other.pid not in found(first)
        DetachedProcesses(first, 0).end_now()
        assert other.poll() is None
        DetachedProcesses("", 0).end_now()
        assert other.poll() is None

        DetachedProcesses(tenth, 0).end_now()
        assert other.wait() == -signal.SIGKILL


def found(value: str) -> list[int]:
    processes = find(f"\0{VARIABLE}={value}\0".encode(), 0)
    for process in processes:
        process.close()
    return [process.pid for process in processes]


# After SIGKILL


# As `start` of the guard's tests, with the variable that a child gets.
MARKED = """
    theirs, ours = os.pipe()
    with watched.starting(theirs) as started:
        env = {**os.environ, "MCP_WORKBENCH_SERVER": watched.next_value(), **MORE}
        argv = ["sh", "-c", "setsid sh -c 'echo $$; exec sleep 600' & sleep 600"]
        child = subprocess.Popen(argv, stdin=theirs, start_new_session=True, env=env, stdout=-1)
        print(int(child.stdout.readline()), flush=True)
        started(child.pid)"""


def test_the_guard_finds_it_too(tmp_path: Path) -> None:
    with killed(tmp_path, MARKED.replace("MORE", "{}")) as [detached]:
        assert within(PROMISE, lambda: not alive(detached))


def test_the_guard_leaves_alone_what_may_show_windows(tmp_path: Path) -> None:
    body = MARKED.replace("MORE", '{"DISPLAY": ":0"}') + "; print(watched._shell, flush=True)"
    with killed(tmp_path, body) as [detached, shell]:
        assert gone([shell])
        assert alive(detached)


def test_the_guard_leaves_alone_what_has_another_value(tmp_path: Path) -> None:
    body = MARKED.replace("MORE", '{"MCP_WORKBENCH_SERVER": "0123456789abcdef.1"}')
    body += "; print(watched._shell, flush=True)"
    with killed(tmp_path, body) as [detached, shell]:
        assert gone([shell])
        assert alive(detached)


async def test_the_guard_of_a_child_knows_its_value(pids: Path) -> None:
    """Guards of other tests may still be ending, and a process has no environment in the moment of its start."""
    launch = python(CAT.replace("\n", "import os\n", 1))
    async with asyncio.timeout(LIMIT), running_child(launch, print, print) as child:

        def is_known() -> bool:
            known = [cmdline(shell).split(b"\0")[-2:-1] for shell in guards(os.getpid())]
            values = [value for words in known for value in words]
            marks = [value for value in values if value.startswith(VARIABLE.encode() + b"=")]
            return any(mark in environment(child) for mark in marks)

        await until(is_known)


def environment(child: ChildProcess) -> bytes:
    return Path(f"/proc/{child.pid}/environ").read_bytes()
