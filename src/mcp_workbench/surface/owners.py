"""Which server a prompt's name or a resource's URI belongs to."""

from __future__ import annotations

from collections.abc import Iterable

from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.offers import (
    Owned,
    Shelf,
    owner_by_template,
    owners_of_flat_name,
    read_addressed,
)
from mcp_workbench.era.primitives import not_found_code
from mcp_workbench.gateway.primitives import Offering
from mcp_workbench.surface.menu import Menu
from mcp_workbench.surface.parse import HostEra, RequestError
from mcp_workbench.wire import envelope


class Owners:
    """One host's ways to servers: those of the toolboxes that it sees come first."""

    def __init__(self, era: HostEra, offering: Offering, menu: Menu) -> None:
        self._era = era
        self._offering = offering
        self._menu = menu

    @property
    def toolboxes(self) -> list[str]:
        """Those that the host sees."""
        return self._menu.toolboxes(modern=self._era.modern)

    def may_use(self, toolbox: str) -> bool:
        """Is it one of those that there are for this host, opened or not?"""
        return toolbox in self._menu.toolboxes(modern=True)

    @property
    def bare(self) -> bool:
        """Do servers' own names hold?"""
        return self._menu.bare

    # Prompts

    async def prompt_owner(self, name: str) -> Owned:
        if self.bare:
            found = await self._offering.shelves(self.toolboxes, "prompts")
            require_own_names(found.shelves)
            owners = [Owned(shelf.address, name) for shelf in found.shelves if name in shelf.offers]
        else:
            owners = owners_of_flat_name(name, self._offering.addresses())
        if len(owners) > 1:  # names of toolboxes or servers hold the separator
            boxes = dict.fromkeys(owner.address.toolbox for owner in owners)
            found = await self._offering.shelves(boxes, "prompts")
            offered = {shelf.address: shelf.offers for shelf in found.shelves}
            owners.sort(key=lambda owner: owner.key not in offered.get(owner.address, {}))
        if not owners:
            raise RequestError(envelope.INVALID_PARAMS, f"Unknown prompt: {name}")
        return owners[0]

    # Resources

    async def require_owner(self, uri: str) -> Owned:
        owner = await self.owner(uri)
        if owner is None:
            code = not_found_code(modern_host=self._era.modern)
            raise RequestError(code, f"Resource not found: {uri}", {"uri": uri})
        return owner

    async def owner(self, uri: str) -> Owned | None:
        """Whose resource it is: by its form, by the lists and tools, by templates, or for want of others."""
        named = read_addressed(uri)
        if named is not None and named.address in self._offering.addresses():
            return named
        near = self.toolboxes
        return (
            self._offering.owner(uri, near)
            or await self._asked_owner(uri, near, begin=True)
            or await self._asked_owner(uri, self._offering.toolboxes, begin=False)
            or self._offering.only_owner(uri, near)
        )

    async def _asked_owner(self, uri: str, toolboxes: list[str], *, begin: bool) -> Owned | None:
        await self._offering.shelves(toolboxes, "resources", begin=begin)
        found = self._offering.owner(uri, toolboxes, asked=True)
        if found is not None:
            return found
        templates = await self._offering.shelves(toolboxes, "templates", begin=begin)
        return owner_by_template(uri, templates.shelves)


def require_own_names(shelves: Iterable[Shelf]) -> None:
    """Under bare names two prompts of one name can't be told apart: as with tools, none is shown."""
    owners: dict[str, ServerAddress] = {}
    for shelf in shelves:
        for name in shelf.offers:
            if name in owners:
                why = (
                    f"'naming' is 'bare', but {owners[name]} and {shelf.address} both have a prompt "
                    f"named {name!r}: give them endpoints of their own, or leave 'naming' out"
                )
                raise RequestError(envelope.INTERNAL_ERROR, why)
            owners[name] = shelf.address
