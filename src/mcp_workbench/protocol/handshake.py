"""The revisions of the protocol, and the handshake that agrees on one with a server.

The handshake is a pure state machine: `first_step` and `step` return the next state and the requests to
send; the caller sends them, and reports responses, silence and exits as events. Unless the configuration
names an era, the caller says which comes first: `initialize` or `server/discover`. If the server refuses
it, stays silent or exits, the other one follows.
"""

from collections.abc import Mapping

import msgspec

from mcp_workbench import __version__
from mcp_workbench.core.raw_json import Members, TooLong, read_members
from mcp_workbench.core.spec import Era
from mcp_workbench.protocol.extensions import read_extensions
from mcp_workbench.timing import deadline

encode = msgspec.json.encode

# Revisions, which era each belongs to, and the names they define

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
NEWEST_LEGACY = LEGACY[-1]
MODERN = "2026-07-28"
BATCHES = "2025-03-26"  # the one revision in which a message may be an array

META = "io.modelcontextprotocol/"
VERSION_KEY = f"{META}protocolVersion"
CLIENT_INFO_KEY = f"{META}clientInfo"
CAPABILITIES_KEY = f"{META}clientCapabilities"
LOG_LEVEL_KEY = f"{META}logLevel"
SERVER_INFO_KEY = f"{META}serverInfo"
SUBSCRIPTION_KEY = f"{META}subscriptionId"

UNSUPPORTED_VERSION = -32022
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
URL_ELICITATION_NEEDED = -32042

# The member of `params` that the header Mcp-Name repeats.
NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}

# Errors that the host itself handles, not the model: they stay errors everywhere.
FOR_THE_HOST = frozenset({MISSING_CAPABILITY, URL_ELICITATION_NEEDED})
# Errors about our own request to a server: a host would think they are about its own.
OF_OUR_HOP = frozenset({HEADER_MISMATCH, UNSUPPORTED_VERSION})


def is_modern(revision: str) -> bool:
    return revision == MODERN


def legacy_answer(offered: str) -> str:
    """Return the revision for the response to an `initialize` that offers this one."""
    return offered if offered in LEGACY else NEWEST_LEGACY


# How we introduce ourselves

IMPLEMENTATION = {"name": "mcp-workbench", "version": __version__}  # as told to servers and hosts


class Stamps(msgspec.Struct, frozen=True):
    """What we add to messages of the modern era, encoded once."""

    request: Members  # `_meta` of our requests to modern servers
    result: bytes  # members of a complete result to modern hosts
    server_info: msgspec.Raw


def stamps(implementation: dict[str, str]) -> Stamps:
    info = msgspec.Raw(encode(implementation))
    return Stamps(
        request={
            VERSION_KEY: msgspec.Raw(encode(MODERN)),
            CLIENT_INFO_KEY: info,
            CAPABILITIES_KEY: msgspec.Raw(b"{}"),
        },
        result=b'"resultType":"complete","_meta":' + encode({SERVER_INFO_KEY: info}),
        server_info=info,
    )


STAMPS = stamps(IMPLEMENTATION)


# What a server declares


class ServerCapabilities(msgspec.Struct, frozen=True):
    """A server's capabilities, as far as we use them."""

    tools_changed: bool = False  # it notifies of changes of its tools
    prompts: bool = False
    prompts_changed: bool = False
    resources: bool = False
    resources_changed: bool = False
    subscribe: bool = False  # it notifies subscribers of changes of a resource
    logging: bool = False
    tasks: bool = False  # it runs tool calls as tasks (legacy)
    tasks_cancel: bool = False

    @property
    def announces(self) -> bool:
        return self.tools_changed or self.prompts_changed or self.resources_changed


class _Capability(msgspec.Struct, frozen=True):
    listChanged: bool = False  # noqa: N815 - as in the protocol
    subscribe: bool = False


def read_capabilities(capabilities: msgspec.Raw | bytes) -> ServerCapabilities:
    """Read capabilities one by one: a malformed one counts as declared without options."""
    try:
        members = _read_declared(capabilities)
    except msgspec.DecodeError:
        return ServerCapabilities()
    tools, prompts, resources = (
        _capability(members, name) for name in ("tools", "prompts", "resources")
    )
    tasks = _tasks(members)
    return ServerCapabilities(
        tools_changed=tools.listChanged,
        prompts="prompts" in members,
        prompts_changed=prompts.listChanged,
        resources="resources" in members,
        resources_changed=resources.listChanged,
        subscribe=resources.subscribe,
        logging="logging" in members,
        tasks=tasks is not None and _is_object(tasks.requests.tools.call),
        tasks_cancel=tasks is not None and _is_object(tasks.cancel),
    )


def _is_object(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"{"


class _ToolTasks(msgspec.Struct, frozen=True):
    call: msgspec.Raw = msgspec.Raw(b"")


class _TaskRequests(msgspec.Struct, frozen=True):
    tools: _ToolTasks = _ToolTasks()


class _Tasks(msgspec.Struct, frozen=True):
    cancel: msgspec.Raw = msgspec.Raw(b"")
    requests: _TaskRequests = _TaskRequests()


def _tasks(members: Members) -> _Tasks | None:
    try:
        return msgspec.json.decode(members["tasks"], type=_Tasks) if "tasks" in members else None
    except msgspec.DecodeError:
        return None


def _capability(members: Members, name: str) -> _Capability:
    try:
        return msgspec.json.decode(members.get(name, b"{}"), type=_Capability)
    except msgspec.DecodeError:
        return _Capability()


# The handshake

DISCOVER = "server/discover"
INITIALIZE = "initialize"
LONGEST_INFO = 1000  # characters of a server's name, and of its version
LONGEST_CAPABILITIES = 4 << 20  # bytes; longer ones are read as if there were none
MOST_VERSIONS = 64 << 10  # bytes of the list of a server's revisions
PROBE_PATIENCE = deadline(3.0)  # seconds of silence after which we send `initialize` too
SLOW_PATIENCE = deadline(12.0)  # the same for a server that was seen to start slowly


# Events: what the caller reports


class Answered(msgspec.Struct, frozen=True):
    """The server responded to one of our two requests; `code` is 0 if there was no error."""

    method: str
    result: bytes = b""
    code: int = 0
    message: str = ""


class Silence(msgspec.Struct, frozen=True):
    """No response within PROBE_PATIENCE."""


class HungUp(msgspec.Struct, frozen=True):
    """The server's process exited, or its stdout closed."""


HandshakeEvent = Answered | Silence | HungUp


# States


class Probing(msgspec.Struct, frozen=True):
    """We have sent `server/discover`."""

    fallback: bool  # whether we may fall back to `initialize`
    again: bool = False  # it rejected our version, and was asked once more
    refusal: str = ""  # why it refused `initialize`, where that came first


class Greeting(msgspec.Struct, frozen=True):
    """We have sent `initialize`."""

    probed: bool = False  # and `server/discover`: its response may come first
    fallback: bool = False  # whether we may fall back to `server/discover`


class Agreed(msgspec.Struct, frozen=True):
    """Both sides have agreed on a revision."""

    revision: str
    name: str = ""
    version: str = ""
    declared: ServerCapabilities = ServerCapabilities()
    instructions: str = ""
    extensions: Members = {}  # that the server declares, as received

    @property
    def listen(self) -> bool:
        """Whether it notifies of changes only those who send `subscriptions/listen`."""
        return self.revision == MODERN and self.declared.announces


class Startover(msgspec.Struct, frozen=True):
    """The server has to be restarted: for `initialize` only, because its process exited on our probe.

    Or, with an agreement, to be probed alone: it starts slowly, and has both requests to read. Servers that speak
    both eras take such a connection for a legacy one, although their first response is modern.
    """

    agreed: Agreed | None = None


class HandshakeRefused(msgspec.Struct, frozen=True):
    """There is no common revision, or the server has failed."""

    reason: str


HandshakeState = Probing | Greeting | Agreed | Startover | HandshakeRefused


class Ask(msgspec.Struct, frozen=True):
    """Send this request."""

    method: str


Step = tuple[HandshakeState, tuple[Ask, ...]]


def first_step(era: Era, *, initialize_first: bool = False) -> Step:
    """Begin with this era; `auto` begins with `server/discover` unless told otherwise."""
    if era == "legacy" or (era == "auto" and initialize_first):
        return Greeting(fallback=era == "auto"), (Ask(INITIALIZE),)
    return Probing(fallback=era == "auto"), (Ask(DISCOVER),)


def has_fallback(state: HandshakeState) -> bool:
    """Whether a server that stays silent is sent the request of the other era as well."""
    return isinstance(state, Probing | Greeting) and state.fallback


def step(state: HandshakeState, event: HandshakeEvent) -> Step:
    """Return the next state and the requests to send."""
    match state, event:
        case Probing(), Answered(method="server/discover"):
            return _after_probe(state, event)
        case Probing(fallback=True), Silence():
            return Greeting(probed=True), (Ask(INITIALIZE),)
        case Greeting(fallback=True, probed=False), Silence():
            return Greeting(probed=True, fallback=True), (Ask(DISCOVER),)
        case ((Probing(fallback=True) | Greeting(fallback=True, probed=True)), HungUp()):
            return Startover(), ()
        case Greeting(probed=True), Answered(method="server/discover"):
            return _after_late_probe(state, event)
        case Greeting(), Answered(method="initialize"):
            return _after_greeting(state, event)
        case ((Probing() | Greeting()), HungUp()):
            return HandshakeRefused("exited during startup"), ()
        case _:
            return state, ()


def _after_probe(state: Probing, event: Answered) -> Step:
    agreed = _modern(event)
    if agreed is not None:
        return agreed, ()
    if (
        event.code == UNSUPPORTED_VERSION and not state.again
    ):  # only a modern server sends this code
        return Probing(state.fallback, again=True, refusal=state.refusal), (Ask(DISCOVER),)
    if state.fallback:
        return Greeting(), (Ask(INITIALIZE),)
    unsupported = f"it does not support {MODERN} ({event.message or 'no common version'})"
    return HandshakeRefused(state.refusal or unsupported), ()


def _after_late_probe(state: Greeting, event: Answered) -> Step:
    agreed = _modern(event)
    if agreed is not None:
        return (agreed if state.fallback else Startover(agreed)), ()
    return (Greeting() if state.fallback else state), ()  # there is nothing left to fall back to


def _after_greeting(state: Greeting, event: Answered) -> Step:
    agreed = _legacy(event)
    if isinstance(agreed, Agreed):
        return agreed, ()
    if state.fallback:
        # Where it was probed already, the response is on its way.
        asks = () if state.probed else (Ask(DISCOVER),)
        return Probing(fallback=False, refusal=agreed), asks
    if event.code == UNSUPPORTED_VERSION and state.probed:
        return Probing(fallback=False), (Ask(DISCOVER),)
    return HandshakeRefused(agreed), ()


def _legacy(event: Answered) -> Agreed | str:
    """Return the agreement, or why this response to `initialize` is none."""
    if event.code:
        return f"it refused initialize: {event.message} ({event.code})"
    try:
        result = msgspec.json.decode(event.result, type=_InitializeResult)
    except msgspec.DecodeError as error:
        return f"its response to initialize is malformed: {error}"
    if result.protocolVersion not in LEGACY:
        return f"it speaks {result.protocolVersion}, which the workbench does not"
    capabilities = read_capabilities(result.capabilities)
    info, instructions = result.serverInfo, _text(result.instructions)
    revision, extensions = result.protocolVersion, _extensions(result.capabilities)
    return Agreed(revision, *info.shown(), capabilities, instructions, extensions)


class _Info(msgspec.Struct, frozen=True):
    name: str = ""
    version: str = ""

    def shown(self) -> tuple[str, str]:
        """Both, of a length that people can read."""
        return self.name[:LONGEST_INFO], self.version[:LONGEST_INFO]


class _InitializeResult(msgspec.Struct, frozen=True):
    protocolVersion: str  # noqa: N815 - as in the protocol
    serverInfo: _Info = _Info()  # noqa: N815
    capabilities: msgspec.Raw = msgspec.Raw(b"{}")
    instructions: msgspec.Raw = msgspec.Raw(b"")


class _DiscoverResult(msgspec.Struct, frozen=True):
    capabilities: msgspec.Raw = msgspec.Raw(b"{}")
    instructions: msgspec.Raw = msgspec.Raw(b"")
    supportedVersions: msgspec.Raw = msgspec.Raw(b"[]")  # noqa: N815
    meta: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="_meta")


def _modern(event: Answered) -> Agreed | None:
    """Return the agreement, if this response to the probe is one."""
    if event.code:
        return None
    try:
        result = msgspec.json.decode(event.result, type=_DiscoverResult)
        if len(result.supportedVersions) > MOST_VERSIONS:
            return None
        versions = msgspec.json.decode(result.supportedVersions, type=list[str])
        raw = read_members(result.meta).get(SERVER_INFO_KEY, msgspec.Raw(b"{}"))
        info = msgspec.json.decode(raw, type=_Info)
    except msgspec.DecodeError:
        return None
    if MODERN not in versions:
        return None
    capabilities, instructions = read_capabilities(result.capabilities), _text(result.instructions)
    extensions = _extensions(result.capabilities)
    return Agreed(MODERN, *info.shown(), capabilities, instructions, extensions)


def _extensions(capabilities: msgspec.Raw) -> Members:
    try:
        return read_extensions(_read_declared(capabilities))
    except msgspec.DecodeError:
        return {}


def _read_declared(capabilities: msgspec.Raw | bytes) -> Members:
    if len(capabilities) > LONGEST_CAPABILITIES:
        raise TooLong("capabilities")
    return read_members(capabilities)


def _text(raw: msgspec.Raw) -> str:
    """Decode a string; a malformed one counts as empty."""
    try:
        return msgspec.json.decode(raw, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def params_of(
    method: str, implementation: dict[str, str], capabilities: Mapping[str, msgspec.Raw]
) -> bytes:
    """Return the parameters of our two requests, with the capabilities that we declare to the server."""
    if method == INITIALIZE:
        return encode(
            {
                "protocolVersion": NEWEST_LEGACY,
                "capabilities": dict(capabilities),
                "clientInfo": implementation,
            }
        )
    return encode({"_meta": request_meta(implementation, capabilities)})


def request_meta(
    implementation: dict[str, str], capabilities: Mapping[str, msgspec.Raw]
) -> Members:
    """Return `_meta` of our own requests to a modern server."""
    return {
        VERSION_KEY: msgspec.Raw(encode(MODERN)),
        CLIENT_INFO_KEY: msgspec.Raw(encode(implementation)),
        CAPABILITIES_KEY: msgspec.Raw(encode(capabilities)),
    }
