"""Definitions that differ from the lock file, and the command that shows and approves them."""

from __future__ import annotations

from shlex import quote

import msgspec

from mcp_workbench.config.lock_texts import read_texts
from mcp_workbench.core.lock_changes import review_server
from mcp_workbench.core.lock_report import escaped, named, short_hash, text_diff, text_warnings
from mcp_workbench.core.lock_states import ListKind
from mcp_workbench.core.spec import LockFile, ServerSpec
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.upstream.connection import Connection

MOST_BYTES = 256 << 10  # of a definition whose differences are shown
MOST_IN_ALL = 1 << 20  # bytes of all of them: about a second of work
MOST_LINES = 400
LONGEST_LINE = 4096  # characters
MOST_DIFFERENCES = 200


class LockedChange(msgspec.Struct, frozen=True):
    """One definition that is not as recorded."""

    what: str
    state: str
    hash: str
    lines: list[str] = []
    warnings: list[str] = []


class LockedServerChanges(msgspec.Struct, frozen=True, rename="camel"):
    """All that differs at one server."""

    toolbox: str
    server: str
    level: str
    is_hidden: bool  # what has changed is not shown to hosts
    changes: list[LockedChange]
    approve: str  # the command


def lock_changes(gateway: Gateway) -> list[LockedServerChanges]:
    """The servers that are connected and differ from the lock file."""
    lock = gateway.snapshot.lock
    if lock is None:
        return []
    found: list[LockedServerChanges] = []
    seen: set[object] = set()
    room = Room(MOST_IN_ALL)
    for connection in gateway.connected:
        spec = gateway.snapshot.find(connection.spec.address)
        if spec is None or spec.address in seen or spec.lock == "off":
            continue
        seen.add(spec.address)
        changes = _changes(gateway, lock, spec, connection, room)
        if changes is not None:
            found.append(changes)
    return found


class Room:
    """How many bytes of definitions are still to be compared for one answer."""

    def __init__(self, left: int) -> None:
        self._left = left

    def has(self, raw: bytes) -> bool:
        """Whether this definition is to be compared; then it counts."""
        if not raw or len(raw) > min(MOST_BYTES, self._left):
            return False
        self._left -= len(raw)
        return True


def _changes(
    gateway: Gateway, lock: LockFile, spec: ServerSpec, connection: Connection, room: Room
) -> LockedServerChanges | None:
    reviews = connection.tools.reviews
    hashes: dict[ListKind, dict[str, str]] = {kind: one.hashes for kind, one in reviews.items()}
    entry = lock.servers.get(str(spec.address))
    review = review_server(spec, entry, hashes, connection.tools.capabilities)
    pending = [one for one in review.pending if one.kind != "launch"]
    if not pending:
        return None
    old = read_texts(lock.path, spec, gateway.pool.context.environ)
    tools = connection.tools.received.tools
    changes: list[LockedChange] = []
    for one in pending[:MOST_DIFFERENCES]:
        raw = tools[one.name].raw if one.kind == "tools" and one.name in tools else b""
        lines: list[str] = []
        warnings: list[str] = []
        if room.has(raw):
            lines = _lines(old.get(one.recorded) if one.recorded else None, raw)
            warnings = text_warnings(raw)
        what = _cut(named(one))
        changes.append(LockedChange(what, one.state, short_hash(one.hash), lines, warnings))
    target = quote(escaped(str(spec.address)))
    return LockedServerChanges(
        spec.address.toolbox,
        spec.address.server,
        spec.lock,
        spec.lock in ("pin", "review"),
        changes,
        f"mcp-workbench lock diff {target}",
    )


def _lines(old: bytes | None, new: bytes) -> list[str]:
    return [_cut(line) for line in text_diff(old, new)[:MOST_LINES]]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}…"
