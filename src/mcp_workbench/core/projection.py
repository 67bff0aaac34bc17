"""Projections: the part of a result that an agent asks for, as lines or as JSON.

What they are made of is loaded when one is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from mcp_workbench.core.raw_json import Steps, TooComplex, read_any

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from mcp_workbench.core.json_select import Selection
    from mcp_workbench.core.line_pattern import LinePattern

MOST_CONTEXT = 100  # lines before and behind each match
LINE_STEPS = 150_000  # of a search, which is done in turns; see Steps
SHOWN_STEPS = 150_000  # of the lines that are shown
SELECT_STEPS = 75_000  # of an expression, in one turn
MOST_SELECTED = 4 << 20  # characters of JSON that is read for `select`
MOST_VALUES = 100_000  # commas and opening brackets in it: reading it is one turn
MATCH_STEPS = 3  # of a line that matches, beside its characters
SHOWN_PER_STEP = 64  # characters
LONGEST_LINE = 1000  # characters of a line that are shown


NOTHING = "select finds nothing"


class Projected(msgspec.Struct, frozen=True):
    """What was asked for, and in a few words how it relates to the whole, where that is not clear."""

    text: str
    note: str


class ProjectionFailed(Exception):
    """The projection does not fit this result; the text says why."""


class Projection(msgspec.Struct, frozen=True):
    """What is wanted of a result: what `selection` selects of its JSON, and the lines of that or of its text."""

    selection: Selection | None = None
    pattern: LinePattern | None = None
    context: int = 0

    def of(self, text: str, json: str) -> Generator[None, None, Projected]:
        """Return that part of a result with this text and this JSON. Raises ProjectionFailed.

        Yields after each turn of work (see Steps).
        """
        if self.selection is not None:
            selected = yield from _selected(self.selection, json)
            if self.pattern is None or selected is None:
                return Projected(_text(selected), "" if selected is not None else NOTHING)
            parts = cast("list[Any]", selected) if isinstance(selected, list) else [selected]
            text = "\n".join(map(_text, parts))
            yield
        if self.pattern is None:
            return Projected(text, "")
        return (yield from _lines(self.pattern, text, self.context))


def _lines(pattern: LinePattern, text: str, context: int) -> Generator[None, None, Projected]:
    search = LineSearch(pattern, text)
    yield from search.find()
    yield
    shown: list[str] = []
    steps, shown_all = Steps(SHOWN_STEPS), True
    try:
        for line in search.shown(context):
            steps.take(MATCH_STEPS + len(line) // SHOWN_PER_STEP)
            shown.append(line)
            if steps.turn_is_over():
                yield
    except TooComplex:
        shown_all = False
    note = f"{len(search.matches)} of {search.total} lines match"
    if search.stopped_at:
        note += (
            f"; lines from {search.stopped_at} on were not searched, that would take too long "
            "(a pattern with more fixed characters takes less)"
        )
    if not shown_all:
        note += f"; only the first {len(shown)} lines are shown"
    return Projected("\n".join(shown), note)


class InvalidProjection(ValueError):
    """It can't be used with any result: every problem, with the member that has it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def read_projection(select: str, lines: str, context: int) -> Projection | None:
    """Return the projection; None if nothing is asked for. Raises InvalidProjection."""
    selection = pattern = None
    problems: list[str] = []
    if lines:
        from mcp_workbench.core.line_pattern import LinePattern, PatternError

        try:
            pattern = LinePattern(lines)
        except PatternError as error:
            problems.append(f"lines: {error}")
    if select:
        from mcp_workbench.core.json_select import SelectError, Selection  # loads jmespath

        try:
            selection = Selection(select)
        except SelectError as error:
            problems.append(f"select: {error}")
    if problems:
        raise InvalidProjection(problems)
    if selection is None and pattern is None:
        return None
    return Projection(selection, pattern, min(max(context, 0), MOST_CONTEXT))


# Selecting


def _selected(selection: Selection, json: str) -> Generator[None, None, Any]:
    from mcp_workbench.core.json_select import SelectError

    if len(json) > MOST_SELECTED:
        raise ProjectionFailed(
            f"select: the JSON has more than {MOST_SELECTED >> 20} MiB; lines can be searched for"
        )
    if json.count(",") + json.count("[") + json.count("{") > MOST_VALUES:
        raise ProjectionFailed(
            f"select: the JSON has more than {MOST_VALUES} values; lines can be searched for"
        )
    try:
        value: Any = read_any(json)
    except (msgspec.DecodeError, RecursionError):
        raise ProjectionFailed(
            "select: the result has no structured content, and its text is not JSON; "
            "lines can be searched for"
        ) from None
    yield
    try:
        selected = selection.of(value, Steps(SELECT_STEPS))
    except SelectError as error:
        raise ProjectionFailed(f"select: {error}") from None
    except TooComplex:
        raise ProjectionFailed(
            "select: too much work for one expression; select a part first"
        ) from None
    yield
    return selected


def _text(value: Any) -> str:
    from mcp_workbench.core.json_select import SelectError, written

    try:
        return written(value)
    except SelectError as error:
        raise ProjectionFailed(f"select: {error}") from None


# Searching lines


class _Line(msgspec.Struct, frozen=True):
    number: int  # from 1
    start: int
    end: int  # without the line break
    match: int = -1  # where in the line the first match ends


class LineSearch:
    """The lines of a text in which a pattern is found."""

    def __init__(self, pattern: LinePattern, text: str) -> None:
        self._pattern = pattern
        self._source = text
        self.total = text.count("\n") + 1
        self.stopped_at = 0  # the first line that was not searched, if the work was too much
        self.matches: list[_Line] = []

    def find(self) -> Generator[None]:
        """Find the matches. Yields between turns."""
        steps = Steps(LINE_STEPS)
        line = self._next(_Line(0, 0, -1))
        while line is not None:
            try:
                match = yield from self._pattern.find(self._content(line), steps)
                if match is not None:
                    steps.take(MATCH_STEPS)
                    self.matches.append(_Line(line.number, line.start, line.end, match))
            except TooComplex:
                self.stopped_at = line.number
                return
            line = self._next(line)

    def _next(self, line: _Line) -> _Line | None:
        """The next line that may match."""
        start, number = line.end + 1, line.number + 1
        if start > len(self._source):
            return None
        if self._pattern.literal:
            at = self._source.find(self._pattern.literal, start)
            if at < 0:
                return None
            number += self._source.count("\n", start, at)
            start = max(self._source.rfind("\n", start, at) + 1, start)
        return _Line(number, start, self._end(start))

    def _end(self, start: int) -> int:
        end = self._source.find("\n", start)
        return len(self._source) if end < 0 else end

    def _content(self, line: _Line) -> str:
        return self._source[line.start : line.end].removesuffix("\r")

    # What is shown, as `grep -n -C` does

    def shown(self, context: int) -> Iterator[str]:
        """The lines that match, and those around them, with their numbers."""
        last = 0  # number of the last line that was shown
        matches = [*self.matches, None]
        for match, following in zip(self.matches, matches[1:], strict=True):
            before = self._before(match, min(context, match.number - last - 1))
            if context and last and before[0].number > last + 1:
                yield "--"
            yield from map(self._written, before)
            stop = match.number + context + 1
            last = min(stop, stop if following is None else following.number) - 1
            for line in self._after(match, last - match.number):
                yield self._written(line)

    def _before(self, match: _Line, count: int) -> list[_Line]:
        """The match, and so many lines before it."""
        lines = [match]
        for _ in range(count):
            end = lines[-1].start - 1
            start = self._source.rfind("\n", 0, end) + 1
            lines.append(_Line(lines[-1].number - 1, start, end))
        return lines[::-1]

    def _after(self, match: _Line, count: int) -> Iterator[_Line]:
        line = match
        for _ in range(count):
            if line.end >= len(self._source):
                return
            start = line.end + 1
            line = _Line(line.number + 1, start, self._end(start))
            yield line

    def _written(self, line: _Line) -> str:
        content = self._content(line)
        sign = "-" if line.match < 0 else ":"
        if len(content) <= LONGEST_LINE:
            return f"{line.number}{sign}{content}"
        start = max(0, line.match - LONGEST_LINE // 2)
        end = start + LONGEST_LINE
        before, behind = "…" if start else "", "…" if end < len(content) else ""
        return f"{line.number}{sign}{before}{content[start:end]}{behind}"
