"""How a host opens a conversation in either era, and what it is told then."""

from __future__ import annotations

from typing import Any

import msgspec

from mcp_workbench.core.spec import Snapshot
from mcp_workbench.era.ourselves import OURSELVES, STAMPS
from mcp_workbench.era.revision import (
    CAPABILITIES_KEY,
    MODERN,
    VERSION_KEY,
    legacy_answer,
)
from mcp_workbench.era.translate import Members, complete
from mcp_workbench.surface.menu import STATIC_TTL, static_scope
from mcp_workbench.surface.texts import instructions


class EnvelopeFault(Exception):
    """A modern request lacks what it must say about itself."""


def is_stamped(meta: Members) -> bool:
    """Does the request carry the modern envelope?"""
    return VERSION_KEY in meta


def read_stamp(meta: Members) -> str:
    """The revision that a modern request speaks. Raises EnvelopeFault where it says too little."""
    try:
        version = msgspec.json.decode(meta[VERSION_KEY], type=str)
        msgspec.json.decode(meta[CAPABILITIES_KEY], type=dict[str, msgspec.Raw])
    except KeyError as missing:
        raise EnvelopeFault(f"_meta misses {missing} (every {MODERN} request has it)") from None
    except msgspec.ValidationError as error:
        raise EnvelopeFault(f"_meta has no usable form: {error}") from None
    return version


def offered_revision(members: Members) -> str:
    try:
        return msgspec.json.decode(members.get("protocolVersion", b'""'), type=str)
    except msgspec.ValidationError:
        return ""


def _capabilities(snapshot: Snapshot) -> dict[str, Any]:
    """What servers may offer, whether those behind us do or not: that is known when they are met."""
    return {
        "tools": {"listChanged": snapshot.tool_mode == "dynamic"},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "completions": {},
        "logging": {},
    }


def initialize_result(offered: str, snapshot: Snapshot) -> tuple[str, bytes]:
    """The revision agreed on, and the answer that says so."""
    revision = legacy_answer(offered)
    result = {
        "protocolVersion": revision,
        "capabilities": _capabilities(snapshot),
        "serverInfo": OURSELVES,
        "instructions": instructions(snapshot),
    }
    return revision, msgspec.json.encode(result)


def discover_result(snapshot: Snapshot) -> bytes:
    result: dict[str, Any] = {
        "supportedVersions": [MODERN],
        "capabilities": _capabilities(snapshot),
        "instructions": instructions(snapshot, modern=True),
        "ttlMs": STATIC_TTL,
        "cacheScope": static_scope(snapshot),
    }
    return complete(msgspec.json.encode(result), STAMPS)
