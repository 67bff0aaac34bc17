"""Pipes: what was sent arrives whole and in order, however slow the reader."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_workbench.transport.stdio import (
    JOIN_BYTES,
    PART_BYTES,
    READ_BYTES,
    STEP,
    FileWriter,
    PipeReader,
    PipeWriter,
    is_pipe,
    open_writer,
    pump_file,
)
from tests.kit.vitals import open_fds

LIMIT = 15.0
FRAMES = [
    b"%d " % index + b"x" * size + b"\n" for index, size in enumerate([1, 5, 70_000, 300_000, 2])
]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    before = open_fds()
    yield os.pipe()
    assert open_fds() <= before + 2  # pytest's capture and the loop come and go; a leak repeats


class Reader:
    """Collects what arrives, and can be awaited."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = asyncio.Event()

    def open(self, fd: int) -> PipeReader:
        return PipeReader(fd, self.data.extend, self.ended.set)


async def test_frames_arrive_whole_and_in_order(pipe: tuple[int, int]) -> None:
    reader, writer = Reader(), PipeWriter(pipe[1], lambda: None)
    async with asyncio.timeout(LIMIT):
        reader.open(pipe[0])
        for _ in range(5):
            for frame in FRAMES:
                writer.send(frame)
            await asyncio.sleep(0)
        await writer.flushed(LIMIT)
        await reader.ended.wait()

    assert bytes(reader.data) == b"".join(FRAMES) * 5


async def test_what_a_full_pipe_can_not_take_is_the_backlog(pipe: tuple[int, int]) -> None:
    reader, writer = Reader(), PipeWriter(pipe[1], lambda: None)
    frame = b"y" * 500_000

    async with asyncio.timeout(LIMIT):
        for _ in range(4):
            writer.send(frame)
        await asyncio.sleep(0)
        assert 1_000_000 < writer.backlog < 2_000_000

        reader.open(pipe[0])
        await writer.flushed(LIMIT)
        await reader.ended.wait()

    assert bytes(reader.data) == frame * 4
    assert writer.backlog == 0


async def test_what_has_not_left_can_be_taken_back_and_nothing_else(pipe: tuple[int, int]) -> None:
    reader, writer = Reader(), PipeWriter(pipe[1], lambda: None)
    large, small = b"0" * 2_000_000, [b"%d" % n * 10 for n in range(1, 5)]

    async with asyncio.timeout(LIMIT):
        for frame in (large, *small):
            writer.send(frame)
        before = writer.backlog
        taken = [writer.take_back(start) for start in (b"00", b"22", b"44", b"22", b"99")]
        assert taken == [False, True, True, False, False]
        assert writer.backlog == before - 20

        reader.open(pipe[0])
        await writer.flushed(LIMIT)
        await reader.ended.wait()

    assert bytes(reader.data) == large + small[0] + small[2]
    assert writer.backlog == 0


async def test_flushing_loses_nothing_to_a_reader_that_is_late(pipe: tuple[int, int]) -> None:
    writer = PipeWriter(pipe[1], lambda: None)
    for frame in FRAMES * 3:
        writer.send(frame)

    async with asyncio.timeout(LIMIT):
        flushing = asyncio.get_running_loop().create_task(writer.flushed(LIMIT))
        await asyncio.sleep(0)  # it waits: nobody has read yet
        reader = Reader()
        reader.open(pipe[0])
        await flushing
        await reader.ended.wait()

    assert bytes(reader.data) == b"".join(FRAMES) * 3


async def test_flushing_gives_up_on_a_reader_that_never_reads(pipe: tuple[int, int]) -> None:
    writer = PipeWriter(pipe[1], lambda: None)
    writer.send(b"z" * 1_000_000)

    async with asyncio.timeout(LIMIT):
        await writer.flushed(0.05)

    os.set_blocking(pipe[0], False)
    while os.read(pipe[0], 1 << 20):
        pass  # ends: our side is closed
    os.close(pipe[0])


async def test_writing_to_a_reader_that_is_gone_raises_nothing(pipe: tuple[int, int]) -> None:
    writer = PipeWriter(pipe[1], lambda: None)
    os.close(pipe[0])

    async with asyncio.timeout(LIMIT):
        for _ in range(20):
            writer.send(b"x" * 100_000)
            await asyncio.sleep(0)
        await writer.flushed(1)


async def test_a_reader_that_leaves_in_the_middle_raises_nothing(pipe: tuple[int, int]) -> None:
    writer = PipeWriter(pipe[1], lambda: None)
    async with asyncio.timeout(LIMIT):
        for _ in range(10):
            writer.send(b"x" * 100_000)
        await asyncio.sleep(0)
        os.close(pipe[0])
        for _ in range(10):
            writer.send(b"x" * 100_000)
            await asyncio.sleep(0)
        await writer.flushed(1)


async def test_pressure_is_told_once_when_it_rises_and_once_when_it_is_gone(
    pipe: tuple[int, int],
) -> None:
    told: list[bool] = []
    reader, writer = Reader(), PipeWriter(pipe[1], lambda: None)
    writer.on_pressure(told.append)

    async with asyncio.timeout(LIMIT):
        writer.send(b"small\n")
        await asyncio.sleep(0)
        assert told == []
        for _ in range(6):
            writer.send(b"x" * 500_000)
        await asyncio.sleep(0)
        assert told == [True]

        reader.open(pipe[0])
        await writer.flushed(LIMIT)

    assert told == [True, False]


async def test_the_end_of_a_pipe_is_told_after_its_last_bytes(pipe: tuple[int, int]) -> None:
    order: list[object] = []
    ended = asyncio.Event()

    def end() -> None:
        order.append("end")
        ended.set()

    os.write(pipe[1], b"last words")
    os.close(pipe[1])
    async with asyncio.timeout(LIMIT):
        PipeReader(pipe[0], order.append, end)
        await ended.wait()

    assert order == [b"last words", "end"]


async def test_a_reader_that_is_held_leaves_everything_in_the_pipe(pipe: tuple[int, int]) -> None:
    reader, other = Reader(), Reader()
    side = os.pipe()
    async with asyncio.timeout(LIMIT):
        held, free = reader.open(pipe[0]), other.open(side[0])
        held.hold(held=True)
        for write in (pipe[1], side[1]):
            os.write(write, b"data")
            os.close(write)
        await other.ended.wait()  # by now the first one would have been heard, too
        assert (reader.data, reader.ended.is_set()) == (b"", False)

        held.hold(held=False)
        await reader.ended.wait()

    assert (reader.data, other.data) == (b"data", b"data")
    held.close()  # closing again, and holding what is closed, does nothing
    free.hold(held=True)


async def test_what_takes_long_to_receive_comes_in_parts_and_then_what_follows(
    pipe: tuple[int, int],
) -> None:
    lines = b"".join(b"%d\n" % number for number in range(1500))
    assert JOIN_BYTES <= 3 * PART_BYTES < len(lines) < READ_BYTES
    parts: list[bytes] = []
    turns: list[int] = []
    turn = 0
    ended = asyncio.Event()

    def receive(data: bytes) -> None:
        if not parts:
            os.write(pipe[1], b"what follows\n")
        parts.append(data)
        turns.append(turn)
        time.sleep(STEP)

    async with asyncio.timeout(LIMIT):
        PipeReader(pipe[0], receive, ended.set)
        os.write(pipe[1], lines)
        while b"".join(parts) != lines + b"what follows\n":
            turn += 1
            await asyncio.sleep(0)
        os.close(pipe[1])
        await ended.wait()

    assert all(part.endswith(b"\n") for part in parts)
    assert len(set(turns[:-1])) == len(parts) - 1 == 4  # others have turns between them


async def test_a_closed_reader_hears_nothing_more(pipe: tuple[int, int]) -> None:
    reader = Reader()

    reader.open(pipe[0]).close()

    with pytest.raises(BrokenPipeError):
        os.write(pipe[1], b"x")
    os.close(pipe[1])
    assert not reader.ended.is_set()


async def test_a_file_is_no_pipe_and_is_read_and_written_all_the_same(tmp_path: Path) -> None:
    text = b"a\n" * 300_000
    (tmp_path / "in").write_bytes(text)
    got, ended = bytearray(), asyncio.Event()
    source = os.open(tmp_path / "in", os.O_RDONLY)
    target = os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY)

    assert not is_pipe(source)
    writer = open_writer(target, lambda: None)
    assert isinstance(writer, FileWriter)
    async with asyncio.timeout(LIMIT):
        pump_file(source, got.extend, ended.set)
        await ended.wait()
        writer.send(b"one\n")
        writer.send(b"two\n")
        await writer.flushed(1)

    os.close(source)
    assert ended.is_set()
    assert bytes(got) == text
    assert (tmp_path / "out").read_bytes() == b"one\ntwo\n"


CLAIM = """
import os, sys
from mcp_workbench.transport.stdio import claim_standard_streams
own_in, own_out = claim_standard_streams()
print("stray")
os.write(1, b"also stray\\n")
assert os.read(0, 10) == b""
os.write(own_out, os.read(own_in, 100))
"""


def test_after_claiming_a_stray_print_goes_to_stderr_and_stdin_is_empty() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLAIM], input=b"wire", capture_output=True, timeout=LIMIT, check=True
    )

    assert done.stdout == b"wire"
    assert sorted(done.stderr.split(b"\n")) == [b"", b"also stray", b"stray"]
