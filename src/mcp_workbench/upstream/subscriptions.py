"""Subscriptions: log levels and resource updates that hosts want from servers.

`SubscriptionRegistry` holds what hosts want and outlives every connection. `ConnectionSubscriptions`
sends it to one server, again after each reconnect. Modern servers are asked by `ListenRequest`, which
is reopened with backoff whenever it ends.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from mcp_workbench.core.errors import ServerError
from mcp_workbench.core.raw_json import Members
from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.protocol.handshake import Agreed, ServerCapabilities, is_modern
from mcp_workbench.protocol.primitive_messages import most_verbose
from mcp_workbench.timing import pause
from mcp_workbench.transport import jsonrpc
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.tool_list import LIST_SECONDS, TOOLS_CHANGED, Unlistable, request_meta

# Listen requests
# Of one connection: a modern server gets all of them in one message, and sends them back.
MOST_RESOURCES = 8192
MOST_BYTES = 512 << 10  # of their URIs, as JSON
ESCAPED = 12  # bytes of a character that is written as two escapes
ONE_HOST = 8  # one host may have an eighth of both
SHORTEST, LONGEST = pause(1.0), pause(60.0)  # seconds before it is reopened
LASTED = 30.0  # seconds after which it counts as stable
UNREAD = pause(0.1)  # seconds until it is tried again to ask a server that does not read
ACK_SECONDS = 5.0  # for the acknowledgement; without one the subscription is assumed to work
PERMANENT = (jsonrpc.METHOD_NOT_FOUND, jsonrpc.INVALID_PARAMS, jsonrpc.INVALID_REQUEST)


class ConnectionId(msgspec.Struct, frozen=True):
    """Identifies a connection across restarts: shared by all hosts, or of one host alone."""

    address: ServerAddress
    number: int = 0  # of a connection that is not shared
    owner: Hashable = None  # the host or principal, where it is not shared


class ServerNotification(msgspec.Struct, frozen=True):
    """A notification of a server, to be passed on to hosts."""

    connection_id: ConnectionId
    method: str
    params: msgspec.Raw
    modern_server: bool = False
    asker: object = None  # the host whose request it is about, or the only one with requests there
    caller: object = None  # that request, where it is known
    level: str = ""  # of a log message


class NoRoom(Exception):
    """Too many resources are subscribed to; the text says whose."""


class Share:
    """How much a host, or all hosts of a connection, subscribe to."""

    __slots__ = ("count", "size")

    def __init__(self) -> None:
        self.count = 0
        self.size = 0

    def add(self, uri: str, times: int = 1) -> None:
        self.count += times
        self.size += times * json_size(uri)

    def has_room(self, uri: str, part: int) -> bool:
        """Whether one more fits into this part of what a connection has."""
        size = self.size + json_size(uri)
        return self.count < MOST_RESOURCES // part and size <= MOST_BYTES // part

    def is_fair(self, uri: str, all_hosts: Share) -> bool:
        """Whether this principal, with one more, has no more than what is then left for others."""
        count, size = self.count + all_hosts.count, self.size + all_hosts.size
        return count + 2 <= MOST_RESOURCES and size + 2 * json_size(uri) <= MOST_BYTES


def json_size(uri: str) -> int:
    """Bytes that a URI takes in a message at most, whoever writes it."""
    return len(jsonrpc.encode(uri)) if uri.isascii() else ESCAPED * len(uri)


class SubscriptionRegistry:
    """Log levels and subscriptions, by the host that wants them (`holder`)."""

    def __init__(self) -> None:
        self._levels: dict[object, tuple[str, frozenset[str]]] = {}  # with its toolboxes
        self._subscriptions: dict[ConnectionId, dict[str, set[object]]] = {}
        self._held: defaultdict[object, dict[tuple[ConnectionId, str], None]] = defaultdict(dict)
        # Of connections, of hosts, and of principals at a connection.
        self._shares: defaultdict[object, Share] = defaultdict(Share)
        self._principals: dict[object, str] = {}  # of hosts that subscribe to something
        self._hosts_of: Counter[tuple[ConnectionId, str, str]] = Counter()  # principal and URI
        self._listeners: dict[
            object, tuple[Callable[[], tuple[Hashable, ...]], Callable[[ServerNotification], None]]
        ] = {}

    def on_notification(
        self,
        owners: Callable[[], tuple[Hashable, ...]],
        listener: Callable[[ServerNotification], None],
    ) -> Callable[[], None]:
        """Call `listener` with each notification that one of `owners` may see; the result ends that."""
        key = object()
        self._listeners[key] = (owners, listener)
        return lambda: self._listeners.pop(key, None) and None

    def publish(self, notification: ServerNotification) -> None:
        """Pass a notification on to the hosts that may see it."""
        allowed = notification.connection_id.owner
        for owners, listener in tuple(self._listeners.values()):
            if allowed is None or allowed in owners():
                listener(notification)

    # Logging

    def level_at(self, toolbox: str) -> str:
        """The most verbose level wanted by a host of this toolbox; empty where none is wanted."""
        levels = [level for level, toolboxes in self._levels.values() if toolbox in toolboxes]
        return most_verbose(levels)

    def want_level(self, holder: object, level: str, toolboxes: Iterable[str]) -> None:
        self._levels[holder] = (level, frozenset(toolboxes))

    def level_of(self, holder: object) -> str:
        return self._levels[holder][0] if holder in self._levels else ""

    # Resources

    def uris(self, connection_id: ConnectionId) -> list[str]:
        """The resources of this connection that a host subscribes to."""
        return list(self._subscriptions.get(connection_id, ()))

    def require_room(
        self, connection_id: ConnectionId, uri: str, holder: object, principal: str = ""
    ) -> None:
        """Raise NoRoom if this host, its principal, or all together would subscribe to too much."""
        holders = self._subscriptions.get(connection_id, {}).get(uri, ())
        if holder not in holders and not self._share(holder).has_room(uri, ONE_HOST):
            raise NoRoom("too many resources: unsubscribe from others first")
        if holders:
            return
        whole = self._share(connection_id)
        if not whole.has_room(uri, 1):
            raise NoRoom("hosts subscribe to too many resources of this server")
        if principal and not self._share((connection_id, principal)).is_fair(uri, whole):
            raise NoRoom("your hosts subscribe to too many resources of this server")

    def _share(self, whose: object) -> Share:
        return self._shares.get(whose) or Share()

    def subscribe(
        self, connection_id: ConnectionId, uri: str, holder: object, principal: str = ""
    ) -> None:
        holders = self._subscriptions.setdefault(connection_id, {}).setdefault(uri, set())
        if not holders:
            self._shares[connection_id].add(uri)
        if holder not in holders:
            holders.add(holder)
            self._held[holder][connection_id, uri] = None
            self._shares[holder].add(uri)
            self._principals[holder] = principal
            self._count(connection_id, uri, principal)

    def _count(self, connection_id: ConnectionId, uri: str, principal: str) -> None:
        """One more host of this principal; the principal's share has each resource once."""
        hosts = connection_id, principal, uri
        self._hosts_of[hosts] += 1
        if self._hosts_of[hosts] == 1:
            self._shares[connection_id, principal].add(uri)

    def _discount(self, connection_id: ConnectionId, uri: str, holder: object) -> None:
        principal = self._principals[holder]
        if holder not in self._shares:
            del self._principals[holder]
        hosts = connection_id, principal, uri
        self._hosts_of[hosts] -= 1
        if not self._hosts_of[hosts]:
            del self._hosts_of[hosts]
            self._remove_share((connection_id, principal), uri)

    def _remove_share(self, whose: object, uri: str) -> None:
        self._shares[whose].add(uri, -1)
        if not self._shares[whose].count:
            del self._shares[whose]

    def unsubscribe(self, connection_id: ConnectionId, uri: str, holder: object) -> bool:
        """End a subscription; was it the last one for this resource?"""
        uris = self._subscriptions.get(connection_id, {})
        holders = uris.get(uri)
        if holders is None or holder not in holders:
            return False
        holders.discard(holder)
        del self._held[holder][connection_id, uri]
        if not self._held[holder]:
            del self._held[holder]
        self._remove_share(holder, uri)
        self._discount(connection_id, uri, holder)
        if holders:
            return False
        self._remove_share(connection_id, uri)
        del uris[uri]
        if not uris:
            del self._subscriptions[connection_id]
        return True

    def unsubscribe_at(
        self, address: ServerAddress, uri: str, holder: object
    ) -> list[ConnectionId]:
        """The same on all connections to this server; returns those on which it was the last one."""
        connection_ids = [
            connection_id
            for connection_id in self._subscriptions
            if connection_id.address == address
        ]
        return [
            connection_id
            for connection_id in connection_ids
            if self.unsubscribe(connection_id, uri, holder)
        ]

    def forget(self, holder: object) -> list[tuple[ConnectionId, str]]:
        """Forget a host; returns the subscriptions that no other host has."""
        self._levels.pop(holder, None)
        return [
            (connection_id, uri)
            for connection_id, uri in tuple(self._held.get(holder, ()))
            if self.unsubscribe(connection_id, uri, holder)
        ]


def refuses(error: msgspec.Raw | bytes) -> bool:
    """Is this error permanent, so that the request is not repeated?"""
    return jsonrpc.read_error(msgspec.Raw(error)).code in PERMANENT


def listen(
    conversation: Conversation, notifications: dict[str, object], capabilities: Members
) -> int:
    """Ask a modern server to send notifications of changes; returns the number of the request."""
    meta = request_meta(conversation, capabilities)
    params = {"_meta": meta, "notifications": notifications}
    number = conversation.pending.reserve()  # its response ends it
    request = jsonrpc.request(number, "subscriptions/listen", jsonrpc.encode(params))
    conversation.channel.send(request)
    return number


def list_changes(declared: ServerCapabilities) -> dict[str, object]:
    """The filter for `subscriptions/listen`: all list changes that the server announces."""
    announced = {
        "toolsListChanged": declared.tools_changed,
        "promptsListChanged": declared.prompts_changed,
        "resourcesListChanged": declared.resources_changed,
    }
    return {name: True for name, is_declared in announced.items() if is_declared}


class ListenRequest:
    """A `subscriptions/listen` request that is reopened when it ends; `missed` is called after each gap."""

    def __init__(
        self,
        conversation: Conversation,
        notifications: dict[str, object],
        missed: Callable[[], None],
        replaces: ListenRequest | None = None,
    ) -> None:
        self.number = 0
        self.is_interrupted = False  # the server sends nothing now
        self._conversation = conversation
        self._notifications = notifications
        self._missed = missed
        self.replaces = replaces  # ended when this one is acknowledged, so no update is missed
        self._failures = 0
        self._opened_at = 0.0
        self._acknowledged = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._send()

    def _send(self) -> None:
        self._timer = None
        if self._conversation.over:
            return
        self._opened_at = time.monotonic()
        conversation = self._conversation
        self.number = listen(conversation, self._notifications, self.capabilities(conversation))
        self._conversation.long_requests[self.number] = self

    def capabilities(self, conversation: Conversation) -> Members:
        """What is declared with it."""
        return conversation.capabilities

    async def ready(self) -> None:
        """Wait until the server has acknowledged it, at most ACK_SECONDS."""
        try:
            async with asyncio.timeout(ACK_SECONDS):
                await self._acknowledged.wait()
        except TimeoutError:
            self._end_replaced()

    def give_up_waiting(self) -> None:
        """Nobody needs to wait for an acknowledgement any more."""
        self._acknowledged.set()

    def acknowledged(self, params: msgspec.Raw) -> None:
        self._acknowledged.set()
        self._end_replaced()
        if self.is_interrupted:
            self.is_interrupted = False
            self._missed()

    def ended(self, error: msgspec.Raw | bytes) -> None:
        self.is_interrupted = True
        if error and refuses(error):
            return
        now = time.monotonic()
        self._failures = 0 if now - self._opened_at > LASTED else self._failures + 1
        delay = min(SHORTEST * 2 ** min(max(self._failures - 1, 0), 6), LONGEST)
        self._timer = asyncio.get_running_loop().call_later(delay, self._send)

    def interrupted(self) -> None:
        self.is_interrupted = True

    def _end_replaced(self) -> None:
        replaced, self.replaces = self.replaces, None
        while replaced is not None:  # very many, if the server acknowledges none
            older, replaced.replaces = replaced.replaces, None
            replaced.end()
            replaced = older

    def end(self) -> None:
        """End it: nobody wants it any more, or a newer one replaces it."""
        self._end_replaced()
        if self._timer is not None:
            self._timer.cancel()
        if self._conversation.long_requests.pop(self.number, None) is not None:
            self._conversation.send_cancelled(self.number, "a newer subscription replaces this one")


class ConnectionSubscriptions:
    """Log level, subscriptions and listen requests of one connection. Empty before `opened`."""

    def __init__(
        self,
        connection_id: ConnectionId,
        registry: SubscriptionRegistry,
        lists_missed: Callable[[], None],
        update_missed: Callable[[str], None],
    ) -> None:
        self._connection_id = connection_id
        self._registry = registry
        self._lists_missed = lists_missed  # lists may have changed unnoticed
        self._update_missed = update_missed  # so may this resource
        self.patience: Callable[[], float] = lambda: LIST_SECONDS  # seconds for a response
        self._conversation: Conversation | None = None
        self._modern = False
        self._logs = False
        self._level = ""
        self._changes: ListenRequest | None = None
        self._watching: ListenRequest | None = None
        self._renewal: asyncio.Event | None = None  # set when the server is asked for all of now
        self._asked: Counter[str] = Counter()  # subscriptions that a legacy server has not answered
        self._given_up: set[str] = set()  # of them, those that another host no longer wants

    def listen_for_changes(self, conversation: Conversation, agreed: Agreed) -> None:
        """Listen for changes of a modern server's lists, before they are first read."""
        self._conversation = conversation
        if agreed.listen:
            self._changes = ListenRequest(
                conversation, list_changes(agreed.declared), self._missed_changes
            )

    def opened(self, conversation: Conversation, agreed: Agreed) -> None:
        """The server is ready: send what hosts already want."""
        self._conversation, self._logs = conversation, agreed.declared.logging
        self._modern = is_modern(agreed.revision)
        conversation.on_session_lost.append(self._session_lost)
        self._send()

    def _send(self) -> None:
        self._level = ""
        self.apply_level()
        uris = self._registry.uris(self._connection_id)
        if self._modern and uris:
            self._listen(uris)
        elif not self._modern:
            for uri in uris:
                self._send_request("resources/subscribe", {"uri": uri})

    def _session_lost(self) -> None:
        """The server has a new session for us: send everything again."""
        self._send()
        self._missed_changes()
        self._missed_updates()

    # Logging

    def apply_level(self) -> None:
        """Send a legacy server the most verbose level that any host wants, if it has changed."""
        level = self._registry.level_at(self._connection_id.address.toolbox)
        if level and level != self._level and self._logs and not self._modern:
            self._level = level
            self._send_request("logging/setLevel", {"level": level})

    # Resources

    async def subscribe(self, uri: str, holder: object, principal: str = "") -> None:
        """Subscribe a host to a resource. Raises ServerError where the server refuses, and NoRoom."""
        self._registry.require_room(self._connection_id, uri, holder, principal)
        first = uri not in self._registry.uris(self._connection_id)
        if first and not self._modern:
            await self._subscribe_first(uri, holder, principal)
            return
        self._registry.subscribe(self._connection_id, uri, holder, principal)
        if first:
            with suppress(TimeoutError):  # it does not read; it gets all of them when it does
                async with asyncio.timeout(ACK_SECONDS):
                    await self._renew().wait()
            if self._watching is not None:
                await self._watching.ready()

    async def _subscribe_first(self, uri: str, holder: object, principal: str) -> None:
        """Ask a legacy server. Others may do so at the same time, and be refused, or give it up again."""
        self._asked[uri] += 1
        try:
            await self._subscribe_legacy(uri)
            self._subscribe_still(uri, holder, principal)
        finally:
            self._asked[uri] -= 1
            if not self._asked[uri]:
                del self._asked[uri]
                self._end_given_up(uri)

    def _subscribe_still(self, uri: str, holder: object, principal: str) -> None:
        """Subscribe after the server has answered: others may have subscribed to more meanwhile."""
        try:
            self._registry.require_room(self._connection_id, uri, holder, principal)
        except NoRoom:
            self._given_up.add(uri)
            raise
        self._registry.subscribe(self._connection_id, uri, holder, principal)

    def _end_given_up(self, uri: str) -> None:
        if uri not in self._given_up:
            return
        self._given_up.discard(uri)
        if uri not in self._registry.uris(self._connection_id):
            self.unsubscribed([uri])

    async def _subscribe_legacy(self, uri: str) -> None:
        params = jsonrpc.encode({"uri": uri})
        answer = await self._open_conversation.ask("resources/subscribe", params, self.patience())
        if answer.error:
            error = jsonrpc.read_error(answer.error)
            raise ServerError(error.code, error.message, bytes(answer.error))

    def unsubscribed(self, gone: list[str]) -> None:
        """No host subscribes to these resources any more: unsubscribe at the server."""
        if not self._modern:
            self._given_up.update(uri for uri in gone if uri in self._asked)
            for uri in gone:
                if uri not in self._asked:  # else the server would take it for the last word
                    self._send_request("resources/unsubscribe", {"uri": uri})
        else:
            self._renew()

    # Listening

    def _renew(self) -> asyncio.Event:
        """Listen to what is subscribed to, with one request for all that changes in this turn of the loop.

        Each has all the resources, so very many at once would be more than a server can read. The event is
        set when it was sent.
        """
        if self._renewal is None:
            self._renewal = asyncio.Event()
            asyncio.get_running_loop().call_soon(self._listen_anew)
        return self._renewal

    def _listen_anew(self) -> None:
        if self._renewal is None:
            return
        conversation = self._conversation
        if conversation is not None and conversation.channel.backlog > MOST_BYTES:
            asyncio.get_running_loop().call_later(UNREAD, self._listen_anew)
            return
        renewal, self._renewal = self._renewal, None
        uris = self._registry.uris(self._connection_id)
        if uris and conversation is not None:
            self._listen(uris)
        elif self._watching is not None:
            self._watching.end()
            self._watching = None
        renewal.set()

    @property
    def is_interrupted(self) -> bool:
        """Is the listening for list changes interrupted?"""
        return self._changes is not None and self._changes.is_interrupted

    def acknowledged(self, number: int, params: msgspec.Raw) -> None:
        if self._conversation is None:
            return
        request = self._conversation.long_requests.get(number)
        if isinstance(request, ListenRequest):
            request.acknowledged(params)

    def _listen(self, uris: list[str]) -> ListenRequest:
        """Open a request for this set; the one before ends when it is acknowledged."""
        before = self._watching
        notifications: dict[str, object] = {"resourceSubscriptions": uris}
        self._watching = ListenRequest(
            self._open_conversation, notifications, self._missed_updates, before
        )
        return self._watching

    def _missed_changes(self) -> None:
        self._lists_missed()
        self._open_conversation.announce(TOOLS_CHANGED)

    def _missed_updates(self) -> None:
        for uri in self._registry.uris(self._connection_id):
            self._update_missed(uri)

    @property
    def _open_conversation(self) -> Conversation:
        if self._conversation is None:
            raise Unlistable("it is not ready")
        return self._conversation

    def _send_request(self, method: str, params: dict[str, Any]) -> None:
        """Send a request and ignore its response."""
        if self._conversation is not None:
            number = self._conversation.pending.reserve()
            self._conversation.channel.send(jsonrpc.request(number, method, jsonrpc.encode(params)))
