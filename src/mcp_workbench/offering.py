"""What servers offer beside tools, as surfaces ask for it: lists of many, a request to one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from mcp_workbench.callers import Caller
from mcp_workbench.core.errors import ServerUnavailable
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.offers import Kind, Owned, Shelf
from mcp_workbench.core.spec import ServerSpec
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.listing import Unlistable
from mcp_workbench.downstream.offers import ANNOUNCED_TTL, Listed
from mcp_workbench.downstream.standing import Heard, Place
from mcp_workbench.downstream.waiters import Loss, Lost
from mcp_workbench.era.ourselves import STAMPS
from mcp_workbench.era.primitives import request_params
from mcp_workbench.era.translate import PAIRS, Members
from mcp_workbench.wire import envelope
from mcp_workbench.wire.tasks import task_scope
from mcp_workbench.workbench import Workbench

__all__ = ["Heard", "Offering", "Shelves"]


class Shelves(msgspec.Struct, frozen=True):
    """One kind of offers of many servers, in their order, and how long that may be kept."""

    shelves: tuple[Shelf, ...]
    ttl: int
    public: bool


class Offering:
    """Prompts, resources and the rest of the servers that a host may see."""

    def __init__(self, workbench: Workbench) -> None:
        self._workbench = workbench

    @property
    def bench(self) -> Workbench:
        return self._workbench

    def specs(self, toolboxes: Iterable[str]) -> list[ServerSpec]:
        boxes = self._workbench.snapshot.toolboxes
        there = (boxes[name] for name in toolboxes if name in boxes)
        return [spec for box in there for spec in box.servers.values()]

    @property
    def toolboxes(self) -> list[str]:
        """All toolboxes of the endpoint."""
        return list(self._workbench.snapshot.toolboxes)

    def addresses(self) -> list[ServerAddress]:
        """All servers of the endpoint."""
        return [spec.address for spec in self.specs(self.toolboxes)]

    def spec(self, address: ServerAddress) -> ServerSpec:
        """Raises NotFound where there is none."""
        return self._workbench.snapshot.toolbox(address.toolbox).server(address.server)

    # Lists

    async def shelves(self, toolboxes: Iterable[str], kind: Kind, *, begin: bool = True) -> Shelves:
        """What the servers of these toolboxes offer, or those of them that are connected already.

        One that can't be asked costs itself alone.
        """
        specs = self.specs(toolboxes)
        bench = self._workbench
        connections = await bench.connections(specs) if begin else bench.live(specs)
        found: dict[ServerAddress, Listed] = {}

        async def list_one(connection: Connection) -> None:
            try:
                found[connection.spec.address] = await connection.offers.listed(kind)
            except (Unlistable, Lost):
                return

        async with task_scope() as listing:
            asking = [listing.start(list_one(c), f"list {c.spec.address}") for c in connections]
            for task in asking:
                await task
        ordered = [(s.address, found[s.address]) for s in specs if s.address in found]
        whole = len(ordered) == len(specs)
        private = bench.snapshot.private  # the same question of another host has another answer
        return Shelves(
            tuple(Shelf(address, listed.offers) for address, listed in ordered),
            min((listed.ttl for _, listed in ordered), default=ANNOUNCED_TTL) if whole else 0,
            bool(ordered) and not private and all(listed.public for _, listed in ordered),
        )

    def known(self, toolboxes: Iterable[str], kind: Kind) -> list[Shelf]:
        """The same as far as it has been read already: nobody is asked."""
        return [
            Shelf(connection.spec.address, listed.offers)
            for connection in self._workbench.live(self.specs(toolboxes))
            if (listed := connection.offers.known(kind)) is not None
        ]

    def owner_of_view(self, uri: str) -> Owned | None:
        """The connected server one of whose visible tools names this `ui://` resource."""
        for connection in self._workbench.live(self.specs(self.toolboxes)):
            tools = connection.catalogue.tools
            for name in connection.visible(connection.spec.tools):
                if uri in _views(tools[name].raw):
                    return Owned(connection.spec.address, uri)
        return None

    def with_resources(self) -> list[ServerAddress]:
        """The connected servers of the endpoint that have any."""
        live = self._workbench.live(self.specs(self.toolboxes))
        return [c.spec.address for c in live if c.offers.declared.resources]

    # Requests

    async def send(self, caller: Caller, method: str, members: Members) -> None:
        """Send a request to the server that its caller names; that is told of the outcome.

        Raises NotFound or ServerUnavailable where it could not be sent.
        """
        spec = self.spec(caller.call.tool.address)
        connection = await self._workbench.connected(spec)
        if full := connection.full():
            raise _failed(connection, "overloaded", full)
        way = _Way(self, method, members)
        pair = PAIRS[caller.call.modern_host, connection.modern]
        talk = connection.conversation
        number = talk.pending.add(caller, time.monotonic() + spec.timeout)
        caller.begun(connection, number, way)
        params = request_params(pair, members, caller.call, number, STAMPS)
        talk.channel.send(envelope.request(number, method, params))
        self._workbench.watch_deadlines()

    # What hosts want for longer

    async def subscribe(self, owner: Owned, holder: object) -> bool:
        """Hear of a resource's changes. False where its server does not tell of any."""
        connection = await self._workbench.connected(self.spec(owner.address))
        if not connection.offers.declared.subscribe:
            return False
        try:
            await connection.offers.wishes.subscribe(owner.key, holder)
        except (Lost, TimeoutError, Unlistable) as error:
            raise _failed(connection, "timeout", str(error) or "no answer") from None
        return True

    def unsubscribe(self, owner: Owned, holder: object) -> None:
        places = self._workbench.standing.unsubscribe_at(owner.address, owner.key, holder)
        self._end([(place, owner.key) for place in places])

    def want_level(self, holder: object, level: str) -> None:
        """Messages from this level on are wanted; legacy servers that can are told at once."""
        self._workbench.standing.want_level(holder, level, self.toolboxes)
        for connection in self._workbench.all_live:
            connection.offers.wishes.heed_level()

    def level_of(self, holder: object) -> str:
        return self._workbench.standing.level_of(holder)

    def somebody_wants_logs(self, toolbox: str) -> bool:
        return bool(self._workbench.standing.level_at(toolbox))

    def forget(self, holder: object) -> None:
        """A host is gone, and with it whatever it alone wanted."""
        self._end(self._workbench.standing.forget(holder))

    def _end(self, gone: list[tuple[Place, str]]) -> None:
        """Servers that are there are told; those that are not will not be asked again."""
        by_place = {c.offers.place: c for c in self._workbench.all_live} if gone else {}
        for place, uri in gone:
            if place in by_place:
                by_place[place].offers.wishes.unsubscribed(uri)


class _Way(msgspec.Struct, frozen=True):
    """How a request was sent, should it have to be sent once more."""

    offering: Offering
    method: str
    members: Members

    def again(self, caller: Caller, loss: Loss) -> asyncio.Task[Any]:
        return self.offering.bench.send_again(caller, loss, self._send)

    async def _send(self, caller: Caller) -> None:
        await self.offering.send(caller, self.method, self.members)


class _Ui(msgspec.Struct, frozen=True):
    resourceUri: str = ""  # noqa: N815 - the wire's word


class _ToolMeta(msgspec.Struct, frozen=True):
    ui: _Ui = _Ui()
    flat: str = msgspec.field(default="", name="ui/resourceUri")  # the older spelling


class _Tool(msgspec.Struct):
    meta: _ToolMeta = msgspec.field(default=_ToolMeta(), name="_meta")


def _views(definition: bytes) -> tuple[str, ...]:
    """The `ui://` resources that a tool's definition names."""
    try:
        meta = msgspec.json.decode(definition, type=_Tool).meta
    except msgspec.DecodeError:
        return ()
    return tuple(uri for uri in (meta.ui.resourceUri, meta.flat) if uri)


def _failed(connection: Connection, code: str, reason: str) -> ServerUnavailable:
    text = f"[{connection.spec.address}] Error: {reason}"
    return ServerUnavailable(code, text, reason=reason)
