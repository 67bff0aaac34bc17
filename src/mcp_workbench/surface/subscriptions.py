"""What a host hears unasked: changes of lists, of resources, and its servers' log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.offers import Owned, addressed
from mcp_workbench.era.ourselves import STAMPS
from mcp_workbench.era.primitives import level_in, level_of, reaches, tagged, untagged
from mcp_workbench.era.revision import LOG_LEVEL_KEY, SUBSCRIPTION_KEY
from mcp_workbench.era.translate import Members, complete, read_members
from mcp_workbench.gateway.primitives import Heard, Offering
from mcp_workbench.surface.owners import Owners
from mcp_workbench.surface.parse import RequestError, read_uri
from mcp_workbench.surface.primitives import Primitives, Request
from mcp_workbench.wire import envelope

if TYPE_CHECKING:
    from mcp_workbench.surface.session import HostSession

UPDATED = "notifications/resources/updated"
VISITED = "notifications/elicitation/complete"
MESSAGE = "notifications/message"
TOOLS_CHANGED = "notifications/tools/list_changed"
_FLAGS = {
    TOOLS_CHANGED: "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
MOST_LISTENED = 1024  # subscriptions of one request to listen


class Listening:
    """One request of a modern host to be told; or all that a legacy host subscribed to."""

    def __init__(self, kinds: frozenset[str] = frozenset()) -> None:
        self.kinds = kinds
        self.resources: dict[Owned, str] = {}  # with the URI by which the host knows each

    def shown(self, changed: Owned) -> str:
        """The URI under which the host hears of a change; empty where it does not want to."""
        for owner, uri in self.resources.items():
            if owner == changed:
                return uri
            inside = owner.address == changed.address and changed.key.startswith(owner.key)
            if inside:  # a part of what was subscribed to
                return changed.key if uri == owner.key else addressed(changed)
        return ""


class _Filter(msgspec.Struct):
    toolsListChanged: bool = False  # noqa: N815 - the wire's word
    promptsListChanged: bool = False  # noqa: N815
    resourcesListChanged: bool = False  # noqa: N815
    resourceSubscriptions: list[str] = []  # noqa: N815


class Subscriptions:
    """Who hears what, in the way of the host's era."""

    def __init__(
        self,
        session: HostSession,
        offering: Offering,
        owners: Owners,
        primitives: Primitives,
    ) -> None:
        self._session = session
        self._offering = offering
        self._owners = owners
        self._primitives = primitives
        self._own = Listening()  # of a legacy host
        self._listening: dict[bytes, Listening] = {}  # of a modern one, by request

    # Requests

    def subscribe(self, id: bytes, members: Members, meta: Members) -> None:
        request = Request(id, members, meta)
        self._session.run(id, self._primitives.answer, request, self._subscribe)

    def unsubscribe(self, id: bytes, members: Members) -> None:
        uri = read_uri(members)
        for owner in [owner for owner, shown in self._own.resources.items() if shown == uri]:
            del self._own.resources[owner]
            self._offering.unsubscribe(owner, self._own)
        self._session.reply(id, b"{}")

    def listen(self, id: bytes, members: Members, meta: Members) -> None:
        request = Request(id, members, meta)
        self._session.run(id, self._primitives.answer, request, self._listen)

    async def _subscribe(self, request: Request) -> None:
        uri = read_uri(request.members)
        owner = await self._owners.require_owner(uri)
        if not await self._offering.subscribe(owner, self._own):
            why = f"[{owner.address}] Error: the server does not tell of changes of its resources"
            raise RequestError(envelope.METHOD_NOT_FOUND, why)
        self._own.resources[owner] = uri
        self._session.reply(request.id, b"{}")

    async def _listen(self, request: Request) -> None:
        wanted = _read_filter(request.members)
        kinds = {flag for flag in _FLAGS.values() if getattr(wanted, flag)}
        listening = Listening(frozenset(kinds))
        try:
            for uri in wanted.resourceSubscriptions:
                await self._watch(uri, listening)
            self._listening[request.id] = listening
        finally:
            if request.id not in self._listening:  # taken back meanwhile
                self._offering.forget(listening)
        honoured: dict[str, Any] = {flag: True for flag in _FLAGS.values() if flag in kinds}
        if listening.resources:
            honoured["resourceSubscriptions"] = list(listening.resources.values())
        params = envelope.encode({"notifications": honoured})
        self._frame(request.id, "notifications/subscriptions/acknowledged", params)

    async def _watch(self, uri: str, listening: Listening) -> None:
        """Hear of this resource if that can be; otherwise it is left out of what is honoured."""
        try:
            owner = await self._owners.owner(uri)
            if owner is not None and await self._offering.subscribe(owner, listening):
                listening.resources[owner] = uri
        except WorkbenchError:
            return

    def ended(self, id: bytes) -> None:
        """The host does not listen any more."""
        listening = self._listening.pop(id, None)
        if listening is not None:
            self._offering.forget(listening)

    def end_all(self) -> None:
        """We are leaving: whoever listens is told that there is nothing more to come."""
        for id in list(self._listening):
            self.ended(id)
            result = envelope.encode({"_meta": {SUBSCRIPTION_KEY: msgspec.Raw(id)}})
            self._session.reply(id, complete(result, STAMPS))

    def close(self) -> None:
        for holder in (self._own, self._session, *self._listening.values()):
            self._offering.forget(holder)

    # What is wanted

    @property
    def lists_kept(self) -> frozenset[str]:
        """The lists of whose changes the host wants to hear."""
        if not self._session.era.modern:
            return frozenset(self._primitives.seen)
        flags = {flag for listening in self._listening.values() for flag in listening.kinds}
        return frozenset(_list_of(method) for method, flag in _FLAGS.items() if flag in flags)

    @property
    def servers(self) -> frozenset[ServerAddress]:
        """Those of whose resources it wants to hear."""
        all_of_them = (self._own, *self._listening.values())
        return frozenset(owner.address for one in all_of_them for owner in one.resources)

    # What servers say

    def heard(self, heard: Heard) -> None:
        if heard.method == MESSAGE:
            self._log(heard)
        elif heard.method == UPDATED:
            self._updated(heard)
        elif heard.method == VISITED:
            self._visited(heard)
        elif heard.place.address.toolbox in self._owners.toolboxes:
            self.list_changed(heard.method)

    def _visited(self, heard: Heard) -> None:
        """An address that a person was sent to has been dealt with; modern hosts ask no more."""
        if self._session.era.modern or heard.asker not in (None, self._session):
            return
        if self._owners.may_use(heard.place.address.toolbox):
            self._session.notify(VISITED, bytes(heard.params))

    def list_changed(self, method: str) -> None:
        """Something that the host sees has changed."""
        if not self._session.era.modern:
            if _list_of(method) in self._primitives.seen:
                self._session.notify(method)
            return
        for id, listening in self._listening.items():
            if _FLAGS[method] in listening.kinds:
                self._frame(id, method, b"{}")

    def _updated(self, heard: Heard) -> None:
        try:
            params = read_members(untagged(heard.params))
            changed = Owned(heard.place.address, read_uri(params))
        except (msgspec.DecodeError, RequestError):
            return
        if shown := self._own.shown(changed):
            params["uri"] = msgspec.Raw(envelope.encode(shown))
            self._session.notify(UPDATED, envelope.encode(params))
        for id, listening in self._listening.items():
            if shown := listening.shown(changed):
                params["uri"] = msgspec.Raw(envelope.encode(shown))
                self._frame(id, UPDATED, envelope.encode(params))

    def _frame(self, id: bytes, method: str, params: bytes) -> None:
        self._session.notify(method, tagged(params, id), id)

    # Logging

    def _log(self, heard: Heard) -> None:
        level, address = level_of(heard.params), heard.place.address
        if self._session.era.modern:
            about = self._asked_to_log(heard, level)
            if about:
                self._session.notify(MESSAGE, bytes(heard.params), about)
            return
        wish = self._legacy_wish(address.toolbox)
        if reaches(level, wish) and self._concerns(heard, address):
            mine = self._under_way_at(heard) if heard.asker is self._session else []
            self._session.notify(MESSAGE, bytes(heard.params), mine[0][0] if mine else b"")

    def _legacy_wish(self, toolbox: str) -> str:
        """Nobody's wish lets pass what servers say by themselves; another's does not count for us."""
        own = self._offering.level_of(self._session)
        return own or ("info" if self._offering.somebody_wants_logs(toolbox) else "debug")

    def _concerns(self, heard: Heard, address: ServerAddress) -> bool:
        if heard.asker is self._session:
            return True
        opened = address.toolbox in self._owners.toolboxes
        return opened and not heard.modern_server  # a modern one speaks of one request alone

    def _asked_to_log(self, heard: Heard, level: str) -> bytes:
        """The oldest request under way there that wants messages of this level."""
        if heard.asker is not self._session:
            return b""
        for id, meta in self._under_way_at(heard):
            if LOG_LEVEL_KEY in meta and reaches(level, level_in(meta)):
                return id
        return b""

    def _under_way_at(self, heard: Heard) -> list[tuple[bytes, Members]]:
        """The requests that it may be about: the one, if that is known."""
        calls = [(id, call) for id, call in self._session.under_way.items() if call is not None]
        if heard.caller is not None:
            return [(id, call.request.meta) for id, call in calls if call is heard.caller]
        there = heard.place.address
        return [(id, call.request.meta) for id, call in calls if call.request.tool.address == there]


def _list_of(method: str) -> str:
    return method.split("/")[1]


def _read_filter(members: Members) -> _Filter:
    try:
        found = msgspec.json.decode(members.get("notifications", b"{}"), type=_Filter)
    except msgspec.DecodeError as error:
        raise RequestError(envelope.INVALID_PARAMS, f"params.notifications: {error}") from None
    if len(found.resourceSubscriptions) > MOST_LISTENED:
        raise RequestError(
            envelope.INVALID_PARAMS, f"more than {MOST_LISTENED} subscriptions at once"
        )
    return found
