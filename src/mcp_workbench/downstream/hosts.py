"""Whom a server may ask, as seen from its connection."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from mcp_workbench.core.names import ServerAddress
from mcp_workbench.downstream.waiters import Waiter
from mcp_workbench.era.questions import Answered, Question
from mcp_workbench.era.translate import Members


class Host(Protocol):
    """The host that owns a connection: whatever its server asks goes there."""

    @property
    def key(self) -> Hashable:
        """Hosts with the same key are the same to a server."""
        ...

    @property
    def owner(self) -> Hashable:
        """Who is behind it; hosts of one owner may have different keys."""
        ...

    @property
    def takes_turns(self) -> bool:
        """Does it come with one request and go, so that others may have its connections after it?"""
        ...

    @property
    def leases(self) -> dict[ServerAddress, Any]:
        """The connections that it has until it goes."""
        ...

    def asking_capabilities(self) -> Members:
        """What it may be asked for, as it declared it."""
        ...

    def ask(
        self, question: Question, caller: Waiter | None, answered: Answered
    ) -> Callable[[], None]:
        """Put a question that came during this call, if any; what is returned withdraws it."""
        ...
