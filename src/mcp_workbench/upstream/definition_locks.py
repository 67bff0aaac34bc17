"""The lock file at work: which definitions of a server hosts may see, for every connection of a pool.

`admit` is called with each list that a server has sent, before anything else sees it. At level `pin` a list
that is seen for the first time is written to the lock file first, by a thread. `admitted` does the same
for lists that are known already, and writes nothing. All decisions are those of `core.lock_states`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.config.file_access import LOCK_POLL, LOCK_WAIT
from mcp_workbench.core.catalogue import Catalogue, KnownCatalogue
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.lock_states import (
    ListKind,
    Review,
    State,
    hashes_of,
    instruction_hashes,
    is_enforced,
    launch_hash,
    quarantine_reason,
    review_list,
    still_hidden,
    with_baseline,
)
from mcp_workbench.core.primitive_names import PrimitiveKind, read_primitives
from mcp_workbench.core.spec import LockedServer, LockFile, ServerKey, ServerSpec

if TYPE_CHECKING:
    from mcp_workbench.config.expand import Environment
    from mcp_workbench.config.lock_file import Change

log = logging.getLogger(__name__)

MOST_RECALLED = 256 << 10  # bytes of a cached list that are compared in one step
MOST_WARNINGS = 1000  # of one process; a server may change its definitions without end
LONGEST_PAUSE = 0.25  # seconds between two attempts to write the file
AT_ONCE = 64 << 10  # bytes of definitions that are hashed in one step of the loop
_LOCKED: tuple[PrimitiveKind, ...] = ("prompts", "templates")


async def _changed(path: str, change: Change) -> LockFile:
    """Change the lock file as soon as no other process does; a thread is needed for each attempt only."""
    from mcp_workbench.config.lock_file import NotYetWritten, change_lock  # only for a first sight

    until, pause = time.monotonic() + LOCK_WAIT, LOCK_POLL
    while True:
        try:
            return await asyncio.to_thread(change_lock, path, change, 0.0)
        except NotYetWritten:
            if time.monotonic() > until:
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


class DefinitionLocks:
    """The lock file of one configuration, and what it says of the definitions of its servers."""

    def __init__(self, lock: LockFile, environ: Environment) -> None:
        self.lock = lock
        self._environ = environ
        self._known: dict[ServerKey, tuple[KnownCatalogue, object, KnownCatalogue]] = {}
        self._warned: set[tuple[object, ...]] = set()

    def replace(self, lock: LockFile) -> None:
        """Use this version of the file from now on."""
        self.lock = lock

    def entry(self, spec: ServerSpec) -> LockedServer | None:
        return self.lock.servers.get(str(spec.address))

    def quarantine(self, spec: ServerSpec) -> str:
        """Why this server is not started; empty if it may be."""
        return quarantine_reason(spec.lock, self.lock, spec)

    def admitted(
        self, spec: ServerSpec, kind: ListKind, hashes: dict[str, str], capabilities: Iterable[str]
    ) -> Review:
        """What the file says of this list."""
        return review_list(spec.lock, self.entry(spec), kind, hashes, capabilities)

    def admit_again(
        self, spec: ServerSpec, kind: ListKind, before: Review, capabilities: Iterable[str]
    ) -> Review:
        """What it says now. At level `pin`, what could not be recorded stays hidden."""
        now = self.admitted(spec, kind, before.hashes, capabilities)
        return still_hidden(before, now) if spec.lock == "pin" else now

    async def admit(
        self,
        spec: ServerSpec,
        kind: ListKind,
        raws: Mapping[str, bytes],
        capabilities: Iterable[str],
    ) -> Review:
        """The same for a list as received; at level `pin`, a first sight becomes the baseline."""
        capabilities = tuple(capabilities)
        review = self.admitted(spec, kind, await hashed(raws), capabilities)
        if spec.lock == "pin" and review.is_first and not self.lock.is_read_only:
            review = await self._baseline(spec, kind, review, capabilities)
            texts = {text: raws[name] for name, text in review.hashes.items()}
            await asyncio.to_thread(self._keep, spec, texts)
        self._warn(spec, kind, review)
        return review

    async def _baseline(
        self, spec: ServerSpec, kind: ListKind, review: Review, capabilities: tuple[str, ...]
    ) -> Review:
        """Write what was seen for the first time, unless another process was first: then that counts."""
        from mcp_workbench.config.lock_records import new_entry  # only for a first sight

        address = str(spec.address)

        def change(servers: dict[str, LockedServer]) -> dict[str, LockedServer]:
            entry = servers.get(address)
            if entry is None:
                entry = new_entry(spec, self._environ)
            elif entry.launch != launch_hash(spec):
                return servers
            now = review_list(spec.lock, entry, kind, review.hashes, capabilities)
            if now.is_first:
                entry = with_baseline(entry, kind, now, capabilities)
            return {**servers, address: entry}

        try:
            changed = await _changed(self.lock.path, change)
        except WorkbenchError as error:
            self._warn_once(
                (spec.address, "write"), f"{spec.address}: nothing new is shown: {error}"
            )
            # Without a record, the next start could not notice a change.
            unrecorded: dict[str, State] = {
                n: s for n, s in review.states.items() if s == "unrecorded"
            }
            blocked: dict[str, State] = {**review.blocked, **unrecorded}
            return msgspec.structs.replace(review, blocked=blocked)
        self.lock = msgspec.structs.replace(self.lock, servers=changed.servers)
        return self.admitted(spec, kind, review.hashes, capabilities)

    def _keep(self, spec: ServerSpec, texts: dict[str, bytes]) -> None:
        """Keep the texts of a first sight, for a later comparison."""
        from mcp_workbench.config.lock_texts import keep_texts, read_texts

        known = read_texts(self.lock.path, spec, self._environ)
        keep_texts(self.lock.path, spec, {**known, **texts}, self._environ)

    def _warn(self, spec: ServerSpec, kind: ListKind, review: Review) -> None:
        """Log what is not as recorded, once for each definition."""
        if spec.lock == "off":
            return
        for name, state in review.findings.items():
            about = (spec.address, kind, name, review.hashes[name])
            what = "not shown" if is_enforced(spec.lock) else "shown"
            where = f"{kind} {name!a}" if name else kind
            self._warn_once(
                about,
                f"{spec.address}: {where}: {state} since it was recorded, {what}; "
                f"`mcp-workbench lock diff {spec.address}` shows it",
            )

    def _warn_once(self, about: tuple[object, ...], text: str) -> None:
        if about in self._warned or len(self._warned) >= MOST_WARNINGS:
            return
        self._warned.add(about)
        log.warning(text)
        if len(self._warned) == MOST_WARNINGS:
            log.warning("no more warnings about changed definitions; `mcp-workbench lock diff`")

    # What is cached of servers that are not connected

    def recalled(self, spec: ServerSpec, known: KnownCatalogue) -> KnownCatalogue | None:
        """What may be shown of a server that is not connected; the same object for the same list."""
        if self.quarantine(spec):
            return None
        if not is_enforced(spec.lock):
            return known
        if spec.lock == "pin" and self._is_first(spec, known):
            return None  # it is started instead: what is shown was recorded before
        if sum(len(tool.raw) for tool in known.catalogue.tools.values()) > MOST_RECALLED:
            return None  # it is started instead: comparing so much would take long
        before = self._known.get(spec.key)
        if before is not None and before[0] is known and before[1] is self.entry(spec):
            return before[2]
        shown = self._shown(spec, known)
        self._known[spec.key] = (known, self.entry(spec), shown)
        return shown

    def _is_first(self, spec: ServerSpec, known: KnownCatalogue) -> bool:
        """Are its tools recorded by nobody yet, and will be with the next start?"""
        review = self.admitted(spec, "tools", {}, known.host_capabilities)
        return review.is_first and not self.lock.is_read_only

    def _shown(self, spec: ServerSpec, known: KnownCatalogue) -> KnownCatalogue:
        asked = known.host_capabilities
        tools = {name: tool.raw for name, tool in known.catalogue.tools.items()}
        blocked = self.admitted(spec, "tools", hashes_of(tools), asked).blocked
        texts = self.admitted(spec, "instructions", instruction_hashes(known.instructions), asked)
        offers = dict(known.offers)
        for kind in _LOCKED:
            if kind in offers:
                offers[kind] = self._offers(spec, kind, offers[kind], asked)
        return msgspec.structs.replace(
            known,
            catalogue=without(known.catalogue, blocked),
            instructions="" if texts.blocked else known.instructions,
            offers=offers,
        )

    def _offers(
        self,
        spec: ServerSpec,
        kind: PrimitiveKind,
        raws: tuple[bytes, ...],
        capabilities: Iterable[str],
    ) -> tuple[bytes, ...]:
        offers = read_primitives(kind, list(map(msgspec.Raw, raws)))
        hashes = hashes_of({key: offer.raw for key, offer in offers.items()})
        blocked = self.admitted(spec, list_kind(kind), hashes, capabilities).blocked
        return tuple(offer.raw for key, offer in offers.items() if key not in blocked)


async def hashed(raws: Mapping[str, bytes]) -> dict[str, str]:
    """The hashes of many definitions; other tasks run in between."""
    hashes: dict[str, str] = {}
    size = 0
    part: dict[str, bytes] = {}
    for name, raw in raws.items():
        part[name] = raw
        size += len(raw)
        if size >= AT_ONCE:
            hashes |= hashes_of(part)
            part, size = {}, 0
            await asyncio.sleep(0)
    return hashes | hashes_of(part)


def without(catalogue: Catalogue, blocked: Mapping[str, State]) -> Catalogue:
    """The catalogue without these tools; itself if it has none of them."""
    if not blocked:
        return catalogue
    return Catalogue({n: tool for n, tool in catalogue.tools.items() if n not in blocked})


def list_kind(kind: PrimitiveKind) -> ListKind:
    """The kind of list in the lock file."""
    return "prompts" if kind == "prompts" else "templates"
