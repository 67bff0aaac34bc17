"""Result budgets: a longer result is kept for a while and read in parts, without another call."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.errors import NotFound
from mcp_workbench.core.raw_json import changed, read_any, read_elements, read_members
from mcp_workbench.gateway.interceptors import CallOutcome, Completed, Interceptor

if TYPE_CHECKING:
    from mcp_workbench.gateway.calls import Call

MOST_BYTES = 32 << 20  # of all results that are kept, for all hosts together
LIFETIME = 1800.0  # seconds
MOST_COMPARED = 512 << 10  # characters of a text and of data that are compared as values
MOST_BLOCKS = 10_000  # of a result that is cut
DEEPEST = 8  # lists in lists, of which the first is described
KEYS = 12  # of an object that are named
LONGEST_SHOWN = 100  # characters of a host's text in a message
_JSON_STARTS = ("{", "[")


class Kept(msgspec.Struct, frozen=True):
    """The whole text of one result."""

    owner: object
    text: str
    size: int
    until: float
    budget: int  # characters that are read at a time; 0: all of them
    json_at: int = 0  # where in the text its JSON begins, if it has any

    @property
    def json(self) -> str:
        """Its structured content, or its text, which may be JSON."""
        return self.text[self.json_at :]

    @property
    def lines(self) -> str:
        """Its text blocks: structured content often has the same in a string. That, if there are none."""
        return self.text[: self.json_at - 1] if self.json_at else self.text


class KeptResults:
    """Kept results, by unguessable handles; only its owner can read a result."""

    def __init__(self, most: int = MOST_BYTES, lifetime: float = LIFETIME) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._bytes = 0
        self._most = most
        self._lifetime = lifetime

    def keep(self, owner: object, text: str, budget: int, json_at: int = 0) -> str:
        """Return a handle for this text; empty if it is larger than the limit for all."""
        now, size = time.monotonic(), len(text.encode())
        if size > self._most:
            return ""
        self._expire(now)
        while self._bytes + size > self._most:
            self._drop(next(iter(self._kept)))
        handle = self.new_handle()
        self._kept[handle] = Kept(owner, text, size, now + self._lifetime, budget, json_at)
        self._bytes += size
        return handle

    def new_handle(self) -> str:
        return secrets.token_urlsafe(9)

    async def find(self, owner: object, handle: str) -> Kept:
        """Return a kept result, as `kept` does; with replicas, also one of another replica."""
        return self.kept(owner, handle)

    def kept(self, owner: object, handle: str) -> Kept:
        """Return a kept result. Raises the same NotFound for unknown, expired and others' handles."""
        self._expire(time.monotonic())
        result = self._kept.get(handle)
        if result is None or result.owner != owner:
            text = f"Result '{shortened(handle)}' not found"
            hint = "Results are kept for half an hour at most. Call the tool again for a new one."
            raise NotFound("unknown_result", text, hint=hint)
        return result

    def _expire(self, now: float) -> None:
        """Drop expired results. The oldest come first, and all have the same lifetime."""
        while self._kept and next(iter(self._kept.values())).until <= now:
            self._drop(next(iter(self._kept)))

    def _drop(self, handle: str) -> None:
        self._bytes -= self._kept.pop(handle).size


class ResultBudget(Interceptor):
    """Cuts results of a server that has a budget, for hosts that can read the rest."""

    def __init__(self, budget: int, store: KeptResults) -> None:
        self._budget = budget
        self._store = store

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        owner = call.results_owner
        if owner is None or not isinstance(outcome, Completed):
            return outcome
        return Completed(within_budget(outcome.result, self._budget, self._store, owner))


def within_budget(
    result: msgspec.Raw | bytes, budget: int, store: KeptResults, owner: object
) -> msgspec.Raw | bytes:
    """Return the result, or its beginning and how to read the rest. Only text is cut, errors never."""
    if len(memoryview(result)) <= budget:  # a character has at least one byte
        return result
    try:
        members = read_members(result)
        blocks = read_elements(members.get("content", b"[]"), MOST_BLOCKS)
        if bytes(members.get("isError", b"")) == b"true":
            return result
        parts = ResultParts(blocks, members.get("structuredContent"))
        return parts.cut(result, budget, store, owner)
    except msgspec.DecodeError:  # malformed: the host decides
        return result


class _Text(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""


class ResultParts:
    """One result in parts: its texts, and the structured data that says the same or more."""

    def __init__(self, blocks: list[msgspec.Raw], data: msgspec.Raw | None) -> None:
        self._blocks = blocks
        self._texts = [_text(block) for block in blocks]
        self._data = "" if data is None else bytes(data).decode()
        self._whole = "\n".join(text for text in self._texts if text is not None)

    @property
    def others(self) -> list[bytes]:
        """The blocks that are no text."""
        pairs = zip(self._blocks, self._texts, strict=True)
        return [bytes(block) for block, text in pairs if text is None]

    def kept(self) -> tuple[str, int]:
        """Return the text that is kept, and where in it the JSON begins."""
        whole, data = self._whole, self._data
        if not data or _same(whole, data):
            return whole, 0
        return (f"{whole}\n{data}", len(whole) + 1) if whole else (data, 0)

    def cut(
        self, result: msgspec.Raw | bytes, budget: int, store: KeptResults, owner: object
    ) -> msgspec.Raw | bytes:
        if len(self._whole) + len(self._data) <= budget:
            return result
        kept, json_at = self.kept()
        handle = store.keep(owner, kept, budget, json_at)
        if not handle:
            return result
        shown, end = self._shown(budget)
        notice = f"A part of {shape(kept)}. {how_to_read_on(len(kept) - end, handle, end)}"
        return with_content(result, [*shown, text_block(notice)])

    def _shown(self, budget: int) -> tuple[list[bytes], int]:
        """Return the blocks with as much text as there is room for, and where in the whole that ends."""
        shown: list[bytes] = []
        end, full = -1, False  # where the last text ended; a line break follows it in the whole
        for block, text in zip(self._blocks, self._texts, strict=True):
            if text is None:
                shown.append(bytes(block))
                continue
            if full:
                continue
            start = end + 1
            room = budget - start
            if len(text) <= room:
                shown.append(bytes(block))
                end = start + len(text)
                continue
            full = True
            beginning = head(text, max(room, 0))
            if beginning:
                shown.append(text_block(beginning))
                end = start + len(beginning)
        return shown, max(end, 0)


def with_content(result: msgspec.Raw | bytes, blocks: list[bytes]) -> bytes:
    """Return the result with these blocks instead of its content."""
    content = b"[%b]" % b",".join(blocks)
    return changed(result, {"content": content, "structuredContent": None})


def _text(block: msgspec.Raw) -> str | None:
    try:
        read = msgspec.json.decode(block, type=_Text)
    except msgspec.DecodeError:
        return None
    return read.text if read.type == "text" else None


def head(text: str, room: int) -> str:
    """Return the beginning of a text, cut after a line unless that loses more than half of it."""
    line = text.rfind("\n", 0, room) + 1
    return text[:line] if line > room // 2 else text[:room]


def how_to_read_on(count: int, handle: str, offset: int) -> str:
    call = msgspec.json.encode({"handle": handle, "offset": offset}).decode()
    return f"{count} more characters: read_result {call}"


def shape(text: str) -> str:
    """Describe the whole in a few words."""
    if text.startswith(_JSON_STARTS):
        try:
            return _json_shape(text.encode())
        except (msgspec.DecodeError, RecursionError):
            pass
    lines = text.count("\n") + 1
    return f"{lines} {'line' if lines == 1 else 'lines'}"


def _json_shape(json: msgspec.Raw | bytes, depth: int = DEEPEST) -> str:
    kind = bytes(memoryview(json)[:1])
    if kind == b"[" and depth:
        items = read_elements(json)
        first = f", the first {_json_shape(items[0], depth - 1)}" if items else ""
        return f"a JSON list of {len(items)}{first}"
    if kind == b"{":
        names = list(read_members(json))
        more = f" (+{len(names) - KEYS})" if len(names) > KEYS else ""
        shown = msgspec.json.encode([name[:40] for name in names[:KEYS]]).decode()
        return f"a JSON object with {shown}{more}"
    return "a JSON value"


def _same(text: str, data: str) -> bool:
    """Whether the text is the same JSON as the data: servers write both for older hosts."""
    try:
        if len(text) + len(data) > MOST_COMPARED:  # in the order of their members
            return _compact(text) == _compact(data)
        return read_any(text) == read_any(data)
    except (msgspec.DecodeError, RecursionError):
        return False


def _compact(text: str) -> bytes:
    return msgspec.json.format(text.encode(), indent=-1)


def shortened(text: str) -> str:
    """Return a host's text, cut to a length that fits a message."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def text_block(text: str) -> bytes:
    return msgspec.json.encode({"type": "text", "text": text})


def text_blocks(texts: list[str]) -> bytes:
    return b'{"content":[%b]}' % b",".join(map(text_block, texts))
