"""A cap in bytes is a cap in memory, also where the bytes come in crumbs."""

import tracemalloc
from collections.abc import Callable

import pytest

from mcp_workbench.transport.http.messages import HttpRequest
from mcp_workbench.transport.http.sse import EventReader, EventTooLarge
from mcp_workbench.transport.json_text import LineFramer

pytestmark = pytest.mark.cost

LIMIT = 1 << 18


def crumb() -> bytes:
    return bytes(bytearray(b"xy"))  # an object of its own, as a read would give


def a_line_in_crumbs() -> None:
    framer = LineFramer(LIMIT)
    while framer.take_overflow() is None:
        framer.feed(crumb())


def an_event_in_crumbs() -> None:
    reader = EventReader(LIMIT)
    while True:
        list(reader.feed(crumb()))


def an_event_of_many_lines() -> None:
    reader = EventReader(LIMIT)
    while True:
        list(reader.feed(b"data:xy\n" * 100))


def a_body_in_crumbs() -> None:
    request = HttpRequest()
    while request.size < LIMIT:
        request.add_chunk(crumb())
    request.close_body()
    assert request.body == b"xy" * (LIMIT // 2)


@pytest.mark.parametrize(
    "arrival", [a_line_in_crumbs, an_event_in_crumbs, an_event_of_many_lines, a_body_in_crumbs]
)
def test_crumbs_cost_little_more_than_their_bytes(arrival: Callable[[], None]) -> None:
    tracemalloc.start()
    try:
        arrival()
    except EventTooLarge:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert peak < 3 * LIMIT  # a buffer that grows, and once its copy
