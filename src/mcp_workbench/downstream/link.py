"""What a connection needs of whatever carries its bytes: a child's pipes, or HTTP."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from mcp_workbench.core.spec import ServerSpec
from mcp_workbench.downstream.last_words import last_words
from mcp_workbench.wire.child import LAST_WORDS, Child
from mcp_workbench.wire.stdio import Channel

log = logging.getLogger(__name__)


class Link(Protocol):
    """One open road to a server."""

    @property
    def channel(self) -> Channel: ...

    @property
    def complaints(self) -> tuple[str, ...]:
        """What is wrong with tools that this road can't carry."""
        ...

    def agreed(self, revision: str) -> None:
        """Be told which revision is spoken from here on."""
        ...

    def hold(self, *, held: bool) -> None:
        """Stop listening to the server while a host can't keep up, or go on."""
        ...

    def unsent(self) -> tuple[bytes, ...]:
        """Requests that surely never reached the server, once the road is gone."""
        ...

    async def last_words(self, what: str, *, ended: bool) -> str:
        """`what` happened, with all that is known about why. `ended`: the road itself is gone."""
        ...


class StdioLink:
    """The road to a child of ours."""

    def __init__(self, child: Child, spec: ServerSpec, environ: Mapping[str, str]) -> None:
        self._child = child
        self._spec = spec
        self._environ = environ
        if log.isEnabledFor(logging.INFO):
            from mcp_workbench.downstream.overheard import Overheard  # only where there is a log

            child.overheard = Overheard(spec, environ).heard

    @property
    def group(self) -> int:
        """The process group of the server and all that it has started."""
        return self._child.pid

    @property
    def channel(self) -> Channel:
        return self._child.channel

    @property
    def complaints(self) -> tuple[str, ...]:
        return ()  # a pipe carries everything

    def agreed(self, revision: str) -> None:
        """A pipe is the same in every revision."""

    def hold(self, *, held: bool) -> None:
        self._child.hold(held=held)

    def unsent(self) -> tuple[bytes, ...]:
        return self._child.channel.unsent()

    async def last_words(self, what: str, *, ended: bool) -> str:
        if ended:
            await self._child.gone_within(LAST_WORDS)
        child = self._child
        return last_words(what, child.exit_status(), child.complaints, self._spec, self._environ)
