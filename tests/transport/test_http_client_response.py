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
