"""Whether a server can take one more request. Beyond that the answer is no, at once and by name."""

from mcp_workbench.core.spec import Limits
from mcp_workbench.downstream.conversation import Conversation
from mcp_workbench.downstream.surroundings import Surroundings

FEW = 64  # requests that a server may always have in flight, however many others have


def is_full(talk: Conversation, around: Surroundings) -> bool:
    limits, count = around.limits, talk.pending.count
    return (
        count >= limits.calls_per_server
        or talk.channel.backlog > limits.queue_bytes
        or (count >= FEW and around.crowded())
    )


def why_full(talk: Conversation, limits: Limits) -> str:
    count, backlog = talk.pending.count, talk.channel.backlog
    if count >= limits.calls_per_server:
        return f"the server is busy: {count} calls are in flight (limits.callsPerServer)"
    if backlog > limits.queue_bytes:
        return f"the server is busy: {backlog} bytes wait (limits.queueBytes)"
    return f"the workbench is busy: {limits.calls} calls are in flight in all (limits.calls)"
