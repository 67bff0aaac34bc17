"""A child is started without a shell, watched, and always ended with its whole group."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_workbench.transport.process import (
    STDERR_BYTES,
    ChildProcess,
    ProcessSpec,
    running_child,
    watch_exit,
    watch_exit_in_thread,
)
from tests.kit.clock import eventually, until
from tests.kit.config import argv
from tests.kit.processes import alive, gone, pids_in
from tests.kit.vitals import open_fds

LIMIT = 15.0


class Heard:
    """What a child says, as events."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.lines = asyncio.Event()
        self.ended = asyncio.Event()
        self.ends = 0

    def received(self, data: bytes) -> None:
        self.data += data
        if data.endswith(b"\n"):
            self.lines.set()

    def end(self) -> None:
        self.ends += 1
        self.ended.set()


def python(code: str, **env: str) -> ProcessSpec:
    return ProcessSpec(
        (sys.executable, "-I", "-S", "-c", code), {"PATH": os.environ["PATH"], **env}
    )


def fixture(*flags: str, **env: str) -> ProcessSpec:
    return ProcessSpec(argv(*flags), env)


CAT = "import os\nwhile data := os.read(0, 65536): os.write(1, data)"


async def test_bytes_go_in_and_come_out() -> None:
    heard = Heard()
    async with (
        asyncio.timeout(LIMIT),
        running_child(python(CAT), heard.received, heard.end) as child,
    ):
        child.channel.send(b"hello\n")
        await heard.lines.wait()
        assert bytes(heard.data) == b"hello\n"
        assert child.exit_status() is None


async def test_leaving_the_block_ends_a_child_that_obeys_and_leaks_nothing() -> None:
    async def once() -> int:
        heard = Heard()
        async with running_child(python(CAT), heard.received, heard.end) as child:
            return child.pid

    async with asyncio.timeout(LIMIT):
        pids = [await once() for _ in range(2)]
        before = open_fds()
        pids += [await once() for _ in range(5)]
        await asyncio.sleep(0)

    assert gone(pids)
    assert not any(map(known, pids))  # reaped, too
    assert open_fds() <= before


def known(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_the_exit_is_noticed_with_status_and_last_words() -> None:
    heard = Heard()
    code = "import os; os.write(1, b'bye\\n'); os.write(2, b'oh no'); os._exit(7)"
    async with (
        asyncio.timeout(LIMIT),
        running_child(python(code), heard.received, heard.end) as child,
    ):
        await heard.ended.wait()
        assert await child.gone_within(LIMIT)
        assert child.exit_status() == 7
        assert bytes(heard.data) == b"bye\n"
        await said(child, "oh no")


async def said(child: ChildProcess, text: str) -> None:
    await until(lambda: text in child.complaints)  # its pipe is read apart, and sends us no event


async def test_what_a_held_child_said_before_its_end_is_heard() -> None:
    heard = Heard()
    code = "import os; os.read(0, 1); os.write(1, b'answer\\n')"
    async with (
        asyncio.timeout(LIMIT),
        running_child(python(code), heard.received, heard.end) as child,
    ):
        child.hold(held=True)
        child.channel.send(b"x")
        await heard.lines.wait()
        assert await child.gone_within(LIMIT)
        assert bytes(heard.data) == b"answer\n"


async def test_a_signal_is_a_negative_status() -> None:
    heard = Heard()
    async with (
        asyncio.timeout(LIMIT),
        running_child(python(CAT), heard.received, heard.end) as child,
    ):
        os.kill(child.pid, signal.SIGKILL)
        await heard.ended.wait()
        assert await child.gone_within(LIMIT)
        assert child.exit_status() == -signal.SIGKILL


async def test_a_grandchild_that_holds_the_pipe_does_not_hide_the_exit(tmp_path: Path) -> None:
    heard, pids = Heard(), tmp_path / "pids"
    async with asyncio.timeout(LIMIT):
        async with running_child(
            fixture("grandchild", "exit_start", PIDFILE=str(pids)), heard.received, heard.end
        ) as child:
            await heard.ended.wait()
            assert child.exit_status() == 3
        eventually(lambda: not any(map(alive, pids_in(pids))), "the group is gone")

    assert len(pids_in(pids)) == 2


@pytest.mark.parametrize("flags", [("no_eof_exit",), ("no_eof_exit", "ignore_term")])
async def test_a_child_that_does_not_leave_is_asked_and_then_made_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    monkeypatch.setattr("mcp_workbench.transport.process.POLITE", 0.1)
    monkeypatch.setattr("mcp_workbench.transport.process.FIRM", 0.2)
    heard, pids = Heard(), tmp_path / "pids"
    async with asyncio.timeout(LIMIT):
        async with running_child(
            fixture(*flags, PIDFILE=str(pids)), heard.received, heard.end
        ) as child:
            await until(lambda: bool(pids_in(pids)))
        assert not alive(child.pid)


@pytest.mark.parametrize("turns", range(8))
async def test_being_cancelled_at_any_moment_leaves_no_process_and_no_descriptor(
    turns: int,
) -> None:
    others = children_of_ours()  # what other tests keep running
    started: list[int] = []

    async def hold() -> None:
        heard = Heard()
        async with running_child(python(CAT), heard.received, heard.end) as child:
            started.append(child.pid)
            await asyncio.Event().wait()

    async def cancelled_after(turns: int) -> None:
        task = asyncio.get_running_loop().create_task(hold())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)

    async with asyncio.timeout(LIMIT):
        await cancelled_after(turns)
        before = open_fds()
        for _ in range(3):
            await cancelled_after(turns)
        await asyncio.sleep(0)

    assert open_fds() <= before
    assert gone(started)
    assert children_of_ours() <= others


def children_of_ours() -> set[int]:
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    return {pid for pid in map(int, task.read_text().split()) if alive(pid)}


async def test_being_cancelled_twice_while_leaving_still_ends_the_child(tmp_path: Path) -> None:
    pids, inside = tmp_path / "pids", asyncio.Event()

    async def hold() -> None:
        heard = Heard()
        launch = fixture("no_eof_exit", "ignore_term", PIDFILE=str(pids))
        async with running_child(launch, heard.received, heard.end):
            inside.set()
            await asyncio.Event().wait()

    async with asyncio.timeout(LIMIT):
        task = asyncio.get_running_loop().create_task(hold())
        await inside.wait()
        await until(lambda: bool(pids_in(pids)))
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([task])

    assert gone(pids_in(pids))


async def test_only_the_end_of_a_flood_of_complaints_is_kept() -> None:
    heard = Heard()
    code = "import os\nfor _ in range(100): os.write(2, b'e' * 65536)\nos.write(2, b'the end'); os.write(1, b'x\\n'); os.read(0, 1)"
    async with (
        asyncio.timeout(LIMIT),
        running_child(python(code), heard.received, heard.end) as child,
    ):
        await heard.lines.wait()
        await said(child, "the end")
        assert len(child.complaints) <= STDERR_BYTES
        assert child.complaints.endswith("the end")


@pytest.mark.parametrize(
    "launch",
    [ProcessSpec(("/no/such/program",), {}), ProcessSpec((sys.executable,), {}, "/no/such/folder")],
)
async def test_what_can_not_be_started_raises_and_leaks_nothing(launch: ProcessSpec) -> None:
    before = open_fds()

    with pytest.raises(OSError):  # noqa: PT011 - which one depends on the system
        async with running_child(launch, lambda data: None, lambda: None):
            raise AssertionError

    assert open_fds() <= before


async def test_a_child_has_a_session_of_its_own_and_no_descriptor_of_ours() -> None:
    heard = Heard()
    code = "import os; os.write(1, repr((os.getpid(), os.getsid(0), sorted(map(int, os.listdir('/proc/self/fd'))))).encode() + b'\\n')"
    inherited = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    try:
        async with asyncio.timeout(LIMIT), running_child(python(code), heard.received, heard.end):
            await heard.lines.wait()
    finally:
        os.close(inherited)

    pid, sid, fds = eval(bytes(heard.data))
    assert pid == sid
    assert fds[:3] == [0, 1, 2]
    assert len(fds) == 4  # the fourth looks at the list


def test_a_launch_shows_no_secret() -> None:
    shown = repr(ProcessSpec(("prog", "--token=abc"), {"TOKEN": "abc"}))

    assert "abc" not in shown
    assert "prog" in shown


@pytest.fixture
def cat() -> Iterator[subprocess.Popen[bytes]]:
    """A program that ends with its input; whoever reaps it gets its status."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        yield child
        assert child.wait(LIMIT) == 0


@pytest.mark.parametrize("in_thread", [False, True])
async def test_an_exit_is_noticed_and_left_to_be_reaped(
    cat: subprocess.Popen[bytes], in_thread: bool
) -> None:
    noticed = asyncio.Event()
    async with asyncio.timeout(LIMIT):
        if in_thread:
            stop = watch_exit_in_thread(cat.pid, noticed.set, asyncio.get_running_loop())
        else:
            stop = watch_exit(cat.pid, noticed.set)
        assert cat.stdin
        cat.stdin.close()
        await noticed.wait()
        stop()
