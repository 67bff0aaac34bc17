"""What every connection of a pool is given."""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.spec import Era, Limits, ServerSpec
from mcp_workbench.upstream.backoff import Trial, Trials
from mcp_workbench.upstream.cache import Memory
from mcp_workbench.upstream.dial import Processes

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from mcp_workbench.upstream.connection import Connection
    from mcp_workbench.upstream.conversation import Conversation


class Surroundings(msgspec.Struct):
    """Shared by all connections, and outlives each of them."""

    limits: Limits
    environ: Mapping[str, str]
    changed: Callable[["Connection"], None]  # its tools are others than before
    crowded: Callable[[], bool]  # are there as many calls in all as there may be?
    memory: Memory  # of what servers offered
    eras: dict[object, Era] = {}  # what was found out about each target
    trials: Trials = msgspec.field(default_factory=Trials)
    processes: Processes = msgspec.field(default_factory=Processes)

    # One line in the log for each change of a server's state.

    def judge(self, spec: ServerSpec, reason: str, lived: float, talk: "Conversation") -> Trial:
        """A server has ended by itself: when may it be tried again?"""
        answered = talk.answered if lived else 0
        trial = self.trials.ended(spec, lived, answered, reason, talk.closed_until)
        change = trial.change(reason)
        if change and not _are_ended_by_us():
            log.warning("%s: %s", spec.address, change)
        return trial

    def welcome(self, spec: ServerSpec) -> None:
        """A server takes calls."""
        if self.trials.of(spec).is_open:
            log.warning("%s: it is back", spec.address)

    def __repr__(self) -> str:
        return "Surroundings()"  # the environment holds secrets


def _are_ended_by_us() -> bool:
    """Were all servers just killed, because somebody has asked twice?"""
    from mcp_workbench.wire.guard import guard  # loaded with the first server that is a process

    return guard().closed
