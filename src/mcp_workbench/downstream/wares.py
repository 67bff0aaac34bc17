"""The tools of one live server: listed, kept, and shown through a filter."""

import time

import msgspec

from mcp_workbench.core.catalogue import Catalogue
from mcp_workbench.core.known import Known
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import ServerSpec, ToolFilter
from mcp_workbench.downstream.conversation import Conversation
from mcp_workbench.downstream.listing import Unlistable, list_tools
from mcp_workbench.downstream.surroundings import Surroundings
from mcp_workbench.downstream.waiters import Lost
from mcp_workbench.era.negotiate import Agreed
from mcp_workbench.era.revision import is_modern
from mcp_workbench.wire import envelope


class Wares:
    """Until it is listed, a server has the tools that it had when it was last connected."""

    def __init__(self, address: ServerAddress, around: Surroundings) -> None:
        known = around.memory.held(address)
        self.catalogue = Catalogue() if known is None else known.catalogue
        self.complaints: tuple[str, ...] = ()
        self.stale = False  # the server says that they have changed
        self.listed_at = 0.0  # or tried to
        self.read_at = 0.0
        self._unread = False  # what it has said of changes, or the last reading failed
        self._around = around
        self._told: tuple[ServerSpec, Known] | None = None  # what the memory knows from here
        self._filter: ToolFilter | None = None
        self._visible: dict[str, bytes] = {}

    def visible(self, shown: ToolFilter) -> dict[str, bytes]:
        """The names of the tools that this filter shows, each with its JSON form."""
        if self._filter is not shown:
            self._filter = shown
            self._visible = {
                name: envelope.encode(name) for name in self.catalogue.tools if shown.shows(name)
            }
        return self._visible

    def fresh(self, seconds: float) -> bool:
        return not self.stale and time.monotonic() - self.listed_at < seconds

    @property
    def behind(self) -> bool:
        """Is there reason to think that the server has others by now?"""
        return self.stale or self._unread

    def begin(self) -> None:
        """A reading begins: an announcement from here on asks for yet another."""
        self._unread = self.behind
        self.stale = False

    async def read(self, talk: Conversation, within: float, *, modern: bool) -> bool:
        """Ask the server for all of them, within this time. Are they others than before?"""
        most, found = self._around.limits.tools_per_server, None
        try:
            found, self.complaints = await list_tools(talk, most, within, modern=modern)
        finally:
            self._unread = found is None
        self.listed_at = self.read_at = time.monotonic()
        if found == self.catalogue:
            return False
        self.catalogue, self._filter = found, None
        if self._told is not None:
            spec, known = self._told
            self._note(spec, msgspec.structs.replace(known, catalogue=found), expected=True)
        return True

    async def read_again(self, talk: Conversation, within: float, *, modern: bool) -> bool:
        """The same; failing to leaves what we have."""
        try:
            return await self.read(talk, within, modern=modern)
        except (Unlistable, Lost):
            self.listed_at = time.monotonic()  # not again at once
            return False

    # For the next time

    def remember(self, spec: ServerSpec, said: Agreed, seconds: float) -> None:
        """It takes calls: this is what it has, and beside tools what it had when it was last asked."""
        before = self._around.memory.held(spec.address)
        self._note(
            spec,
            Known(
                self.catalogue,
                is_modern(said.revision),
                said.revision,
                said.name,
                said.version,
                said.instructions,
                msgspec.structs.asdict(said.declared),
                seconds,
                offers={} if before is None else before.offers,
            ),
        )

    def remember_offers(self, kind: str, raws: tuple[bytes, ...]) -> None:
        """Beside tools, it has these."""
        if self._told is not None and self._told[1].offers.get(kind) != raws:
            spec, known = self._told
            self._note(spec, msgspec.structs.replace(known, offers={**known.offers, kind: raws}))

    def retire(self) -> None:
        """Another server takes its place: what this one has is no news any more."""
        self._told = None

    def _note(self, spec: ServerSpec, known: Known, *, expected: bool = False) -> None:
        self._told = (spec, known)
        self._around.memory.note(spec, known, expected=expected)
