"""What servers offered when they were last connected, in this process or in any other of this user.

    memory.recall(spec)        -> Known | None   what is known without asking; nothing is started
    memory.note(spec, known)                     a server was met and listed: remember that
    memory.held(address)       -> Known | None   the same as `recall`, as far as it needs no file

`recall` reads a small file the first time that it is asked about a server. `note` never waits: a file
is written by a thread. Neither raises; a folder that can't be used costs one warning, and nothing is
remembered beyond this process. `MCP_WORKBENCH_CACHE=off` has the same effect without the warning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.config.expand import Unexpandable, expand_target
from mcp_workbench.core.known import Known, compared
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import ServerSpec
from mcp_workbench.timing import pause

if TYPE_CHECKING:
    import asyncio  # whoever only recalls needs no loop

    from mcp_workbench.core.reports import OpenedServer
    from mcp_workbench.upstream.cache_files import Bounds, CatalogueFiles

SWITCH = "MCP_WORKBENCH_CACHE"
SETTLE = pause(
    1.0
)  # seconds: whoever opened the server has its first answers before a thread works
_OFF = ("off", "0", "no", "false")

log = logging.getLogger(__name__)


class Memory:
    """One for all connections of a workbench. Files are touched only when it is asked or told."""

    def __init__(self, environ: Mapping[str, str], bounds: Bounds | None = None) -> None:
        self._environ = environ
        self._bounds = bounds
        self._held: dict[ServerAddress, Known] = {}
        self._files: CatalogueFiles | None = None
        self._unwritten: dict[ServerAddress, tuple[ServerSpec, Known, Known | None, bool]] = {}
        self._writing: asyncio.Future[None] | None = None
        self._soon: asyncio.TimerHandle | None = None
        self._warned: set[object] = set()

    def held(self, address: ServerAddress) -> Known | None:
        """What is known of the server here; no file is read for it."""
        return self._held.get(address)

    def recall(self, spec: ServerSpec) -> Known | None:
        """What this server offered when it was last connected, by us or by another process."""
        found = self._held.get(spec.address)
        if found is None and self._wanted and _can_start(spec, self._environ):
            found = self._read(spec)
            if found is not None:
                self._held[spec.address] = found
        return found

    def last_list(self, spec: ServerSpec, why: str = "") -> OpenedServer | None:
        """The tools that it had, as its toolbox shows them; `why` says what is wrong with it now."""
        known = self.recall(spec)
        return None if known is None else known.opened(spec, time.time(), why)

    def note(self, spec: ServerSpec, known: Known, *, expected: bool = False) -> None:
        """Remember what a server has just said. A change is news unless it was `expected`."""
        before = self._held.get(spec.address)
        known = msgspec.structs.replace(known, at=time.time())
        self._held[spec.address] = known
        if not self._wanted:
            return
        if waiting := self._unwritten.get(spec.address):  # what was before that one counts
            before, expected = waiting[2], waiting[3] and expected
        self._unwritten[spec.address] = (spec, known, before, expected)
        if self._writing is None and self._soon is None:
            self._soon = _loop().call_later(SETTLE, self._start_writing)

    def end(self) -> None:
        """Nothing more will be noted: write what is not yet written. The loop's end waits for that."""
        if self._soon is not None:
            self._soon.cancel()
            self._start_writing()

    def forget(self, addresses: Iterable[ServerAddress]) -> None:
        """Other servers stand at these addresses from now on."""
        for address in addresses:
            self._held.pop(address, None)

    @property
    def _wanted(self) -> bool:
        return self._environ.get(SWITCH, "").lower() not in _OFF

    def _open(self) -> CatalogueFiles:
        if self._files is None:
            from mcp_workbench.upstream.cache_files import CatalogueFiles  # not at the start

            self._files = CatalogueFiles(self._environ, self._bounds)
        return self._files

    # Reading

    def _read(self, spec: ServerSpec) -> Known | None:
        from mcp_workbench.upstream.cache_files import Damaged  # not at the start

        try:
            return self._open().read(spec)
        except Damaged as error:
            self._warn(
                spec.target,
                f"{spec.address}: what it offered last time can't be read and is not used: {error}",
            )
            return None

    # Writing, in a thread

    def _start_writing(self) -> None:
        self._soon = None
        with suppress(RuntimeError):  # the program ends, and takes no more work
            self._writing = _loop().run_in_executor(None, self._write_all)
            self._writing.add_done_callback(self._written)

    def _written(self, done: asyncio.Future[None]) -> None:
        self._writing = None
        if self._unwritten:  # noted in the last moment
            self._start_writing()

    def _write_all(self) -> None:
        """One by one, so that what is noted later is written later."""
        while self._unwritten:
            _, (spec, known, before, expected) = self._unwritten.popitem()
            kept = self._read(spec)
            self._tell_change(spec, known, before or kept, expected=expected)
            self._write(spec, known, kept)

    def _write(self, spec: ServerSpec, known: Known, kept: Known | None) -> None:
        from mcp_workbench.upstream.cache_files import Unkept  # not at the start

        if kept is not None:
            change = compared(kept, known) or kept.change
            offers = {**kept.offers, **known.offers}  # nobody may have asked for those this time
            known = msgspec.structs.replace(known, change=change, offers=offers)
        try:
            self._open().write(spec, known)
        except Unkept as why:
            self._open().drop(spec)  # what is there would be out of date
            log.info("%s: what it offers is not kept: %s", spec.address, why)
        except OSError as error:
            reason = error.strerror or str(error)
            self._warn("write", f"what servers offer can't be kept for the next start: {reason}")

    def _tell_change(
        self, spec: ServerSpec, known: Known, before: Known | None, *, expected: bool
    ) -> None:
        change = compared(before, known) if before is not None else None
        if change is not None:
            since = time.strftime("%Y-%m-%d %H:%M", time.localtime(change.since))
            level = logging.INFO if expected else logging.WARNING
            log.log(level, "%s: tools changed since %s: %s", spec.address, since, change)

    def _warn(self, about: object, text: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            log.warning(text)


def _loop() -> asyncio.AbstractEventLoop:
    from asyncio import get_running_loop  # loaded already, if there is one

    return get_running_loop()


def _can_start(spec: ServerSpec, environ: Mapping[str, str]) -> bool:
    """One with a variable that has no value is not there, whatever it once offered."""
    try:
        expand_target(spec, environ)
    except Unexpandable:
        return False
    return True
