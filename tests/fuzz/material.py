"""What the targets are fed with: right things, and right things that met with an accident."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.effort import size

# Every one of these has ended some program.
ODD = (
    b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xe2\x80\xa8", b"\xc2\x85", b"\xef\xbb\xbf", b"\0", b"\x1b[0m",
    b"\r", b"\n", b"\r\n", b"\n\n", b"\x0b", b"\x0c", b"\x7f", b"\t", b" ",
    rb"\ud800", rb"\udfff", rb"\ud83d\ude00", rb"\\ud800", rb"\u0000", rb"\/", rb"\q", b"\\", b'"', b'\\"',
    b"{", b"}", b"[", b"]", b",", b":", b"[" * 400 + b"]" * 400, b"[" * 100_000, b'{"a":' * 990 + b"1" + b"}" * 990,
    b"-", b"-0", b"01", b"1.0", b"1e400", b"1E-400", b"9" * 25, b"9" * 5000, b"1.7976931348623159e308", b"NaN", b"-Infinity",
    b"null", b"true", b'"id":1', b'"id":1.5', b'"id":"1"', b'"id":null', b'"id":1,"id":2', b',"id":3}', b'"jsonrpc":"2.0"',
    b'"method":"ping"', b'"result":{}', b'"error":{}', b"//", b"/*", b"*/", b"${", b"${X}", b"${X:-y}", b"$${",
)  # fmt: skip


def _odd(number: int) -> bytes:
    return ODD[number]


odd = st.integers(0, len(ODD) - 1).map(_odd)
texts = st.text(max_size=8) | st.text(st.characters(categories=["Cs", "Cc", "L"]), max_size=4)
numbers = (
    st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([2**53, 2**63, -(2**63), 2**64, 10**30, 1e308, 5e-324, -0.0])
)
scalars = st.none() | st.booleans() | numbers | texts
keys = st.sampled_from(
    ["id", "method", "params", "result", "error", "jsonrpc", "name", "arguments", "_meta", "tool",
     "toolbox_name", "progressToken", "requestId", "cursor", "code", "message", "uri", "é\n", ""]
) | texts  # fmt: skip
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=size(8),
)
objects = st.dictionaries(keys, values, max_size=4)
ids = st.integers(-1, 6) | texts | scalars | st.sampled_from([[], {}, {"id": 1}])
# Unusual ways of writing that are JSON all the same.
writers: st.SearchStrategy[Callable[[Any], bytes]] = st.sampled_from(
    [
        lambda value: json.dumps(value).encode(),
        lambda value: json.dumps(value, separators=(",", ":")).encode(),
        lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"),
        lambda value: json.dumps(value, separators=(" ,\t", "\t: ")).encode(),
    ]
)


def _mutated(data: bytes, accidents: list[tuple[int, int, int, bytes]]) -> bytes:
    for kind, place, length, other in accidents:
        start = place % (len(data) + 1)
        end = min(start + length, len(data))
        inside = data[start:end]
        match kind:
            case 0:  # cut out
                data = data[:start] + data[end:]
            case 1:  # repeated
                data = data[:end] + inside * 2 + data[end:]
            case 2:  # something else in between
                data = data[:start] + other + data[start:]
            case 3:  # something else instead
                data = data[:start] + other + data[end:]
            case 4:  # a bit flipped
                data = (
                    data[:start]
                    + bytes(b ^ (1 << length % 8) for b in inside[:1])
                    + data[start + 1 :]
                )
            case 5:  # cut off
                data = data[:start]
            case _:  # two parts in the other order
                data = data[start:] + data[:start]
    return data


def mutated(right: st.SearchStrategy[bytes], most: int = 3) -> st.SearchStrategy[bytes]:
    """The same, after some accidents; often after none."""
    accident = st.tuples(
        st.integers(0, 6),
        st.integers(0, 2000),
        st.integers(0, 12),
        odd | right | st.binary(max_size=4),
    )
    return st.builds(_mutated, right, st.lists(accident, max_size=most))


EVERYWHERE = [-1]
cuts = st.lists(st.integers(0, 3000), max_size=size(8)) | st.just(EVERYWHERE)


def in_chunks(data: bytes, at: list[int]) -> list[bytes]:
    """The same bytes in pieces; none of them is empty."""
    if at == EVERYWHERE:
        at = list(range(3000))
    places = sorted({0, len(data), *(cut for cut in at if 0 < cut < len(data))})
    return [data[start:end] for start, end in pairwise(places)]


def strict_json(text: str | bytes) -> Any:
    """Python's own reader without its liberties; a ValueError or RecursionError where it is no JSON."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)
