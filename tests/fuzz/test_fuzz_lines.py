"""Lines and messages: the same whatever the chunks, and nothing is read that is not there."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from mcp_workbench.server import parse
from mcp_workbench.transport import json_text, jsonrpc
from mcp_workbench.transport.json_text import HEAD, LineFramer
from mcp_workbench.transport.jsonrpc import Envelope, Malformed
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import (
    cuts,
    ids,
    in_chunks,
    keys,
    mutated,
    objects,
    strict_json,
    values,
    writers,
)

LIMIT = 300

messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | values,
        "id": ids,
        "method": st.sampled_from(["ping", "tools/call", ""]) | values,
        "params": objects | values,
        "result": objects | values,
        "error": objects | values,
        "more": values,
    },
)
written = st.builds(lambda write, value: write(value), writers, messages)
streams = st.lists(
    mutated(written) | st.sampled_from([b"\n", b"\r\n", b" \n", b"\n\n", b"x" * LIMIT, b"log"]),
    max_size=size(6),
).map(b"\n".join)


@fuzzed(streams | st.binary(max_size=size(60)), cuts, st.sampled_from([3, 20, LIMIT, HEAD * 3]))
def test_lines_are_the_same_however_they_are_cut(data: bytes, at: list[int], limit: int) -> None:
    framer = LineFramer(limit)
    lines: list[bytes] = []
    heads: list[bytes] = []
    for chunk in in_chunks(data, at):
        lines += framer.feed(chunk)
        heads += [head for head in [framer.take_overflow()] if head is not None]
        assert sum(map(len, framer._held)) == framer._size <= limit

    whole = data.split(b"\n")
    expected = [line.replace(b"\r", b" ") for line in whole[:-1] if len(line) <= limit]
    assert lines == [line for line in expected if line.strip()]
    long = [line.replace(b"\r", b" ") for line in whole if len(line) > limit]
    assert len(heads) <= len(long)
    assert bool(heads) == bool(long)
    assert all(any(line.startswith(head) for line in long) for head in heads)


def decoded(line: bytes) -> Envelope | Malformed:
    try:
        return jsonrpc.decode(line)
    except Malformed as error:
        return error


@fuzzed(mutated(written))
def test_what_is_read_is_what_stands_there(line: bytes) -> None:
    line = json_text.mend_text(line)
    found = decoded(line)

    if isinstance(found, Malformed):
        assert not found.id or isinstance(strict_json(found.id), int | str)
        return
    whole = strict_json(json_text.mend_surrogates(line))
    for name, raw in (("id", found.id), ("params", found.params), ("result", found.result)):
        assert (name in whole) == bool(raw)
        assert not raw or same(strict_json(bytes(raw)), whole[name])
    assert found.method == whole.get("method", "")
    frame = jsonrpc.answer(b"7", found.result or b"{}")
    assert one_json_line(frame)["id"] == 7


@fuzzed(mutated(written))
def test_a_host_s_message_is_read_alike_in_a_body_and_on_a_line(body: bytes) -> None:
    try:
        read = parse.read_body(body)
    except Malformed as error:
        one_json_line(jsonrpc.refusal(error.id, jsonrpc.error_object(error.code, str(error))))
        return
    message = read.whole() if isinstance(read, parse.UseToolRequest) else read
    for raw in (message.id, message.params, message.result, message.error):
        assert b"\n" not in bytes(raw)
        assert b"\r" not in bytes(raw)
    flat = decoded(body.removeprefix(json_text.BOM).replace(b"\n", b" ").replace(b"\r", b" "))
    assert flat == message


@fuzzed(written, cuts)
def test_a_text_is_as_deep_however_it_arrives(text: bytes, at: list[int]) -> None:
    whole, parts = json_text.DepthScan(), json_text.DepthScan()
    text = b'["[\\\\","\\"{",' + text + b"]"
    whole.feed(text)
    for chunk in in_chunks(text, at):
        parts.feed(chunk)

    for scan in (whole, parts):
        assert (scan._depth, scan._in_string, scan._in_escape) == (0, False, False)
        assert not scan.is_too_deep


def members_of(message: Envelope) -> Any:
    try:
        return parse.read_params(message)
    except parse.RequestError as error:
        return error.error


@fuzzed(mutated(written))
def test_the_largest_messages_are_read_like_all_others(line: bytes) -> None:
    line = json_text.mend_surrogates(json_text.mend_text(line))
    try:
        other = jsonrpc.read_large(line)
    except (msgspec.DecodeError, RecursionError) as error:
        with pytest.raises(type(error)):
            json_text.finished(parse._read_huge(line))
        return
    message = json_text.finished(parse._read_huge(line))
    for name in ("id", "method", "result", "error"):
        assert getattr(message, name) == getattr(other, name)
    assert members_of(message) == members_of(other)


def same(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)  # NaN apart, also where a number is not exact


def one_json_line(frame: bytes) -> Any:
    assert frame.endswith(b"\n")
    assert frame.count(b"\n") == 1
    frame.decode()
    return strict_json(frame)


inner = st.dictionaries(keys, values | st.just({"a": 1, "id": 3}), max_size=3).map(
    lambda members: {**members, "id": 3}
)


@fuzzed(st.integers(10, 120), inner, st.permutations(["jsonrpc", "id", "result"]), writers,
        st.integers(0, 300))  # fmt: skip
def test_of_a_message_that_broke_off_its_own_id_is_saved_or_none(
    id: int, result: Any, order: list[str], write: Any, end: int
) -> None:
    whole = {"jsonrpc": "2.0", "id": id, "result": result}
    line = write({name: whole[name] for name in order})
    ends = [place for place, byte in enumerate(line, 1) if byte in b"}0123456789"]  # the likeliest

    assert jsonrpc.salvaged_id(line[: ends[end % len(ends)]]) in (b"", b"%d" % id)


@fuzzed(st.lists(mutated(written, 1), max_size=4), examples=30)
def test_a_batch_is_its_members(members: list[bytes]) -> None:
    line = b"[" + b",".join(members) + b"]"
    try:
        found = jsonrpc.read_batch(line)
    except Malformed:
        return
    apart = msgspec.json.decode(line, type=list[msgspec.Raw])
    assert found == [bytes(member) for member in apart]
    for member in found:
        text = json_text.mend_surrogates(json_text.mend_text(member))
        strict_json(text)
