"""The body of an answer, unpacked as it comes."""

import gzip

import pytest

from mcp_workbench.transport.http.client_response import ClientResponse, ExchangeFailed

PAGE = gzip.compress(b"x" * 100_000)


class Holder:
    """A connection that has nothing more to say."""

    def flow(self, *, going: bool) -> None:
        pass

    def part(self, *, complete: bool) -> None:
        pass


async def unpacked(*pieces: bytes) -> bytes:
    answer = ClientResponse(Holder())
    answer.begin(200, {"content-encoding": "gzip"})
    for piece in pieces:
        answer.push(piece)
    answer.finish()
    await answer.head(None)
    return await answer.whole(1 << 20)


async def test_every_member_of_a_compressed_answer_is_read() -> None:
    assert await unpacked(PAGE + gzip.compress(b"y")) == b"x" * 100_000 + b"y"


async def test_padding_after_a_compressed_answer_means_nothing() -> None:
    assert await unpacked(PAGE + b"\0\0\x1f") == b"x" * 100_000


@pytest.mark.parametrize("rest", [b"\x1f", PAGE[:-9], b"\x1fx"])
async def test_a_second_member_that_is_broken_breaks_the_answer(rest: bytes) -> None:
    with pytest.raises(ExchangeFailed):
        await unpacked(PAGE + rest)


LONG = b'{"jsonrpc":"2.0","id":1,"result":{"text":"%b"}}' % (b"x" * 300_000)


def collected(body: bytes, length: str, *, size: int = 65_536) -> ClientResponse:
    """A JSON body of that length that nobody reads until it is complete, as it arrives in pieces."""
    answer = ClientResponse(Holder())
    answer.when_ready(lambda: None)
    answer.begin(200, {"content-type": "application/json", "content-length": length})
    for start in range(0, len(body), size):
        answer.push(body[start : start + size])
    return answer


@pytest.mark.parametrize("size", [1000, 65_536, len(LONG)])
@pytest.mark.parametrize("length", [str(len(LONG)), "", "9" * 5000, "²"])
async def test_a_long_body_is_there_as_it_was_sent(length: str, size: int) -> None:
    answer = collected(LONG, length, size=size)
    assert answer.whole_now() is None
    answer.finish()
    assert answer.whole_now() == LONG
    assert await answer.whole(1 << 20) == LONG


async def test_of_a_long_body_that_breaks_off_only_what_came_is_read() -> None:
    answer = collected(LONG[:100_000], str(len(LONG)))
    assert await answer.read() == LONG[:65_536]
    answer.fail(ExchangeFailed("the connection was closed"))
    assert answer.whole_now() is None
    assert await answer.read() == LONG[65_536:100_000]
    with pytest.raises(ExchangeFailed, match="closed"):
        await answer.read()
