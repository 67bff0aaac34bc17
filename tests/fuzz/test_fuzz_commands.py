"""Messages between commands and the shared workbench: the same however they are cut, or refused."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import asyncio
import json

import msgspec
from hypothesis import strategies as st

from mcp_workbench.core.spec import ServerAddress, ToolIdentifier
from mcp_workbench.daemon.command_messages import (
    Answer,
    BadMessage,
    CallTool,
    Survey,
    read_message,
    read_request,
)
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import cuts, in_chunks, mutated, texts, values
from tests.kit.clock import PATIENCE

MOST = 2000
RUNNER = asyncio.Runner()

raw = values.map(lambda value: msgspec.Raw(json.dumps(value).encode()))
names = texts.map(lambda text: text.encode("utf-8", "replace").decode())
requests = st.one_of(
    st.builds(Survey, st.integers(0, 9), st.builds(ServerAddress, names, names), st.booleans()),
    st.builds(CallTool, st.integers(0, 9), st.builds(ToolIdentifier, names, names, names), raw),
    st.builds(Answer, st.integers(0, 9), raw),
)
bodies = requests.map(msgspec.json.encode)
frames = st.lists(
    bodies.map(lambda body: len(body).to_bytes(4, "big") + body), max_size=size(4)
).map(b"".join)


async def messages(chunks: list[bytes]) -> tuple[list[bytes], bool]:
    """All messages, and whether one was refused."""
    reader, received = asyncio.StreamReader(), list[bytes]()
    for chunk in chunks:
        reader.feed_data(chunk)
    reader.feed_eof()
    try:
        async with asyncio.timeout(PATIENCE):
            while message := await read_message(reader, MOST):
                received.append(message)
    except BadMessage:
        return received, True
    return received, False


@fuzzed(frames | mutated(frames, 2) | st.binary(max_size=size(40)), cuts)
def test_messages_are_the_same_however_they_are_cut(data: bytes, at: list[int]) -> None:
    received = RUNNER.run(messages(list(in_chunks(data, at))))

    assert received == RUNNER.run(messages([data]))
    assert all(len(message) <= MOST for message in received[0])


@fuzzed(bodies | mutated(bodies, 3))
def test_a_request_is_read_or_refused(data: bytes) -> None:
    try:
        request = read_request(data)
    except BadMessage:
        return
    assert isinstance(request.id, int)
