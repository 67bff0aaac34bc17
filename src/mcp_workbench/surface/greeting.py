"""How a host opens a conversation in either era, and what it is told then."""

from __future__ import annotations

from typing import Any

import msgspec

from mcp_workbench.core.spec import Snapshot
from mcp_workbench.era.ourselves import OURSELVES, STAMPS
from mcp_workbench.era.revision import (
    MODERN,
    legacy_answer,
)
from mcp_workbench.era.translate import complete
from mcp_workbench.surface.menu import STATIC_TTL, cache_scope
from mcp_workbench.surface.texts import instructions


def _capabilities(snapshot: Snapshot) -> dict[str, Any]:
    """What servers may offer, whether those behind us do or not: that is known when they are met."""
    return {
        "tools": {"listChanged": True},  # in proxy mode too: open_toolbox names the toolboxes
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
        "cacheScope": cache_scope(snapshot),
    }
    return complete(msgspec.json.encode(result), STAMPS)
