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
from mcp_workbench.era.translate import Members, complete, read_members
from mcp_workbench.surface.menu import STATIC_TTL
from mcp_workbench.surface.texts import instructions

_VERSION_MARK = f'"{VERSION_KEY}"'.encode()


class EnvelopeFault(Exception):
    """A modern request lacks what it must say about itself."""


def is_stamped(members: Members) -> bool:
    """Does the request carry the modern envelope?"""
    meta = members.get("_meta")
    return meta is not None and _VERSION_MARK in bytes(meta)


def read_stamp(members: Members) -> str:
    """The revision that a modern request speaks. Raises EnvelopeFault where it says too little."""
    try:
        meta = read_members(members["_meta"])
        version = msgspec.json.decode(meta[VERSION_KEY], type=str)
        msgspec.json.decode(meta[CAPABILITIES_KEY], type=dict[str, msgspec.Raw])
    except KeyError as missing:
        raise EnvelopeFault(f"params misses {missing} (every {MODERN} request has it)") from None
    except msgspec.ValidationError as error:
        raise EnvelopeFault(f"params._meta has no usable form: {error}") from None
    return version


def offered_revision(members: Members) -> str:
    try:
        return msgspec.json.decode(members.get("protocolVersion", b'""'), type=str)
    except msgspec.ValidationError:
        return ""


def initialize_result(offered: str, snapshot: Snapshot) -> tuple[str, bytes]:
    """The revision agreed on, and the answer that says so."""
    revision = legacy_answer(offered)
    result = {
        "protocolVersion": revision,
        "capabilities": {"tools": {"listChanged": snapshot.tool_mode == "dynamic"}},
        "serverInfo": OURSELVES,
        "instructions": instructions(snapshot),
    }
    return revision, msgspec.json.encode(result)


def discover_result(snapshot: Snapshot) -> bytes:
    result: dict[str, Any] = {
        "supportedVersions": [MODERN],
        "capabilities": {"tools": {}},
        "instructions": instructions(snapshot),
        "ttlMs": STATIC_TTL,
        "cacheScope": "public",
    }
    return complete(msgspec.json.encode(result), STAMPS)
