"""Extensions of the protocol: what hosts and servers declare of them, and what we declare to servers."""

import msgspec

from mcp_workbench.core.apps import EXTENSION as APPS
from mcp_workbench.core.apps import SETTINGS
from mcp_workbench.core.raw_json import Members, read_members
from mcp_workbench.core.skills import EXTENSION as SKILLS

MEMBER = "extensions"  # of the capabilities, on both sides
MOST = 32  # extensions of one host or server
MOST_BYTES = 64 << 10  # of their names and settings
TASKS = "io.modelcontextprotocol/tasks"
# Known, and not passed on: apps, skills and tasks have ways of their own.
NOT_PASSED_ON = frozenset({APPS, TASKS, SKILLS})
# The first words of methods that are not passed on.
_KNOWN = frozenset(
    [
        "completion",
        "elicitation",
        "initialize",
        "logging",
        "notifications",
        "ping",
        "prompts",
        "resources",
        "roots",
        "sampling",
        "server",
        "skills",
        "subscriptions",
        "tasks",
        "tools",
    ]
)

encode = msgspec.json.encode


def read_extensions(capabilities: Members) -> Members:
    """Return the extensions in these capabilities; none if they have no usable form, or are too many."""
    try:
        extensions = read_members(capabilities.get(MEMBER, b"{}"))
    except msgspec.DecodeError:
        return {}
    size = sum(len(name) + len(settings) for name, settings in extensions.items())
    return extensions if len(extensions) <= MOST and size <= MOST_BYTES else {}


def passed_on(extensions: Members) -> Members:
    """Return those of a server's extensions that hosts are told of, if their requests can reach it."""
    return {name: value for name, value in extensions.items() if name not in NOT_PASSED_ON}


def is_known(method: str) -> bool:
    """Whether the protocol, or an extension that we know, defines this method: it is never passed on."""
    return method.partition("/")[0] in _KNOWN


def told(questions: Members, extensions: Members, shared: Members | None = None) -> Members:
    """Return the capabilities that we declare to a server, for a host with these.

    Apps are always among them: a server may offer other tools without them, and its list is for all hosts.
    Of other extensions there are those that the server `shared` with this host.
    """
    declared = {APPS: extensions.get(APPS, SETTINGS)}
    for name in shared or ():
        if name in extensions:
            declared[name] = extensions[name]
    return {**questions, MEMBER: msgspec.Raw(encode(declared))}


def without_tasks(capabilities: msgspec.Raw) -> msgspec.Raw:
    """Return the capabilities for a call whose result is wanted, not the handle of a task."""
    if TASKS.encode() not in bytes(capabilities):
        return capabilities
    members = read_members(capabilities)
    extensions = {name: value for name, value in read_extensions(members).items() if name != TASKS}
    return msgspec.Raw(encode({**members, MEMBER: extensions}))


def declares_others(capabilities: msgspec.Raw | bytes) -> bool:
    """Whether these capabilities have an extension that we pass on without knowing it."""
    try:
        return bool(read_extensions(read_members(capabilities)).keys() - {APPS, TASKS})
    except msgspec.DecodeError:
        return False


OURS = told({}, {})  # without a host
OURS_ENCODED = msgspec.Raw(encode(OURS))
