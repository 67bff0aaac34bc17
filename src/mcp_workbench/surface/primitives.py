"""Prompts, resources and completion: each request finds the server that it is about."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from mcp_workbench.core.catalogue import Definition
from mcp_workbench.core.errors import ServerError, WorkbenchError
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.offers import (
    KEYS,
    Kind,
    Owned,
    addressed,
    shown_uris,
)
from mcp_workbench.core.splice import changed, each
from mcp_workbench.era.primitives import read_error_for, with_cache
from mcp_workbench.era.translate import Members, Pair, read_members
from mcp_workbench.offering import Offering, Shelves
from mcp_workbench.surface import texts
from mcp_workbench.surface.flat_tools import flat_definition
from mcp_workbench.surface.host_request import (
    Enquiry,
    Host,
    Request,
    Result,
    Sending,
)
from mcp_workbench.surface.reading import Refusal, read_name, read_uri
from mcp_workbench.surface.routes import Routes, require_own_names
from mcp_workbench.wire import envelope

encode = msgspec.json.encode
_MEMBERS: dict[Kind, bytes] = {
    "prompts": b"prompts",
    "resources": b"resources",
    "templates": b"resourceTemplates",
}
_MAY_ASK = ("prompts/get", "resources/read")  # whose servers may ask before they answer
_NO_COMPLETION = b'{"completion":{"values":[]}}'


Answering = Callable[[Request], Coroutine[Any, Any, None]]


class Primitives:
    """What one host asks for beside tools."""

    def __init__(self, host: Host, offering: Offering, routes: Routes, sending: Sending) -> None:
        self._host = host
        self._offering = offering
        self._routes = routes
        self._sending = sending
        self.seen: set[str] = set()  # kinds of lists that the host has asked for
        self._methods: dict[str, Answering] = {
            "prompts/list": self._prompts,
            "prompts/get": self._prompt,
            "resources/list": self._resources,
            "resources/templates/list": self._templates,
            "resources/read": self._read,
            "completion/complete": self._complete,
        }

    def begin(self, method: str, id: bytes, members: Members, meta: Members) -> None:
        said: Members | None = members
        if method in _MAY_ASK:
            said = self._sending.opening(method, id, members, meta)
        if said is not None:
            self._host.run(id, self.answer, Request(id, said, meta), self._methods[method])

    async def answer(self, request: Request, answering: Answering) -> None:
        """Perform a request; what goes wrong is told as a JSON-RPC error."""
        try:
            await answering(request)
        except Refusal as refusal:
            self._host.refuse(request.id, refusal.error)
        except ServerError as error:
            self._host.refuse(request.id, error.error)
        except WorkbenchError as error:
            self._host.refuse(request.id, texts.refused_request(error, error.message))

    # Lists

    async def _prompts(self, request: Request) -> None:
        found = await self._listed(request, "prompts")
        if self._routes.bare:
            require_own_names(found.shelves)
        shown = [
            offer.raw
            if self._routes.bare
            else flat_definition(Definition(offer.key, offer.raw), shelf.address)
            for shelf in found.shelves
            for offer in shelf.offers.values()
        ]
        self._reply_list(request.id, "prompts", shown, found)

    async def _resources(self, request: Request) -> None:
        await self._uris(request, "resources")

    async def _templates(self, request: Request) -> None:
        await self._uris(request, "templates")

    async def _uris(self, request: Request, kind: Kind) -> None:
        found = await self._listed(request, kind)
        by_address = {shelf.address: shelf.offers for shelf in found.shelves}
        shown = [
            _renamed(by_address[owner.address][owner.key].raw, KEYS[kind], owner.key, uri)
            for uri, owner in shown_uris(found.shelves).items()
        ]
        self._reply_list(request.id, kind, shown, found)

    async def _listed(self, request: Request, kind: Kind) -> Shelves:
        cursor = request.members.get("cursor")
        if cursor is not None and not envelope.is_null(cursor):
            raise Refusal(envelope.INVALID_PARAMS, "Unknown cursor: the list has one page")
        self.seen.add("prompts" if kind == "prompts" else "resources")
        return await self._offering.shelves(self._routes.toolboxes, kind)

    def _reply_list(self, id: bytes, kind: Kind, shown: list[bytes], found: Shelves) -> None:
        body = b'{"%b":[%b]' % (_MEMBERS[kind], b",".join(shown))
        if self._host.era.modern:
            scope = b"public" if found.public else b"private"
            body += b',"ttlMs":%d,"cacheScope":"%b"' % (found.ttl, scope)
        self._host.reply_own(id, body + b"}")

    async def offers_any(self, toolbox: str, kind: str) -> bool:
        """Does this toolbox add to what the host sees?"""
        kinds: tuple[Kind, ...] = ("prompts",) if kind == "prompts" else ("resources", "templates")
        for one in kinds:
            found = await self._offering.shelves([toolbox], one)
            if any(shelf.offers for shelf in found.shelves):
                return True
        return False

    # Prompts

    async def _prompt(self, request: Request) -> None:
        owner = await self._routes.prompt_owner(read_name(dict(request.members)))
        members = {**request.members, "name": _raw(owner.key)}
        await self._sending.send(request, Enquiry(owner, "prompts/get", members))

    # Resources

    async def _read(self, request: Request) -> None:
        uri = read_uri(request.members)
        owner = await self._routes.require_owner(uri)

        def result(found: Result) -> Result:
            found = with_cache(found) if self._host.era.modern else found
            return found if uri == owner.key else _readdressed(found, owner.address)

        def error(pair: Pair, told: bytes) -> bytes:
            return read_error_for(pair, told, owner.key, uri)

        members = {**request.members, "uri": _raw(owner.key)}
        await self._sending.send(request, Enquiry(owner, "resources/read", members, result, error))

    # Completion

    async def _complete(self, request: Request) -> None:
        ref = _members(request.members.get("ref"))
        kind = _text(ref.get("type"))
        if kind == "ref/prompt":
            owner = await self._routes.prompt_owner(read_name(ref))
            ref["name"] = _raw(owner.key)
        elif kind == "ref/resource":
            owner = await self._routes.require_owner(read_uri(ref))
            ref["uri"] = _raw(owner.key)
        else:
            raise Refusal(envelope.INVALID_PARAMS, "params.ref must be a prompt or a resource")
        members = {**request.members, "ref": _raw(ref)}
        # We said yes for all our servers: one that completes nothing has no completions.
        enquiry = Enquiry(owner, "completion/complete", members, unknown_method=_NO_COMPLETION)
        await self._sending.send(request, enquiry)


def _renamed(raw: bytes, member: str, key: str, shown: str) -> bytes:
    return raw if key == shown else changed(raw, {member: encode(shown)})


def _readdressed(result: msgspec.Raw | bytes, address: ServerAddress) -> msgspec.Raw | bytes:
    """The contents of a resource that was asked for by its address, under such addresses."""

    def renamed(content: bytes) -> bytes:
        uri = _text(read_members(content).get("uri"))
        return _renamed(content, "uri", uri, addressed(Owned(address, uri)) if uri else uri)

    try:
        return changed(result, {"contents": each(read_members(result)["contents"], renamed)})
    except (KeyError, msgspec.DecodeError):
        return result


def _members(raw: msgspec.Raw | None) -> Members:
    try:
        return read_members(raw or b"{}")
    except msgspec.DecodeError:
        return {}


def _text(raw: msgspec.Raw | None) -> str:
    try:
        return msgspec.json.decode(raw or b'""', type=str)
    except msgspec.DecodeError:
        return ""


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(encode(value))
