"""What one session has beside tools: prompts, resources, completion, subscriptions, log messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.raw_json import Members
from mcp_workbench.core.skills import METHODS as SKILL_METHODS
from mcp_workbench.core.spec import ServerAddress, ToolIdentifier
from mcp_workbench.protocol.extensions import is_known
from mcp_workbench.protocol.handshake import LOG_LEVEL_KEY
from mcp_workbench.protocol.primitive_messages import level_in, most_verbose, read_level
from mcp_workbench.server.parse import RequestError
from mcp_workbench.transport import jsonrpc

if TYPE_CHECKING:
    from mcp_workbench.gateway.view_primitives import ServerNotification, ViewPrimitives
    from mcp_workbench.server.primitive_requests import PrimitiveRequests
    from mcp_workbench.server.session import HostSession
    from mcp_workbench.server.session_tools import ToolView
    from mcp_workbench.server.subscriptions import Subscriptions

Handler = Callable[[bytes, Members, Members], None]  # id, members of params, members of _meta
PRIMITIVE_CALLS = frozenset({"prompts/get", "resources/read", "completion/complete"})
_PRIMITIVE_LISTS = frozenset({"prompts/list", "resources/list", "resources/templates/list"})


class SessionPrimitives:
    """Everything that one session has beside tools: loaded with the first request for any of it."""

    def __init__(self, session: HostSession, tool_view: ToolView) -> None:
        self.log_level: msgspec.Raw | None = None  # set by a legacy host
        self._session = session
        self._tool_view = tool_view
        self._loaded: _Loaded | None = None
        self._stop_listening = session.view.on_heard(self._receive)

    @property
    def is_loaded(self) -> bool:
        """Whether anything beside tools was asked for."""
        return self._loaded is not None

    @property
    def _load(self) -> _Loaded:
        if self._loaded is None:
            from mcp_workbench.gateway.view_primitives import ViewPrimitives
            from mcp_workbench.server.primitive_requests import PrimitiveOwners, PrimitiveRequests
            from mcp_workbench.server.subscriptions import Subscriptions

            session = self._session
            upstream = ViewPrimitives(session.view)
            owners = PrimitiveOwners(session.era, upstream, self._tool_view)
            requests = PrimitiveRequests(session, upstream, owners)
            subscriptions = Subscriptions(session, upstream, owners, requests)
            self._loaded = _Loaded(upstream, requests, subscriptions)
        return self._loaded

    def handler(self, method: str) -> Handler | None:
        """The handler of this method, if the host's era has it."""
        known = method in PRIMITIVE_CALLS or method in _PRIMITIVE_LISTS
        if known or (self._session.era.modern and method in SKILL_METHODS):
            return lambda id, members, meta: self._load.requests.handle(method, id, members, meta)
        if not is_known(method):
            return lambda id, members, meta: self._pass_on(method, id, members, meta)
        if self._session.era.modern:
            return self._listen if method == "subscriptions/listen" else None
        return {
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "logging/setLevel": self._set_level,
        }.get(method)

    def _pass_on(self, method: str, id: bytes, members: Members, meta: Members) -> None:
        """Pass on a request of an extension that we do not know, if it can mean one server only."""
        from mcp_workbench.gateway.server_extensions import named_server  # seldom needed

        server = named_server(self._session.view, members)
        if server is None:
            raise RequestError(jsonrpc.METHOD_NOT_FOUND, f"Method not found: {method}")
        session, target = (
            self._session,
            ToolIdentifier(server.address.toolbox, server.address.server, method),
        )
        declared = session.elicitation.declared
        request = CallRequest(target, server.params, meta, session.era.modern, declared, method)
        self._load.requests.pass_on(id, request)

    def _listen(self, id: bytes, members: Members, meta: Members) -> None:
        self._load.subscriptions.listen(id, members, meta)

    def _subscribe(self, id: bytes, members: Members, meta: Members) -> None:
        self._load.subscriptions.subscribe(id, members, meta)

    def _unsubscribe(self, id: bytes, members: Members, meta: Members) -> None:
        self._load.subscriptions.unsubscribe(id, members)

    # Logging

    def _set_level(self, id: bytes, members: Members, meta: Members) -> None:
        raw = members.get("level", msgspec.Raw(b"null"))
        try:
            level = read_level(raw)
        except ValueError as error:
            raise RequestError(jsonrpc.INVALID_PARAMS, f"params.level: {error}") from None
        self.log_level = raw
        self._load.upstream.want_level(self._session, level)
        self._session.changed()
        self._session.reply(id, b"{}")

    def with_log_level(self, meta: Members) -> Members:
        """`_meta` of a request with the log level that applies to it."""
        if self.log_level is not None:
            return {**meta, LOG_LEVEL_KEY: self.log_level}
        if LOG_LEVEL_KEY in meta and self._session.era.modern:
            try:
                level = level_in(meta)
            except ValueError as error:
                raise RequestError(jsonrpc.INVALID_PARAMS, f"_meta: {error}") from None
            upstream = self._load.upstream
            before = upstream.level_of(self._session)
            upstream.want_level(self._session, most_verbose([level, *filter(None, [before])]))
        return meta

    # Changes

    def _receive(self, notification: ServerNotification) -> None:
        self._load.subscriptions.receive(notification)

    def list_changed(self, method: str) -> None:
        """Notify the host of a changed list if it listens for that, or has requested the list."""
        if self._loaded is not None:
            self._loaded.subscriptions.list_changed(method)

    @property
    def watched_lists(self) -> frozenset[str]:
        """The lists whose changes the host wants to be notified of."""
        return frozenset() if self._loaded is None else self._loaded.subscriptions.watched_lists

    @property
    def subscribed_servers(self) -> frozenset[ServerAddress]:
        """The servers whose resources the host has subscribed to."""
        return frozenset() if self._loaded is None else self._loaded.subscriptions.servers

    @property
    def subscribed_uris(self) -> tuple[str, ...]:
        """The resources that a legacy host has subscribed to."""
        return () if self._loaded is None else self._loaded.subscriptions.uris

    async def opened(self, toolbox: str) -> None:
        """Notify a legacy host of the lists that an opened toolbox adds to."""
        if self._loaded is None or self._session.era.modern:
            return
        for kind in sorted(self._loaded.requests.requested_lists):
            if await self._loaded.requests.has_any(toolbox, kind):
                self._session.notify(f"notifications/{kind}/list_changed")

    def cancelled(self, id: bytes) -> None:
        if self._loaded is not None:
            self._loaded.subscriptions.end(id)

    def end_listening(self) -> None:
        """Answer the `subscriptions/listen` requests, which would never end otherwise."""
        if self._loaded is not None:
            self._loaded.subscriptions.end_all()

    def close(self) -> None:
        self._stop_listening()
        if self._loaded is not None:
            self._loaded.subscriptions.close()


class _Loaded(NamedTuple):
    """The parts of SessionPrimitives that most sessions never need."""

    upstream: ViewPrimitives
    requests: PrimitiveRequests
    subscriptions: Subscriptions
