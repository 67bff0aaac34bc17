"""Extensions that we do not know: passed on where a host's request can mean one server only.

That is the case if the host sees a single server, or if the parameters name one, by the flat name of a tool or
prompt or by the address of a resource. A server with `approve` has no such requests: nobody could say what a
person would approve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.core.primitive_names import PrimitiveRef, owners_of_flat_name, read_addressed
from mcp_workbench.core.raw_json import Members, read_name
from mcp_workbench.core.spec import ServerAddress, ServerSpec
from mcp_workbench.protocol.extensions import SKILLS, passed_on
from mcp_workbench.upstream.connection import Ready

if TYPE_CHECKING:
    from mcp_workbench.gateway.views import View

_NAMES = ("name", "uri")  # members of parameters that may name a server


class NamedServer(msgspec.Struct, frozen=True):
    """The server that a request means, and the parameters with the server's own names."""

    address: ServerAddress
    params: Members


def offered_extensions(view: View) -> Members:
    """Return what is declared to a host: the extensions of the only server that it sees."""
    spec = view.only_server
    return {} if spec is None else _extensions(view, spec)


def skill_settings(view: View) -> msgspec.Raw | None:
    """Return what is declared to a host about skills; None if no server is known to have any."""
    boxes = view.snapshot.toolboxes.values()
    specs = [spec for box in boxes for spec in box.servers.values()]
    declared = [found for spec in specs if (found := _skills(view, spec)) is not None]
    if not declared:
        return None
    reads = any(_Settings.of(settings).directoryRead is True for settings in declared)
    return msgspec.Raw(b'{"directoryRead":true}' if reads else b"{}")


def may_have_skills(view: View, spec: ServerSpec) -> bool:
    """Whether the server has skills, as far as anybody knows."""
    is_known = bool(view.live([spec])) or view.remembered(spec) is not None
    return not is_known or _skills(view, spec) is not None


class _Settings(msgspec.Struct, frozen=True):
    directoryRead: Any = None  # noqa: N815 - the wire's word

    @classmethod
    def of(cls, settings: msgspec.Raw) -> _Settings:
        try:
            return msgspec.json.Decoder(_Settings, float_hook=float).decode(settings)
        except msgspec.DecodeError:
            return _Settings()


def _skills(view: View, spec: ServerSpec) -> msgspec.Raw | None:
    """Return the settings with which the server declares skills: now, or when it was last connected."""
    for connection in view.live([spec]):
        state = connection.state
        if isinstance(state, Ready):
            return state.agreed.extensions.get(SKILLS) if connection.modern else None
    known = view.remembered(spec)
    return known.extensions.get(SKILLS) if known is not None and known.modern else None


def named_server(view: View, params: Members) -> NamedServer | None:
    """Return the server that such a request means, if there is one and it has an extension."""
    own = dict(params)
    spec = view.only_server
    for member in _NAMES:
        if (owner := _owner(view, member, params)) is not None:
            own[member] = msgspec.Raw(msgspec.json.encode(owner.key))
            spec = view.spec(owner.address)
    if spec is None or not _extensions(view, spec):
        return None
    return NamedServer(spec.address, own)


def _owner(view: View, member: str, params: Members) -> PrimitiveRef | None:
    try:
        text = read_name(params[member])
    except (KeyError, msgspec.DecodeError):
        return None
    if member == "uri":
        owner = read_addressed(text)
        return owner if owner is not None and view.snapshot.find(owner.address) else None
    boxes = view.snapshot.toolboxes.values()
    owners = owners_of_flat_name(text, [s.address for box in boxes for s in box.servers.values()])
    return owners[0] if len(owners) == 1 else None


def _extensions(view: View, spec: ServerSpec) -> Members:
    """Return what the server declares now, or declared when it was last connected."""
    if spec.approve:
        return {}
    for connection in view.live([spec]):
        if isinstance(connection.state, Ready):
            return passed_on(connection.state.agreed.extensions)
    known = view.remembered(spec)
    return {} if known is None else passed_on(known.extensions)
