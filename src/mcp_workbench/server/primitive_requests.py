"""Requests for prompts, resources and completion: each goes to the server that owns its name or URI."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core import apps
from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.catalogue import Definition
from mcp_workbench.core.errors import CallFailed, ServerError, WorkbenchError, shown_name
from mcp_workbench.core.primitive_names import (
    KEYS,
    PrimitiveKind,
    PrimitiveRef,
    ServerPrimitives,
    addressed_like,
    owner_by_template,
    owners_of_flat_name,
    read_addressed,
    shown_uris,
)
from mcp_workbench.core.raw_json import Members, TooManyParts, changed, each, read_members
from mcp_workbench.core.skills import DIRECTORY_READ, addressed_files, addressed_skill
from mcp_workbench.core.spec import ServerAddress, ToolIdentifier
from mcp_workbench.gateway.interceptors import Rejected
from mcp_workbench.gateway.view_primitives import ListedPrimitives, ViewPrimitives
from mcp_workbench.protocol.primitive_messages import not_found_code, read_error_for, with_cache
from mcp_workbench.protocol.translation import PAIRS, EraPair, asks_for_input
from mcp_workbench.server import text
from mcp_workbench.server.flat_tools import flat_definition
from mcp_workbench.server.host_calls import HostCall
from mcp_workbench.server.parse import (
    HostEra,
    RequestError,
    read_name,
    read_uri,
    refuse_cursor,
    string_or_empty,
)
from mcp_workbench.server.text import collect, comma_separated, joined
from mcp_workbench.transport import jsonrpc

if TYPE_CHECKING:
    from mcp_workbench.server.session import HostSession
    from mcp_workbench.server.session_tools import ToolView

encode = msgspec.json.encode
_MEMBERS: dict[PrimitiveKind, bytes] = {
    "prompts": b"prompts",
    "resources": b"resources",
    "templates": b"resourceTemplates",
    "skills": b"skills",
}
_NO_COMPLETION = b'{"completion":{"values":[]}}'

Result = msgspec.Raw | bytes


class LocalRequest(msgspec.Struct, frozen=True):
    """A request that we answer ourselves: its id, the members of `params`, and `_meta`."""

    id: bytes
    members: Members
    meta: Members


class PrimitiveCall(HostCall):
    """A request to one server, other than a tool call. It has no target until its owner is known."""

    explains = False
    unknown_method = b""  # the result if the server does not have the method
    change_result: Callable[[Result], Result] | None = None  # before the host gets it
    change_error: Callable[[EraPair, bytes], bytes] | None = None

    def address_to(self, owner: PrimitiveRef, members: Members) -> None:
        """Send it to this server, with the server's own name or URI in `members`."""
        request = self.request
        address = owner.address
        tool = ToolIdentifier(address.toolbox, address.server, request.method)
        self.request = msgspec.structs.replace(request, tool=tool, params=members)

    def reply(self, result: Result) -> None:
        if self.change_result is not None and not asks_for_input(msgspec.Raw(bytes(result))):
            result = self.change_result(result)
        super().reply(result)

    def refuse(self, outcome: Rejected) -> None:
        known = outcome.read().code != jsonrpc.METHOD_NOT_FOUND
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
        message = error.message
        if isinstance(error, CallFailed):
            message = f"[{self.request.tool.address}] Error: {error.reason}"
        if error.code in text.REFUSALS and error.hint:
            message = f"{message}. {error.hint}"
        self.session.refuse(self.id, text.refused_request(error, message))


ListHandler = Callable[[LocalRequest], Coroutine[Any, Any, None]]
CallHandler = Callable[[PrimitiveCall], Coroutine[Any, Any, None]]


class PrimitiveRequests:
    """Handles the requests of one session."""

    def __init__(
        self, session: HostSession, upstream: ViewPrimitives, owners: PrimitiveOwners
    ) -> None:
        self._session = session
        self._upstream = upstream
        self._owners = owners
        self.requested_lists: set[str] = set()  # "prompts", "resources"
        self._lists: dict[str, ListHandler] = {
            "prompts/list": self._prompts,
            "resources/list": self._resources,
            "resources/templates/list": self._templates,
            "skills/list": self._skills,
        }
        self._calls: dict[str, CallHandler] = {
            "prompts/get": self._prompt,
            "resources/read": self._read,
            "completion/complete": self._complete,
            "skills/get": self._skill,
            DIRECTORY_READ: self._directory,
        }

    def handle(self, method: str, id: bytes, members: Members, meta: Members) -> None:
        if method in self._lists:
            request = LocalRequest(id, members, meta)
            self._session.run(id, self.answer, request, self._lists[method])
            return
        elicitation = self._session.elicitation
        target, modern = ToolIdentifier("", "", method), self._session.era.modern
        self.pass_on(id, CallRequest(target, members, meta, modern, elicitation.declared, method))

    def pass_on(self, id: bytes, request: CallRequest) -> None:
        """Send a request to its server; to the owner of its name or URI, if it has no server yet."""
        call = PrimitiveCall(self._session, id, request)
        if self._session.elicitation.register(call):
            self._session.run(id, self._send, call)

    async def _send(self, call: PrimitiveCall) -> None:
        """Find the owner and send the call there; an error becomes the outcome of the call."""
        try:
            if (find_owner := self._calls.get(call.request.method)) is not None:
                await find_owner(call)
            if self._session.elicitation.take_answers(call):
                self._session.under_way[call.id] = call
                await self._session.view.dispatch(call)
        except RequestError as error:
            call.finish(Rejected(msgspec.Raw(error.error), is_ours=True))
        except WorkbenchError as error:
            call.fail(error)

    async def answer(self, request: LocalRequest, handler: ListHandler) -> None:
        """Handle a request; an error is returned as a JSON-RPC error."""
        try:
            await handler(request)
        except RequestError as refusal:
            self._session.refuse(request.id, refusal.error)
        except ServerError as error:
            self._session.refuse(request.id, error.error)
        except WorkbenchError as error:
            self._session.refuse(request.id, text.refused_request(error, error.message))

    # Lists

    async def _prompts(self, request: LocalRequest) -> None:
        listed = await self._listed(request, "prompts")
        if self._owners.bare:
            require_unique_names(listed.servers)
        shown = (
            offer.raw
            if self._owners.bare
            else flat_definition(Definition(offer.key, offer.raw), server.address)
            for server in listed.servers
            for offer in server.offers.values()
        )
        await self._reply_list(request.id, "prompts", shown, listed)

    async def _resources(self, request: LocalRequest) -> None:
        await self._uris(request, "resources")

    async def _templates(self, request: LocalRequest) -> None:
        await self._uris(request, "templates")

    async def _uris(self, request: LocalRequest, kind: PrimitiveKind) -> None:
        shows_apps = self._session.elicitation.shows_apps
        listed = await self._listed(request, kind)
        by_address = {server.address: server.offers for server in listed.servers}
        shown = (
            _renamed(by_address[owner.address][owner.key].raw, KEYS[kind], owner.key, uri)
            for uri, owner in shown_uris(listed.servers, pages=shows_apps).items()
        )
        await self._reply_list(request.id, kind, shown, listed)

    async def _listed(self, request: LocalRequest, kind: PrimitiveKind) -> ListedPrimitives:
        refuse_cursor(request.members)
        if kind != "skills":  # whose changes are not announced
            self.requested_lists.add("prompts" if kind == "prompts" else "resources")
        return await self._upstream.listed(self._owners.toolboxes, kind)

    async def _reply_list(
        self, id: bytes, kind: PrimitiveKind, shown: Iterable[bytes], listed: ListedPrimitives
    ) -> None:
        """Reply with a list, built in time slices: it may be long."""
        elements = comma_separated(await collect(shown))
        end = b"]}"
        if self._session.era.modern:
            scope = b"public" if listed.public else b"private"
            end = b'],"ttlMs":%d,"cacheScope":"%b"}' % (listed.ttl, scope)
        self._session.reply_own(id, await joined((b'{"%b":[' % _MEMBERS[kind], *elements, end)))

    async def has_any(self, toolbox: str, kind: str) -> bool:
        """Whether a server of this toolbox lists anything of this kind."""
        kinds: tuple[PrimitiveKind, ...] = (
            ("prompts",) if kind == "prompts" else ("resources", "templates")
        )
        for listed_kind in kinds:
            listed = await self._upstream.listed([toolbox], listed_kind)
            if any(server.offers for server in listed.servers):
                return True
        return False

    # Prompts

    async def _prompt(self, call: PrimitiveCall) -> None:
        owner = await self._owners.prompt_owner(read_name(dict(call.request.params)))
        call.address_to(owner, {**call.request.params, "name": _raw(owner.key)})

    # Resources

    async def _read(self, call: PrimitiveCall) -> None:
        uri = read_uri(call.request.params)
        owner = await self._owners.require_owner(uri)
        script = await self._page_script(uri, owner)

        def change_result(result: Result) -> Result:
            result = with_cache(result) if self._session.era.modern else result
            if script:
                from mcp_workbench.core.app_pages import with_script

                result = with_script(result, script)
            return result if uri == owner.key else _readdressed(result, owner.address, uri)

        def change_error(pair: EraPair, error: bytes) -> bytes:
            return read_error_for(pair, error, owner.key, uri)

        call.change_result, call.change_error = change_result, change_error
        call.address_to(owner, {**call.request.params, "uri": _raw(owner.key)})

    async def _page_script(self, uri: str, owner: PrimitiveRef) -> str:
        """What makes an app call the tools of its own server; empty if this is no page of an app."""
        if not (self._session.elicitation.shows_apps and uri.startswith(apps.ADDRESSED)):
            return ""
        from mcp_workbench.core.app_pages import page_script  # only for apps

        names = await self._owners.flat_names()
        if names is not None and self._session.view.only_server is not None:
            return ""  # there its names mean what they say
        return page_script(owner.address, names)

    # Skills, for modern hosts

    async def _skills(self, request: LocalRequest) -> None:
        listed = await self._listed(request, "skills")
        await self._reply_list(request.id, "skills", _shown_skills(listed.servers), listed)

    async def _skill(self, call: PrimitiveCall) -> None:
        self._to_skills(call, "skill", addressed_skill)

    async def _directory(self, call: PrimitiveCall) -> None:
        self._to_skills(call, "resources", addressed_files)

    def _to_skills(
        self, call: PrimitiveCall, member: str, address: Callable[[bytes, ServerAddress], bytes]
    ) -> None:
        """Send a call to the server that its address names; `address` changes this member of the result."""
        uri = read_uri(call.request.params)
        owner = read_addressed(uri)
        if owner is None or not self._upstream.may_have_skills(owner.address):
            raise RequestError(jsonrpc.INVALID_PARAMS, f"Skill not found: {shown_name(uri)}")

        def change_result(result: Result) -> Result:
            result = with_cache(result) if member == "skill" else result
            try:
                found = bytes(read_members(result)[member])
                return changed(result, {member: address(found, owner.address)})
            except (KeyError, msgspec.DecodeError):
                return result

        call.change_result = change_result
        call.address_to(owner, {**call.request.params, "uri": _raw(owner.key)})

    # Completion

    async def _complete(self, call: PrimitiveCall) -> None:
        ref = _members(call.request.params.get("ref"))
        kind = string_or_empty(ref.get("type"))
        if kind == "ref/prompt":
            owner = await self._owners.prompt_owner(read_name(ref))
            ref["name"] = _raw(owner.key)
        elif kind == "ref/resource":
            owner = await self._owners.require_owner(read_uri(ref))
            ref["uri"] = _raw(owner.key)
        else:
            raise RequestError(jsonrpc.INVALID_PARAMS, "params.ref must be a prompt or a resource")
        # We declare completions for all our servers: one that has none completes nothing.
        call.unknown_method = _NO_COMPLETION
        call.address_to(owner, {**call.request.params, "ref": _raw(ref)})


def _shown_skills(servers: Iterable[ServerPrimitives]) -> Iterator[bytes]:
    """Entries with addresses; one with too many files is left out, as a whole."""
    for server in servers:
        for offer in server.offers.values():
            with suppress(TooManyParts):
                yield addressed_skill(offer.raw, server.address)


def _renamed(raw: bytes, member: str, key: str, shown: str) -> bytes:
    return raw if key == shown else changed(raw, {member: encode(shown)})


def _readdressed(
    result: msgspec.Raw | bytes, address: ServerAddress, requested: str
) -> msgspec.Raw | bytes:
    """The contents of a resource that was requested by its address, with such addresses as URIs."""

    def renamed(content: bytes) -> bytes:
        uri = string_or_empty(read_members(content).get("uri"))
        shown = addressed_like(requested, PrimitiveRef(address, uri)) if uri else uri
        return _renamed(content, "uri", uri, shown)

    try:
        return changed(result, {"contents": each(read_members(result)["contents"], renamed)})
    except (KeyError, msgspec.DecodeError):
        return result


def _members(raw: msgspec.Raw | None) -> Members:
    try:
        return read_members(raw or b"{}")
    except msgspec.DecodeError:
        return {}


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(encode(value))


class PrimitiveOwners:
    """Which server owns a prompt's name or a resource's URI: toolboxes that the host sees come first."""

    def __init__(self, era: HostEra, upstream: ViewPrimitives, tool_view: ToolView) -> None:
        self._era = era
        self._upstream = upstream
        self._tool_view = tool_view

    @property
    def toolboxes(self) -> list[str]:
        """The toolboxes that the host sees."""
        return self._tool_view.toolboxes(modern=self._era.modern)

    def may_use(self, toolbox: str) -> bool:
        """Whether the host may open this toolbox, or has opened it."""
        return toolbox in self._tool_view.toolboxes(modern=True)

    @property
    def bare(self) -> bool:
        """Whether primitives are shown under their servers' own names."""
        return self._tool_view.bare

    async def flat_names(self) -> frozenset[str] | None:
        """The tools that have flat names for this host; None: all of them."""
        return await self._tool_view.flat_names()

    # Prompts

    async def prompt_owner(self, name: str) -> PrimitiveRef:
        if self.bare:
            listed = await self._upstream.listed(self.toolboxes, "prompts")
            require_unique_names(listed.servers)
            owners = [PrimitiveRef(s.address, name) for s in listed.servers if name in s.offers]
        else:
            owners = owners_of_flat_name(name, self._upstream.addresses())
        if len(owners) > 1:  # names of toolboxes or servers contain the separator
            boxes = dict.fromkeys(owner.address.toolbox for owner in owners)
            listed = await self._upstream.listed(boxes, "prompts")
            offered = {server.address: server.offers for server in listed.servers}
            owners.sort(key=lambda owner: owner.key not in offered.get(owner.address, {}))
        if not owners:
            raise RequestError(jsonrpc.INVALID_PARAMS, f"Unknown prompt: {shown_name(name)}")
        return owners[0]

    # Resources

    async def require_owner(self, uri: str) -> PrimitiveRef:
        owner = await self.owner(uri)
        if owner is None:
            code = not_found_code(modern_host=self._era.modern)
            raise RequestError(code, f"Resource not found: {shown_name(uri)}", {"uri": uri})
        return owner

    async def owner(self, uri: str) -> PrimitiveRef | None:
        """The owner: by the form of the URI, by lists and tools, by templates, or as the only candidate."""
        named = read_addressed(uri)
        if named is not None and named.address in self._upstream.addresses():
            return named
        near = self.toolboxes
        return (
            self._upstream.owner(uri, near)
            or await self._asked_owner(uri, near, connect=True)
            or await self._asked_owner(uri, self._upstream.toolboxes, connect=False)
            or self._upstream.only_owner(uri, near)
        )

    async def _asked_owner(
        self, uri: str, toolboxes: list[str], *, connect: bool
    ) -> PrimitiveRef | None:
        await self._upstream.listed(toolboxes, "resources", connect=connect)
        owner = self._upstream.owner(uri, toolboxes, asked=True)
        if owner is not None:
            return owner
        templates = await self._upstream.listed(toolboxes, "templates", connect=connect)
        return owner_by_template(uri, templates.servers)


def require_unique_names(servers: Iterable[ServerPrimitives]) -> None:
    """Raise a RequestError if two servers have a prompt of one name, which bare names can't distinguish."""
    owners: dict[str, ServerAddress] = {}
    for server in servers:
        for name in server.offers:
            if name in owners:
                why = (
                    f"'naming' is 'bare', but {owners[name]} and {server.address} both have a prompt "
                    f"named {name!r}: give them endpoints of their own, or leave 'naming' out"
                )
                raise RequestError(jsonrpc.INTERNAL_ERROR, why)
            owners[name] = server.address
