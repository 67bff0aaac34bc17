"""Extensions of the protocol: what hosts and servers declare of them, and what we declare to servers."""

import msgspec

from mcp_workbench.core.apps import EXTENSION as APPS
from mcp_workbench.core.apps import SETTINGS
from mcp_workbench.core.raw_json import Members, read_members

MEMBER = "extensions"  # of the capabilities, on both sides

encode = msgspec.json.encode


def read_extensions(capabilities: Members) -> Members:
    """Return the extensions in these capabilities; none if they have no usable form."""
    try:
        return read_members(capabilities.get(MEMBER, b"{}"))
    except msgspec.DecodeError:
        return {}


def told(questions: Members, extensions: Members) -> Members:
    """Return the capabilities that we declare to a server, for a host with these.

    Apps are always among them: a server may offer other tools without them, and its list is for all hosts.
    """
    declared = {APPS: extensions.get(APPS, SETTINGS)}
    return {**questions, MEMBER: msgspec.Raw(encode(declared))}


OURS = told({}, {})  # without a host
OURS_ENCODED = msgspec.Raw(encode(OURS))
