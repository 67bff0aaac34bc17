"""What a browser, a scraper or a collector's peer may send: never an exception, and never somebody else's line."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from typing import Any

from hypothesis import strategies as st

from mcp_workbench.core.call_stats import NO_TIMES, CallSeries, StatsSnapshot
from mcp_workbench.core.figures import Figures, Hosts
from mcp_workbench.core.lock_report import text_diff, text_warnings
from mcp_workbench.core.name_patterns import NameFilter, unmatched
from mcp_workbench.gateway.tracing import read_headers
from mcp_workbench.server.metrics import metrics_text
from mcp_workbench.ui.page_sessions import NAME, PageKey
from tests.fuzz.effort import fuzzed
from tests.fuzz.material import odd, values

KEY = PageKey(b"k" * 32, "a.json")
GOOD = KEY.new_cookie(1e9, secure=False).decode().split("=", 1)[1].partition(";")[0]
PARENT = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
PARTS = st.sampled_from(
    [NAME, "=", ";", " ", ".", GOOD, GOOD[:-1], "__Secure-", ",", '"', "é", "1"]
)
PIECES = st.lists(st.binary(max_size=6) | odd, max_size=6).map(b"".join)
SIGNS = "a b ab A . * ? [ ] [a] [!a] [a-b] - ! \\ ${ + ( ) ^ $ |"
PATTERNS = st.lists(st.sampled_from(SIGNS.split()), min_size=1, max_size=5).map("".join)
NAMES = st.text("abA.*?[]!-\n\\${+()^|", max_size=6)
LABEL = re.compile(r'[a-z_]+="((?:[^"\\\n]|\\["\\n])*)"')


@fuzzed(st.lists(PARTS, max_size=8).map("".join))
def test_a_cookie_is_ours_or_it_is_none(text: str) -> None:
    cookies = text.encode("latin-1")
    pairs = [pair.strip().split("=", 1) for pair in text.split(";")]
    own = [pair[1] for pair in pairs if len(pair) == 2 and pair[0] in (NAME, f"__Secure-{NAME}")]

    assert KEY.admits(cookies, 1e9) == (own == [GOOD])


@fuzzed(st.text(max_size=40) | st.just(GOOD))
def test_an_address_opens_nothing_unless_it_was_made_for_that(code: str) -> None:
    assert not KEY.opens(code, 1e9)


@fuzzed(PIECES, PIECES, PIECES)
def test_trace_headers_are_bounded_and_need_a_parent(
    parent: bytes, state: bytes, baggage: bytes
) -> None:
    given = {b"traceparent": parent, b"tracestate": state, b"baggage": baggage}

    assert read_headers(given) == {}
    found = read_headers({**given, b"traceparent": PARENT})
    assert found["traceparent"] == PARENT.decode()
    assert all(len(value) <= 8192 for value in found.values())


@fuzzed(st.lists(PATTERNS, max_size=4), st.lists(PATTERNS, max_size=3), st.lists(NAMES, max_size=5))
def test_a_filter_decides_as_fnmatch_does(
    include: list[str], exclude: list[str], names: list[str]
) -> None:
    ours = NameFilter(include, exclude)

    def matches(name: str, patterns: list[str]) -> bool:
        return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)

    for name in (*names, *include, *names):  # what is kept is the same
        assert ours.shows(name) == (matches(name, include) and not matches(name, exclude))
    assert unmatched(include, names) == [
        pattern
        for pattern in include
        if pattern != "*" and not any(matches(n, [pattern]) for n in names)
    ]


_ESCAPE = re.compile(r"\\(.)")


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def measured(toolbox: str, outcome: str) -> str:
    """The metrics of a workbench that has ended one call."""
    times = (NO_TIMES,) * 4
    series = CallSeries(toolbox, "s", outcome, False, 1, 2, 3, NO_TIMES, times)
    stats = StatsSnapshot(1, (series,), (), ())
    figures = Figures(
        version="1",
        pid=1,
        mode="proxy",
        seconds=1.0,
        cpu=1.0,
        servers=(),
        hosts=Hosts(),
        stats=stats,
    )
    return metrics_text(figures).decode()


@fuzzed(st.text(max_size=12), st.text(max_size=12))
def test_no_name_becomes_another_line_of_the_metrics(toolbox: str, outcome: str) -> None:
    try:
        (toolbox + outcome).encode()
    except UnicodeEncodeError:
        return  # no name in a configuration, and no word, has half a character
    text, usual = (measured(*names) for names in ((toolbox, outcome), ("t", "ok")))

    assert text.count("\n") == usual.count("\n")
    (line,) = [one for one in text.split("\n") if one.startswith("mcp_workbench_calls_total{")]
    found = [_ESCAPE.sub(_unescaped, label) for label in LABEL.findall(line)]
    assert found == [toolbox, "s", outcome]


@fuzzed(values, values)
def test_any_two_definitions_can_be_compared(old: Any, new: Any) -> None:
    def written(value: Any) -> bytes:
        return json.dumps(value).encode()

    lines = text_diff(written(old), written(new))

    assert all("\n" not in line and "\x1b" not in line for line in lines)
    assert all("\n" not in line for line in text_warnings(written(new)))
