"""What all connections of a pool share."""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.spec import Era, Limits, ServerSpec
from mcp_workbench.upstream.backoff import Backoff, RetryState
from mcp_workbench.upstream.cache import CatalogueCache
from mcp_workbench.upstream.dial import Processes

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from mcp_workbench.upstream.connection import Connection
    from mcp_workbench.upstream.conversation import Conversation


class PoolContext(msgspec.Struct):
    """Limits, environment, cache and backoff. Outlives every connection."""

    limits: Limits
    environ: Mapping[str, str]
    changed: Callable[["Connection"], None]  # its tools changed
    crowded: Callable[[], bool]  # is limits.calls reached?
    cache: CatalogueCache
    eras: dict[object, Era] = {}  # what each target turned out to speak
    backoff: Backoff = msgspec.field(default_factory=Backoff)
    processes: Processes = msgspec.field(default_factory=Processes)

    # Changes of a server's state, one log line each

    def record_failure(
        self, spec: ServerSpec, reason: str, lived: float, conversation: "Conversation"
    ) -> RetryState:
        """Record that a server exited by itself, and return when it may be started again."""
        answered = conversation.answered if lived else 0
        retry = self.backoff.ended(spec, lived, answered, reason, conversation.closed_until)
        line = retry.log_line(reason)
        if line and not _is_forced_shutdown():
            log.warning("%s: %s", spec.address, line)
        return retry

    def record_ready(self, spec: ServerSpec) -> None:
        """Record that a server takes calls."""
        if self.backoff.of(spec).is_open:
            log.warning("%s: it is back", spec.address)

    def __repr__(self) -> str:
        return "PoolContext()"  # the environment holds secrets


def _is_forced_shutdown() -> bool:
    """Were all servers killed because the user interrupted twice?"""
    from mcp_workbench.transport.guard import guard

    return guard().closed
