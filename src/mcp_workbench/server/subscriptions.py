"""Notifications to a host: changed lists, updated resources, and log messages of servers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.primitive_names import PrimitiveRef, addressed_like
from mcp_workbench.core.raw_json import Members
from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.gateway.view_primitives import ServerNotification, ViewPrimitives
from mcp_workbench.protocol.handshake import LOG_LEVEL_KEY, STAMPS, SUBSCRIPTION_KEY
from mcp_workbench.protocol.primitive_messages import level_in, reaches, tagged, untagged
from mcp_workbench.protocol.translation import complete
from mcp_workbench.server.parse import RequestError, read_uri
from mcp_workbench.server.primitive_requests import (
    LocalRequest,
    PrimitiveOwners,
    PrimitiveRequests,
)
from mcp_workbench.server.session_tools import LIST_CHANGED
from mcp_workbench.transport import jsonrpc

if TYPE_CHECKING:
    from mcp_workbench.server.session import HostSession
    from mcp_workbench.server.task_watches import TaskWatch

UPDATED = "notifications/resources/updated"
ELICITATION_COMPLETE = "notifications/elicitation/complete"
MESSAGE = "notifications/message"
_FLAGS = {
    LIST_CHANGED: "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
MOST_LISTENED = 1024  # resources of one `subscriptions/listen`
LONGEST_FILTER = 4 << 20  # bytes of what one is to be notified of


class Subscription:
    """One `subscriptions/listen` of a modern host, or everything that a legacy host subscribed to."""

    def __init__(self, kinds: frozenset[str] = frozenset()) -> None:
        self.kinds = kinds
        self.resources: dict[PrimitiveRef, str] = {}  # with the URI that the host uses for each
        self.tasks: list[TaskWatch] = []

    def shown(self, changed: PrimitiveRef) -> str:
        """The URI of a changed resource as the host knows it; empty if it has not subscribed to it."""
        for owner, uri in self.resources.items():
            if owner == changed:
                return uri
            inside = owner.address == changed.address and changed.key.startswith(owner.key)
            if inside:  # a part of what was subscribed to
                return changed.key if uri == owner.key else addressed_like(uri, changed)
        return ""


class _Filter(msgspec.Struct, frozen=True):
    toolsListChanged: bool = False  # noqa: N815 - the wire's word
    promptsListChanged: bool = False  # noqa: N815
    resourcesListChanged: bool = False  # noqa: N815
    resourceSubscriptions: list[str] = []  # noqa: N815
    taskIds: list[str] = []  # noqa: N815


class Subscriptions:
    """What one host is notified of, in the form of its era."""

    def __init__(
        self,
        session: HostSession,
        upstream: ViewPrimitives,
        owners: PrimitiveOwners,
        requests: PrimitiveRequests,
    ) -> None:
        self._session = session
        self._upstream = upstream
        self._owners = owners
        self._requests = requests
        self._own = Subscription()  # of a legacy host
        self._subscriptions: dict[bytes, Subscription] = {}  # of a modern one, by request

    @property
    def uris(self) -> tuple[str, ...]:
        """Those of a legacy host."""
        return tuple(self._own.resources.values())

    # Requests

    def subscribe(self, id: bytes, members: Members, meta: Members) -> None:
        request = LocalRequest(id, members, meta)
        self._session.run(id, self._requests.answer, request, self._subscribe)

    def unsubscribe(self, id: bytes, members: Members) -> None:
        uri = read_uri(members)
        for owner in [owner for owner, shown in self._own.resources.items() if shown == uri]:
            del self._own.resources[owner]
            self._upstream.unsubscribe(owner, self._own)
        self._session.changed()
        self._session.reply(id, b"{}")

    def listen(self, id: bytes, members: Members, meta: Members) -> None:
        request = LocalRequest(id, members, meta)
        self._session.run(id, self._requests.answer, request, self._listen)

    async def _subscribe(self, request: LocalRequest) -> None:
        uri = read_uri(request.members)
        owner = await self._owners.require_owner(uri)
        if not await self._upstream.subscribe(owner, self._own):
            why = f"[{owner.address}] Error: the server does not support resource subscriptions"
            raise RequestError(jsonrpc.METHOD_NOT_FOUND, why)
        self._own.resources[owner] = uri
        self._session.changed()
        self._session.reply(request.id, b"{}")

    async def _listen(self, request: LocalRequest) -> None:
        filter = _read_filter(request.members)
        kinds = {flag for flag in _FLAGS.values() if getattr(filter, flag)}
        subscription = Subscription(frozenset(kinds))
        try:
            if filter.taskIds:
                await self._watch_tasks(filter.taskIds, request, subscription)
            for uri in filter.resourceSubscriptions:
                await self._watch(uri, subscription)
            self._subscriptions[request.id] = subscription
        finally:
            if request.id not in self._subscriptions:  # cancelled meanwhile, or refused
                self._forget(subscription)
        acknowledged: dict[str, Any] = {flag: True for flag in _FLAGS.values() if flag in kinds}
        if subscription.resources:
            acknowledged["resourceSubscriptions"] = list(subscription.resources.values())
        if subscription.tasks:
            acknowledged["taskIds"] = [watch.token for watch in subscription.tasks]
        params = jsonrpc.encode({"notifications": acknowledged})
        self._notify(request.id, "notifications/subscriptions/acknowledged", params)
        for watch in subscription.tasks:
            watch.start()

    async def _watch_tasks(
        self, ids: list[str], request: LocalRequest, subscription: Subscription
    ) -> None:
        """Subscribe to the tasks of this host whose changes can be announced."""
        from mcp_workbench.server.task_watches import possible_watches, requested_watches

        notify = partial(self._notify, request.id)
        subscription.tasks = requested_watches(self._session, request.id, ids, notify)
        subscription.tasks = await possible_watches(subscription.tasks)

    async def _watch(self, uri: str, subscription: Subscription) -> None:
        """Subscribe to this resource if that is possible; otherwise it is not acknowledged."""
        try:
            owner = await self._owners.owner(uri)
            if owner is not None and await self._upstream.subscribe(owner, subscription):
                subscription.resources[owner] = uri
        except WorkbenchError:
            return

    def end(self, id: bytes) -> None:
        """The host has cancelled its `subscriptions/listen`."""
        subscription = self._subscriptions.pop(id, None)
        if subscription is not None:
            self._forget(subscription)

    def _forget(self, subscription: Subscription) -> None:
        self._upstream.forget(subscription)
        for watch in subscription.tasks:
            watch.stop()

    def end_all(self) -> None:
        """We are shutting down: reply to every `subscriptions/listen`."""
        for id in list(self._subscriptions):
            self.end(id)
            result = jsonrpc.encode({"_meta": {SUBSCRIPTION_KEY: msgspec.Raw(id)}})
            self._session.reply(id, complete(result, STAMPS))

    def close(self) -> None:
        for holder in (self._own, self._session):
            self._upstream.forget(holder)
        for subscription in self._subscriptions.values():
            self._forget(subscription)

    # What the host has subscribed to

    @property
    def watched_lists(self) -> frozenset[str]:
        """The lists whose changes the host wants to be notified of."""
        if not self._session.era.modern:
            return frozenset(self._requests.requested_lists)
        flags = {
            flag for subscription in self._subscriptions.values() for flag in subscription.kinds
        }
        return frozenset(_list_of(method) for method, flag in _FLAGS.items() if flag in flags)

    @property
    def servers(self) -> frozenset[ServerAddress]:
        """The servers whose resources the host has subscribed to."""
        every = (self._own, *self._subscriptions.values())
        return frozenset(owner.address for each in every for owner in each.resources)

    # Notifications of servers

    def receive(self, notification: ServerNotification) -> None:
        if notification.method == MESSAGE:
            self._log(notification)
        elif notification.method == UPDATED:
            self._updated(notification)
        elif notification.method == ELICITATION_COMPLETE:
            self._elicitation_complete(notification)
        elif notification.connection_id.address.toolbox in self._owners.toolboxes:
            self.list_changed(notification.method)

    def _elicitation_complete(self, notification: ServerNotification) -> None:
        """An elicitation by URL is complete. Modern hosts are not notified of that."""
        if self._session.era.modern or notification.asker not in (None, self._session):
            return
        if self._owners.may_use(notification.connection_id.address.toolbox):
            self._session.notify(ELICITATION_COMPLETE, bytes(notification.params))

    def list_changed(self, method: str) -> None:
        """Notify the host of a changed list."""
        if not self._session.era.modern:
            if _list_of(method) in self._requests.requested_lists:
                self._session.notify(method)
            return
        for id, subscription in self._subscriptions.items():
            if _FLAGS[method] in subscription.kinds:
                self._notify(id, method, b"{}")

    def _updated(self, notification: ServerNotification) -> None:
        try:
            params = untagged(notification.params)
            changed = PrimitiveRef(notification.connection_id.address, read_uri(params))
        except (msgspec.DecodeError, RequestError):
            return
        if shown := self._own.shown(changed):
            params["uri"] = msgspec.Raw(jsonrpc.encode(shown))
            self._session.notify(UPDATED, jsonrpc.encode(params))
        for id, subscription in self._subscriptions.items():
            if shown := subscription.shown(changed):
                params["uri"] = msgspec.Raw(jsonrpc.encode(shown))
                self._notify(id, UPDATED, jsonrpc.encode(params))

    def _notify(self, id: bytes, method: str, params: bytes) -> None:
        self._session.notify(method, tagged(params, id), id)

    # Logging

    def _log(self, notification: ServerNotification) -> None:
        level, address = notification.level, notification.connection_id.address
        if self._session.era.modern:
            about = self._request_for(notification, level)
            if about:
                self._session.notify(MESSAGE, notification.params, about)
            return
        wanted = self._legacy_level(address.toolbox)
        if reaches(level, wanted) and self._concerns(notification, address):
            mine = self._in_flight_at(notification) if notification.asker is self._session else []
            self._session.notify(MESSAGE, notification.params, mine[0][0] if mine else b"")

    def _legacy_level(self, toolbox: str) -> str:
        """The host's log level. Without one, the default; all messages if no other host has set a level."""
        own = self._upstream.level_of(self._session)
        return own or ("info" if self._upstream.somebody_wants_logs(toolbox) else "debug")

    def _concerns(self, notification: ServerNotification, address: ServerAddress) -> bool:
        if notification.asker is self._session:
            return True
        opened = address.toolbox in self._owners.toolboxes
        return opened and not notification.modern_server  # a modern one logs for one request only

    def _request_for(self, notification: ServerNotification, level: str) -> bytes:
        """The oldest request in flight at that server that wants messages of this level."""
        if notification.asker is not self._session:
            return b""
        for id, meta in self._in_flight_at(notification):
            if LOG_LEVEL_KEY in meta and reaches(level, level_in(meta)):
                return id
        return b""

    def _in_flight_at(self, notification: ServerNotification) -> list[tuple[bytes, Members]]:
        """The requests that the notification may be about; the only one, if that is known."""
        calls = [(id, call) for id, call in self._session.under_way.items() if call is not None]
        if notification.caller is not None:
            return [(id, call.request.meta) for id, call in calls if call is notification.caller]
        address = notification.connection_id.address
        return [
            (id, call.request.meta) for id, call in calls if call.request.tool.address == address
        ]


def _list_of(method: str) -> str:
    return method.split("/")[1]


def _read_filter(members: Members) -> _Filter:
    wanted = members.get("notifications", b"{}")
    if len(wanted) > LONGEST_FILTER:
        raise RequestError(
            jsonrpc.INVALID_PARAMS, f"params.notifications: longer than {LONGEST_FILTER >> 20} MiB"
        )
    try:
        filter = msgspec.json.decode(wanted, type=_Filter)
    except msgspec.DecodeError as error:
        raise RequestError(jsonrpc.INVALID_PARAMS, f"params.notifications: {error}") from None
    if len(filter.resourceSubscriptions) > MOST_LISTENED:
        raise RequestError(
            jsonrpc.INVALID_PARAMS, f"more than {MOST_LISTENED} subscriptions at once"
        )
    return filter
