"""The file of variables that an entry may name: its names are carried over, no value ever is."""

import re
from pathlib import Path
from typing import Any, cast

import msgspec

from mcp_workbench.config.plain_file import read_plain
from mcp_workbench.hosts.places import Surroundings, shown
from mcp_workbench.hosts.table import Host
from mcp_workbench.hosts.translate import Found
from mcp_workbench.hosts.variables import translate

KEY = "envFile"
MOST_BYTES = 64 << 10  # far beyond any that a person wrote
_LINE = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=", re.MULTILINE)


def with_env_file(found: Found, raw: Any, host: Host, around: Surroundings) -> Found:
    """The entry with `${NAME}` for each name in its file, which its person has to set from now on."""
    named = cast("dict[str, Any]", raw).get(KEY) if isinstance(raw, dict) else None
    if not isinstance(named, str) or found.skipped or "command" not in found.entry:
        return found
    path = around.folder / Path(translate(named, host.variables, around).text).expanduser()
    where = shown(path, around)
    names = names_in(path)
    if names is None:
        note = f"its envFile {where} can't be read, so nothing of it is carried over"
        return msgspec.structs.replace(found, notes=(*found.notes, note))
    env = {name: f"${{{name}}}" for name in names} | found.entry.get("env", {})
    note = (
        f"its envFile {where} is not read by us; set what it sets: {', '.join(names) or 'nothing'}"
    )
    entry = found.entry | ({"env": env} if env else {})
    return msgspec.structs.replace(found, entry=entry, notes=(*found.notes, note))


def names_in(path: Path) -> tuple[str, ...] | None:
    """The names that are given a value there, in their order; None where there is no such file."""
    try:
        text = read_plain(path, MOST_BYTES).decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return None
    return tuple(dict.fromkeys(_LINE.findall(text)))
