"""Who may join, and what else is asked of the background workbench."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench import __version__
from mcp_workbench.config.expand import references, strings_of
from mcp_workbench.config.load import load_config
from mcp_workbench.core.errors import ConfigError, NotFound
from mcp_workbench.core.reload import servers_of, settled
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.daemon import words
from mcp_workbench.daemon.basin import new_basin
from mcp_workbench.daemon.host import JoinedHost
from mcp_workbench.daemon.log import BoundedLog
from mcp_workbench.daemon.note import new_note, open_note
from mcp_workbench.daemon.report import About, status_of
from mcp_workbench.gateway.gateway import Gateway
from mcp_workbench.wire.tasks import TaskScope

if TYPE_CHECKING:
    from mcp_workbench.daemon.gate import Visitor

log = logging.getLogger(__name__)

RENEW = "mcp-workbench down, then up, renews it"


class Keeper:
    """All joined hosts, and what is said to whoever comes."""

    def __init__(self, about: About, gateway: Gateway, scope: TaskScope, book: BoundedLog) -> None:
        self._about = about
        self._gateway = gateway
        self._scope = scope
        self._book = book
        self._expected: dict[Visitor, JoinedHost] = {}  # welcomed, their pipes not yet here
        self.hosts: set[JoinedHost] = set()
        self.is_ending = False
        self.down: Callable[[], None] = lambda: None
        self.reload: Callable[[], None] = lambda: None
        self.emptied: Callable[[], None] = lambda: None  # told when the last host has left

    def wished(self, visitor: Visitor, wish: bytes, fields: list[bytes]) -> None:
        if wish == words.JOIN and len(fields) >= 3:
            self._scope.start(self._join(visitor, fields), f"join {visitor.pid}")
        elif wish == words.STATUS:
            status = status_of(
                self._about,
                self._gateway,
                self.hosts,
                self._book.trouble,
                ending=self.is_ending,
            )
            visitor.tell(words.REPORT, msgspec.json.encode(status))
        elif wish == words.DOWN:
            visitor.tell(words.GOING, b"%d" % os.getpid())
            self.down()
        else:
            visitor.tell(words.REFUSED, words.LOUDLY, b"it does not know this wish: " + wish[:20])

    # Joining

    async def _join(self, visitor: Visitor, fields: list[bytes]) -> None:
        # In a thread: a file may be long, or a pipe into which nobody writes.
        waiting = await asyncio.to_thread(self._waiting, self._gateway.snapshot)
        if visitor.is_closed:
            return
        version, config, named, *variables = fields
        toolboxes = tuple(filter(None, named.decode("utf-8", "replace").split(",")))
        try:
            why = self._why_not(version, config, toolboxes, variables) or waiting
        except NotFound as error:
            visitor.tell(words.REFUSED, words.QUIETLY, error.message.encode())
            return
        if why:
            log.info("a host was not taken (pid %d): %s", visitor.pid, why)
            visitor.tell(words.REFUSED, words.LOUDLY, why.encode())
            return
        try:
            self._welcome(visitor, toolboxes)
        except OSError as error:
            visitor.tell(words.REFUSED, words.LOUDLY, (error.strerror or str(error)).encode())

    def _welcome(self, visitor: Visitor, toolboxes: tuple[str, ...]) -> None:
        """Its joiner gets what it needs to go on by itself."""
        fd = new_note(os.path.dirname(self._about.log))  # noqa: PTH120
        try:
            basin = new_basin()
            self._forget_gone()
            self._expected[visitor] = JoinedHost(
                visitor.pid, toolboxes, open_note(fd), basin, visitor.tell
            )
            shared = [fd] if basin is None else [fd, basin.outlet]
            visitor.tell(words.WELCOME, fds=shared)
        finally:
            os.close(fd)

    def _forget_gone(self) -> None:
        """Those who were welcomed, and left before they handed us anything."""
        for visitor in [one for one in self._expected if one.is_closed]:
            self._expected.pop(visitor).forget()

    def _why_not(
        self, version: bytes, config: bytes, toolboxes: tuple[str, ...], variables: list[bytes]
    ) -> str:
        if version != __version__.encode():
            other = version.decode("utf-8", "replace")
            return f"it is version {__version__}, this is {other}: {RENEW}"
        if config != os.fsencode(self._about.config):
            return f"it serves {self._about.config}"
        if self.is_ending:
            return "it is ending"
        snapshot = self._gateway.snapshot.narrowed(toolboxes)
        return _other_values(snapshot, _environment(variables))

    def _waiting(self, snapshot: Snapshot) -> str:
        """What of the file takes effect at the next start only, so that hosts alone have it already."""
        try:
            wanted = load_config(self._about.config)
        except ConfigError:  # what was loaded before it still holds, and hosts are told so
            return ""
        _, later = settled(snapshot, wanted)
        keys = [key for key in later if key != "http"]
        return (
            f"{', '.join(keys)} has changed in the file since it was started: {RENEW}"
            if keys
            else ""
        )

    def handed(self, visitor: Visitor, fds: list[int]) -> None:
        """The pipes of a host that was welcomed."""
        host = self._expected.pop(visitor, None)
        if host is None or len(fds) != 2 or self.is_ending:
            for fd in fds:
                os.close(fd)
            if host is not None:
                host.forget()
            visitor.close()  # its joiner goes on by itself
            return
        visitor.host = host
        self.hosts.add(host)
        log.info("a host has joined (pid %d); there are %d", host.pid, len(self.hosts))
        self._scope.start(self._serve(host, visitor, *fds), f"host {host.pid}")

    async def _serve(self, host: JoinedHost, visitor: Visitor, own_in: int, own_out: int) -> None:
        try:
            await host.serve(self._gateway.view, own_in, own_out)
        finally:
            visitor.close()
            self.hosts.discard(host)
            log.info("a host has left (pid %d); there are %d", host.pid, len(self.hosts))
            if not self.hosts:
                self.emptied()

    async def hand_all_back(self, seconds: float, at_once: asyncio.Event) -> None:
        """End: every host's joiner goes on with it by itself."""
        self.is_ending = True
        hosts = tuple(self.hosts)
        for host in hosts:
            host.hand_back(seconds)
        while self.hosts:
            try:
                async with asyncio.timeout(0.05):
                    await at_once.wait()
            except TimeoutError:
                continue
            for host in self.hosts:
                host.gone()
            await asyncio.sleep(0.01)


def _environment(variables: list[bytes]) -> dict[str, str]:
    pairs = (os.fsdecode(variable).partition("=") for variable in variables)
    return {name: value for name, _, value in pairs}


def _other_values(snapshot: Snapshot, theirs: Mapping[str, str]) -> str:
    """Which variables of these servers have another value where the host is. Unset there is fine:
    programs that were not started from a shell have few."""
    texts = (text for spec in servers_of(snapshot).values() for _, text in strings_of(spec.target))
    names = dict.fromkeys(name for text in texts for name in references(text))
    other = [name for name in names if theirs.get(name, "") not in ("", os.environ.get(name))]
    return f"variables have another value here: {', '.join(other)}" if other else ""
