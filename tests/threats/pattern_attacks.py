"""Every regular expression of the program, how it is used, and the texts that cost it most.

A text is built as `before + part * n + behind`, of the characters and words that the pattern itself has.
The suite tries the shortest of them, and all with `FUZZ=1`.
"""

# The parser of `re` has no types.
# pyright: basic

from __future__ import annotations

import ast
import importlib
import os
import re
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import mcp_workbench

ROOT = Path(mcp_workbench.__file__).parent
codes: Any = importlib.import_module("re._constants")
parser: Any = importlib.import_module("re._parser")
SCANS = {"search", "sub", "subn", "split", "findall", "finditer"}
METHODS = {*SCANS, "match", "fullmatch"}
FLAGS_AT = {"compile": 1, "match": 2, "search": 2, "fullmatch": 2, "findall": 2, "finditer": 2, "split": 3, "sub": 4, "subn": 4}  # fmt: skip
SIZE = 1500  # characters
TINY = 18  # so many are enough where the time doubles with each
TIMES = 4
SUSPICIOUS = 0.0008  # seconds for so few characters: only then growth is measured
STEEP = 2.2 * TIMES  # as much longer takes a text of TIMES the size that is not read in proportion
THOROUGH = "FUZZ" in os.environ


class UsedPattern(NamedTuple):
    """A pattern, and one way in which it is applied."""

    place: str
    pattern: re.Pattern[Any]
    method: str  # match, fullmatch, or search for all that look at every place


class Attack(NamedTuple):
    """A text that takes more than in proportion."""

    before: str
    part: str
    behind: str
    seconds: float


# Collecting


def places() -> list[str]:
    """The files that have a pattern."""
    files = sorted(ROOT.rglob("*.py"))
    return [
        str(path.relative_to(ROOT))
        for path in files
        if re.search(r"\bre\.[a-z]+\(", path.read_text("utf-8"))
    ]


def used_patterns(place: str) -> Iterator[UsedPattern]:
    path = Path(place)
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    calls = [node for node in ast.walk(tree) if _is_re_call(node)]
    if not calls:
        return
    module = importlib.import_module(".".join(("mcp_workbench", *path.with_suffix("").parts)))
    names = _assigned(tree)
    for call in calls:
        pattern = _pattern(call, module)
        if pattern is not None:
            for method in _methods(call, names, tree):
                yield UsedPattern(path.as_posix(), pattern, method)


def _is_re_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in FLAGS_AT
    )


def _pattern(call: Any, module: Any) -> re.Pattern[Any] | None:
    """The pattern, unless it is made of what a function was given."""

    def value(node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), "pattern", "eval"), vars(module))

    try:
        at = FLAGS_AT[call.func.attr]
        flags = [value(one) for one in call.args[at : at + 1]]
        flags += [value(one.value) for one in call.keywords if one.arg == "flags"]
        return re.compile(value(call.args[0]), *flags)
    except NameError:
        return None


def _assigned(tree: ast.AST) -> dict[int, str]:
    """The names of patterns, by the line of their call."""
    names: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            for inner in ast.walk(node.value):
                if _is_re_call(inner):
                    names[inner.lineno] = node.targets[0].id  # type: ignore[attr-defined]
    return names


def _methods(call: Any, names: dict[int, str], tree: ast.AST) -> set[str]:
    """How it is applied; all ways if that can't be seen."""
    if call.func.attr != "compile":
        return {"search" if call.func.attr in SCANS else call.func.attr}
    name = names.get(call.lineno, "")
    bound = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in METHODS
        and (node.value is call or (isinstance(node.value, ast.Name) and node.value.id == name))
    }
    passed_on = any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        for parent in ast.walk(tree)
        if isinstance(parent, ast.Call | ast.Tuple | ast.List)
        for node in [*getattr(parent, "args", []), *getattr(parent, "elts", [])]
    )
    if passed_on or not bound:
        bound |= METHODS
    return {"search" if method in SCANS else method for method in bound}


# Building texts


def _characters(tree: Any) -> Iterator[str]:  # noqa: C901, PLR0912 - a case for each code
    """Characters that the pattern distinguishes."""
    for code, what in tree:
        if code in (codes.LITERAL, codes.NOT_LITERAL):
            yield chr(what)
        elif code is codes.IN:
            for inner, value in what:
                if inner is codes.LITERAL:
                    yield chr(value)
                elif inner is codes.RANGE:
                    yield chr(value[0])
                elif inner is codes.CATEGORY:
                    yield " " if "SPACE" in str(value) else "1" if "DIGIT" in str(value) else "a"
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            yield from _characters(what[2])
        elif code is codes.SUBPATTERN:
            yield from _characters(what[3])
        elif code is codes.BRANCH:
            for branch in what[1]:
                yield from _characters(branch)
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            yield from _characters(what[1])
        elif code is codes.ATOMIC_GROUP:
            yield from _characters(what)


def _words(tree: Any) -> tuple[str, list[str]]:  # noqa: C901 - a case for each code
    """A short text that matches, and the texts that match its parts."""
    whole, words = "", list[str]()

    def one(code: Any, what: Any) -> str:
        if code is codes.LITERAL:
            return chr(what)
        if code is codes.IN and what[0][0] is not codes.NEGATE:
            return next(_characters([(code, what)]), "a")
        if code in (codes.NOT_LITERAL, codes.IN, codes.ANY):
            excluded = set(_characters([(code, what)])) if code is not codes.ANY else set[str]()
            return next(c for c in "a1 x!~" if c not in excluded)
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            inner, more = _words(what[2])
            words.extend(start + word for start in ("", whole) for word in [inner, *more])
            return inner * min(max(what[0], 1), 50)
        if code in (codes.SUBPATTERN, codes.ATOMIC_GROUP):
            inner, more = _words(what[3] if code is codes.SUBPATTERN else what)
            words.extend(start + word for start in ("", whole) for word in [inner, *more])
            return inner
        if code is codes.BRANCH:
            branches = [_words(branch) for branch in what[1]]
            words.extend(
                start + word
                for inner, more in branches
                for word in [inner, *more]
                for start in ("", whole)
            )
            return branches[0][0]
        return ""

    for code, what in tree:
        whole += one(code, what)
        words.append(whole)
    return whole, words


def _parts(pattern: re.Pattern[Any]) -> tuple[list[str], list[str]]:
    tree = parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    characters = list(dict.fromkeys([*_characters(tree), "a", "A", "1", " ", "\n", "!"]))[:24]
    words = [word for word in dict.fromkeys(_words(tree)[1]) if word][:40]
    if not THOROUGH:
        return list(dict.fromkeys([*words[:24], *characters])), words[:2]
    pairs = ["".join(pair) for pair in product(characters[:7], repeat=2)]
    return list(dict.fromkeys([*words, *characters, *pairs])), words[:6]


# Attacking


def worst(used: UsedPattern) -> Attack | None:
    """A text that takes more than in proportion; None if none was found."""
    parts, words = _parts(used.pattern)
    run = _runner(used)
    for before, part, behind in product(
        ["", *words], parts, ["", "\x01", "\n", "!"] if THOROUGH else ["", "\x01"]
    ):
        if (seconds := run(before, part, behind, TINY)) > SUSPICIOUS and min(
            run(before, part, behind, TINY) for _ in range(3)
        ) > SUSPICIOUS:
            return Attack(before, part, behind, seconds)
        for size in (SIZE, TIMES * SIZE):  # a long one shows what takes little for each character
            if run(before, part, behind, size) < SUSPICIOUS:
                continue
            small = min(run(before, part, behind, size) for _ in range(3))
            large = min(run(before, part, behind, TIMES * size) for _ in range(2))
            if small >= SUSPICIOUS / 2 and large > STEEP * small:
                return Attack(before, part, behind, large)
    return None


def _runner(used: UsedPattern) -> Callable[[str, str, str, int], float]:
    pattern: Any = used.pattern
    is_text = isinstance(used.pattern.pattern, str)
    apply = pattern.finditer if used.method == "search" else getattr(pattern, used.method)

    def run(before: str, part: str, behind: str, size: int) -> float:
        text: Any = before + part * max(size // len(part), 1) + behind
        text = text if is_text else text.encode("latin-1", "replace")
        start = time.thread_time()
        found = apply(text)
        if used.method == "search":
            for _ in found:
                pass
        return time.thread_time() - start

    return run


if __name__ == "__main__":
    every = [used for place in places() for used in used_patterns(place)]
    for used in every:
        if attack := worst(used):
            print(used.place, used.method, used.pattern.pattern[:100], attack, flush=True)
    print(len(every), "patterns and uses")
