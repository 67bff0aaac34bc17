"""The keys of the configuration file: what each may hold and means, for the loader and for editors."""

from typing import Any

import msgspec

from mcp_workbench.config.kinds import (
    APPROVE,
    AUDIT,
    FILLED,
    FLAG,
    HOSTS,
    INHERIT,
    LISTS,
    NETWORK,
    ORIGINS,
    SANDBOX,
    SECONDS,
    SECRETS,
    TABLE_OF_LISTS,
    TEXT,
    TEXTS,
    URL,
    Kind,
    filled_object_of,
    object_of,
    one_of,
    pairs,
    whole,
)
from mcp_workbench.core.spec import (
    AUDIT_BYTES,
    AUDIT_FILES,
    CALL_TIMEOUT,
    CALLS,
    CALLS_PER_SERVER,
    CLUSTER_LISTEN,
    CLUSTER_NAME,
    CONNECT_TIMEOUT,
    DRAIN,
    MESSAGE_BYTES,
    OPEN_WAIT,
    QUEUE_BYTES,
    SECRET_TIMEOUT,
    SESSIONS,
    TOOLS_PER_SERVER,
)

NAME = "[A-Za-z0-9_-]+"
AMBIGUOUS = "__|_$"  # in a name of dynamic mode: a flat name would split in two ways
LEAST_BYTES = 1024  # below this not even a handshake fits
LEAST_AUDIT = 1 << 16  # bytes of a file of the audit
LEAST_MEMORY = 1 << 20  # bytes; nothing starts with less
TRANSPORTS = {"stdio": "stdio", "http": "http", "streamable-http": "http", "sse": "sse"}

SECRET_KINDS = ("keyring", "command", "file")  # keys of which a source has one

_HEADER = "[A-Za-z0-9!#$%&'*+.^_`|~-]+"


class Key(msgspec.Struct, frozen=True):
    """One key of the file."""

    kind: Kind
    doc: str
    default: Any = None  # None: no value unless the file has one
    example: Any = None  # for a fix, where the default shows nothing


_INHERITED = ["AWS_*", "KUBECONFIG"]
LOCK = one_of("off", "record", "pin", "review")
SERVERS = object_of({"$ref": "#/$defs/servers"})
_A_SERVER = {"filesystem": {"command": "npx", "args": ["-y", "some-package"]}}

TOP = {
    "$schema": Key(
        TEXT, "Where editors find the schema; nothing else reads it.", example="schema.json"
    ),
    "toolMode": Key(
        one_of("proxy", "dynamic"),
        "How tools are shown: behind a few meta-tools, or each by its flat name.",
        "proxy",
    ),
    "naming": Key(
        one_of("full", "bare"),
        "In dynamic mode: flat names, or the servers' own names without any tool of ours. "
        "Two tools, or two prompts, of one name are then an error that names both.",
        "full",
    ),
    "toolboxes": Key(
        object_of({"$ref": "#/$defs/toolboxes"}),
        "The toolboxes by name.",
        example={"dev": {"mcpServers": {}}},
    ),
    "mcpServers": Key(
        SERVERS,
        "Instead of `toolboxes`: the servers of one toolbox `default`.",
        example=_A_SERVER,
    ),
    "inheritEnv": Key(
        INHERIT,
        "The same as in a server entry, for all servers whose toolbox has none.",
        default=False,
        example=_INHERITED,
    ),
    "approve": Key(
        APPROVE,
        "The same as in a server entry, for all servers whose toolbox has none.",
        default=False,
        example="destructive",
    ),
    "scripts": Key(
        FLAG,
        "Offer `run_script`, with which an agent runs a program that calls tools; needs the extra `code`. Not with bare names.",
        default=False,
        example=True,
    ),
    "lock": Key(
        LOCK,
        "The same as in a server entry, for all servers whose toolbox has none.",
        "record",
        "pin",
    ),
    "sandbox": Key(
        SANDBOX,
        "The same as in a server entry, for all servers whose toolbox has none.",
        "off",
        "process",
    ),
    "limits": Key(
        object_of({"$ref": "#/$defs/limits"}),
        "Limits on messages, calls and tools.",
        example={"openWait": OPEN_WAIT},
    ),
    "http": Key(
        object_of({"$ref": "#/$defs/http"}),
        "Who may connect to `serve --http`.",
        example={"token": "${MCP_WORKBENCH_HTTP_TOKEN}"},
    ),
    "secrets": Key(
        SECRETS,
        "Where the values of `${NAME}` are read when a server is started, instead of the environment: "
        '`"store"`, `"keyring"`, or an object (see below).',
        example={"GITHUB_TOKEN": "store"},
    ),
    "audit": Key(
        AUDIT,
        'Record every call in a file: one line each. `"required"` refuses calls that can\'t be recorded.',
        default=False,
        example=True,
    ),
    "tracing": Key(
        FLAG, "Send traces of calls to a collector of OpenTelemetry (extra `otel`).", default=False
    ),
    "cluster": Key(
        filled_object_of({"$ref": "#/$defs/cluster"}),
        "Several `serve --http` behind one load balancer, on a Valkey or Redis; needs the extra `cluster`.",
        example={"url": "${VALKEY_URL}", "key": "${WORKBENCH_CLUSTER_KEY}"},
    ),
}
CLUSTER = {
    "url": Key(
        FILLED,
        "The Valkey or Redis of all replicas: `valkey://`, `redis://`, or with TLS `valkeys://`, `rediss://`.",
        example="valkey://user:${VALKEY_PASSWORD}@valkey.internal:6379/0",
    ),
    "key": Key(
        FILLED,
        "The secret of all replicas, at least 32 characters: by it they know each other, and sign and encrypt.",
        example="${WORKBENCH_CLUSTER_KEY}",
    ),
    "listen": Key(
        FILLED,
        "Address and port for the other replicas. Port 0 is any free one.",
        CLUSTER_LISTEN,
        "0.0.0.0:7412",
    ),
    "advertise": Key(
        FILLED,
        "The address by which the other replicas reach this one, if `listen` is none.",
        example="${POD_IP}:7412",
    ),
    "name": Key(
        FILLED,
        "How every key in the engine begins; clusters in one engine differ in it.",
        CLUSTER_NAME,
    ),
}
SECRET = {
    "keyring": Key(FILLED, "The service that has it in the system's keyring.", example="github"),
    "username": Key(
        FILLED, "The user name there; normally the name of the variable.", example="alice"
    ),
    "command": Key(
        TEXTS,
        "A program and its arguments, which prints it; no shell is involved.",
        example=["pass", "show", "github"],
    ),
    "timeout": Key(
        SECONDS, "Seconds until the keyring or the command must have answered.", SECRET_TIMEOUT
    ),
    "file": Key(
        FILLED,
        "A file that holds it, readable by you only; a relative path counts from the configuration file.",
        example="~/.secrets/github",
    ),
}
TOOLBOX = {
    "description": Key(TEXT, "What the toolbox is for; models read it.", "", "Development"),
    "mcpServers": Key(SERVERS, "The servers of the toolbox by name.", example=_A_SERVER),
    "detail": Key(
        one_of("schema", "full", "signature", "names"),
        "How much `open_toolbox` shows of each tool, unless the call asks for another detail.",
        "schema",
    ),
    "resultBudget": Key(
        whole(0),
        "Characters of text in a result; of a longer one the agent gets the beginning, and reads "
        "on with `read_result`. 0 is no limit. In proxy mode only.",
        0,
        10_000,
    ),
    "discover": Key(
        one_of("eager", "lazy"),
        "Whether a search starts servers whose tools nobody has read yet, or leaves that to `open_toolbox`.",
        "eager",
    ),
    "scripts": Key(
        FLAG,
        "Whether scripts may call its tools; without this key, as `scripts` at the top says.",
        example=True,
    ),
    "inheritEnv": Key(
        INHERIT,
        "The same as in a server entry, for its servers that have none.",
        example=_INHERITED,
    ),
    "approve": Key(
        APPROVE,
        "The same as in a server entry, for its servers that have none.",
        example="destructive",
    ),
    "lock": Key(
        LOCK, "The same as in a server entry, for its servers that have none.", example="pin"
    ),
    "sandbox": Key(
        SANDBOX,
        "The same as in a server entry, for its servers that have none.",
        example="process",
    ),
}
SERVER = {
    "command": Key(
        FILLED,
        "The program to start; it speaks MCP on stdin and stdout. A relative path counts from `cwd`, or from where the workbench runs.",
        example="npx",
    ),
    "args": Key(TEXTS, "Its arguments.", [], ["-y", "some-package"]),
    "env": Key(
        pairs("a variable", r"[^=\x00]+"),
        "Variables that it gets.",
        {},
        {"TOKEN": "${TOKEN}"},
    ),
    "inheritEnv": Key(
        INHERIT,
        "Which variables of the workbench it gets besides the usual ones: all, none, or those that a name or glob matches.",
        example=_INHERITED,
    ),
    "cwd": Key(TEXT, "Its folder; a relative one counts from the configuration file.", "", "."),
    "url": Key(URL, "Where a remote server listens.", example="https://example.com/mcp"),
    "headers": Key(
        pairs("a header", _HEADER),
        "HTTP headers for every request to it.",
        {},
        {"Authorization": "Bearer ${TOKEN}"},
    ),
    "auth": Key(
        object_of({"$ref": "#/$defs/auth"}),
        "How to sign in to it with OAuth, where the defaults do not fit (see below).",
        example={"scopes": ["read"]},
    ),
    "type": Key(
        one_of(*TRANSPORTS, variables=True),
        "How to speak to it; `http` where there is a `url`, otherwise `stdio`.",
        example="http",
    ),
    "transport": Key(one_of(*TRANSPORTS, variables=True), "The same as `type`.", example="http"),
    "disabled": Key(FLAG, "Skip this server.", default=False, example=True),
    "toolFilters": Key(
        TEXTS, "Which of its tools are shown.", ["*"], ["read_*", "!read_media_file"]
    ),
    "era": Key(
        one_of("auto", "legacy", "modern", variables=True),
        "Which generation of the protocol to speak with it; by default that of the host, if it can.",
        "auto",
    ),
    "scope": Key(
        one_of("shared", "session", "folder", "principal"),
        "One connection for all hosts, one for each (only then may it ask them over HTTP), or, under `up`, one for each host that "
        "runs in its folder. The last is the default if an argument is a relative path and there is no `cwd`; otherwise `shared`. "
        "`principal`, beside `url`: each person over HTTP signs in for themselves and has a connection of their own.",
        example="folder",
    ),
    "placement": Key(
        one_of("every", "one"),
        "With `cluster`: whether every replica starts a process of it, or one for all of them, for a server that keeps state in its process.",
        "every",
        "one",
    ),
    "connectTimeout": Key(SECONDS, "Seconds until it must have started.", CONNECT_TIMEOUT),
    "timeout": Key(
        SECONDS,
        "Seconds until a call must be answered; a whole list has as long, but at most 30.",
        CALL_TIMEOUT,
    ),
    "idleTimeout": Key(
        SECONDS,
        "Seconds without a call after which it is stopped; the next call starts it. In the background (`up`) 600.",
        example=600,
    ),
    "resultBudget": Key(whole(0), "The same as in a toolbox, for this server.", example=10_000),
    "validate": Key(
        FLAG,
        "Check the arguments of a call against the tool's schema before it is sent.",
        default=False,
        example=True,
    ),
    "approve": Key(
        APPROVE,
        "Which of its calls a person must approve first: all, none, by what a tool's annotations say, or by patterns (see below).",
        example=["delete_*", "resource:file:///etc/*"],
    ),
    "lock": Key(
        LOCK,
        "What happens if its definitions are not those in `mcp-workbench.lock`: nothing, a warning, or what is changed "
        "(`pin`) or was never approved (`review`) is not shown until a person approves it.",
        example="pin",
    ),
    "sandbox": Key(
        SANDBOX,
        "What its process may reach: everything, no other processes, or only the listed files (see below). On Linux, with bubblewrap.",
        example={"read": ["~/docs"], "write": ["./out"], "network": False},
    ),
    "sandboxEnabled": Key(
        FLAG,
        "As VS Code has it: true is a sandbox that may read everything and write what `sandbox.filesystem.allowWrite` lists.",
        example=True,
    ),
    "resourceLimits": Key(
        object_of({"$ref": "#/$defs/resourceLimits"}),
        "Limits that the system enforces on its processes (see below).",
        example={"memoryBytes": 1 << 30},
    ),
    "auditArguments": Key(
        FLAG,
        "Record the arguments of its calls as well, with secrets masked; has no effect without `audit`.",
        example=True,
    ),
}
SANDBOX_KEYS = {
    "read": Key(
        TEXTS,
        "Files and folders that it may read; a relative path counts from the configuration file.",
        [],
        ["~/docs"],
    ),
    "write": Key(TEXTS, "Files and folders that it may read and write.", [], ["./out"]),
    "hide": Key(
        TEXTS,
        "Files and folders inside of these that it may not see.",
        [],
        ["~/docs/private"],
    ),
    "network": Key(
        NETWORK,
        "Whether it has the network of this machine, or none at all. An object is VS Code's, of which `allowedDomains` counts.",
        default=False,
        example=True,
    ),
    "filesystem": Key(
        object_of({"type": "object"}),
        "VS Code's, instead of the other lists: `allowWrite`, `denyRead` and `denyWrite`. Everything else may be read.",
        example={"allowWrite": ["./out"]},
    ),
}
RESOURCES = {
    "memoryBytes": Key(
        whole(LEAST_MEMORY),
        "Bytes of data that each of its processes may have; with a control group, of memory that all of them may use.",
        example=1 << 30,
    ),
    "processes": Key(
        whole(1),
        "Processes and threads of the server in all; needs a `sandbox` or a control group.",
        example=64,
    ),
    "openFiles": Key(
        whole(16), "Files, pipes and sockets that each of its processes may open.", example=1024
    ),
}
AUDIT_KEYS = {
    "file": Key(
        FILLED,
        "The file; a relative path counts from the configuration file. Without this key, one for all your configurations.",
        example="calls.jsonl",
    ),
    "maxBytes": Key(whole(LEAST_AUDIT), "Bytes of one file; then a new one is begun.", AUDIT_BYTES),
    "files": Key(whole(1), "How many files are kept, with the current one.", AUDIT_FILES),
    "arguments": Key(
        FLAG,
        "The same as `auditArguments` of a server, for all servers that have none.",
        default=False,
        example=True,
    ),
    "required": Key(FLAG, "Refuse calls that can't be recorded.", default=False, example=True),
}
AUTH = {
    "clientId": Key(
        FILLED,
        "A client that was registered beforehand; without it, we register.",
        example="workbench",
    ),
    "clientSecret": Key(FILLED, "Its secret.", example="${CLIENT_SECRET}"),
    "clientMetadataUrl": Key(
        URL,
        "A client ID metadata document, where the authorization server accepts one.",
        example="https://example.com/client.json",
    ),
    "privateKey": Key(
        FILLED,
        "A PEM file with which the client proves itself (`private_key_jwt`); needs the extra `auth`.",
        example="client-key.pem",
    ),
    "grant": Key(
        one_of("authorization_code", "client_credentials"),
        "Whether a person signs in, or this program with its own credentials.",
        "authorization_code",
        "client_credentials",
    ),
    "scopes": Key(
        TEXTS, "The scopes to ask for; normally those that the server names.", example=["read"]
    ),
    "issuer": Key(
        URL,
        "The authorization server, where the server names several. A sign-in at another one is not used.",
        example="https://login.example.com",
    ),
    "allowedOrigins": Key(
        TEXTS,
        "Origins on private networks or this machine that sign-in may use; `:*` allows any port.",
        example=["https://login.internal.example.com"],
    ),
    "redirectPort": Key(
        whole(1),
        "The port of the loopback address that the browser comes back to; normally a free one.",
        example=8765,
    ),
    "account": Key(FILLED, "A name that keeps several sign-ins to one URL apart.", example="work"),
}
LIMITS = {
    "messageBytes": Key(whole(LEAST_BYTES), "The largest single message.", MESSAGE_BYTES),
    "callsPerServer": Key(whole(1), "Calls in flight at one server.", CALLS_PER_SERVER),
    "queueBytes": Key(
        whole(LEAST_BYTES), "Bytes kept for a server that does not read.", QUEUE_BYTES
    ),
    "calls": Key(whole(1), "Calls in flight in all; a server with few of them is exempt.", CALLS),
    "toolsPerServer": Key(
        whole(1),
        "Tools of one server that are shown. One whose definition is longer than 4 MiB never is.",
        TOOLS_PER_SERVER,
    ),
    "openWait": Key(SECONDS, "Seconds that `open_toolbox` waits for a slow server.", OPEN_WAIT),
    "drain": Key(
        SECONDS,
        "Seconds for calls in flight when a port stops, or their server's entry changes.",
        DRAIN,
    ),
    "sessions": Key(
        whole(1), "Sessions of legacy hosts over HTTP, of all tokens together.", SESSIONS
    ),
}
_RESOURCE = "https://workbench.example.com/mcp"
HTTP = {
    "token": Key(FILLED, "A bearer token that opens every toolbox.", example="${WORKBENCH_TOKEN}"),
    "tokens": Key(
        filled_object_of({"$ref": "#/$defs/tokens"}),
        "Tokens by name, each for the toolboxes that it opens.",
        example={"laptop": {"token": "${LAPTOP_TOKEN}", "toolboxes": ["dev"]}},
    ),
    "auth": Key(
        filled_object_of({"$ref": "#/$defs/httpAuth"}),
        "An issuer whose access tokens hosts may bring: they sign in there.",
        example={"issuer": "https://login.example.com", "audience": _RESOURCE},
    ),
    "allowedHosts": Key(
        HOSTS, "Names under which the port is reached.", [], ["workbench.example.com"]
    ),
    "allowedOrigins": Key(
        ORIGINS, "Web pages that may call it.", [], ["https://inspector.example.com"]
    ),
    "metrics": Key(FLAG, "Serve figures for Prometheus at `/metrics`.", default=False),
    "metricsToken": Key(
        FILLED,
        "The bearer token for `/metrics`, which opens nothing else.",
        example="${SCRAPE_TOKEN}",
    ),
}
TOKEN = {
    "token": Key(FILLED, "The bearer token itself.", example="${LAPTOP_TOKEN}"),
    "toolboxes": Key(
        TEXTS, "The toolboxes that it opens; all of them without this key.", example=["dev"]
    ),
    "limits": Key(
        filled_object_of({"$ref": "#/$defs/principalLimits"}),
        "How much it may use; nothing but `limits` bounds it without this key.",
        example={"callsPerMinute": 600, "concurrentCalls": 16},
    ),
}
HTTP_AUTH = {
    "issuer": Key(
        URL,
        "The authorization server, exactly as its tokens and its metadata name it.",
        example="https://login.example.com",
    ),
    "audience": Key(
        FILLED,
        "The `aud` of tokens for this workbench; normally the URL of `/mcp` that hosts use.",
        example=_RESOURCE,
    ),
    "resource": Key(
        URL, "The URL of `/mcp` that hosts use, if `audience` is another name.", example=_RESOURCE
    ),
    "jwksUri": Key(
        URL,
        "Where the issuer's keys are, if its metadata does not say so or names another host.",
        example="https://keys.example.com/jwks",
    ),
    "introspection": Key(
        filled_object_of({"$ref": "#/$defs/introspection"}),
        "How to ask the issuer about tokens that are not JWTs.",
        example={"clientId": "workbench", "clientSecret": "${WORKBENCH_SECRET}"},
    ),
    "toolboxes": Key(
        TEXTS,
        'The toolboxes that every token opens; `"*"` is all. Without this key, `scopes` and `claims`: all.',
        example=["dev"],
    ),
    "scopes": Key(
        LISTS,
        "The toolboxes that a token with this scope opens.",
        example={"workbench:dev": ["dev"]},
    ),
    "claims": Key(
        TABLE_OF_LISTS,
        "The toolboxes that a token opens if this claim is, or contains, this value.",
        example={"groups": {"engineering": ["dev", "ops"]}},
    ),
    "limits": Key(
        filled_object_of({"$ref": "#/$defs/principalLimits"}),
        "How much each person may use; nothing but `limits` bounds them without this key.",
        example={"callsPerMinute": 600, "concurrentCalls": 16},
    ),
}
INTROSPECTION = {
    "clientId": Key(FILLED, "Our own name at the issuer.", example="workbench"),
    "clientSecret": Key(FILLED, "Our secret there.", example="${WORKBENCH_SECRET}"),
    "url": Key(
        URL,
        "Where to ask, if the issuer's metadata does not say so or names another host.",
        example="https://login.example.com/introspect",
    ),
}
PRINCIPAL_LIMITS = {
    "callsPerMinute": Key(whole(1), "Calls to servers in any 60 seconds.", example=600),
    "concurrentCalls": Key(whole(1), "Calls to servers in flight.", example=16),
    "sessions": Key(
        whole(1),
        "Sessions of legacy hosts; without this key a share of `limits.sessions`.",
        example=20,
    ),
}
