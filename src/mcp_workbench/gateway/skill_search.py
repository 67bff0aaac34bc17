"""Searches the skills of all toolboxes that a host may see: by name and description, never by content."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.catalogue import Catalogue, Definition
from mcp_workbench.core.skills import Skill, read_skill, skill_address
from mcp_workbench.core.spec import ServerAddress, ServerSpec, ToolFilter
from mcp_workbench.search.index import Index, Search
from mcp_workbench.search.queries import Query, SearchableServer, SearchScope, Words
from mcp_workbench.transport.tasks import task_scope
from mcp_workbench.upstream.conversation import RequestFailed
from mcp_workbench.upstream.tool_list import Unlistable

if TYPE_CHECKING:
    from mcp_workbench.gateway.views import View
    from mcp_workbench.upstream.connection import Connection

MOST = 1000  # skills of all servers that are searched
LIST_WAIT = 5.0  # seconds for servers whose skills nobody has listed yet


class FoundSkill(msgspec.Struct, frozen=True):
    """A hit, with the address by which hosts read it."""

    server: ServerAddress
    skill: Skill
    address: str


async def find_skills(view: View, query: Query) -> list[FoundSkill]:
    """Return the skills that match, best first. No server is started for it."""
    known = {address: skills for address, skills in (await _known(view, query)).items() if skills}
    if not known:
        return []
    return await asyncio.to_thread(_ranked, view, query, known)


async def _known(view: View, query: Query) -> dict[ServerAddress, list[Skill]]:
    boxes = view.snapshot.toolboxes.values()
    specs = [s for box in boxes for s in box.servers.values() if query.covers(s.address)]
    live = {connection.spec.address: connection for connection in view.live(specs)}
    unlisted = [
        connection
        for connection in live.values()
        if connection.primitives.offers_any("skills")
        and connection.primitives.known("skills") is None
    ]
    if unlisted:
        await _list(unlisted)
    left = MOST
    known: dict[ServerAddress, list[Skill]] = {}
    for spec in specs:
        skills = list(filter(None, map(read_skill, _entries(view, spec, live.get(spec.address)))))
        known[spec.address] = skills[:left]
        left -= len(known[spec.address])
    return known


async def _list(connections: list[Connection]) -> None:
    async def list_one(connection: Connection) -> None:
        with suppress(Unlistable, RequestFailed):
            await connection.primitives.listed("skills")

    async with task_scope() as scope:
        tasks = [scope.start(list_one(c), f"list skills of {c.spec.address}") for c in connections]
        await asyncio.wait(tasks, timeout=LIST_WAIT)


def _entries(view: View, spec: ServerSpec, live: Connection | None) -> Iterable[bytes]:
    """What the server listed last, to us or to another workbench."""
    if live is not None:
        if not live.primitives.offers_any("skills"):
            return ()
        listed = live.primitives.known("skills")
        return [] if listed is None else [one.raw for one in listed.offers.values()]
    known = view.remembered(spec)
    return () if known is None else known.offers.get("skills", ())


def _ranked(view: View, query: Query, known: dict[ServerAddress, list[Skill]]) -> list[FoundSkill]:
    """Rank them as tools are: each is a definition with its name and description."""
    words = Words()
    index, servers = Index(words, {}), dict[ServerAddress, SearchableServer]()
    by_name: dict[tuple[ServerAddress, str], Skill] = {}
    for address, skills in known.items():
        box = view.snapshot.toolboxes[address.toolbox]
        spec = msgspec.structs.replace(box.servers[address.server], tools=ToolFilter())
        tools: dict[str, Definition] = {}
        for skill in skills:
            text = msgspec.json.encode({"name": skill.name, "description": skill.description})
            tools.setdefault(skill.name, Definition(skill.name, text))
            by_name.setdefault((address, skill.name), skill)
        one = servers[address] = SearchableServer(spec, box, Catalogue(tools))
        index.put(address, one.visible(), one.about, one.fingerprint, weigh=False)
    index.fill()
    found = Search(index, SearchScope(servers, ()), words, None).find(query)
    hits = [(hit.tool.address, by_name[hit.tool.address, hit.tool.tool]) for hit in found.tools]
    return [FoundSkill(at, skill, skill_address(at, skill.uri)) for at, skill in hits]
