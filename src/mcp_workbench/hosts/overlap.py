"""What a host has directly that we serve as well, and the variables that our servers need there."""

import re
from pathlib import Path
from typing import Any, cast

import msgspec

from mcp_workbench.hosts.merge import served
from mcp_workbench.hosts.places import HostFile, Surroundings
from mcp_workbench.hosts.reading import servers_in, text_of, value_of
from mcp_workbench.hosts.secrets import Vault

Keys = tuple[str, ...]

_ASKED = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(:-)?")
# What every program gets from whoever starts it.
_USUAL = {"HOME", "PATH", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TMPDIR"}


def own_entries(config: str, toolboxes: list[str]) -> dict[str, Any]:
    """The server entries of these toolboxes as our configuration file has them."""
    value = value_of(text_of(Path(config)) or "", "json", config)
    boxes = value.get("toolboxes", {"default": value})
    return {
        f"{box}/{name}": entry
        for box in toolboxes
        for name, entry in cast("dict[str, Any]", boxes[box].get("mcpServers", {})).items()
        if not entry.get("disabled")
    }


def direct(file: HostFile, ours: dict[str, Any], around: Surroundings) -> list[Keys]:
    """The entries of a host's file that we serve as well."""
    text = text_of(file.path)
    if text is None:
        return []
    vault = Vault()
    found = [f for f in servers_in(file, text, around) if not f.skipped]
    return [f.keys for f in found if served(f, ours, vault)]


def variables_in(entries: dict[str, Any], *, needed: bool = False) -> tuple[str, ...]:
    """The variables that these entries of ours ask for, in their order; those that all have aside.

    `needed`: only those without which a server does not start, because they have no default.
    """
    asked = _ASKED.findall(msgspec.json.encode(entries).decode())
    names = (name for name, default in asked if name and not (needed and default))
    return tuple(dict.fromkeys(name for name in names if name not in _USUAL))
