"""An entry of a list that is as long as a message is left out, and costs little; the others are there."""

from __future__ import annotations

import msgspec
import pytest

from mcp_workbench.core.catalogue import read_definitions
from mcp_workbench.core.primitive_names import KEYS, PrimitiveKind, read_primitives
from mcp_workbench.core.raw_json import LONGEST_ENTRY, LONGEST_NAME
from tests.threats import worst
from tests.threats.growth import cost, peak

SHORT = b'{"name":"b","uri":"a:b","uriTemplate":"a:b"}'
SIZE = 16 << 20


def entries(raw: bytes) -> list[msgspec.Raw]:
    return [msgspec.Raw(raw), msgspec.Raw(SHORT)]


@pytest.mark.cost
@pytest.mark.parametrize("kind", ["prompts", "resources", "templates"])
@pytest.mark.parametrize("filling", [(b"[", b"1,", b"1]"), (b'"', rb"\n", b'"')])
def test_an_entry_as_long_as_a_message_is_not_read(
    kind: PrimitiveKind, filling: tuple[bytes, bytes, bytes]
) -> None:
    long = b'{"name":"a","uri":"a:a","uriTemplate":"a:a","x":%b}' % worst.filled(*filling, SIZE)
    raws = entries(long)
    once = cost(lambda: msgspec.json.decode(long, type=msgspec.Raw))

    assert [*read_primitives(kind, raws)] == (["b"] if kind == "prompts" else ["a:b"])
    assert cost(lambda: read_primitives(kind, raws), enough=once / 2) <= once / 2
    assert peak(lambda: read_primitives(kind, raws)) < SIZE / 16


@pytest.mark.cost
@pytest.mark.parametrize("filling", [(b"[", b"1,", b"1]"), (b'"', rb"\n", b'"')])
def test_a_tool_as_long_as_a_message_is_not_read_and_the_list_says_so(
    filling: tuple[bytes, bytes, bytes],
) -> None:
    long = b'{"name":"a","description":%b}' % worst.filled(*filling, SIZE)
    raws = entries(long)
    once = cost(lambda: msgspec.json.decode(long, type=msgspec.Raw))

    tools, complaints = read_definitions(raws)

    assert [*tools] == ["b"]
    assert complaints == ["a tool was left out: its definition is longer than 4 MiB"]
    assert cost(lambda: read_definitions(raws), enough=once / 2) <= once / 2
    assert peak(lambda: read_definitions(raws)) < SIZE / 16


@pytest.mark.parametrize("kind", ["prompts", "resources", "templates"])
def test_a_name_that_nobody_can_ask_for_is_left_out(kind: PrimitiveKind) -> None:
    long = b'{"%b":"%b"}' % (KEYS[kind].encode(), b"a" * LONGEST_NAME)

    assert len(read_primitives(kind, entries(long))) == 1


def test_what_is_long_but_not_that_long_is_listed() -> None:
    long = b'{"name":"a","description":"%b"}' % (b"a" * (LONGEST_ENTRY - 100))

    assert [*read_primitives("prompts", entries(long))] == ["a", "b"]
    assert [*read_definitions(entries(long))[0]] == ["a", "b"]
