"""One accepted configuration as frozen values, and the names of its servers and tools.

Variables are not expanded yet.
"""

import re
from functools import cached_property, lru_cache
from typing import Literal

import msgspec

from mcp_workbench.core.errors import Problem, no_server, no_toolbox
from mcp_workbench.core.name_patterns import NameFilter, is_glob, unmatched

Era = Literal["auto", "legacy", "modern"]
# One connection for all hosts, for each, for each in its folder, or for each principal; auto: as its arguments suggest
Scope = Literal["auto", "shared", "session", "folder", "principal"]
Naming = Literal["full", "bare"]  # flat names, or the servers' own names
ToolMode = Literal["proxy", "dynamic"]
Detail = Literal[
    "schema", "full", "signature", "names"
]  # how much `open_toolbox` returns of a tool
Discover = Literal["lazy", "eager"]  # may a search start servers that were never listed?
Pairs = tuple[tuple[str, str], ...]
Grant = Literal["authorization_code", "client_credentials"]
Placement = Literal["every", "one"]  # replicas that run a process of the server
LockLevel = Literal["off", "record", "pin", "review"]  # what the lock file decides; docs/lock.md
SecretKind = Literal["store", "keyring", "command", "file"]
SandboxKind = Literal["off", "auto", "process", "files"]  # auto: `process` where that is possible

OWN_SETTINGS = "MCP_WORKBENCH_"  # variables of ours, one of which is a token
LOCK_NAME = "mcp-workbench.lock"  # in the folder of the configuration file
SEPARATOR = "__"  # between the parts of a flat name

UNCONFINED = "none"  # the sandbox of a process that has none

_RELATIVE = re.compile(r"(?:--?[\w-]+=)?\.{1,2}(?:[/\\].*)?$")

CONNECT_TIMEOUT = 120.0  # seconds; a first `npx` or `uvx` downloads before it starts
CALL_TIMEOUT = 600.0  # seconds; agents run builds and crawls through tools
MESSAGE_BYTES = 32 << 20  # one message, either direction (docs/decisions/0011)
SESSIONS = 10_000  # of hosts over HTTP; about 8 KiB each while idle
CALLS_PER_SERVER = 4096  # in flight on one connection
CALLS = 16384  # in flight on all connections together
TOOLS_PER_SERVER = 10_000  # shown; no model reads as many
IDLE_TIMEOUT = 0.0  # seconds without a call after which a server is stopped; 0: never
QUEUE_BYTES = 32 << 20  # accepted for a server that does not read
OPEN_WAIT = 30.0  # seconds that `open_toolbox` waits for a slow starter
DRAIN = 30.0  # seconds for calls in flight when we, or their server, stop
SECRET_TIMEOUT = 30.0  # seconds for a command or a keyring to give a value; a person may be asked
AUDIT_BYTES = 10 << 20  # of one file of the audit
AUDIT_FILES = 5  # with the one that is written to
CLUSTER_LISTEN = "127.0.0.1:0"  # replicas on one machine; others name an address
CLUSTER_NAME = "mcp-workbench"  # how keys in the engine begin


# Names of servers and tools


class ServerAddress(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A server's place in the configuration."""

    toolbox: str
    server: str

    def __str__(self) -> str:
        return f"{self.toolbox}/{self.server}"


class ToolIdentifier(msgspec.Struct, frozen=True, order=True):
    """Identifies a tool: its toolbox, its server, and the name that the server gives it."""

    toolbox: str
    server: str
    tool: str

    @property
    def address(self) -> ServerAddress:
        return ServerAddress(self.toolbox, self.server)

    def __str__(self) -> str:
        return f"{self.toolbox}/{self.server}/{self.tool}"


def generate_tool_name(toolbox: str, server: str, tool: str) -> str:
    """Returns the flat name that dynamic mode shows for a tool."""
    return f"{toolbox}{SEPARATOR}{server}{SEPARATOR}{tool}"


def parse_tool_name(name: str) -> ToolIdentifier | None:
    """Splits a flat name at its first two separators; the rest is the tool's own name."""
    parts = name.split(SEPARATOR, 2)
    if len(parts) < 3 or not all(parts):
        return None
    return ToolIdentifier(*parts)


# Secrets


class SecretSource(msgspec.Struct, frozen=True):
    """Where the value of a variable is read at launch."""

    kind: SecretKind
    command: tuple[str, ...] = ()
    file: str = ""  # absolute
    service: str = ""  # in the keyring
    username: str = ""
    timeout: float = SECRET_TIMEOUT

    def __repr__(self) -> str:
        return f"SecretSource({self.kind!r})"  # an argument may be a secret, by mistake


SecretSources = tuple[tuple[str, SecretSource], ...]  # by the names of variables


# Servers


class Sandbox(msgspec.Struct, frozen=True):
    """What the process of a server may reach. Paths are as written: `${VAR}` is not expanded."""

    kind: SandboxKind = "off"
    read: tuple[str, ...] = ()  # this and the following are for `files`
    write: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()  # inside of the others
    network: bool = False
    config: str = ""  # the configuration file, which the server may not write


class ResourceLimits(msgspec.Struct, frozen=True):
    """Limits that the system enforces on the process of a server; 0: none."""

    memory_bytes: int = 0  # of each of its processes
    processes: int = 0  # with threads, of all of them
    open_files: int = 0  # of each of its processes


class StdioCommand(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A server that we start as a child process. Strings are as written: `${VAR}` is not expanded."""

    command: str
    args: tuple[str, ...] = ()
    env: Pairs = ()
    cwd: str = ""
    folder: str = ""  # of the configuration file: a relative `cwd` starts here
    inherit: tuple[str, ...] = ()  # names and globs of our variables that it gets besides the usual
    sandbox: Sandbox = Sandbox()
    resources: ResourceLimits = ResourceLimits()

    @property
    def is_confined(self) -> bool:
        """Does it have a sandbox, or limits on its resources?"""
        return self.sandbox.kind != "off" or self.resources != ResourceLimits()

    def inherits(self, variable: str) -> bool:
        """Does it get this variable of ours? A glob does not pass on settings of this program."""
        if variable.startswith(OWN_SETTINGS):
            return variable in self.inherit
        return bool(self.inherit) and _inherit_filter(self.inherit).shows(variable)

    @property
    def inherited_names(self) -> tuple[str, ...]:
        """Returns the variables that are inherited by their names, not by a glob."""
        return tuple(
            name for name in self.inherit if not name.startswith("!") and not is_glob(name)
        )

    @property
    def relative_argument(self) -> str:
        """Returns an argument that is a path from the current folder, such as `.` or `--root=./src`."""
        return next((arg for arg in self.args if _RELATIVE.match(arg)), "")

    def __repr__(self) -> str:
        return f"StdioCommand({len(self.args)} args)"  # any string may hold a secret


class AuthSettings(msgspec.Struct, frozen=True):
    """How to sign in to a server at a URL. Strings are as written: `${VAR}` is not expanded."""

    client_id: str = ""  # registered beforehand; empty: we register ourselves
    client_secret: str = ""
    client_metadata_url: str = ""  # a client ID metadata document
    grant: Grant = "authorization_code"
    scopes: tuple[str, ...] = ()  # empty: those that the server asks for
    issuer: str = ""  # the authorization server to use, where the server names several
    allowed_origins: tuple[str, ...] = ()  # that sign-in may use besides public addresses
    redirect_port: int = 0  # 0: a free one
    account: str = ""  # a name of its own keeps two sign-ins to one URL apart
    private_key: str = ""  # of `private_key_jwt`: a file in PEM format
    folder: str = ""  # that a relative path of it starts at

    def __repr__(self) -> str:
        return "AuthSettings()"  # any string may hold a secret


class HttpEndpoint(msgspec.Struct, frozen=True):
    """A server at a URL. Strings are as written, like those of a command."""

    url: str
    headers: Pairs = ()
    transport: Literal["http", "sse"] = "http"
    auth: AuthSettings = AuthSettings()

    def __repr__(self) -> str:
        return f"HttpEndpoint({self.transport})"  # any string may hold a secret


class ToolFilter(msgspec.Struct, frozen=True, dict=True):
    """Which of a server's tools its toolbox shows."""

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    @cached_property
    def _names(self) -> NameFilter:
        return NameFilter(self.include, self.exclude)

    def shows(self, tool: str) -> bool:
        return self._names.shows(tool)

    def idle(self, tools: tuple[str, ...]) -> list[str]:
        """Returns the patterns that match none of these tools, as the file spells them.

        `*` is never one: a server may have no tools.
        """
        return [*unmatched(self.include, tools), *(f"!{p}" for p in unmatched(self.exclude, tools))]


def idle_filter(pattern: str) -> str:
    """Returns the warning about a pattern that matches none of its server's tools."""
    return f"toolFilters: '{pattern}' matches none of its tools"


def tool_filter(patterns: tuple[str, ...]) -> ToolFilter:
    """Returns the filter for a list in the file: only exclusions mean all others; empty means none."""
    include = tuple(p for p in patterns if not p.startswith("!"))
    exclude = tuple(p[1:] for p in patterns if p.startswith("!"))
    return ToolFilter(("*",) if exclude and not include else include, exclude)


@lru_cache(maxsize=64)
def _inherit_filter(names: tuple[str, ...]) -> ToolFilter:
    """Returns the filter of `inheritEnv`: every variable of ours is looked at for every start."""
    return tool_filter(names)


class ServerSpec(msgspec.Struct, frozen=True):
    """One server of one toolbox."""

    address: ServerAddress
    target: StdioCommand | HttpEndpoint
    tools: ToolFilter = ToolFilter()
    era: Era = "auto"
    connect_timeout: float = CONNECT_TIMEOUT
    timeout: float = CALL_TIMEOUT
    place: str = ""  # its path in the file, for messages
    problem: str = ""  # why this server can't be used although the rest of the file is fine
    scope: Scope = "auto"
    idle_timeout: float = IDLE_TIMEOUT
    result_budget: int | None = None  # characters of a result's text; None: as its toolbox says
    validate: bool = False  # check arguments before they are sent
    secrets: SecretSources = ()  # of those of its variables that have one
    audit_arguments: bool = False  # the audit has the arguments of its calls
    approve: tuple[str, ...] = ()  # what a person must approve first; see `core.approve_rules`
    lock: LockLevel = "record"
    principal: str = (
        ""  # whose sign-in and connection it is (scope: principal); empty: the local user's
    )
    placement: Placement = "every"

    @property
    def key(self) -> "ServerKey":
        """Returns what tells its connections apart, except those that belong to one host."""
        return (self.address, self.principal) if self.principal else self.address

    def for_principal(self, principal: str) -> "ServerSpec":
        """Returns the same server as this principal uses it; itself if all share one sign-in."""
        if self.scope != "principal" or self.principal == principal:
            return self
        return msgspec.structs.replace(self, principal=principal)

    @property
    def follows_hosts(self) -> str:
        """Returns why it runs in the folder of each host that shares a workbench; empty if it does not."""
        target = self.target
        if not isinstance(target, StdioCommand) or target.cwd:
            return ""
        if self.scope == "auto" and target.relative_argument:
            return f"'{target.relative_argument}' in its args"
        return "scope: folder" if self.scope == "folder" else ""

    def in_folder(self, folder: str) -> "ServerSpec":
        """Returns the same server, started in this folder; itself where none is given."""
        if not folder or not isinstance(self.target, StdioCommand):
            return self
        cwd = folder.replace("${", "$${")
        return msgspec.structs.replace(self, target=msgspec.structs.replace(self.target, cwd=cwd))


NOBODY = "(anonymous)"  # the principal of hosts on a port without tokens: it has no credentials
SUBJECT = "sub:"  # before the `sub` of an access token


def account_of(principal: str, issuer: str) -> str:
    """Returns under what the sign-ins of a principal are kept: two issuers may have the same `sub`."""
    return f"{principal}@{issuer}" if issuer and principal.startswith(SUBJECT) else principal


ServerKey = ServerAddress | tuple[ServerAddress, str]  # of all, or of one principal


# Toolboxes, limits, and the whole configuration


class ToolboxSpec(msgspec.Struct, frozen=True):
    """A named group of servers."""

    name: str
    description: str = ""
    servers: dict[str, ServerSpec] = {}
    detail: Detail = "schema"
    result_budget: int = 0  # for servers that have none of their own; 0: none
    discover: Discover = "eager"
    scripts: bool = False  # scripts may call its tools

    def budget(self, server: ServerSpec) -> int:
        """Returns the characters of text that a result may have; 0: no limit."""
        return self.result_budget if server.result_budget is None else server.result_budget

    def server(self, name: str) -> ServerSpec:
        spec = self.servers.get(name)
        if spec is None:
            raise no_server(name, self.name, list(self.servers))
        return spec

    @property
    def has_principals(self) -> bool:
        """Returns whether a server of it has a sign-in for each principal."""
        return any(spec.scope == "principal" for spec in self.servers.values())

    def for_principal(self, principal: str) -> "ToolboxSpec":
        """Returns the same toolbox as this principal uses it."""
        if not self.has_principals:
            return self
        servers = {name: spec.for_principal(principal) for name, spec in self.servers.items()}
        return msgspec.structs.replace(self, servers=servers)


class Limits(msgspec.Struct, frozen=True):
    """Upper limits; beyond them a request is refused."""

    message_bytes: int = MESSAGE_BYTES
    calls_per_server: int = CALLS_PER_SERVER
    queue_bytes: int = QUEUE_BYTES
    open_wait: float = OPEN_WAIT
    calls: int = CALLS
    tools_per_server: int = TOOLS_PER_SERVER
    drain: float = DRAIN
    sessions: int = SESSIONS


class PrincipalLimits(msgspec.Struct, frozen=True):
    """How much one principal may use; None: as much as the limits of all allow."""

    calls_per_minute: int | None = None
    concurrent_calls: int | None = None
    sessions: int | None = None


class NamedToken(msgspec.Struct, frozen=True):
    """A bearer token for HTTP hosts; its name is the principal."""

    name: str
    token: str
    toolboxes: tuple[str, ...] | None = None  # that it opens; None is all of them
    limits: PrincipalLimits | None = None

    def __repr__(self) -> str:
        return f"NamedToken({self.name!r})"  # the token is a secret


class Introspection(msgspec.Struct, frozen=True):
    """How we ask an issuer about a token that is not a JWT (RFC 7662)."""

    client_id: str
    client_secret: str
    url: str = ""  # empty: the one in the issuer's metadata

    def __repr__(self) -> str:
        return "Introspection()"  # the client's secret


class ClaimGrant(msgspec.Struct, frozen=True):
    """The toolboxes that a token opens if one of its claims has this value."""

    claim: str
    value: str
    toolboxes: tuple[str, ...]


class IssuerSettings(msgspec.Struct, frozen=True):
    """Whose access tokens hosts may bring, and what these open: nothing that is not named here.

    ALL_TOOLBOXES stands for all of them.
    """

    issuer: str
    audience: str
    resource: str  # the URL of /mcp, as hosts know it
    jwks_uri: str = ""  # empty: the one in the issuer's metadata
    introspection: Introspection | None = None
    toolboxes: tuple[str, ...] = ()  # of every token
    scopes: tuple[tuple[str, tuple[str, ...]], ...] = ()  # of tokens with this scope
    claims: tuple[ClaimGrant, ...] = ()
    limits: PrincipalLimits | None = None  # of each person


ALL_TOOLBOXES = "*"


class HttpSettings(msgspec.Struct, frozen=True):
    """Who may connect over HTTP. Tokens are as written: `${VAR}` is not expanded."""

    token: str = ""  # without a name: opens every toolbox
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    tokens: tuple[NamedToken, ...] = ()
    auth: IssuerSettings | None = None
    metrics: bool = False  # whether /metrics is served
    metrics_token: str = ""

    @property
    def has_limits(self) -> bool:
        """Returns whether a principal has limits of its own."""
        named = any(token.limits is not None for token in self.tokens)
        return named or (self.auth is not None and self.auth.limits is not None)

    def with_limits_of(self, other: "HttpSettings") -> "HttpSettings":
        """Returns these settings with the limits that the other ones have for the same principals."""
        limits = {token.name: token.limits for token in other.tokens}
        replace = msgspec.structs.replace
        tokens = tuple(replace(token, limits=limits.get(token.name)) for token in self.tokens)
        theirs = None if other.auth is None else other.auth.limits
        auth = None if self.auth is None else replace(self.auth, limits=theirs)
        return replace(self, tokens=tokens, auth=auth)

    def __repr__(self) -> str:
        return "HttpSettings()"  # the token is a secret


class AuditSettings(msgspec.Struct, frozen=True):
    """Where calls are recorded. The path is as written: `${VAR}` is not expanded."""

    file: str = ""  # empty: the one in the state folder
    folder: str = ""  # of the configuration file: a relative path starts here
    max_bytes: int = AUDIT_BYTES
    files: int = AUDIT_FILES
    required: bool = False  # a call that can't be recorded is refused


class ClusterSettings(msgspec.Struct, frozen=True):
    """Replicas that serve the same hosts. Strings are as written: `${VAR}` is not expanded."""

    url: str  # of the engine
    key: str
    listen: str = CLUSTER_LISTEN
    advertise: str = ""  # empty: `listen`
    name: str = CLUSTER_NAME

    def __repr__(self) -> str:
        return "ClusterSettings()"  # the key is a secret, and the URL may hold one


class LockedServer(msgspec.Struct, frozen=True):
    """What the lock file has of one server. Definitions are their hashes, by kind of list and by name."""

    launch: str = ""  # hash of the launch line
    line: str = ""  # the launch line for people, without secrets
    package: str = ""  # with its version, if they are known
    server: str = ""  # how it called itself, and its version
    recorded: tuple[tuple[str, str], ...] = ()  # when, by whom, with which version of ours
    # What hosts could be asked for when each list was recorded: a server may offer more to them.
    capabilities: dict[str, tuple[str, ...]] = {}
    lists: dict[str, dict[str, str]] = {}  # a list that was never seen is absent
    rejected: dict[str, dict[str, str]] = {}
    gone: dict[str, dict[str, str]] = {}  # no longer defined; one that returns is compared with it
    note: str = ""  # a person's


class LockFile(msgspec.Struct, frozen=True):
    """The lock file beside the configuration, or why it can't be used."""

    path: str
    servers: dict[str, LockedServer] = {}  # by address
    problem: Problem | None = None
    is_read_only: bool = False  # first sights are not written: for commands that only look


class Snapshot(msgspec.Struct, frozen=True):
    """One whole accepted configuration."""

    toolboxes: dict[str, ToolboxSpec]
    tool_mode: ToolMode = "proxy"
    limits: Limits = Limits()
    origin: str = ""  # its file; empty for the built-in demo
    warnings: tuple[Problem, ...] = ()
    naming: Naming = "full"
    http: HttpSettings = HttpSettings()
    private: bool = False  # hosts see different toolboxes: no cache may mix them up
    secrets: SecretSources = ()
    audit: AuditSettings | None = None  # None: calls are not recorded
    lock: LockFile | None = None  # None: there is none, and no level needs one
    tracing: bool = False  # traces of calls are sent
    cluster: ClusterSettings | None = None  # None: this process serves its hosts alone

    def toolbox(self, name: str) -> ToolboxSpec:
        spec = self.toolboxes.get(name)
        if spec is None:
            raise no_toolbox(name, list(self.toolboxes))
        return spec

    def find(self, address: ServerAddress) -> ServerSpec | None:
        toolbox = self.toolboxes.get(address.toolbox)
        return None if toolbox is None else toolbox.servers.get(address.server)

    def narrowed(self, names: tuple[str, ...]) -> "Snapshot":
        """Returns the configuration with these toolboxes only; no names mean all of them."""
        if not names:
            return self
        return self.only(names)

    def only(self, names: tuple[str, ...], *, private: bool = False) -> "Snapshot":
        """Returns the configuration with exactly these toolboxes, even none."""
        boxes = {name: self.toolbox(name) for name in names}
        return msgspec.structs.replace(self, toolboxes=boxes, private=private)

    @property
    def has_principals(self) -> bool:
        """Returns whether a server has a sign-in for each principal."""
        return any(box.has_principals for box in self.toolboxes.values())

    def for_principal(self, principal: str) -> "Snapshot":
        """Returns the same configuration as this principal uses it."""
        if not principal or not self.has_principals:
            return self
        boxes = {name: box.for_principal(principal) for name, box in self.toolboxes.items()}
        return msgspec.structs.replace(self, toolboxes=boxes, private=True)
