"""Events: as the standard reads them, whatever the chunks."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from mcp_workbench.transport.http.sse import FIELD_BYTES, EventReader, EventTooLarge, event
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import cuts, in_chunks, mutated, values, writers

Told = tuple[str, str]  # name and data

fields = st.sampled_from([b"data", b"event", b"id", b"retry", b"other", b"", b"Data", b"data "])
contents = st.sampled_from(
    [b"", b" ", b"  x", b"12", b"\0", b"\xff", b":", b"message"]
) | st.binary(max_size=6)
field_lines = st.builds(
    lambda name, colon, value: name + colon + value,
    fields,
    st.sampled_from([b":", b": ", b""]),
    contents,
)
ends = st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n"])
streams = st.lists(st.builds(bytes.__add__, field_lines, ends), max_size=size(12)).map(b"".join)
streams |= streams.map(b"\xef\xbb\xbf".__add__)
said = mutated(streams)


def by_the_standard(data: bytes) -> tuple[list[Told], str, int | None]:  # noqa: C901 - as it is
    """Section 9.2.6 of the HTML standard, word for word: events, last id, and the time to wait."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    *lines, _ = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    events: list[Told] = []
    buffer, kind, id_buffer, last_id, wait = "", "", "", "", None
    for line in lines:
        if line == "":
            last_id = id_buffer
            if buffer != "":
                events.append((kind or "message", buffer.removesuffix("\n")))
            buffer, kind = "", ""
            continue
        if line.startswith(":"):
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            buffer += value + "\n"
        elif name == "id" and "\0" not in value:
            id_buffer = value
        elif name == "retry" and value.isascii() and value.isdigit():
            wait = int(value[:9])  # more is for ever in any case
    return events, last_id, wait


def read(chunks: list[bytes], limit: int) -> tuple[list[Told], EventReader, bool]:
    reader = EventReader(limit)
    events: list[Told] = []
    try:
        for chunk in chunks:
            for one in reader.feed(chunk):
                assert len(one.data) <= limit
                events.append((one.name, one.data.decode("utf-8", "replace")))
            assert len(reader._held) + len(reader._data or b"") <= limit + FIELD_BYTES
    except EventTooLarge:
        return events, reader, True
    return events, reader, False


@fuzzed(said, cuts)
def test_a_stream_is_read_as_the_standard_says(data: bytes, at: list[int]) -> None:
    events, reader, cut = read(in_chunks(data, at), 1 << 20)

    assert not cut
    assert (events, reader.last_id, reader.retry) == by_the_standard(data)


@fuzzed(said, cuts, st.integers(0, 40), examples=35)
def test_the_cap_of_events_is_the_same_whatever_the_chunks(
    data: bytes, at: list[int], limit: int
) -> None:
    whole, _, cut = read([data], limit)
    parts, _, cut_too = read(in_chunks(data, at), limit)

    assert (parts, cut_too) == (whole, cut)
    if not cut:
        assert whole == by_the_standard(data)[0]


@fuzzed(writers, values, st.sampled_from([b"", b"7-1"]), st.integers(0, 9), cuts)
def test_the_events_that_we_write_are_read_back(
    write: Any, value: Any, id: bytes, retry: int, at: list[int]
) -> None:
    body: bytes = write(value)
    events, reader, _ = read(in_chunks(event(body, id, retry), at), 1 << 20)

    assert events == [("message", body.decode("utf-8", "replace"))]
    assert (reader.last_id, reader.retry) == (id.decode(), retry or None)
