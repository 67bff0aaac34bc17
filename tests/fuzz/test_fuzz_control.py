"""Frames of the control socket: the same whatever the chunks, and none that is too long."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

from hypothesis import strategies as st

from mcp_workbench.daemon.control import MOST_LATER, BadFrame, FrameReader, pack
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import cuts, in_chunks

MOST = 40  # bytes of a first frame

frames = st.lists(st.binary(max_size=size(30)).map(pack), max_size=size(6)).map(b"".join)


def read(chunks: list[bytes]) -> tuple[list[list[bytes]], bool]:
    """All frames, and whether one was refused."""
    reader, received = FrameReader(MOST, MOST_LATER), list[list[bytes]]()
    for chunk in chunks:
        try:
            received += reader.feed(chunk)
        except BadFrame:
            return received, True
    return received, False


@fuzzed(frames | st.binary(max_size=size(60)), cuts)
def test_frames_are_the_same_however_they_are_cut(data: bytes, at: list[int]) -> None:
    received, is_refused = read(list(in_chunks(data, at)))

    single, is_refused_too = read([bytes([byte]) for byte in data])
    assert is_refused == is_refused_too
    assert single[: len(received)] == received
    joined = b"".join(pack(*frame) for frame in single)
    assert data.startswith(joined)
    for number, frame in enumerate(single):
        assert len(pack(*frame)) - 4 <= (MOST_LATER if number else MOST)
