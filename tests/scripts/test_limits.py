"""Scripts that want too much: each ends with the name of a limit, or an exception, and nothing else suffers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.processes import children
from tests.scripts.scenes import Engine, value_of

TIME, MEMORY, CALLS, OUTPUT = "execution", "memory", "calls", "output"
AT_LIMITS = {
    # It never ends
    "while True: pass": TIME,
    "n = 0\nwhile True:\n    n += 1": TIME,
    "for _ in iter(int, 1): pass": TIME,
    "def f(n):\n    return f(n - 1) + f(n - 2) if n > 1 else n\nf(60)": TIME,
    "while True:\n    try:\n        1 / 0\n    except ZeroDivisionError:\n        pass": TIME,
    "try:\n    while True: pass\nexcept TimeoutError:\n    pass\nwhile True: pass": TIME,
    "try:\n    while True: pass\nfinally:\n    while True: pass": TIME,
    "sum(i for i in range(10 ** 9))": (TIME, MEMORY),
    "sorted(range(10 ** 6), key=lambda i: sum(range(i)))": (TIME, MEMORY),
    "async def f():\n    while True: pass\nawait f()": TIME,
    "import re\nre.match('(a+)+$', 'a' * 40 + 'b')\nwhile True: pass": TIME,
    "pow(7, 10 ** 9)": (TIME, MEMORY, "OverflowError", "ValueError", "MemoryError"),
    # It needs too much
    "'a' * 10 ** 9": MEMORY,
    "b'a' * 10 ** 9": MEMORY,
    "[0] * 10 ** 9": MEMORY,
    "list(range(10 ** 9))": (MEMORY, TIME),
    "x = []\nwhile True: x.append('a' * 10000)": MEMORY,
    "d = {}\nn = 0\nwhile True:\n    n += 1\n    d[n] = [n] * 1000": MEMORY,
    "s = 'a'\nwhile True: s += s": MEMORY,
    "s = set()\nn = 0\nwhile True:\n    n += 1\n    s.add(str(n) * 100)": MEMORY,
    "x = [1]\nwhile True: x.extend(x)": MEMORY,
    "'{:>1000000000}'.format('x')": (MEMORY, TIME, "ValueError", "OverflowError"),
    "f\"{'x':>1000000000}\"": (MEMORY, TIME, "ValueError", "OverflowError"),
    "','.join(['a' * 1000] * 10 ** 6)": MEMORY,
    "'a'.replace('a', 'b' * 10 ** 9)": MEMORY,
    "1 << 10 ** 10": (MEMORY, "OverflowError", "MemoryError", "ValueError"),
    "import re\nre.sub('', 'x' * 10 ** 6, 'y' * 10 ** 4)": (MEMORY, TIME),
    "import json\njson.dumps([['a' * 1000] * 1000] * 1000)": MEMORY,
    "try:\n    'a' * 10 ** 9\nexcept MemoryError:\n    pass\n'a' * 10 ** 9": MEMORY,
    # It calls too often
    "for i in range(500):\n    await call('a/b/c', i=i)": CALLS,
    "import asyncio\nawait asyncio.gather(*[call('a/b/c', i=i) for i in range(500)])": CALLS,
    "x = [call('a/b/c') for i in range(500)]": CALLS,
    "while True:\n    try:\n        await call('a/b/c')\n    except Exception:\n        pass": CALLS,
    # It says too much
    "while True: print('a' * 1000)": OUTPUT,
    "print('a' * 10 ** 6)": OUTPUT,
    "'a' * 10 ** 6": OUTPUT,
    "list(range(100000))": OUTPUT,
    "raise ValueError('x' * 10 ** 7)": "ValueError",
    "raise ValueError('x\\n' * 10 ** 6)": "ValueError",
    "await call('a/b/c', x='y' * 5 * 10 ** 6)": "TypeError",
    "await call('x' * 10 ** 6)": "TypeError",
    "def f():\n    g()  " + "#" * 200_000 + "\ndef g():\n    f()\nf()": ("RecursionError", MEMORY),
    # The program itself
    "(" * 10_000 + ")" * 10_000: "SyntaxError",
    "[" * 10_000: "SyntaxError",
    "-" * 100_000 + "1": ("SyntaxError", "RecursionError"),
    "x = " + "+".join(["1"] * 100_000): ("SyntaxError", "RecursionError", ""),
    "def f(): return f()\nf()": "RecursionError",
    "x = []\nfor _ in range(100000): x = [x]\nstr(x)": ("RecursionError", ""),
    "x = []\nx.append(x)\nx": ("TypeError", "ValueError", ""),
    "import json\njson.loads('[' * 100000)": ("RecursionError", "JSONDecodeError", "ValueError"),
    "\0": ("SyntaxError", ""),
    "import time\ntime.sleep('x')": "TypeError",
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = Engine(tmp_path_factory.mktemp("engine"))
    yield engine
    workers = children(engine.process.pid)
    assert engine.close() == 0
    assert len(workers) <= 2, "one is kept for the next script"


@pytest.mark.parametrize("code", AT_LIMITS, ids=lambda code: code[:40])
def test_a_script_that_wants_too_much_is_ended_by_a_limit_with_a_name(
    engine: Engine, code: str
) -> None:
    expected = AT_LIMITS[code]
    allowed = expected if isinstance(expected, tuple) else (expected,)
    seconds = 0.05 if TIME in allowed else 600.0  # longer than a test may take
    finished = engine.finished(code, execution=seconds)

    assert (finished.limit or finished.kind) in allowed, finished
    assert len(finished.shown) + len(finished.message) < 200_000
    assert value_of(engine, "40 + 2") == b"42", "the next one runs"


def test_there_are_as_many_attempts_as_were_promised() -> None:
    assert len(AT_LIMITS) >= 35


def test_waiting_does_not_count_as_computing(engine: Engine) -> None:
    code = "import asyncio, time\nawait asyncio.sleep(0.6)\ntime.sleep(0.6)\n'done'"

    assert value_of(engine, code, execution=1.0) == b'"done"'


def test_calls_at_the_same_time_are_all_made(engine: Engine, tmp_path: Path) -> None:
    code = (
        "import asyncio\nasync def one(i):\n    await asyncio.sleep(0.01)\n"
        "    return await call('a/b/c', i=i) + await call('a/b/c')\n"
        "await asyncio.gather(*[one(i) for i in range(10)])"
    )

    assert value_of(engine, code) == b"[2,2,2,2,2,2,2,2,2,2]"
