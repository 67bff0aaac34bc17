"""Prompts, resources and completion: each request finds the server that it is about."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.call import CallRequest
from mcp_workbench.core.catalogue import Definition
from mcp_workbench.core.errors import CallFailed, ServerError, WorkbenchError
from mcp_workbench.core.names import ServerAddress, ToolIdentifier
from mcp_workbench.core.offers import (
    KEYS,
    Kind,
    Owned,
    addressed,
    shown_uris,
)
from mcp_workbench.core.splice import changed, each
from mcp_workbench.era.primitives import read_error_for, with_cache
from mcp_workbench.era.translate import PAIRS, Members, Pair, asks_for_input, read_members
from mcp_workbench.gateway.interceptors import Rejected
from mcp_workbench.gateway.primitives import Offering, Shelves
from mcp_workbench.surface import texts
from mcp_workbench.surface.calls import HostCall
from mcp_workbench.surface.flat_tools import flat_definition
from mcp_workbench.surface.long_answers import in_turns
from mcp_workbench.surface.owners import Owners, require_own_names
from mcp_workbench.surface.parse import RequestError, read_name, read_uri
from mcp_workbench.wire import envelope

if TYPE_CHECKING:
    from mcp_workbench.surface.session import HostSession

encode = msgspec.json.encode
_MEMBERS: dict[Kind, bytes] = {
    "prompts": b"prompts",
    "resources": b"resources",
    "templates": b"resourceTemplates",
}
_NO_COMPLETION = b'{"completion":{"values":[]}}'

Result = msgspec.Raw | bytes


class Request(msgspec.Struct, frozen=True):
    """A request that we answer ourselves: an id, the members of `params`, and `_meta`."""

    id: bytes
    members: Members
    meta: Members


class RequestCall(HostCall):
    """A request to one server, other than a call of a tool. Before its owner is known, it has no target."""

    explains = False
    unknown_method = b""  # the result where the server does not know the method
    change_result: Callable[[Result], Result] | None = None  # for the host
    change_error: Callable[[Pair, bytes], bytes] | None = None

    def address_to(self, owner: Owned, members: Members) -> None:
        """It goes to this server, in the server's own words."""
        request = self.request
        address = owner.address
        tool = ToolIdentifier(address.toolbox, address.server, request.method)
        self.request = msgspec.structs.replace(request, tool=tool, params=members)

    def reply(self, result: Result) -> None:
        if self.change_result is not None and not asks_for_input(msgspec.Raw(bytes(result))):
            result = self.change_result(result)
        super().reply(result)

    def refuse(self, outcome: Rejected) -> None:
        known = envelope.read_error(outcome.error).code != envelope.METHOD_NOT_FOUND
        if self.unknown_method and not known and not outcome.is_ours:
            self.session.reply_own(self.id, self.unknown_method)
            return
        if self.change_error is not None and not outcome.is_ours:
            modern_server = self.connection is not None and self.connection.modern
            pair = PAIRS[self.request.modern_host, modern_server]
            error = msgspec.Raw(self.change_error(pair, bytes(outcome.error)))
            outcome = Rejected(error, outcome.hint)
        super().refuse(outcome)

    def reply_failure(self, error: WorkbenchError) -> None:
        text = error.message
        if isinstance(error, CallFailed):
            text = f"[{self.request.tool.address}] Error: {error.reason}"
        self.session.refuse(self.id, texts.refused_request(error, text))


Answering = Callable[[Request], Coroutine[Any, Any, None]]
Addressing = Callable[[RequestCall], Coroutine[Any, Any, None]]


class Primitives:
    """What one host asks for beside tools."""

    def __init__(self, session: HostSession, offering: Offering, owners: Owners) -> None:
        self._session = session
        self._offering = offering
        self._owners = owners
        self.seen: set[str] = set()  # kinds of lists that the host has asked for
        self._lists: dict[str, Answering] = {
            "prompts/list": self._prompts,
            "resources/list": self._resources,
            "resources/templates/list": self._templates,
        }
        self._calls: dict[str, Addressing] = {
            "prompts/get": self._prompt,
            "resources/read": self._read,
            "completion/complete": self._complete,
        }

    def begin(self, method: str, id: bytes, members: Members, meta: Members) -> None:
        if method in self._lists:
            request = Request(id, members, meta)
            self._session.run(id, self.answer, request, self._lists[method])
            return
        questions = self._session.questions
        call = RequestCall(
            self._session,
            id,
            CallRequest(
                ToolIdentifier("", "", method),
                members,
                meta,
                self._session.era.modern,
                questions.declared_once,
                method,
            ),
        )
        if questions.opening(call):
            self._session.run(id, self._send, call)

    async def _send(self, call: RequestCall) -> None:
        """Find the server, and send it there; what goes wrong is its outcome."""
        try:
            await self._calls[call.request.method](call)
            if self._session.questions.returned(call):
                self._session.under_way[call.id] = call
                await self._session.view.dispatch(call)
        except RequestError as error:
            call.finish(Rejected(msgspec.Raw(error.error), is_ours=True))
        except WorkbenchError as error:
            call.fail(error)

    async def answer(self, request: Request, answering: Answering) -> None:
        """Perform a request; what goes wrong is told as a JSON-RPC error."""
        try:
            await answering(request)
        except RequestError as refusal:
            self._session.refuse(request.id, refusal.error)
        except ServerError as error:
            self._session.refuse(request.id, error.error)
        except WorkbenchError as error:
            self._session.refuse(request.id, texts.refused_request(error, error.message))

    # Lists

    async def _prompts(self, request: Request) -> None:
        found = await self._listed(request, "prompts")
        if self._owners.bare:
            require_own_names(found.shelves)
        shown = (
            offer.raw
            if self._owners.bare
            else flat_definition(Definition(offer.key, offer.raw), shelf.address)
            for shelf in found.shelves
            for offer in shelf.offers.values()
        )
        await self._reply_list(request.id, "prompts", shown, found)

    async def _resources(self, request: Request) -> None:
        await self._uris(request, "resources")

    async def _templates(self, request: Request) -> None:
        await self._uris(request, "templates")

    async def _uris(self, request: Request, kind: Kind) -> None:
        found = await self._listed(request, kind)
        by_address = {shelf.address: shelf.offers for shelf in found.shelves}
        shown = (
            _renamed(by_address[owner.address][owner.key].raw, KEYS[kind], owner.key, uri)
            for uri, owner in shown_uris(found.shelves).items()
        )
        await self._reply_list(request.id, kind, shown, found)

    async def _listed(self, request: Request, kind: Kind) -> Shelves:
        cursor = request.members.get("cursor")
        if cursor is not None and not envelope.is_null(cursor):
            raise RequestError(envelope.INVALID_PARAMS, "Unknown cursor: the list has one page")
        self.seen.add("prompts" if kind == "prompts" else "resources")
        return await self._offering.shelves(self._owners.toolboxes, kind)

    async def _reply_list(
        self, id: bytes, kind: Kind, shown: Iterable[bytes], found: Shelves
    ) -> None:
        """A list may be long: everybody else has a turn while it is made."""
        body = b'{"%b":[%b]' % (_MEMBERS[kind], b",".join(await in_turns(shown)))
        if self._session.era.modern:
            scope = b"public" if found.public else b"private"
            body += b',"ttlMs":%d,"cacheScope":"%b"' % (found.ttl, scope)
        self._session.reply_own(id, body + b"}")

    async def offers_any(self, toolbox: str, kind: str) -> bool:
        """Does this toolbox add to what the host sees?"""
        kinds: tuple[Kind, ...] = ("prompts",) if kind == "prompts" else ("resources", "templates")
        for one in kinds:
            found = await self._offering.shelves([toolbox], one)
            if any(shelf.offers for shelf in found.shelves):
                return True
        return False

    # Prompts

    async def _prompt(self, call: RequestCall) -> None:
        owner = await self._owners.prompt_owner(read_name(dict(call.request.params)))
        call.address_to(owner, {**call.request.params, "name": _raw(owner.key)})

    # Resources

    async def _read(self, call: RequestCall) -> None:
        uri = read_uri(call.request.params)
        owner = await self._owners.require_owner(uri)

        def result(found: Result) -> Result:
            found = with_cache(found) if self._session.era.modern else found
            return found if uri == owner.key else _readdressed(found, owner.address)

        def error(pair: Pair, told: bytes) -> bytes:
            return read_error_for(pair, told, owner.key, uri)

        call.change_result, call.change_error = result, error
        call.address_to(owner, {**call.request.params, "uri": _raw(owner.key)})

    # Completion

    async def _complete(self, call: RequestCall) -> None:
        ref = _members(call.request.params.get("ref"))
        kind = _text(ref.get("type"))
        if kind == "ref/prompt":
            owner = await self._owners.prompt_owner(read_name(ref))
            ref["name"] = _raw(owner.key)
        elif kind == "ref/resource":
            owner = await self._owners.require_owner(read_uri(ref))
            ref["uri"] = _raw(owner.key)
        else:
            raise RequestError(envelope.INVALID_PARAMS, "params.ref must be a prompt or a resource")
        # We said yes for all our servers: one that completes nothing has no completions.
        call.unknown_method = _NO_COMPLETION
        call.address_to(owner, {**call.request.params, "ref": _raw(ref)})


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
