"""The door to everything that is not a tool; what is behind it is loaded when it is first opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mcp_workbench.core.names import ServerAddress
from mcp_workbench.era.primitives import level_in, most_verbose, read_level
from mcp_workbench.era.revision import LOG_LEVEL_KEY
from mcp_workbench.era.translate import Members
from mcp_workbench.surface.menu import Menu
from mcp_workbench.surface.parse import RequestError
from mcp_workbench.wire import envelope

if TYPE_CHECKING:
    from mcp_workbench.gateway.primitives import Heard, Offering
    from mcp_workbench.surface.primitives import Primitives
    from mcp_workbench.surface.session import HostSession
    from mcp_workbench.surface.subscriptions import Subscriptions

Handler = Callable[[bytes, Members, Members], None]


class _Rooms(NamedTuple):
    """What is behind the door."""

    offering: Offering
    primitives: Primitives
    subscriptions: Subscriptions


class BesideTools:
    """One host's prompts, resources, completions, subscriptions and log."""

    def __init__(self, session: HostSession, menu: Menu) -> None:
        self.log_level: msgspec.Raw | None = None  # that a legacy host has set
        self._session = session
        self._menu = menu
        self._rooms: _Rooms | None = None
        self._stop_hearing = session.view.on_heard(self._heard)

    @property
    def _open(self) -> _Rooms:
        if self._rooms is None:
            from mcp_workbench.gateway.primitives import Offering  # not before anybody asks for it
            from mcp_workbench.surface.owners import Owners
            from mcp_workbench.surface.primitives import Primitives
            from mcp_workbench.surface.subscriptions import Subscriptions

            session = self._session
            offering = Offering(session.view)
            owners = Owners(session.era, offering, self._menu)
            primitives = Primitives(session, offering, owners)
            heard = Subscriptions(session, offering, owners, primitives)
            self._rooms = _Rooms(offering, primitives, heard)
        return self._rooms

    def handler(self, method: str) -> Handler | None:
        """Who answers this method, if it is one of ours in the host's era."""
        if method in _EVERYWHERE:
            return lambda id, members, meta: self._open.primitives.begin(method, id, members, meta)
        if self._session.era.modern:
            return self._listen if method == "subscriptions/listen" else None
        return {
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "logging/setLevel": self._set_level,
        }.get(method)

    def _listen(self, id: bytes, members: Members, meta: Members) -> None:
        self._open.subscriptions.listen(id, members, meta)

    def _subscribe(self, id: bytes, members: Members, meta: Members) -> None:
        self._open.subscriptions.subscribe(id, members, meta)

    def _unsubscribe(self, id: bytes, members: Members, meta: Members) -> None:
        self._open.subscriptions.unsubscribe(id, members)

    # Logging

    def _set_level(self, id: bytes, members: Members, meta: Members) -> None:
        level = members.get("level", msgspec.Raw(b"null"))
        try:
            wish = read_level(level)
        except ValueError as error:
            raise RequestError(envelope.INVALID_PARAMS, f"params.level: {error}") from None
        self.log_level = level
        self._open.offering.want_level(self._session, wish)
        self._session.reply(id, b"{}")

    def levelled(self, meta: Members) -> Members:
        """`_meta` of a request with the level that holds for it."""
        if self.log_level is not None:
            return {**meta, LOG_LEVEL_KEY: self.log_level}
        if LOG_LEVEL_KEY in meta and self._session.era.modern:
            try:
                wish = level_in(meta)
            except ValueError as error:
                raise RequestError(envelope.INVALID_PARAMS, f"_meta: {error}") from None
            offering = self._open.offering
            before = offering.level_of(self._session)
            offering.want_level(self._session, most_verbose([wish, *filter(None, [before])]))
        return meta

    # What happens elsewhere

    def _heard(self, heard: Heard) -> None:
        self._open.subscriptions.heard(heard)

    def list_changed(self, method: str) -> None:
        """A list has changed; the host hears of it where it listens, or has read that list."""
        if self._rooms is not None:
            self._rooms.subscriptions.list_changed(method)

    @property
    def lists_kept(self) -> frozenset[str]:
        """The lists of whose changes the host wants to hear."""
        return frozenset() if self._rooms is None else self._rooms.subscriptions.lists_kept

    @property
    def subscribed(self) -> frozenset[ServerAddress]:
        """The servers of whose resources it wants to hear."""
        return frozenset() if self._rooms is None else self._rooms.subscriptions.servers

    async def opened(self, toolbox: str) -> None:
        """A toolbox was opened: does a legacy host see more than its lists have told it?"""
        if self._rooms is None or self._session.era.modern:
            return
        for kind in sorted(self._rooms.primitives.seen):
            if await self._rooms.primitives.offers_any(toolbox, kind):
                self._session.notify(f"notifications/{kind}/list_changed")

    def cancelled(self, id: bytes) -> None:
        if self._rooms is not None:
            self._rooms.subscriptions.ended(id)

    def end_listening(self) -> None:
        """Answer those requests that would otherwise never end."""
        if self._rooms is not None:
            self._rooms.subscriptions.end_all()

    def close(self) -> None:
        self._stop_hearing()
        if self._rooms is not None:
            self._rooms.subscriptions.close()


_EVERYWHERE = frozenset(
    {
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "completion/complete",
    }
)
