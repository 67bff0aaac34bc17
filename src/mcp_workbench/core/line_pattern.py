"""Patterns of other programs, matched against one line at a time, in time that is linear in the line.

A pattern has the usual syntax without what needs backtracking: lookaround, references to groups, atomic groups and
possessive repeats. It becomes a nondeterministic automaton of at most `MOST_NODES` nodes. Matching walks through sets of
its nodes; sets and the steps between them are remembered, so that most characters cost one look-up. Only whether and
where a line matches is of interest, so it does not matter how greedy a repeat is.
"""

import re
import warnings
from collections.abc import Callable, Generator
from typing import Any, Literal

import msgspec

from mcp_workbench.core.raw_json import Steps

LONGEST_PATTERN = 1000  # characters
MOST_NODES = 2000  # of an automaton: counted repeats are written out
MOST_REMEMBERED = 100_000  # nodes in remembered sets, and steps between these; then it starts over
DEEPEST = 50  # groups in groups
CHARACTERS_PER_STEP = 8  # that are matched in about a microsecond
PIECE = 8192  # characters of a line that are counted at a time

_LINES = "lines are matched one at a time, so there is no line break in them"
_BACKTRACKING = {  # what stands behind `(?`
    "=": "lookahead",
    "!": "lookahead",
    "<=": "lookbehind",
    "<!": "lookbehind",
    ">": "an atomic group",
    "(": "a condition",
    "P=": "a reference to a group",
}
_GROUP = re.compile(r"\((?:\?(?:P?<\w+>|(?P<flags>[imsu]*)(?P<end>[:)])))?")
_COUNT = re.compile(r"\{(?!\})([0-9]*)(,?)([0-9]*)\}")
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|0[0-7]{0,2}|[^\W\d_]|\W|_)"
)
_ANCHORS = {"^": "start", "\\A": "start", "$": "end", "\\Z": "end", "\\z": "end"}
_EDGES = {"\\b": "edge", "\\B": "no edge"}
_Where = Literal["start", "end", "edge", "no edge"]
_Test = Callable[[str], object]


class PatternError(ValueError):
    """The pattern can't be used; the text says why."""


# What a pattern consists of


class _Character(msgspec.Struct, frozen=True):
    test: _Test
    literal: str = ""  # if it is this one character


class _Anchor(msgspec.Struct, frozen=True):
    where: _Where


class _Sequence(msgspec.Struct, frozen=True):
    parts: tuple[Any, ...]


class _Choice(msgspec.Struct, frozen=True):
    parts: tuple[Any, ...]


class _Repeat(msgspec.Struct, frozen=True):
    part: Any
    least: int
    most: int | None


_Part = _Character | _Anchor | _Sequence | _Choice | _Repeat


class _Parser:
    """Reads a pattern. Raises PatternError."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._flags = re.NOFLAG

    def parse(self) -> _Part:
        part = self._choice(0)
        if self._at < len(self._pattern):
            raise self._error("unbalanced parenthesis")
        return part

    def _choice(self, depth: int) -> _Part:
        if depth > DEEPEST:
            raise self._error(f"more than {DEEPEST} groups in groups")
        parts = [self._sequence(depth)]
        while self._pattern.startswith("|", self._at):
            self._at += 1
            parts.append(self._sequence(depth))
        return parts[0] if len(parts) == 1 else _Choice(tuple(parts))

    def _sequence(self, depth: int) -> _Part:
        parts: list[_Part] = []
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            parts.append(self._repeated(self._atom(depth)))
        return _Sequence(tuple(parts))

    def _atom(self, depth: int) -> _Part:
        sign = self._pattern[self._at]
        if sign == "(":
            return self._group(depth)
        if sign == "[":
            return self._class()
        if sign == "\\":
            return self._escape()
        if sign in ("*", "+", "?") or _COUNT.match(self._pattern, self._at):
            raise self._error("nothing to repeat")
        self._at += 1
        if sign in _ANCHORS:
            return _Anchor(_ANCHORS[sign])  # type: ignore[arg-type]
        if sign == "\n":
            raise self._error(_LINES)
        return self._literal(sign) if sign != "." else _Character(bool)

    def _group(self, depth: int) -> _Part:
        start = self._at
        for sign, name in _BACKTRACKING.items():
            if self._pattern.startswith(f"(?{sign}", start):
                raise self._error(f"{name} is not supported")
        group = _GROUP.match(self._pattern, start)
        if group is None or (self._pattern.startswith("(?", start) and len(group[0]) == 1):
            raise self._error("this kind of group is not supported")
        outside = self._flags
        if "i" in (group["flags"] or ""):
            self._flags = re.IGNORECASE
        self._at = group.end()
        if group["end"] == ")":
            return self._only_flags(start)
        part = self._choice(depth + 1)
        if not self._pattern.startswith(")", self._at):
            raise self._error("a parenthesis is not closed")
        self._at += 1
        self._flags = outside
        return part

    def _only_flags(self, start: int) -> _Part:
        if start:
            raise self._error("flags belong at the beginning")
        if self._counts() is not None:
            raise self._error("nothing to repeat")
        return _Sequence(())

    def _class(self) -> _Part:
        written = _CLASS.match(self._pattern, self._at)
        if written is None:
            raise self._error("a bracket is not closed")
        if "[:" in written[0]:
            raise self._error("names of classes such as [:alpha:] are not supported")
        test = self._compiled(written[0])
        self._at = written.end()
        return _Character(test)

    def _escape(self) -> _Part:
        written = _ESCAPE.match(self._pattern, self._at)
        if written is None:
            raise self._error("a reference to a group is not supported, nor is a lone backslash")
        sign = written[0]
        if sign == "\\n":
            raise self._error(_LINES)
        if sign in _ANCHORS or sign in _EDGES:
            self._at = written.end()
            return _Anchor(_ANCHORS.get(sign) or _EDGES[sign])  # type: ignore[arg-type]
        test = self._compiled(sign)
        self._at = written.end()
        if len(sign) == 2 and not sign[1].isalnum():
            return self._literal(sign[1])
        return _Character(test)

    def _literal(self, sign: str) -> _Part:
        if self._flags:
            return _Character(re.compile(re.escape(sign), self._flags).match)
        return _Character(sign.__eq__, sign)

    def _compiled(self, written: str) -> _Test:
        """How one character is compared with a class or an escape, as Python does it."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return re.compile(written, self._flags).match
        except re.error as error:
            raise self._error(error.msg) from None

    def _repeated(self, part: _Part) -> _Part:
        counts = self._counts()
        if counts is None:
            return part
        if isinstance(part, _Anchor):
            raise self._error("nothing to repeat")
        if self._pattern.startswith("?", self._at):
            self._at += 1
        elif self._pattern.startswith("+", self._at):
            raise self._error("a possessive repeat is not supported")
        if self._counts() is not None:
            raise self._error("a repeat of a repeat")
        return _Repeat(part, *counts)

    def _counts(self) -> tuple[int, int | None] | None:
        sign = self._pattern[self._at : self._at + 1]
        if sign in ("*", "+", "?") and sign:
            self._at += 1
            return int(sign == "+"), 1 if sign == "?" else None
        count = _COUNT.match(self._pattern, self._at)
        if count is None:
            return None
        if max(len(count[1]), len(count[3])) > len(str(MOST_NODES)):
            raise self._error("too many repeats")
        least = int(count[1] or 0)
        most = int(count[3]) if count[3] else (None if count[2] else least)
        if most is not None and most < least:
            raise self._error("fewer repeats at most than at least")
        self._at = count.end()
        return least, most

    def _error(self, reason: str) -> PatternError:
        return PatternError(f"{reason}, at character {self._at + 1} of the pattern")


# The automaton


class _Node(msgspec.Struct, frozen=True):
    """Reads a character, or passes on: to all of `after` where its anchor, if any, allows it."""

    after: list[int]
    test: _Test | None = None
    where: _Where | None = None


class _Automaton:
    """The nodes of a pattern, made from its end to its beginning. The first is the end of a match."""

    def __init__(self, part: _Part) -> None:
        self.nodes = [_Node([])]
        self._made_parts = 0  # empty ones have no node, and can be repeated as well
        self.start = self._made(part, 0)

    def _add(self, node: _Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _made(self, part: _Part, after: int) -> int:
        self._made_parts += 1
        if max(self._made_parts, len(self.nodes)) > MOST_NODES:
            raise PatternError(f"the pattern is too large: it has more than {MOST_NODES} parts")
        match part:
            case _Character():
                return self._add(_Node([after], test=part.test))
            case _Anchor():
                return self._add(_Node([after], where=part.where))
            case _Choice():
                return self._add(_Node([self._made(one, after) for one in part.parts]))
            case _Sequence():
                for one in reversed(part.parts):
                    after = self._made(one, after)
                return after
            case _:
                return self._repeated(part, after)

    def _repeated(self, repeat: _Repeat, after: int) -> int:
        end = after
        if repeat.most is None:
            after = self._add(_Node([after]))
            self.nodes[after].after.append(self._made(repeat.part, after))
        for _ in range((repeat.most or repeat.least) - repeat.least):
            after = self._add(_Node([self._made(repeat.part, after), end]))
        for _ in range(repeat.least):
            after = self._made(repeat.part, after)
        return after


# Matching

_FIRST, _OTHER, _WORD = range(3)  # what stands before a place: nothing, or which kind of character
_IS_WORD = re.compile(r"\w").match
_END = ""  # the place behind the last character
_MATCHED = -1
_State = tuple[frozenset[int], int]  # nodes that are reached, and what stands before


class LinePattern:
    """A pattern to look for in lines. Raises PatternError if it can't be used."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > LONGEST_PATTERN:
            raise PatternError(f"the pattern is longer than {LONGEST_PATTERN} characters")
        part = _Parser(pattern).parse()
        automaton = _Automaton(part)
        self.literal = _literal(part)  # a text that each matching line has
        self._nodes = automaton.nodes
        self._start = automaton.start
        wheres = {node.where for node in self._nodes}
        self._has_edges = bool(wheres & {"edge", "no edge"})
        self._has_start = "start" in wheres
        self._forget()

    def _forget(self) -> None:
        self._numbers: dict[_State, int] = {}
        self._states: list[_State] = []
        self._steps: list[dict[str, int]] = []
        self.remembered = 0
        self._number((frozenset(), _FIRST))

    def find(self, line: str, steps: Steps) -> Generator[None, None, int | None]:
        """Return where the first match ends; None if there is none. Yields between turns. Raises TooComplex."""
        state = 0
        for start in range(0, len(line) or 1, PIECE):
            piece = line if len(line) <= PIECE else line[start : start + PIECE]
            steps.take(1 + len(piece) // CHARACTERS_PER_STEP)
            if steps.turn_is_over():
                yield
            table = self._steps
            for at, character in enumerate(piece, start):
                try:
                    state = table[state][character]
                except KeyError:
                    state = self._step(state, character, steps)
                    table = self._steps
                    if steps.turn_is_over():
                        yield
                if state < 0:
                    return at
        return len(line) if self._step(state, _END, steps) < 0 else None

    def _step(self, number: int, character: str, steps: Steps) -> int:
        """The state behind the next character; `_MATCHED` if a match ends before it."""
        known = self._steps[number].get(character)
        if known is not None:
            return known
        reached = self._states[number]
        ready = self._closure(reached, character, steps)
        if 0 in ready:
            after = _MATCHED
        else:
            nodes = (self._nodes[one] for one in ready) if character else ()
            passed = [n.after[0] for n in nodes if n.test is not None and n.test(character)]
            after = self._number((frozenset(passed), self._kind(character)))
        if self.remembered > MOST_REMEMBERED:
            state = None if after < 0 else self._states[after]
            self._forget()
            return after if state is None else self._number(state)
        self.remembered += 1
        self._steps[number][character] = after
        return after

    def _closure(self, state: _State, character: str, steps: Steps) -> set[int]:
        """The nodes that are reached without reading a character, of a match that may also begin here."""
        reached, before = state
        ready: set[int] = set()
        waiting = [self._start, *reached]
        while waiting:
            one = waiting.pop()
            if one in ready:
                continue
            ready.add(one)
            node = self._nodes[one]
            if node.test is None and (node.where is None or _holds(node.where, before, character)):
                waiting += node.after
        steps.take(1 + len(ready))
        return ready

    def _kind(self, character: str) -> int:
        """What this character is to the place behind it, as far as the pattern asks."""
        if self._has_edges and _IS_WORD(character):
            return _WORD
        return _OTHER if self._has_edges or self._has_start else _FIRST

    def _number(self, state: _State) -> int:
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
            self._steps.append({})
            self.remembered += 1 + len(state[0])
        return number


def _holds(where: _Where, before: int, character: str) -> bool:
    if where == "start":
        return before == _FIRST
    if where == "end":
        return character == _END
    is_edge = (before == _WORD) != bool(_IS_WORD(character))
    return is_edge == (where == "edge")


def _literal(part: _Part) -> str:
    """The longest text that every match has, as far as that is easily seen."""
    longest = run = ""
    for one in _flat(part):
        literal = one.literal if isinstance(one, _Character) else ""
        run = run + literal if literal else ""
        longest = max(longest, run, key=len)
    return longest


def _flat(part: _Part) -> list[_Part]:
    if not isinstance(part, _Sequence):
        return [part]
    return [inner for one in part.parts for inner in _flat(one)]
