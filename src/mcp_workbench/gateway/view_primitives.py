"""Prompts, resources and templates of a view: lists of many servers, and which server owns a URI."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable

import msgspec

from mcp_workbench.core.apps import pages
from mcp_workbench.core.catalogue import Catalogue
from mcp_workbench.core.errors import ServerUnavailable
from mcp_workbench.core.primitive_names import (
    PrimitiveKind,
    PrimitiveRef,
    ServerPrimitives,
    read_primitives,
)
from mcp_workbench.core.spec import ServerAddress, ServerSpec, ToolFilter
from mcp_workbench.gateway.server_extensions import may_have_skills
from mcp_workbench.gateway.views import View
from mcp_workbench.timing import pause
from mcp_workbench.transport.tasks import task_scope
from mcp_workbench.upstream.connection import Connection
from mcp_workbench.upstream.conversation import RequestFailed
from mcp_workbench.upstream.primitives import ANNOUNCED_TTL, PrimitiveList
from mcp_workbench.upstream.subscriptions import ConnectionId, NoRoom, ServerNotification
from mcp_workbench.upstream.tool_list import Unlistable

__all__ = ["ListedPrimitives", "ServerNotification", "ViewPrimitives"]


ABSENT = pause(30.0)  # seconds for which an unreachable server is not asked whether it owns a URI


class ListedPrimitives(msgspec.Struct, frozen=True):
    """One kind of primitives of many servers, in their order, and how long hosts may cache it."""

    servers: tuple[ServerPrimitives, ...]
    ttl: int
    public: bool


class ViewPrimitives:
    """Prompts, resources and templates of the servers that a host may see."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._app_views: dict[ServerAddress, tuple[Catalogue, ToolFilter, frozenset[str]]] = {}
        self._absent: dict[ServerAddress, float] = {}  # when it was last unreachable

    def specs(self, toolboxes: Iterable[str]) -> list[ServerSpec]:
        boxes = self._view.snapshot.toolboxes
        known = (boxes[name] for name in toolboxes if name in boxes)
        return [spec for box in known for spec in box.servers.values()]

    @property
    def toolboxes(self) -> list[str]:
        """All toolboxes of the view."""
        return list(self._view.snapshot.toolboxes)

    def addresses(self) -> list[ServerAddress]:
        """All servers of the view."""
        return [spec.address for spec in self.specs(self.toolboxes)]

    def may_have_skills(self, address: ServerAddress) -> bool:
        """Whether this server is visible, and has skills as far as anybody knows."""
        spec = self._view.snapshot.find(address)
        return spec is not None and may_have_skills(self._view, spec)

    # Lists

    async def listed(
        self, toolboxes: Iterable[str], kind: PrimitiveKind, *, connect: bool = True
    ) -> ListedPrimitives:
        """What the servers of these toolboxes list; without `connect`, those that are connected.

        A server that can't be reached is left out.
        """
        specs = self.specs(toolboxes)
        if kind == "skills":
            specs = [spec for spec in specs if may_have_skills(self._view, spec)]
        view = self._view
        connections = await view.connections(specs) if connect else view.live(specs)
        if kind == "skills":  # now it is known which have none
            specs = [spec for spec in specs if may_have_skills(view, spec)]
            connections = [one for one in connections if one.primitives.offers_any(kind)]
        listed: dict[ServerAddress, PrimitiveList] = {}

        async def list_one(connection: Connection) -> None:
            try:
                listed[connection.spec.address] = await connection.primitives.listed(kind)
            except (Unlistable, RequestFailed):
                return

        async with task_scope() as scope:
            tasks = [scope.start(list_one(c), f"list {c.spec.address}") for c in connections]
            for task in tasks:
                await task
        if connect:
            now = time.monotonic()
            self._absent.update((s.address, now) for s in specs if s.address not in listed)
        ordered = [(s.address, listed[s.address]) for s in specs if s.address in listed]
        whole = len(ordered) == len(specs)
        private = view.snapshot.private  # another host may get another list
        return ListedPrimitives(
            tuple(ServerPrimitives(address, answer.offers) for address, answer in ordered),
            min((answer.ttl for _, answer in ordered), default=ANNOUNCED_TTL) if whole else 0,
            bool(ordered) and not private and all(answer.public for _, answer in ordered),
        )

    # Who owns a resource

    def owner(
        self, uri: str, toolboxes: Iterable[str], *, asked: bool = False
    ) -> PrimitiveRef | None:
        """The first of these servers that lists this resource, or has a visible tool that names it.

        None if it is not known whether an earlier server does: a later one must not answer for it. Once
        all were `asked`, the cached list counts for those that did not answer.
        """
        for spec in self.specs(toolboxes):
            claims = self._claims(spec, uri)
            if claims is None and asked:
                claims = self._claimed_before(spec, uri)
            if claims is None:
                return None
            if claims:
                return PrimitiveRef(spec.address, uri)
        return None

    def _claims(self, spec: ServerSpec, uri: str) -> bool | None:
        """Whether the server has this resource; None: it has to be asked."""
        live = self._view.live([spec])
        if not live:
            is_recent = time.monotonic() - self._absent.get(spec.address, -ABSENT) < ABSENT
            return self._claimed_before(spec, uri) if is_recent else None
        (connection,) = live
        if uri in self._views_of(spec, connection.catalogue):
            return True
        offers = connection.primitives
        if not offers.offers_any("resources"):
            return False
        if (listed := offers.known("resources")) is not None:
            return uri in listed.offers
        return self._claimed_before(spec, uri) if offers.is_silent("resources") else None

    def _claimed_before(self, spec: ServerSpec, uri: str) -> bool:
        """Whether the cached lists of the server have this resource, or a tool that names it."""
        known = self._view.remembered(spec)
        if known is None:
            return False
        raws = [msgspec.Raw(raw) for raw in known.offers.get("resources", ())]
        views = self._views_of(spec, known.catalogue)
        return uri in views or uri in read_primitives("resources", raws)

    def _views_of(self, spec: ServerSpec, catalogue: Catalogue) -> frozenset[str]:
        """The resources that its visible tools name as their views; computed once for each list."""
        known = self._app_views.get(spec.address)
        if known is None or known[0] is not catalogue or known[1] is not spec.tools:
            shown = [tool for name, tool in catalogue.tools.items() if spec.tools.shows(name)]
            views = frozenset(uri for tool in shown for uri in pages(tool.raw))
            known = self._app_views[spec.address] = (catalogue, spec.tools, views)
        return known[2]

    def only_owner(self, uri: str, toolboxes: Iterable[str]) -> PrimitiveRef | None:
        """The only connected server with resources, if no other server of these can have any."""
        specs = self.specs(toolboxes)
        connected = {connection.spec.address for connection in self._view.live(specs)}
        if any(self._may_have_resources(spec) for spec in specs if spec.address not in connected):
            return None
        live = self._view.live(self.specs(self.toolboxes))
        owners = [c.spec.address for c in live if c.primitives.declared.resources]
        return PrimitiveRef(owners[0], uri) if len(owners) == 1 else None

    def _may_have_resources(self, spec: ServerSpec) -> bool:
        known = self._view.remembered(spec)
        return known is None or known.capabilities.get("resources", False)

    # Subscriptions and log levels

    async def subscribe(self, owner: PrimitiveRef, holder: object) -> bool:
        """Subscribe to a resource. Returns False if its server is modern and has no subscriptions.

        A legacy server is asked whatever it declares: version 1 of the Python SDK declares none, and has them.
        """
        connection = await self._view.connected(self._view.spec(owner.address))
        if connection.modern and not connection.primitives.declared.subscribe:
            return False
        try:
            subscriptions = connection.primitives.subscriptions
            await subscriptions.subscribe(owner.key, holder, self._view.principal)
        except (RequestFailed, TimeoutError, Unlistable) as error:
            raise _failed(connection, "timeout", str(error) or "no answer") from None
        except NoRoom as error:
            raise _failed(connection, "overloaded", str(error)) from None
        return True

    def unsubscribe(self, owner: PrimitiveRef, holder: object) -> None:
        places = self._view.gateway.pool.subscriptions.unsubscribe_at(
            owner.address, owner.key, holder
        )
        self._end([(place, owner.key) for place in places])

    def want_level(self, holder: object, level: str) -> None:
        """Set the log level that `holder` wants; legacy servers get it at once."""
        self._view.gateway.pool.subscriptions.want_level(holder, level, self.toolboxes)
        for connection in self._view.gateway.connected:
            connection.primitives.subscriptions.apply_level()

    def level_of(self, holder: object) -> str:
        return self._view.gateway.pool.subscriptions.level_of(holder)

    def somebody_wants_logs(self, toolbox: str) -> bool:
        return bool(self._view.gateway.pool.subscriptions.level_at(toolbox))

    def forget(self, holder: object) -> None:
        """Drop the subscriptions and the log level of a host that has gone."""
        self._end(self._view.gateway.pool.subscriptions.forget(holder))

    def _end(self, gone: list[tuple[ConnectionId, str]]) -> None:
        """Unsubscribe at the servers that are connected; others are not subscribed to again."""
        by_place = (
            {c.primitives.connection_id: c for c in self._view.gateway.connected} if gone else {}
        )
        uris: defaultdict[ConnectionId, list[str]] = defaultdict(list)
        for place, uri in gone:
            uris[place].append(uri)
        for place in uris.keys() & by_place.keys():
            by_place[place].primitives.subscriptions.unsubscribed(uris[place])


def _failed(connection: Connection, code: str, reason: str) -> ServerUnavailable:
    text = f"[{connection.spec.address}] Error: {reason}"
    return ServerUnavailable(code, text, reason=reason)
