"""`read_result`: parts of a result that was cut."""

from __future__ import annotations

from typing import Any

import msgspec

from mcp_workbench.gateway.result_budget import (
    KeptResults,
    how_to_read_on,
    shortened,
    text_blocks,
)
from mcp_workbench.surface.parse import NonEmpty, read_last, whole_number, wrong_reading

AROUND = 200  # characters before a text that was found


class _Reading(msgspec.Struct):
    handle: NonEmpty
    offset: Any = None  # the beginning
    length: Any = None  # as much as the budget is
    find: NonEmpty | None = None


_read_reading = msgspec.json.Decoder(_Reading).decode


def read_result(store: KeptResults, owner: object, arguments: msgspec.Raw) -> bytes:
    """The part that is asked for, in a block of its own, and where it goes on."""
    try:
        wish = read_last(_read_reading, arguments)
    except msgspec.ValidationError:
        wish = None
    offset = whole_number(0 if wish is None or wish.offset is None else wish.offset, 0)
    length = whole_number(1 if wish is None or wish.length is None else wish.length, 1)
    if wish is None or offset is None or length is None:
        raise wrong_reading(arguments, "handle", {"offset": (0, 0), "length": (1, 0)})
    kept = store.kept(owner, wish.handle)
    start = min(offset, len(kept.text))
    if wish.find is not None:
        at = kept.text.find(wish.find, start)
        if at < 0:
            return text_blocks(
                [f"'{shortened(wish.find)}' is not in this result after character {start}"]
            )
        start = max(at - AROUND, start)
    elif start == len(kept.text):
        return text_blocks(
            [f"The result ends at character {start}: there is nothing from {offset} on"]
        )
    end = min(start + (kept.budget if wish.length is None else length), len(kept.text))
    place = f"characters {start} to {end} of {len(kept.text)}"
    rest = (
        how_to_read_on(len(kept.text) - end, wish.handle, end)
        if end < len(kept.text)
        else "the end"
    )
    return text_blocks([kept.text[start:end], f"{place}; {rest}"])
