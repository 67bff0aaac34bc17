"""Projected results: of a result that is kept whole, a host gets the part that it asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.projection import NOTHING, Projection, ProjectionFailed
from mcp_workbench.core.raw_json import read_elements, read_members
from mcp_workbench.gateway.result_budget import (
    MOST_BLOCKS,
    Kept,
    KeptResults,
    ResultParts,
    head,
    how_to_read_on,
    shape,
    text_block,
    with_content,
)
from mcp_workbench.protocol.translation import asks_for_input

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TypeVar

    Answer = TypeVar("Answer")
    Turns = Generator[None, None, Answer]  # work that is done in turns

BEGINNING = 2000  # characters that are shown of a result that a projection does not fit


class ProjectResult:
    """Keeps the result of one call, and projects it."""

    def __init__(self, projection: Projection, store: KeptResults, reader: ResultReader) -> None:
        self._projection = projection
        self._store = store
        self._reader = reader

    def of(self, result: msgspec.Raw | bytes) -> Turns[msgspec.Raw | bytes]:
        """Return the projected result; errors, questions and what is malformed as they are."""
        try:
            return (yield from self._projected(result))
        except msgspec.DecodeError:  # the host decides
            return result

    def _projected(self, result: msgspec.Raw | bytes) -> Turns[msgspec.Raw | bytes]:
        members = read_members(result)
        is_error = bytes(members.get("isError", b"")) == b"true"
        if is_error or asks_for_input(msgspec.Raw(result)):
            return result
        blocks = read_elements(members.get("content", b"[]"), MOST_BLOCKS)
        parts = ResultParts(blocks, members.get("structuredContent"))
        text, json_at = parts.kept()
        handle = self._store.keep(self._reader.owner, text, self._reader.budget, json_at)
        if not handle:  # too large to be kept: nothing is left out
            return result
        kept = self._store.kept(self._reader.owner, handle)
        yield
        shown, note = yield from projected_text(self._projection, kept, self._store)
        notice = f"{note}{'. ' if note else ''}{self._reader.how_to_read(kept, handle)}"
        texts = [shown, notice] if shown else [notice]
        first, *rest = map(text_block, texts)
        return with_content(result, [first, *parts.others, *rest])


class ResultReader(msgspec.Struct, frozen=True):
    """Who may read the whole result, and how."""

    owner: object
    budget: int  # of the result's server, or 0
    has_read_result: bool  # otherwise `use_tool` reads it

    def how_to_read(self, kept: Kept, handle: str) -> str:
        """How to get the whole, or another part of it."""
        call = f'read_result {{"handle":"{handle}"}}'
        if not self.has_read_result:
            call = f'the same use_tool with "handle":"{handle}", which does not run it again'
        return f"All {len(kept.text)} characters: {call}"


def projected_text(
    projection: Projection, kept: Kept, store: KeptResults
) -> Turns[tuple[str, str]]:
    """Return the part of a kept result that is asked for, and a note about it. Yields between turns.

    If the projection does not fit, the note says why, and the part is the beginning. A part that is longer than the
    budget is kept as well, and read on in the same way as a result.
    """
    try:
        part = yield from projection.of(kept.lines, kept.json)
    except ProjectionFailed as error:
        beginning = head(kept.text, kept.budget or BEGINNING)
        return beginning, f"{error}. This is the beginning of {shape(kept.text)}"
    text, note = part.text, part.note
    if note == NOTHING:
        return text, f"{note} in {shape(kept.json)}"
    if kept.budget and len(text) > kept.budget:
        handle = store.keep(kept.owner, text, kept.budget)
        beginning = head(text, kept.budget)
        rest = how_to_read_on(len(text) - len(beginning), handle, len(beginning))
        return beginning, f"{note}{'. ' if note else ''}{rest}"
    return text, note
