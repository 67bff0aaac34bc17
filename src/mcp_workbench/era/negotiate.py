"""Meeting a server on a pipe: which era does it speak? Steps as data; the caller performs them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from mcp_workbench.core.spec import Era
from mcp_workbench.era.declared import Declared, read_declared
from mcp_workbench.era.revision import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LEGACY,
    MODERN,
    NEWEST_LEGACY,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
)
from mcp_workbench.timing import deadline

DISCOVER = "server/discover"
INITIALIZE = "initialize"
PROBE_PATIENCE = deadline(3.0)  # seconds of silence after which we greet the old way too


# What the caller tells us


class Answered(msgspec.Struct, frozen=True):
    """The server answered one of our two questions; `code` is 0 where there was no error."""

    method: str
    result: bytes = b""
    code: int = 0
    message: str = ""


class Silence(msgspec.Struct, frozen=True):
    """Nothing came for as long as our patience lasts."""


class HungUp(msgspec.Struct, frozen=True):
    """The server's process ended, or its pipe did."""


Event = Answered | Silence | HungUp


# Where we stand


class Probing(msgspec.Struct, frozen=True):
    """We asked in the modern way and wait."""

    fallback: bool  # may we greet in the legacy way?
    again: bool = False  # it named the versions that it speaks, and was asked once more


class Greeting(msgspec.Struct, frozen=True):
    """We greeted in the legacy way. `probed`: a late modern answer still counts."""

    probed: bool = False


class Agreed(msgspec.Struct, frozen=True):
    """Both sides know what they speak."""

    revision: str
    name: str = ""
    version: str = ""
    declared: Declared = Declared()
    instructions: str = ""

    @property
    def listen(self) -> bool:
        """Does it announce changes to those who listen, and to nobody else?"""
        return self.revision == MODERN and self.declared.announces


class Startover(msgspec.Struct, frozen=True):
    """The probe ended the process: it has to be started again and greeted the old way."""


class Refused(msgspec.Struct, frozen=True):
    """There is no common ground."""

    reason: str


State = Probing | Greeting | Agreed | Startover | Refused


class Ask(msgspec.Struct, frozen=True):
    """Send this request."""

    method: str


Step = tuple[State, tuple[Ask, ...]]


def first_step(era: Era) -> Step:
    if era == "legacy":
        return Greeting(), (Ask(INITIALIZE),)
    return Probing(fallback=era == "auto"), (Ask(DISCOVER),)


def step(state: State, event: Event) -> Step:
    """What follows from where we stand and what has happened."""
    match state, event:
        case Probing(), Answered(method="server/discover"):
            return _after_probe(state, event)
        case Probing(fallback=True), Silence():
            return Greeting(probed=True), (Ask(INITIALIZE),)
        case Probing(fallback=True), HungUp():
            return Startover(), ()
        case Greeting(probed=True), Answered(method="server/discover"):
            return _after_late_probe(state, event)
        case Greeting(), Answered(method="initialize"):
            return _after_greeting(state, event)
        case ((Probing() | Greeting()), HungUp()):
            return Refused("exited during startup"), ()
        case _:
            return state, ()


def _after_probe(state: Probing, event: Answered) -> Step:
    found = _modern(event)
    if found is not None:
        return found, ()
    if event.code == UNSUPPORTED_VERSION and not state.again:  # only a modern server says so
        return Probing(state.fallback, again=True), (Ask(DISCOVER),)
    if state.fallback:
        return Greeting(), (Ask(INITIALIZE),)
    return Refused(f"it does not speak {MODERN} ({event.message or 'no common version'})"), ()


def _after_late_probe(state: Greeting, event: Answered) -> Step:
    found = _modern(event)
    return (state if found is None else found), ()


def _after_greeting(state: Greeting, event: Answered) -> Step:
    if event.code == UNSUPPORTED_VERSION and state.probed:
        return Probing(fallback=False), (Ask(DISCOVER),)
    if event.code:
        return Refused(f"it refused initialize: {event.message} ({event.code})"), ()
    try:
        found = msgspec.json.decode(event.result, type=_InitializeResult)
    except msgspec.DecodeError as error:
        return Refused(f"its answer to initialize has no usable form: {error}"), ()
    if found.protocolVersion not in LEGACY:
        return Refused(f"it speaks {found.protocolVersion}, which the workbench does not"), ()
    declared = read_declared(found.capabilities)
    info, told = found.serverInfo, _text(found.instructions)
    return Agreed(found.protocolVersion, info.name, info.version, declared, told), ()


class _Info(msgspec.Struct, frozen=True):
    name: str = ""
    version: str = ""


class _InitializeResult(msgspec.Struct):
    protocolVersion: str  # noqa: N815 - the wire's word
    serverInfo: _Info = _Info()  # noqa: N815
    capabilities: msgspec.Raw = msgspec.Raw(b"{}")
    instructions: msgspec.Raw = msgspec.Raw(b"")


class _DiscoverResult(msgspec.Struct):
    capabilities: msgspec.Raw = msgspec.Raw(b"{}")
    instructions: msgspec.Raw = msgspec.Raw(b"")
    supportedVersions: list[str] = []  # noqa: N815
    meta: dict[str, msgspec.Raw] = msgspec.field(
        default_factory=dict[str, msgspec.Raw], name="_meta"
    )


def _modern(event: Answered) -> Agreed | None:
    """The agreement that an answer to the probe amounts to, if it does."""
    if event.code:
        return None
    try:
        found = msgspec.json.decode(event.result, type=_DiscoverResult)
        raw = found.meta.get("io.modelcontextprotocol/serverInfo", msgspec.Raw(b"{}"))
        info = msgspec.json.decode(raw, type=_Info)
    except msgspec.DecodeError:
        return None
    if MODERN not in found.supportedVersions:
        return None
    declared, told = read_declared(found.capabilities), _text(found.instructions)
    return Agreed(MODERN, info.name, info.version, declared, told)


def _text(raw: msgspec.Raw) -> str:
    """An odd text costs nothing but itself."""
    try:
        return msgspec.json.decode(raw, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def params_of(
    method: str, ourselves: dict[str, str], capabilities: Mapping[str, msgspec.Raw]
) -> bytes:
    """The parameters of our two opening requests. A legacy server learns what it may ask for."""
    if method == INITIALIZE:
        return msgspec.json.encode(
            {
                "protocolVersion": NEWEST_LEGACY,
                "capabilities": dict(capabilities),
                "clientInfo": ourselves,
            }
        )
    nothing: dict[str, Any] = {}
    meta = {VERSION_KEY: MODERN, CLIENT_INFO_KEY: ourselves, CAPABILITIES_KEY: nothing}
    return msgspec.json.encode({"_meta": meta})
