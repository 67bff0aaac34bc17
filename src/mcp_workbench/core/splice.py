"""JSON with a few members changed, and every other byte as it came."""

import re
from collections.abc import Callable, Mapping

import msgspec

from mcp_workbench.bounded import Name, read_elements, read_names

MOST_CHANGED = 10_000  # elements of a list


class _Nothing(msgspec.Struct):
    """An object of which nothing is kept."""


_read_nothing = msgspec.json.Decoder(_Nothing).decode
# Up to a member's name, past it, and up to its value.
_TO_VALUE = re.compile(rb'[^"]*("[^"\\]*(?:\\.[^"\\]*)*"\s*:\s*)', re.DOTALL).match
_TO_ELEMENT = re.compile(rb"\s*[\[,]\s*").match


def changed(json: msgspec.Raw | bytes, wanted: Mapping[str, bytes | None]) -> bytes:
    """An object with these members: new values in the old places, missing ones in front, None taken out.

    With a member goes one comma, and no space: what was put in can be taken out again. The lengths
    of all values are known, so nothing is read twice. Raises TooManyParts.
    """
    json = bytes(json)
    members = read_names(json)
    opening = place = done = json.index(b"{") + 1  # `done`: what stands before it is in the parts
    new = _missing(members, wanted)
    parts = [json[:opening], new]
    comma = bool(new)  # does one belong before the next member that stays?
    for name, value in members.items():
        head = _TO_VALUE(json, place)
        assert head is not None  # noqa: S101 - the codec has read it
        start, at = head.span(1)
        end = at + len(memoryview(value))
        instead = wanted.get(name.text, b"")
        if instead is None:
            parts += (json[done:place], json[place:start].replace(b",", b""))
            done = end
        else:
            if comma is (place == opening):  # it is missing, or one too many
                between = json[place:start].replace(b",", b"")
                parts += (json[done:place], b"," + between if comma else between)
                done = start
            comma = True
            if instead:
                parts += (json[done:at], instead)
                done = end
        place = end
    parts.append(json[done:])
    return b"".join(parts)


def _missing(members: dict[Name, msgspec.Raw], wanted: Mapping[str, bytes | None]) -> bytes:
    names = {name.text for name in members}
    return b",".join(
        [
            b"%b:%b" % (msgspec.json.encode(name), value)
            for name, value in wanted.items()
            if value is not None and name not in names
        ]
    )


def checked(spliced: bytes, original: msgspec.Raw | bytes) -> bytes:
    """What was spliced, if it is an object still; else what it was made from."""
    try:
        _read_nothing(spliced)
    except (msgspec.DecodeError, RecursionError):
        return bytes(original)
    return spliced


def each(json: msgspec.Raw | bytes, act: Callable[[bytes], bytes]) -> bytes:
    """An array whose elements are what `act` makes of them. Raises TooManyParts."""
    json = bytes(json)
    parts: list[bytes] = []
    done = 0
    for element in read_elements(json, MOST_CHANGED):
        head = _TO_ELEMENT(json, done)
        assert head is not None  # noqa: S101 - the codec has read it
        old = bytes(element)
        parts += (json[done : head.end()], act(old))
        done = head.end() + len(old)
    parts.append(json[done:])
    return b"".join(parts)
