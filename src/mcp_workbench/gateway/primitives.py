"""What servers offer beside tools, as surfaces ask for it: lists of many, a request to one."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from mcp_workbench.core.catalogue import Catalogue
from mcp_workbench.core.errors import ServerUnavailable
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.offers import Kind, Owned, Shelf, read_offers
from mcp_workbench.core.spec import ServerSpec, ToolFilter
from mcp_workbench.downstream.connection import Connection
from mcp_workbench.downstream.listing import Unlistable
from mcp_workbench.downstream.offers import ANNOUNCED_TTL, Listed
from mcp_workbench.downstream.standing import Heard, Place
from mcp_workbench.downstream.waiters import Lost
from mcp_workbench.gateway.views import View
from mcp_workbench.timing import pause
from mcp_workbench.wire.tasks import task_scope

__all__ = ["Heard", "Offering", "Shelves"]


ABSENT = pause(30.0)  # seconds for which a server that can't be reached is not asked whose a URI is


class Shelves(msgspec.Struct, frozen=True):
    """One kind of offers of many servers, in their order, and how long that may be kept."""

    shelves: tuple[Shelf, ...]
    ttl: int
    public: bool


class Offering:
    """Prompts, resources and the rest of the servers that a host may see."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._app_views: dict[ServerAddress, tuple[Catalogue, ToolFilter, frozenset[str]]] = {}
        self._absent: dict[ServerAddress, float] = {}  # when it was last asked, and did not answer

    def specs(self, toolboxes: Iterable[str]) -> list[ServerSpec]:
        boxes = self._view.snapshot.toolboxes
        there = (boxes[name] for name in toolboxes if name in boxes)
        return [spec for box in there for spec in box.servers.values()]

    @property
    def toolboxes(self) -> list[str]:
        """All toolboxes of the endpoint."""
        return list(self._view.snapshot.toolboxes)

    def addresses(self) -> list[ServerAddress]:
        """All servers of the endpoint."""
        return [spec.address for spec in self.specs(self.toolboxes)]

    # Lists

    async def shelves(self, toolboxes: Iterable[str], kind: Kind, *, begin: bool = True) -> Shelves:
        """What the servers of these toolboxes offer, or those of them that are connected already.

        One that can't be asked costs itself alone.
        """
        specs = self.specs(toolboxes)
        view = self._view
        connections = await view.connections(specs) if begin else view.live(specs)
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
        if begin:
            now = time.monotonic()
            self._absent.update((s.address, now) for s in specs if s.address not in found)
        ordered = [(s.address, found[s.address]) for s in specs if s.address in found]
        whole = len(ordered) == len(specs)
        private = view.snapshot.private  # the same question of another host has another answer
        return Shelves(
            tuple(Shelf(address, listed.offers) for address, listed in ordered),
            min((listed.ttl for _, listed in ordered), default=ANNOUNCED_TTL) if whole else 0,
            bool(ordered) and not private and all(listed.public for _, listed in ordered),
        )

    # Whose a resource is

    def owner(self, uri: str, toolboxes: Iterable[str], *, asked: bool = False) -> Owned | None:
        """The first of these servers that lists this resource, or has a visible tool that names it.

        Nobody's where it is not known yet whether an earlier one does: a later one must not answer for
        it. Once all were `asked`, those that did not answer have what they had when they last did.
        """
        for spec in self.specs(toolboxes):
            claims = self._claims(spec, uri)
            if claims is None and asked:
                claims = self._claimed_before(spec, uri)
            if claims is None:
                return None
            if claims:
                return Owned(spec.address, uri)
        return None

    def _claims(self, spec: ServerSpec, uri: str) -> bool | None:
        """None: it has to be asked."""
        live = self._view.live([spec])
        if not live:
            is_recent = time.monotonic() - self._absent.get(spec.address, -ABSENT) < ABSENT
            return self._claimed_before(spec, uri) if is_recent else None
        (connection,) = live
        if uri in self._views_of(spec, connection.catalogue):
            return True
        offers = connection.offers
        if not offers.offers_any("resources"):
            return False
        if (listed := offers.known("resources")) is not None:
            return uri in listed.offers
        return self._claimed_before(spec, uri) if offers.is_silent("resources") else None

    def _claimed_before(self, spec: ServerSpec, uri: str) -> bool:
        """Did it list this resource, or a tool that names it, when it was last asked?"""
        known = self._view.remembered(spec)
        if known is None:
            return False
        raws = [msgspec.Raw(raw) for raw in known.offers.get("resources", ())]
        views = self._views_of(spec, known.catalogue)
        return uri in views or uri in read_offers("resources", raws)

    def _views_of(self, spec: ServerSpec, catalogue: Catalogue) -> frozenset[str]:
        """The resources that its visible tools name as their views; found out once for a list."""
        known = self._app_views.get(spec.address)
        if known is None or known[0] is not catalogue or known[1] is not spec.tools:
            shown = [tool for name, tool in catalogue.tools.items() if spec.tools.shows(name)]
            views = frozenset(uri for tool in shown for uri in _views(tool.raw))
            known = self._app_views[spec.address] = (catalogue, spec.tools, views)
        return known[2]

    def only_owner(self, uri: str, toolboxes: Iterable[str]) -> Owned | None:
        """The one connected server that has resources, if none of these can have others."""
        specs = self.specs(toolboxes)
        there = {connection.spec.address for connection in self._view.live(specs)}
        if any(self._may_have_resources(spec) for spec in specs if spec.address not in there):
            return None
        live = self._view.live(self.specs(self.toolboxes))
        having = [c.spec.address for c in live if c.offers.declared.resources]
        return Owned(having[0], uri) if len(having) == 1 else None

    def _may_have_resources(self, spec: ServerSpec) -> bool:
        known = self._view.remembered(spec)
        return known is None or known.capabilities.get("resources", False)

    # What hosts want for longer

    async def subscribe(self, owner: Owned, holder: object) -> bool:
        """Hear of a resource's changes. False where its server does not tell of any."""
        connection = await self._view.connected(self._view.spec(owner.address))
        if not connection.offers.declared.subscribe:
            return False
        try:
            await connection.offers.wishes.subscribe(owner.key, holder)
        except (Lost, TimeoutError, Unlistable) as error:
            raise _failed(connection, "timeout", str(error) or "no answer") from None
        return True

    def unsubscribe(self, owner: Owned, holder: object) -> None:
        places = self._view.gateway.pool.standing.unsubscribe_at(owner.address, owner.key, holder)
        self._end([(place, owner.key) for place in places])

    def want_level(self, holder: object, level: str) -> None:
        """Messages from this level on are wanted; legacy servers that can are told at once."""
        self._view.gateway.pool.standing.want_level(holder, level, self.toolboxes)
        for connection in self._view.gateway.connected:
            connection.offers.wishes.heed_level()

    def level_of(self, holder: object) -> str:
        return self._view.gateway.pool.standing.level_of(holder)

    def somebody_wants_logs(self, toolbox: str) -> bool:
        return bool(self._view.gateway.pool.standing.level_at(toolbox))

    def forget(self, holder: object) -> None:
        """A host is gone, and with it whatever it alone wanted."""
        self._end(self._view.gateway.pool.standing.forget(holder))

    def _end(self, gone: list[tuple[Place, str]]) -> None:
        """Servers that are there are told; those that are not will not be asked again."""
        by_place = {c.offers.place: c for c in self._view.gateway.connected} if gone else {}
        for place, uri in gone:
            if place in by_place:
                by_place[place].offers.wishes.unsubscribed(uri)


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
