"""Catalogue cache: what servers offered when last connected, to this process or another of this user.

    cache.recall(spec)        -> Known | None   what is known; no server is started
    cache.note(spec, known)                     a server is ready: store what it offers
    cache.held(address)       -> Known | None   like `recall`, but reads no file

`recall` reads a small file the first time it is called for a server. `note` never waits: a thread
writes the file. Neither raises; an unusable folder is logged once, and then nothing is cached beyond
this process. `MCP_WORKBENCH_CACHE=off` has the same effect without the warning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.config.expand import Unexpandable, expand_target
from mcp_workbench.core.catalogue import KnownCatalogue, tool_change
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import ServerSpec
from mcp_workbench.timing import pause

if TYPE_CHECKING:
    import asyncio  # not needed to recall

    from mcp_workbench.core.catalogue import OpenedServer
    from mcp_workbench.upstream.cache_files import CacheLimits, CatalogueFiles

SWITCH = "MCP_WORKBENCH_CACHE"
SETTLE = pause(1.0)  # seconds before writing, so that the first calls do not share the processor
_OFF = ("off", "0", "no", "false")

log = logging.getLogger(__name__)


class CatalogueCache:
    """What servers offered, in memory and on disk; one cache per pool."""

    def __init__(self, environ: Mapping[str, str], limits: CacheLimits | None = None) -> None:
        self._environ = environ
        self._limits = limits
        self._held: dict[ServerAddress, KnownCatalogue] = {}
        self._files: CatalogueFiles | None = None
        self._unwritten: dict[
            ServerAddress, tuple[ServerSpec, KnownCatalogue, KnownCatalogue | None, bool]
        ] = {}
        self._writing: asyncio.Future[None] | None = None
        self._soon: asyncio.TimerHandle | None = None
        self._warned: set[object] = set()

    def held(self, address: ServerAddress) -> KnownCatalogue | None:
        """What this process knows of the server; reads no file."""
        return self._held.get(address)

    def recall(self, spec: ServerSpec) -> KnownCatalogue | None:
        """What this server offered when it was last connected, by us or by another process."""
        known = self._held.get(spec.address)
        if known is None and self._is_enabled and _can_start(spec, self._environ):
            known = self._read(spec)
            if known is not None:
                self._held[spec.address] = known
        return known

    def last_list(self, spec: ServerSpec, reason: str = "") -> OpenedServer | None:
        """The tools it had, as its toolbox shows them; `reason` says why it is not connected."""
        known = self.recall(spec)
        return None if known is None else known.opened(spec, time.time(), reason)

    def note(self, spec: ServerSpec, known: KnownCatalogue, *, expected: bool = False) -> None:
        """Store what a server offers. A change is a warning in the log unless `expected`."""
        before = self._held.get(spec.address)
        known = msgspec.structs.replace(known, at=time.time())
        self._held[spec.address] = known
        if not self._is_enabled:
            return
        if waiting := self._unwritten.get(spec.address):  # compare with what was there before that
            before, expected = waiting[2], waiting[3] and expected
        self._unwritten[spec.address] = (spec, known, before, expected)
        if self._writing is None and self._soon is None:
            self._soon = _loop().call_later(SETTLE, self._start_writing)

    def end(self) -> None:
        """Write what is not yet written. The end of the loop waits for the thread."""
        if self._soon is not None:
            self._soon.cancel()
            self._start_writing()

    def forget(self, addresses: Iterable[ServerAddress]) -> None:
        """These addresses belong to other servers from now on."""
        for address in addresses:
            self._held.pop(address, None)

    @property
    def _is_enabled(self) -> bool:
        return self._environ.get(SWITCH, "").lower() not in _OFF

    def _open(self) -> CatalogueFiles:
        if self._files is None:
            from mcp_workbench.upstream.cache_files import CatalogueFiles  # lazy: start-up time

            self._files = CatalogueFiles(self._environ, self._limits)
        return self._files

    # Reading

    def _read(self, spec: ServerSpec) -> KnownCatalogue | None:
        from mcp_workbench.upstream.cache_files import CorruptFile  # lazy: start-up time

        try:
            return self._open().read(spec)
        except CorruptFile as error:
            self._warn(
                spec.target,
                f"{spec.address}: what it offered last time can't be read and is not used: {error}",
            )
            return None

    # Writing, in a thread

    def _start_writing(self) -> None:
        self._soon = None
        with suppress(RuntimeError):  # the loop is closing
            self._writing = _loop().run_in_executor(None, self._write_all)
            self._writing.add_done_callback(self._written)

    def _written(self, done: asyncio.Future[None]) -> None:
        self._writing = None
        if self._unwritten:  # noted meanwhile
            self._start_writing()

    def _write_all(self) -> None:
        """One by one, so that the last note wins."""
        while self._unwritten:
            _, (spec, known, before, expected) = self._unwritten.popitem()
            stored = self._read(spec)
            self._log_change(spec, known, before or stored, expected=expected)
            self._write(spec, known, stored)

    def _write(
        self, spec: ServerSpec, known: KnownCatalogue, stored: KnownCatalogue | None
    ) -> None:
        from mcp_workbench.upstream.cache_files import NotCached  # lazy: start-up time

        if stored is not None:
            change = tool_change(stored, known) or stored.change
            offers = {**stored.offers, **known.offers}  # some may not have been listed this time
            known = msgspec.structs.replace(known, change=change, offers=offers)
        try:
            self._open().write(spec, known)
        except NotCached as reason:
            self._open().drop(spec)  # the file would be out of date
            log.info("%s: what it offers is not kept: %s", spec.address, reason)
        except OSError as error:
            reason = error.strerror or str(error)
            self._warn("write", f"what servers offer can't be kept for the next start: {reason}")

    def _log_change(
        self,
        spec: ServerSpec,
        known: KnownCatalogue,
        before: KnownCatalogue | None,
        *,
        expected: bool,
    ) -> None:
        change = tool_change(before, known) if before is not None else None
        if change is not None:
            since = time.strftime("%Y-%m-%d %H:%M", time.localtime(change.since))
            level = logging.INFO if expected else logging.WARNING
            log.log(level, "%s: tools changed since %s: %s", spec.address, since, change)

    def _warn(self, about: object, text: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            log.warning(text)


def _loop() -> asyncio.AbstractEventLoop:
    from asyncio import get_running_loop  # loaded already where a loop runs

    return get_running_loop()


def _can_start(spec: ServerSpec, environ: Mapping[str, str]) -> bool:
    """A server with an unset variable can't start, so its cache is not shown."""
    try:
        expand_target(spec, environ)
    except Unexpandable:
        return False
    return True
