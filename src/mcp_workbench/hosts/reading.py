"""The servers in a file of a host, or in any file that looks like one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from mcp_workbench.core import jsonc
from mcp_workbench.hosts.contents import read_file
from mcp_workbench.hosts.env_file import with_env_file
from mcp_workbench.hosts.places import HostFile, Surroundings
from mcp_workbench.hosts.refusals import unreadable
from mcp_workbench.hosts.table import HOSTS, Host
from mcp_workbench.hosts.translate import Found, read_entry
from mcp_workbench.wire.depth import read_json

Keys = tuple[str, ...]

# A file of no known host: the spellings of all of them are understood.
ANY_FILE = Host("file", "a file", {}, variables=("braces", "env", "input", "folders"))
_SECTIONS: tuple[Keys, ...] = (
    ("mcpServers",),
    ("servers",),
    ("mcp", "servers"),
    ("mcp",),
    ("context_servers",),
    ("mcp_servers",),
)
_PLAIN_WORDS = {"mcpServers", "servers", "mcp_servers", "context_servers"}  # they mean nothing else


def text_of(file: Path, *, pipes: bool = False) -> str | None:
    """The text of a file, or None where there is none; bytes that are no UTF-8 are refused."""
    raw = read_file(file, pipes=pipes)
    return None if raw is None else decoded(raw, str(file))


def decoded(raw: bytes, file: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        place = jsonc.place_of_byte(raw, error.start)
        raise unreadable(file, "the file is not UTF-8 text", *place) from None


def value_of(text: str, format: str, file: str) -> Any:
    """The whole value of the text."""
    if format == "toml":
        from mcp_workbench.hosts import edit_toml  # only where there is such a file

        try:
            return edit_toml.parse(text)
        except edit_toml.NotToml as error:
            raise unreadable(file, error.message, error.line, error.column) from None
    if not text.removeprefix(jsonc.BOM).strip():
        return {}
    try:
        return read_json(text)  # most files are; this is a hundred times faster
    except (ValueError, RecursionError):
        pass
    try:
        return jsonc.parse(text)
    except jsonc.SyntaxProblem as error:
        raise unreadable(file, error.message, error.line, error.column) from None


def keys_in(host: Host, value: Any) -> Keys:
    """Where this host's entries stand in this file: opencode has moved them in its version 2."""
    moved = _at(value, ("mcp", "servers"))
    if host.shape == "opencode" and isinstance(moved, dict) and "type" not in moved:
        return ("mcp", "servers")
    return host.keys


def servers_in(file: HostFile, text: str, around: Surroundings) -> list[Found]:
    """Every server of a host's file, ours included."""
    value = value_of(text, file.host.format, str(file.path))
    sections = [keys_in(file.host, value)]
    if file.host.id == "claude-code" and file.scope == "user":
        sections.append(("projects", str(around.folder), "mcpServers"))
    found = [f for keys in sections for f in _section(value, keys, file.host, file.path, around)]
    return [_switched_off(f, value) for f in found]


def servers_in_any(text: str, name: str, around: Surroundings) -> list[Found]:
    """The servers of a file that somebody names, or of standard input."""
    format = "toml" if name.endswith(".toml") else "json"
    value = value_of(text, format, name)
    host = _author(value)
    for keys in _SECTIONS:
        section = _at(value, keys)
        if _is_section(section) or (keys[-1] in _PLAIN_WORDS and isinstance(section, dict)):
            return list(_section(value, keys, host, Path(name), around))
    if isinstance(value, dict) and "toolboxes" in value:
        boxes = _at(value, ("toolboxes",))
        return [
            found
            for box in (cast("dict[str, Any]", boxes) if isinstance(boxes, dict) else {})
            for found in _section(value, ("toolboxes", box, "mcpServers"), host, Path(name), around)
        ]
    if _is_section(value):
        return list(_section(value, (), host, Path(name), around))
    fix = "name a file that has 'mcpServers', 'servers' or 'mcp_servers', or a host"
    raise unreadable(name, "there are no servers in it", fix=fix)


def _author(value: Any) -> Host:
    """Whose spelling a file without a known place has."""
    if _is_section(_at(value, ("mcp_servers",))):
        return HOSTS["codex"]
    if _is_section(_at(value, ("context_servers",))):
        return HOSTS["zed"]
    if _is_section(_at(value, ("mcp",))) or _is_section(_at(value, ("mcp", "servers"))):
        return HOSTS["opencode"]
    return ANY_FILE


def _section(
    value: Any, keys: Keys, host: Host, path: Path, around: Surroundings
) -> Iterator[Found]:
    section = _at(value, keys)
    if not isinstance(section, dict):
        return
    for name, raw in cast("dict[str, Any]", section).items():
        found = with_env_file(read_entry(name, raw, host, str(path), around), raw, host, around)
        yield msgspec.structs.replace(found, keys=(*keys, name))


def _switched_off(found: Found, value: Any) -> Found:
    """Gemini CLI keeps a list of those that it does not start."""
    excluded = _at(value, ("mcp", "excluded"))
    if found.host != "gemini" or found.skipped or not isinstance(excluded, list):
        return found
    if found.name not in excluded:
        return found
    return msgspec.structs.replace(found, entry=found.entry | {"disabled": True})


def _at(value: Any, keys: Keys) -> Any:
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return None
        value = cast("dict[str, Any]", value)[key]
    return value


def _is_section(value: Any) -> bool:
    """An object of objects, of which each says how a server is reached."""
    ways = {"command", "cmd", "url", "httpUrl", "serverUrl", "uri"}
    if not isinstance(value, dict) or not value:
        return False
    entries = cast("dict[str, Any]", value).values()
    return all(isinstance(e, dict) and ways & set(cast("dict[str, Any]", e)) for e in entries)
