"""Async functions of scripts that are never awaited."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.script_source import unawaited_functions
from tests.threats.growth import assert_linear

HEAD = "async def f(x=0):\n    return x\n"


def test_only_whole_lines_that_call_an_async_function_count() -> None:
    idle = {
        "f()": [("f", 3)],
        "if 1:\n    f(1)\n    f(\n2)\n": [("f", 4), ("f", 5)],
        "await f()": [],
        "x = f()": [],
        "f": [],
        "f().x": [],
        "f() or 1": [],
        "g(f())": [],
        "f[0]": [],
        "'''\nf()\n'''": [],
        "# f()": [],
        "[f()\n,f()]": [],
        "def g():\n    f()": [("f", 4)],
    }

    assert {code: unawaited_functions(HEAD + code) for code in idle} == idle


@given(st.text(alphabet="f()[]{}'\"\\\n #xasync defwit:;,.=\t\0", max_size=200))
def test_whatever_is_reported_is_a_line_that_begins_with_a_call(source: str) -> None:
    lines = (HEAD + source).split("\n")

    for function, line in unawaited_functions(HEAD + source):
        assert f"{function}" in lines[line - 1]
        assert f"async def {function}" not in lines[line - 1]


@pytest.mark.cost
@pytest.mark.parametrize(
    "line",
    [
        "f()\n",
        "f(\n",
        "f();",
        "f(1)\\\n",
        '\\"',
        "\\",
        "'",
        '"""\n',
        "(",
        "1",
        ":",
        "x = [\n",
        "if 1:\n",
        "\tf()\n f()\n",
        'f"{\'"\'}"',
        "f().f()\n",
    ],
)
def test_the_longest_script_is_looked_at_in_proportion(line: str) -> None:
    make: Callable[[int], str] = lambda size: HEAD + line * (size // len(line))  # noqa: E731

    assert_linear(unawaited_functions, make, 256 << 10)
    short = HEAD + line * 20
    assert_linear(
        unawaited_functions, lambda size: (short + "\n") * (size // len(short)), 256 << 10
    )
