"""Calls that have ended: their numbers side by side in columns, their names shared.

After a call, while somebody looks, all that is made is a tuple (`EndedCall`). Calls are rare for a processor, whose caches
have something else by the time of the next one. Everything else (columns, counting, showing) is done for many calls at once.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter, sub
from sys import byteorder
from typing import Any

import msgspec

# The numbers of a call, in this order. Times are in seconds.
FIELDS = (
    "ended",  # by the monotonic clock
    "at_server",
    "workbench",  # our own time
    "arguments_bytes",
    "result_bytes",
    # Details, which are 0 for most calls
    "queue",
    "start",  # waited for its server to start
    "is_resent",
    "record",  # the number of its line in the audit
)
ENDED, AT_SERVER, WORKBENCH, SENT, RECEIVED, QUEUE, START, RESENT, RECORD = range(len(FIELDS))
BLOCK = 1000  # calls that are counted at once
MOST_KEPT = 10_000  # single calls: 0.8 MB
BYTES_PER_TOKEN = 4  # of a result: an estimate that needs no look at the text


class CallNames(msgspec.Struct, frozen=True, array_like=True):
    """Where calls came from and went to, and how they ended. Encoded as a list."""

    host: str
    principal: str
    door: str
    toolbox: str
    server: str
    tool: str  # or the method
    outcome: str
    is_error: bool
    parent: str = ""  # the script that made them


class CallKind:
    """Calls with the same names. Two kinds of the same names count up the same numbers."""

    __slots__ = ("is_configured", "is_tool", "names")

    def __init__(self, names: CallNames, *, is_configured: bool, is_tool: bool) -> None:
        self.names = names
        self.is_configured = is_configured  # its server; otherwise names are whatever a host wrote
        self.is_tool = is_tool  # that exists


class RecentCall(msgspec.Struct, frozen=True):
    """One call that has ended. Times are in seconds."""

    number: int  # counts up
    names: CallNames
    ended: float  # by the monotonic clock
    at_server: float
    workbench: float
    arguments_bytes: int
    result_bytes: int
    queue: float
    start: float
    is_resent: bool
    record: int

    @property
    def seconds(self) -> float:
        return self.queue + self.start + self.at_server + self.workbench

    @property
    def result_tokens(self) -> int:
        """An estimate."""
        return self.result_bytes // BYTES_PER_TOKEN


# A call as it is noted: what kind it is of; when it began after all waiting, was sent, was answered by its server, and ended;
# and the bytes of its arguments and of its result.
EndedCall = tuple[CallKind, float, float, float, float, int, int]
Details = tuple[float, float, bool, int]
Columns = tuple[Sequence[float], ...]  # one for each of FIELDS


class CallBatch(msgspec.Struct, frozen=True):
    """Calls in the order in which they ended."""

    first: int  # the number of the first one
    kinds: Sequence[CallKind]
    columns: Columns

    def part(self, start: int, end: int) -> "CallBatch":
        """Some of them."""
        if start <= 0 and end >= len(self.kinds):
            return self
        columns = tuple(column[start:end] for column in self.columns)
        return CallBatch(self.first + start, self.kinds[start:end], columns)

    def by_kind(self) -> Iterable[tuple[CallKind, Columns]]:
        """The numbers of the calls of each kind."""
        kinds = self.kinds
        if kinds.count(kinds[0]) == len(kinds):
            return ((kinds[0], self.columns),)
        places: dict[CallKind, list[int]] = {}
        for place, kind in enumerate(kinds):
            places.setdefault(kind, []).append(place)
        return ((kind, _picked(self.columns, some)) for kind, some in places.items())

    def calls(self) -> "Iterable[RecentCall]":
        """Each of them."""
        rows = zip(self.kinds, *self.columns, strict=True)
        for number, (kind, *numbers) in enumerate(rows, self.first):
            yield _call(number, kind, numbers)


NO_CALLS = CallBatch(0, (), ((),) * len(FIELDS))


def _picked(columns: Columns, places: list[int]) -> Columns:
    if len(places) == 1:
        return tuple((column[places[0]],) for column in columns)
    pick = itemgetter(*places)
    return tuple(pick(column) for column in columns)


def _call(number: int, kind: CallKind, numbers: Sequence[float]) -> RecentCall:
    ended, at_server, own, sent, received, queue, start, is_resent, record = numbers
    return RecentCall(
        number,
        kind.names,
        ended,
        at_server,
        own,
        int(sent),
        int(received),
        queue,
        start,
        bool(is_resent),
        int(record),
    )


def is_zero(column: Sequence[float]) -> bool:
    """Whether all of these are 0, as details mostly are."""
    if isinstance(column, array):
        return column.tobytes() == bytes(column.itemsize * len(column))
    return not any(column)


def low_byte_first(numbers: "array[Any]") -> bytes:
    """The memory of these numbers, in the byte order of browsers."""
    if byteorder == "big":  # pragma: no cover - not on the machines of the tests
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


class _Block:
    """Some calls that are kept."""

    __slots__ = ("columns", "first", "kinds")

    def __init__(self, first: int) -> None:
        self.first = first
        self.kinds: list[CallKind] = []
        self.columns = tuple(array("d") for _ in FIELDS)

    def add(self, batch: CallBatch) -> None:
        self.kinds += batch.kinds
        for column, numbers in zip(self.columns, batch.columns, strict=True):
            # Whole numbers are exact up to 2**53.
            column.extend(numbers if isinstance(numbers, array) else array("d", numbers))

    def after(self, number: int) -> CallBatch:
        """Those after this number."""
        whole = CallBatch(self.first, self.kinds, self.columns)
        return whole.part(number + 1 - self.first, len(self.kinds))


class EndedCalls:
    """Numbers calls, and keeps the most recent ones if that is wanted."""

    def __init__(self, before: int = 0, *, keep: int = 0) -> None:
        self._most = keep
        self._last = before  # the number of the last call that was counted
        self._oldest = before  # that of the call before the first one
        self._blocks: deque[_Block] = deque()

    @property
    def last(self) -> int:
        """The number of the last call."""
        return self._last

    def add(self, calls: Sequence[EndedCall], details: Mapping[int, Details]) -> CallBatch:
        """Number these calls, of which there is one at least, and keep them if calls are kept.

        `details` are by the place of the call in `calls`.
        """
        kinds, began, sent, answered, ended, arguments, results = zip(*calls, strict=True)
        at_server = tuple(map(sub, answered, sent))
        own = tuple(map(sub, map(sub, ended, began), at_server))
        columns = ended, at_server, own, arguments, results
        none = array("d", bytes(8 * len(calls)))
        more = [none] * (len(FIELDS) - len(columns))
        if details:
            more = [none[:] for _ in more]
            for place, numbers in details.items():
                for column, number in zip(more, numbers, strict=True):
                    column[place] = number
        batch = CallBatch(self._last + 1, kinds, (*columns, *more))
        self._last += len(calls)
        if self._most:
            self._keep(batch)
        return batch

    def _keep(self, batch: CallBatch) -> None:
        blocks = self._blocks
        if not blocks or len(blocks[-1].kinds) >= BLOCK:
            blocks.append(_Block(batch.first))
        blocks[-1].add(batch)
        while len(blocks) > 1 and blocks[1].first <= self._last - self._most + 1:
            blocks.popleft()

    def since(self, after: int, most: int) -> CallBatch:
        """The newest calls after this number, at most so many; oldest first."""
        after = max(after, self._last - min(most, self._most), self._oldest)
        parts: list[CallBatch] = []
        for block in reversed(self._blocks):
            if block.first + len(block.kinds) <= after + 1:
                break
            parts.insert(0, block.after(after))
        if len(parts) < 2:
            return parts[0] if parts else NO_CALLS
        columns = tuple(
            _joined(some) for some in zip(*(part.columns for part in parts), strict=True)
        )
        kinds = [kind for part in parts for kind in part.kinds]
        return CallBatch(parts[0].first, kinds, columns)

    def find(self, number: int) -> RecentCall | None:
        """The call with this number, if it is kept."""
        if not max(self._oldest, self._last - self._most) < number <= self._last:
            return None
        block = next(block for block in reversed(self._blocks) if block.first <= number)
        place = number - block.first
        return _call(number, block.kinds[place], [column[place] for column in block.columns])


def _joined(parts: Iterable[Sequence[float]]) -> "array[float]":
    whole = array("d")
    for part in parts:
        whole.extend(part)
    return whole
