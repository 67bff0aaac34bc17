"""Objects and lists of others, read in parts: of any size, but not of any number of parts."""

import threading
from typing import Any

import msgspec

MOST_MEMBERS = 20_000  # of an object
LARGE = 5 * MOST_MEMBERS  # bytes; a member has at least as many: `"":0,`
MOST_ELEMENTS = 100_000  # of a larger list

Members = dict[str, msgspec.Raw]


class TooManyParts(msgspec.ValidationError):
    """It is JSON, and nothing that anybody would send."""


class _Names:
    """The names of one object as it is read. Each is itself alone, so that a second one is kept."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, kind: object, text: str) -> "Name":
        self.count += 1
        if self.count > MOST_MEMBERS:
            raise TooManyParts(f"an object with more than {MOST_MEMBERS} members")
        return Name(text)


class Name:
    """Equal to itself alone, so that a name that stands twice in an object is read twice."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


_read_members = msgspec.json.Decoder(Members).decode
_read_elements = msgspec.json.Decoder(list[msgspec.Raw]).decode


def read_members(json: msgspec.Raw | bytes) -> Members:
    """The members of an object, each as it came; of a name that stands twice, the last."""
    if len(json) <= LARGE:
        return _read_members(json)
    return {name.text: value for name, value in read_names(json).items()}


def read_names(json: msgspec.Raw | bytes) -> dict[Name, msgspec.Raw]:
    """The same with every name, also where it stands twice."""
    kind: Any = dict[Name, msgspec.Raw]
    return msgspec.json.Decoder(kind, dec_hook=_Names()).decode(json)


def has_few_members(definition: msgspec.Raw | bytes) -> bool:
    """Can this object and its `_meta` be read, and written with changes?"""
    if len(definition) <= LARGE:
        return True
    try:
        read_members(read_members(definition).get("_meta", b"{}"))
    except TooManyParts:
        return False
    except msgspec.DecodeError:  # its `_meta` is none
        return True
    return True


class _Element(msgspec.Struct, gc=False):
    """An object of a long list, of which nothing is kept."""

    def __post_init__(self) -> None:
        _counter.left -= 1
        if _counter.left < 0:
            raise _too_many_elements()


class _Counter(threading.local):
    left = 0


_counter = _Counter()  # of the list that is read now
_count_elements = msgspec.json.Decoder(list[_Element]).decode


def read_elements(
    json: msgspec.Raw | bytes, most: int = MOST_ELEMENTS, *, checked: bool = False
) -> list[msgspec.Raw]:
    """The elements of a list, each as it came. Of a large one, all have to be objects.

    `checked`: that was found out before.
    """
    if not checked:
        check_elements(json, most)
    elements = _read_elements(json)
    if len(elements) > most:
        raise _too_many_elements()
    return elements


def check_elements(json: msgspec.Raw | bytes, most: int = MOST_ELEMENTS) -> None:
    """Raises TooManyParts, or another DecodeError, where a list is too large to be taken apart."""
    if len(json) > LARGE:
        _counter.left = most
        _count_elements(json)


def _too_many_elements() -> TooManyParts:
    return TooManyParts("a list with more elements than anybody would send")


class Inside:
    """Values inside an object, by their paths; every object on the way is read once."""

    def __init__(self, whole: msgspec.Raw) -> None:
        self._whole = whole
        self._read: dict[tuple[str, ...], Members] = {}

    def at(self, path: tuple[str, ...]) -> bytes:
        """The value as it came, without space around it; empty where there is none."""
        if not path:
            return bytes(self._whole).strip()
        *way, name = path
        return bytes(self._members(tuple(way)).get(name, b"")).strip()

    def _members(self, path: tuple[str, ...]) -> Members:
        found = self._read.get(path)
        if found is None:
            try:
                found = read_members(self.at(path) if path else self._whole)
            except msgspec.DecodeError:
                found = {}
            self._read[path] = found
        return found
