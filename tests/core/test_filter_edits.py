"""Switching tools on and off: the patterns decide exactly what was wanted, and keep what was there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.filter_edits import NotSwitchable, switched
from mcp_workbench.core.spec import tool_filter

TOOLS = ("read", "read_all", "write", "delete", "a*b", "[x]")


@pytest.mark.parametrize(
    ("patterns", "off", "on", "expected"),
    [
        (None, {"write"}, set[str](), ("!write",)),
        (
            None,
            set(TOOLS),
            set[str](),
            tuple(f"!{p}" for p in ("[[]x]", "a[*]b", "delete", "read", "read_all", "write")),
        ),
        (("!write",), set[str](), {"write"}, None),
        (("!write", "!delete"), set[str](), {"write"}, ("!delete",)),
        (("read*",), {"read"}, set[str](), ("read*", "!read")),
        (("read*",), set[str](), {"write"}, ("read*", "write")),
        (("read",), {"read"}, set[str](), ()),
        (("!read*",), set[str](), {"read"}, ("write", "delete", "a[*]b", "[[]x]", "read")),
        ((), set[str](), {"read"}, ("read",)),
        (("*",), set[str](), set[str](), None),
    ],
)
def test_few_patterns_change(
    patterns: tuple[str, ...] | None,
    off: set[str],
    on: set[str],
    expected: tuple[str, ...] | None,
) -> None:
    new = switched(patterns, TOOLS, off, on)

    assert set(new or ()) == set(expected or ())
    assert (new is None) == (expected is None)


def test_patterns_with_a_variable_are_for_a_person() -> None:
    with pytest.raises(NotSwitchable):
        switched(("${ONLY}",), TOOLS, {"read"}, set())


NAMES = st.text(st.sampled_from("ab*?[]!-_.é{}$"), min_size=1, max_size=4)


@given(
    st.one_of(st.none(), st.lists(st.one_of(NAMES, NAMES.map("!".__add__)), max_size=4).map(tuple)),
    st.lists(NAMES, unique=True, min_size=1, max_size=6),
    st.data(),
)
def test_what_is_written_decides_as_was_asked(
    patterns: tuple[str, ...] | None, tools: list[str], data: st.DataObject
) -> None:
    off = data.draw(st.sets(st.sampled_from(tools)))
    on = data.draw(st.sets(st.sampled_from(tools))) - off
    before = tool_filter(("*",) if patterns is None else patterns)
    try:
        new = switched(patterns, tools, off, on)
    except NotSwitchable:
        return
    after = tool_filter(("*",) if new is None else tuple(p.replace("$${", "${") for p in new))

    for name in tools:
        assert after.shows(name) == ((before.shows(name) or name in on) and name not in off)
