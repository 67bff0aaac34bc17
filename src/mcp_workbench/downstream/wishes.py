"""What hosts want of one live server for longer than a request: asked for, and asked for again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp_workbench.core.errors import ServerError
from mcp_workbench.downstream.conversation import Conversation
from mcp_workbench.downstream.listening import Listening
from mcp_workbench.downstream.listing import LIST_SECONDS, Unlistable, changes
from mcp_workbench.downstream.standing import Place, Standing
from mcp_workbench.era.negotiate import Agreed
from mcp_workbench.era.revision import is_modern
from mcp_workbench.wire import envelope

TOOLS_CHANGED = "notifications/tools/list_changed"


class Wishes:
    """Levels, subscriptions and listening at one connection. Before `opened` there are none."""

    def __init__(
        self,
        place: Place,
        standing: Standing,
        doubt: Callable[[], None],
        touch: Callable[[str], None],
    ) -> None:
        self._place = place
        self._standing = standing
        self._doubt = doubt  # lists may have changed unheard
        self._touch = touch  # so may this resource
        self.patience: Callable[[], float] = lambda: LIST_SECONDS  # for an answer
        self._talk: Conversation | None = None
        self._modern = False
        self._logs = False
        self._level = ""
        self._changes: Listening | None = None
        self._watching: Listening | None = None

    def hear_changes(self, talk: Conversation, agreed: Agreed) -> None:
        """Listen for changes of a modern server's lists, from before they are first read."""
        self._talk = talk
        if agreed.listen:
            self._changes = Listening(talk, changes(agreed.declared), self._missed_changes)

    def opened(self, talk: Conversation, agreed: Agreed) -> None:
        """The server takes requests: whatever hosts wanted before it came is asked for now."""
        self._talk, self._logs = talk, agreed.declared.logging
        self._modern = is_modern(agreed.revision)
        talk.when_forgotten.append(self._forgotten)
        self._ask()

    def _ask(self) -> None:
        self._level = ""
        self.heed_level()
        uris = self._standing.uris(self._place)
        if self._modern and uris:
            self._listen(uris)
        elif not self._modern:
            for uri in uris:
                self._tell("resources/subscribe", {"uri": uri})

    def _forgotten(self) -> None:
        """A new session knows nothing of what the old one was told."""
        self._ask()
        self._missed_changes()
        self._missed_updates()

    # Logging

    def heed_level(self) -> None:
        """Tell a legacy server the most verbose level that any host wants."""
        level = self._standing.level_at(self._place.address.toolbox)
        if level and level != self._level and self._logs and not self._modern:
            self._level = level
            self._tell("logging/setLevel", {"level": level})

    # Subscriptions

    async def subscribe(self, uri: str, holder: object) -> None:
        """Hear of this resource's changes. Raises ServerError where the server refuses."""
        first = uri not in self._standing.uris(self._place)
        if first and not self._modern:
            await self._subscribe_there(uri)
        self._standing.subscribe(self._place, uri, holder)
        if first and self._modern:
            await self._listen(self._standing.uris(self._place)).heard()

    async def _subscribe_there(self, uri: str) -> None:
        params = envelope.encode({"uri": uri})
        answer = await self._talking.ask("resources/subscribe", params, self.patience())
        if answer.error:
            told = envelope.read_error(answer.error)
            raise ServerError(told.code, told.message, bytes(answer.error))

    def unsubscribed(self, uri: str) -> None:
        """Nobody wants to hear of this resource any more."""
        if not self._modern:
            self._tell("resources/unsubscribe", {"uri": uri})
        elif uris := self._standing.uris(self._place):
            self._listen(uris)
        elif self._watching is not None:
            self._watching.end()
            self._watching = None

    # Listening

    @property
    def deaf(self) -> bool:
        """Did a server that announces changes of its lists stop to do so?"""
        return self._changes is not None and self._changes.deaf

    def acknowledged(self, number: int) -> None:
        for listening in (self._changes, self._watching):
            if listening is not None and listening.number == number:
                listening.acknowledged()

    def _listen(self, uris: list[str]) -> Listening:
        """A new set means a new request; the old one ends when this one is acknowledged."""
        before = self._watching
        wanted: dict[str, object] = {"resourceSubscriptions": uris}
        self._watching = Listening(self._talking, wanted, self._missed_updates, before)
        return self._watching

    def _missed_changes(self) -> None:
        self._doubt()
        self._talking.announce(TOOLS_CHANGED)

    def _missed_updates(self) -> None:
        for uri in self._standing.uris(self._place):
            self._touch(uri)

    @property
    def _talking(self) -> Conversation:
        if self._talk is None:
            raise Unlistable("it is not ready")
        return self._talk

    def _tell(self, method: str, params: dict[str, Any]) -> None:
        """A request whose answer nobody waits for."""
        if self._talk is not None:
            number = self._talk.pending.reserve()
            self._talk.channel.send(envelope.request(number, method, envelope.encode(params)))
