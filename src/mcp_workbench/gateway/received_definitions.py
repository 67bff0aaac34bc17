"""Everything that a server defines, as received: what `lock` records and compares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.errors import ServerUnavailable
from mcp_workbench.core.lock_states import ListKind
from mcp_workbench.upstream import reports
from mcp_workbench.upstream.connection import Ready

if TYPE_CHECKING:
    from mcp_workbench.core.catalogue import KnownCatalogue
    from mcp_workbench.core.spec import ServerAddress
    from mcp_workbench.gateway.views import View

# A host that can be asked for everything: some servers then offer more.
CAPABILITIES: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
    "sampling": {"context": {}, "tools": {}},
}


class ReceivedDefinitions(msgspec.Struct, frozen=True):
    """What one server defines, hidden tools included; `reason` says why it could not be read."""

    address: ServerAddress
    reason: str = ""
    program: str = ""  # its name and version
    lists: dict[ListKind, dict[str, bytes]] = {}
    capabilities: tuple[str, ...] = ()  # what it was told that its host can be asked for


async def received_definitions(view: View, address: ServerAddress) -> ReceivedDefinitions:
    """Start the server if needed, and read everything that it defines."""
    spec = view.spec(address)
    try:
        connection = await view.connected(spec)
        await reports.list_offers(connection)
        await connection.refresh()  # some change their lists once they know their host
        state = connection.state
        if not isinstance(state, Ready):
            return ReceivedDefinitions(address, "it exited while it was read")
    except ServerUnavailable as error:
        return ReceivedDefinitions(address, error.reason)
    agreed, primitives = state.agreed, connection.primitives
    lists: dict[ListKind, dict[str, bytes]] = {
        "instructions": _text(agreed.instructions),
        "tools": {name: tool.raw for name, tool in connection.tools.received.tools.items()},
    }
    for kind in ("prompts", "templates"):
        known = primitives.known(kind)
        if known is not None:
            lists[kind] = {key: offer.raw for key, offer in known.offers.items()}
        elif not primitives.offers_any(kind):
            lists[kind] = {}
    program = f"{agreed.name} {agreed.version}".strip()
    return ReceivedDefinitions(address, "", program, lists, connection.tools.capabilities)


def cached_definitions(address: ServerAddress, known: KnownCatalogue) -> ReceivedDefinitions:
    """The same as it was when the server was last connected."""
    lists: dict[ListKind, dict[str, bytes]] = {
        "instructions": _text(known.instructions),
        "tools": {name: tool.raw for name, tool in known.catalogue.tools.items()},
    }
    program = f"{known.server_name} {known.server_version}".strip()
    return ReceivedDefinitions(address, "", program, lists, known.host_capabilities)


def _text(instructions: str) -> dict[str, bytes]:
    return {"": msgspec.json.encode(instructions)} if instructions else {}
