"""Hashing definitions and reading a lock file take time in proportion to them, whatever they hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mcp_workbench.config.lock_file import parse_lock
from mcp_workbench.core.definition_hash import DEEPEST, LARGEST, canonical_form
from mcp_workbench.core.lock_report import text_diff
from tests.threats.growth import assert_linear, peak

pytestmark = pytest.mark.cost

HASH = b'"sha256:' + b"0" * 64 + b'"'

DEFINITIONS: dict[str, Callable[[int], bytes]] = {
    "members": lambda size: b"{%b}" % b",".join(b'"%d":1' % n for n in range(size // 8)),
    "members backwards": lambda size: (
        b"{%b}" % b",".join(b'"%09d":1' % -n for n in range(size // 14))
    ),
    "elements": lambda size: b"[%b1]" % (b"1," * (size // 2)),
    "escapes": lambda size: b'"%b"' % (b"\\u0041" * (size // 6)),
    "backslashes": lambda size: b'"%b"' % (b"\\\\" * (size // 2)),
    "levels": lambda size: b"[" * DEEPEST + b"[]," * (size // 3) + b"1" + b"]" * DEEPEST,
    "beyond the levels": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "one long text": lambda size: b'"%b"' % (b"x" * size),
}
FILES: dict[str, Callable[[int], bytes]] = {
    "tools": lambda size: (
        b'{"mcpWorkbenchLock":1,"servers":{"a/b":{"tools":{%b}}}}'
        % b",".join(b'"%d":%b' % (n, HASH) for n in range(size // 90))
    ),
    "the same tool": lambda size: (
        b'{"mcpWorkbenchLock":1,"servers":{"a/b":{"tools":{%b}}}}'
        % b",".join([b'"a":' + HASH] * (size // 90))
    ),
    "servers": lambda size: (
        b'{"mcpWorkbenchLock":1,"servers":{%b}}'
        % b",".join(b'"a/%d":{}' % n for n in range(size // 10))
    ),
    "conflicts": lambda size: b"<<<<<<\n" * (size // 7),
    "comments": lambda size: b"/*" * (size // 2),
    "levels": lambda size: b"[" * size,
}


@pytest.mark.parametrize("case", DEFINITIONS)
def test_hashing_takes_time_in_proportion(case: str) -> None:
    assert_linear(canonical_form, DEFINITIONS[case], LARGEST // 4)


@pytest.mark.parametrize("case", FILES)
def test_reading_a_lock_file_takes_time_in_proportion(case: str) -> None:
    assert_linear(lambda raw: parse_lock("x", raw), FILES[case], 40_000)


@pytest.mark.parametrize("case", ["members", "elements", "levels"])
def test_showing_a_difference_takes_time_in_proportion(case: str) -> None:
    make = DEFINITIONS[case]
    assert_linear(lambda raw: text_diff(raw, b"[" + raw + b"]"), make, 40_000)


def deep_and_wide(size: int) -> bytes:
    """Long names around very many values: the path of each has all of the names."""
    depth, values = 100, b"1," * (size // 4) + b"1"
    name = b"k" * (size // 2 // depth - 6)
    return b'{"%b":' % name * depth + b"[%b]" % values + b"}" * depth


def test_paths_of_a_deep_and_wide_definition_take_no_square_of_memory() -> None:
    raw = deep_and_wide(256 << 10)

    assert peak(lambda: text_diff(None, raw)) <= 64 * len(raw)
    assert_linear(lambda raw: text_diff(None, raw), deep_and_wide, 256 << 10)
    assert text_diff(None, raw)[0].startswith('+ definition: {"kkk')
    assert text_diff(None, deep_and_wide(2000))[-1].endswith("[500]: 1")
