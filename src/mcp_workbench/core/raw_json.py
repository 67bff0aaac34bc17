"""JSON of other programs as bytes: read in parts, changed in place, with bounded work.

An object or a list may have any size, but not any number of parts. `Steps` bounds every computation
whose cost the sender chooses.
"""

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

MOST_MEMBERS = 20_000  # of an object
LARGE = 5 * MOST_MEMBERS  # bytes; a member has at least five: `"":0,`
MOST_ELEMENTS = 100_000  # of a larger list
MOST_CHANGED = 10_000  # elements of a list that is rewritten
LONGEST_ENTRY = (
    4 << 20
)  # bytes of a tool, a prompt or a resource that is listed; nobody could use a longer one
LONGEST_NAME = (
    64 << 10
)  # bytes of a name, a URI or a key as it was sent; a string may take five times as many
TURN = 10_000  # steps after which others have a turn
TOO_COMPLEX = "too complex to explain"
_BACKSLASH = ord("\\")

Members = dict[str, msgspec.Raw]


class TooManyParts(msgspec.ValidationError):
    """Valid JSON, but with more parts than anybody would send."""


class TooLong(TooManyParts):
    """A name that is longer than anybody would write."""


class TooComplex(Exception):
    """The computation needs more steps than its budget has."""


class Steps:
    """A budget of steps for one answer. A step is about a microsecond of work.

    Work of many steps is done in turns: whoever does it yields when `turn_is_over`.
    """

    __slots__ = ("_turn_end", "left")

    def __init__(self, most: int) -> None:
        self.left = most
        self._turn_end = most - TURN

    def turn_is_over(self) -> bool:
        """Whether others should have a turn now; then the next one begins."""
        if self.left > self._turn_end:
            return False
        self._turn_end = self.left - TURN
        return True

    def take(self, count: int = 1) -> None:
        """Call it before the work. Raises TooComplex if too few steps are left."""
        self.left -= count
        if self.left < 0:
            raise TooComplex


# Values


def read_finite(text: str) -> float:
    """Returns the number. Raises ValueError if it is beyond a float's range."""
    number = float(text)
    if number in _INFINITE:
        raise ValueError("Number out of range")
    return number


_INFINITE = (float("inf"), float("-inf"))
# Python reads the numbers: the codec takes forty times as long for those such as 1e300.
read_any = msgspec.json.Decoder(float_hook=read_finite).decode


def read_short(json: msgspec.Raw | bytes) -> Any:
    """Returns a value that is as short as a name may be; None for any other, and for one that is absent."""
    if not 0 < len(json) <= LONGEST_NAME:
        return None
    try:
        return read_any(json)
    except (msgspec.DecodeError, RecursionError):
        return None


# Names

_read_text = msgspec.json.Decoder(str).decode


def read_name(json: msgspec.Raw | bytes) -> str:
    """Returns the string. Raises TooLong for a long one, before anything of it is decoded."""
    if len(json) > LONGEST_NAME:
        raise TooLong(f"longer than {LONGEST_NAME >> 10} KiB")
    return _read_text(json)


# Objects


class NameCounter:
    """Decoder hook for the names of one object: counts them, and keeps duplicates apart."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, kind: object, text: str) -> "Name":
        self.count += 1
        if self.count > MOST_MEMBERS:
            raise TooManyParts(f"an object with more than {MOST_MEMBERS} members")
        if len(text) > LONGEST_NAME:
            raise _long_key()
        return Name(text)


class Name:
    """Equal to itself alone, so that both members of a duplicate name are kept."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


_read_members = msgspec.json.Decoder(Members).decode
_read_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


def read_members(json: msgspec.Raw | bytes) -> Members:
    """Returns the members of an object as raw JSON. Of duplicate names, the last wins."""
    if len(json) <= LARGE:
        return _read_members(json)
    return {name.text: value for name, value in read_names(json).items()}


def read_names(json: msgspec.Raw | bytes) -> dict[Name, msgspec.Raw]:
    """Returns the members of an object, duplicate names included. Raises TooManyParts."""
    if len(json) > LARGE and may_have_wide_key(json):
        return _read_one_by_one(bytes(json))
    kind: Any = dict[Name, msgspec.Raw]
    return msgspec.json.Decoder(kind, dec_hook=NameCounter()).decode(json)


# Long keys of objects: the codec decodes a key before its length can be looked at

_STEP = LONGEST_NAME // 2
_WINDOW = 1024  # bytes
_COLON = re.compile(rb"\s*:\s*").match
_FIRST = re.compile(rb'\s*\{\s*(?=")').match
_NEXT = re.compile(rb'\s*,\s*(?=")').match
_LAST = re.compile(rb"\s*\}\s*\Z").match
_KEY = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL).match
_END = re.compile(r".*trailing characters \(byte (\d+)\)$").match
_SPACE = b" \t\r\n"
_read_raw = msgspec.json.Decoder(msgspec.Raw).decode


def may_have_long_key(json: msgspec.Raw | bytes) -> bool:
    """Whether a key, at any depth, may be longer than LONGEST_NAME. If this is false, none is.

    A long key covers a whole window, of which one is looked at in every step. No window inside a string
    has a quote that is not escaped; the next such quote ends the key, so a colon follows.
    """
    view = memoryview(json)  # a copy of a long text takes as long as all of this
    at = _STEP
    while at < len(view):
        end = at + _WINDOW
        window = bytes(view[at:end])
        if window.count(b'"', 1) == window.count(b'\\"'):
            quote = _find_quote(view, end)
            if quote < 0:
                return False
            if view[quote - 1] == _BACKSLASH or _COLON(view, quote + 1):
                return True
            at = max(quote // _STEP * _STEP, at)
        at += _STEP
    return False


def _find_quote(view: memoryview, start: int) -> int:
    for at in range(start, len(view), _STEP):
        quote = bytes(view[at : at + _STEP]).find(b'"')
        if quote >= 0:
            return at + quote
    return -1


def may_have_wide_key(json: msgspec.Raw | bytes) -> bool:
    """Whether a key may be long, and take several times its bytes once it is decoded."""
    if not may_have_long_key(json):
        return False
    json = bytes(json)
    return not json.isascii() or b"\\u" in json


def _long_key() -> TooLong:
    return TooLong(f"a member whose name is longer than {LONGEST_NAME >> 10} KiB")


def _read_one_by_one(json: bytes) -> dict[Name, msgspec.Raw]:
    """Does the same as the codec, but looks at the length of each key first."""
    view, names = memoryview(json), NameCounter()
    members: dict[Name, msgspec.Raw] = {}
    head, end = _FIRST(json), 0
    while head is not None:
        key = _KEY(json, head.end(), head.end() + LONGEST_NAME)
        if key is None:
            raise _long_key()
        colon = _COLON(json, key.end())
        if colon is None:
            break
        end = colon.end() + _end_of_value(view[colon.end() :])
        members[names(None, _read_text(key[0]))] = _trimmed(view[colon.end() : end])
        head = _NEXT(json, end)
    if not members or _LAST(json, end) is None:  # empty, or the codec says what is wrong
        return {Name(name): value for name, value in _read_members(json).items()}
    return members


def _end_of_value(rest: memoryview) -> int:
    """Returns the place after a value that is followed by more."""
    try:
        _read_raw(rest)
    except msgspec.DecodeError as error:
        if place := _END(str(error)):
            return int(place[1]) - 1
        raise
    return len(rest)


def _trimmed(value: memoryview) -> msgspec.Raw:
    """Returns the value without the space after it."""
    return msgspec.Raw(bytes(value).rstrip(_SPACE) if value[-1] in _SPACE else value)


def has_few_members(definition: msgspec.Raw | bytes) -> bool:
    """Can this object and its `_meta` be read, and written with changes?"""
    if len(definition) <= LARGE:
        return True
    try:
        read_members(read_members(definition).get("_meta", b"{}"))
    except TooManyParts:
        return False
    except msgspec.DecodeError:  # its `_meta` is not an object
        return True
    return True


class Inside:
    """Values inside an object, by their paths; each object on the way is read once."""

    def __init__(self, whole: msgspec.Raw) -> None:
        self._whole = whole
        self._read: dict[tuple[str, ...], Members] = {}

    def at(self, path: tuple[str, ...]) -> bytes:
        """Returns the raw value without surrounding space; empty if there is none."""
        if not path:
            return bytes(self._whole).strip()
        *parents, name = path
        return bytes(self._members(tuple(parents)).get(name, b"")).strip()

    def _members(self, path: tuple[str, ...]) -> Members:
        members = self._read.get(path)
        if members is None:
            try:
                members = read_members(self.at(path) if path else self._whole)
            except msgspec.DecodeError:
                members = {}
            self._read[path] = members
        return members


# Lists


class _Element(msgspec.Struct, frozen=True, gc=False):
    """An object of a long list, of which nothing is kept."""

    def __post_init__(self) -> None:
        _counter.left -= 1
        if _counter.left < 0:
            raise _too_many_elements()


class _Counter(threading.local):
    left = 0


_counter = _Counter()  # of the list that this thread reads
_count_elements = msgspec.json.Decoder(list[_Element]).decode


def read_elements(
    json: msgspec.Raw | bytes, most: int = MOST_ELEMENTS, *, checked: bool = False
) -> list[msgspec.Raw]:
    """Returns the elements of a list as raw JSON. Of a large list, all must be objects.

    `checked`: the caller has called `check_elements` already.
    """
    if not checked:
        check_elements(json, most)
    elements = _read_elements(json)
    if len(elements) > most:
        raise _too_many_elements()
    return elements


def check_elements(json: msgspec.Raw | bytes, most: int = MOST_ELEMENTS) -> None:
    """Raises TooManyParts, or another DecodeError, if a list is too large to be split."""
    if len(json) > LARGE:
        _counter.left = most
        _count_elements(json)


def _too_many_elements() -> TooManyParts:
    return TooManyParts("a list with more elements than anybody would send")


# Changes in place: every other byte stays as received


class _Nothing(msgspec.Struct, frozen=True):
    """An object of which nothing is kept."""


_read_nothing = msgspec.json.Decoder(_Nothing).decode
# Up to a member's name, past it, and up to its value.
_TO_VALUE = re.compile(rb'[^"]*("[^"\\]*(?:\\.[^"\\]*)*"\s*:\s*)', re.DOTALL).match
_TO_ELEMENT = re.compile(rb"\s*[\[,]\s*").match


def changed(json: msgspec.Raw | bytes, wanted: Mapping[str, bytes | None]) -> bytes:
    """Returns the object with these members: replaced in place, added in front, None removed.

    A removed member takes one comma with it, and no space, so that adding and removing a member gives
    the original bytes. All value lengths are known, so nothing is read twice. Raises TooManyParts.
    """
    json = bytes(json)
    members = read_names(json)
    opening = place = done = json.index(b"{") + 1  # `done`: bytes before it are in `parts`
    new = _missing(members, wanted)
    parts = [json[:opening], new]
    comma = bool(new)  # does the next member that stays need one before it?
    for name, value in members.items():
        head = _TO_VALUE(json, place)
        assert head is not None  # noqa: S101 - the codec has read it
        start, at = head.span(1)
        end = at + len(memoryview(value))
        replacement = wanted.get(name.text, b"")
        if replacement is None:
            parts += (json[done:place], json[place:start].replace(b",", b""))
            done = end
        else:
            if comma is (place == opening):  # it is missing, or one too many
                between = json[place:start].replace(b",", b"")
                parts += (json[done:place], b"," + between if comma else between)
                done = start
            comma = True
            if replacement:
                parts += (json[done:at], replacement)
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
    """Returns `spliced` if it is still a JSON object, else the original."""
    try:
        _read_nothing(spliced)
    except (msgspec.DecodeError, RecursionError):
        return bytes(original)
    return spliced


def each(json: msgspec.Raw | bytes, act: Callable[[bytes], bytes]) -> bytes:
    """Returns the list with every element replaced by `act(element)`. Raises TooManyParts."""
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
