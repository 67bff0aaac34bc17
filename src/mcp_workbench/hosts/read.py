"""Reads the servers in a host's file, or in any file that looks like one."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from mcp_workbench.config import jsonc
from mcp_workbench.config.file_access import read_plain
from mcp_workbench.hosts.files import HostFile, Machine, read_file, shown, unreadable
from mcp_workbench.hosts.table import HOSTS, Host
from mcp_workbench.hosts.translate import HostServer, read_entry, translate
from mcp_workbench.transport.json_text import read_json

Keys = tuple[str, ...]

# A file of no known host: the syntaxes of all hosts are accepted.
ANY_FILE = Host("file", "a file", {}, variables=("braces", "env", "input", "folders"))
_SECTIONS: tuple[Keys, ...] = (
    ("mcpServers",),
    ("servers",),
    ("mcp", "servers"),
    ("mcp",),
    ("context_servers",),
    ("mcp_servers",),
)
_PLAIN_WORDS = {"mcpServers", "servers", "mcp_servers", "context_servers"}  # unambiguous
KEY = "envFile"
MOST_BYTES = 64 << 10  # far more than anybody writes by hand
_LINE = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=", re.MULTILINE)


def text_of(file: Path, *, pipes: bool = False) -> str | None:
    """Returns the text of a file, or None if there is none; fails if it is not UTF-8."""
    raw = read_file(file, pipes=pipes)
    return None if raw is None else decoded(raw, str(file))


def decoded(raw: bytes, file: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        place = jsonc.place_of_byte(raw, error.start)
        raise unreadable(file, "the file is not UTF-8 text", *place) from None


def value_of(text: str, format: str, file: str) -> Any:
    """Parses the whole text."""
    if format == "toml":
        try:
            return parse_toml(text)
        except NotToml as error:
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


class NotToml(ValueError):
    """The text is not TOML, with place and reason."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


def parse_toml(text: str) -> dict[str, Any]:
    """Returns the values; raises NotToml with the place."""
    import tomllib  # only where there is such a file

    try:
        return tomllib.loads(text.removeprefix(jsonc.BOM))
    except tomllib.TOMLDecodeError as error:
        position = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        message = re.sub(r" \(at .*\)$", "", str(error))
        # The reader quotes a character at most, so no secret is in its words.
        line, column = map(int, position.groups()) if position else (text.count("\n") + 1, 1)
        raise NotToml(message[:1].lower() + message[1:], line, column) from None
    except RecursionError:
        raise NotToml("it is nested too deeply", 1, 1) from None


def keys_in(host: Host, value: Any) -> Keys:
    """Returns the path of this host's entries in this file: opencode moved them in version 2."""
    moved = value_at(value, ("mcp", "servers"))
    if host.shape == "opencode" and isinstance(moved, dict) and "type" not in moved:
        return ("mcp", "servers")
    return host.keys


def servers_in(file: HostFile, text: str, machine: Machine) -> list[HostServer]:
    """Returns every server of a host's file, including our own entry."""
    value = value_of(text, file.host.format, str(file.path))
    sections = [keys_in(file.host, value)]
    if file.host.id == "claude-code" and file.scope == "user":
        sections.append(("projects", str(machine.folder), "mcpServers"))
    servers = [
        server
        for keys in sections
        for server in _section(value, keys, file.host, file.path, machine)
    ]
    return [_switched_off(server, value) for server in servers]


def servers_in_any(text: str, name: str, machine: Machine) -> list[HostServer]:
    """Returns the servers of a file that the user names, or of standard input."""
    format = "toml" if name.endswith(".toml") else "json"
    value = value_of(text, format, name)
    host = _author(value)
    for keys in _SECTIONS:
        section = value_at(value, keys)
        if _is_section(section) or (keys[-1] in _PLAIN_WORDS and isinstance(section, dict)):
            return list(_section(value, keys, host, Path(name), machine))
    if isinstance(value, dict) and "toolboxes" in value:
        boxes = value_at(value, ("toolboxes",))
        return [
            server
            for box in (cast("dict[str, Any]", boxes) if isinstance(boxes, dict) else {})
            for server in _section(
                value, ("toolboxes", box, "mcpServers"), host, Path(name), machine
            )
        ]
    if _is_section(value):
        return list(_section(value, (), host, Path(name), machine))
    fix = "name a file that has 'mcpServers', 'servers' or 'mcp_servers', or a host"
    raise unreadable(name, "there are no servers in it", fix=fix)


def _author(value: Any) -> Host:
    """Returns the host whose format this file has."""
    if _is_section(value_at(value, ("mcp_servers",))):
        return HOSTS["codex"]
    if _is_section(value_at(value, ("context_servers",))):
        return HOSTS["zed"]
    if _is_section(value_at(value, ("mcp",))) or _is_section(value_at(value, ("mcp", "servers"))):
        return HOSTS["opencode"]
    return ANY_FILE


def _section(
    value: Any, keys: Keys, host: Host, path: Path, machine: Machine
) -> Iterator[HostServer]:
    section = value_at(value, keys)
    if not isinstance(section, dict):
        return
    for name, raw in cast("dict[str, Any]", section).items():
        server = with_env_file(read_entry(name, raw, host, str(path), machine), raw, host, machine)
        yield msgspec.structs.replace(server, keys=(*keys, name))


def _switched_off(server: HostServer, value: Any) -> HostServer:
    """Gemini CLI has a separate list of disabled servers."""
    excluded = value_at(value, ("mcp", "excluded"))
    if server.host != "gemini" or server.skipped or not isinstance(excluded, list):
        return server
    if server.name not in excluded:
        return server
    return msgspec.structs.replace(server, entry=server.entry | {"disabled": True})


def value_at(value: Any, keys: Keys) -> Any:
    """Returns what stands at this path, or None."""
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return None
        value = cast("dict[str, Any]", value)[key]
    return value


def _is_section(value: Any) -> bool:
    """Is this an object of server entries, each with a command or a URL?"""
    ways = {"command", "cmd", "url", "httpUrl", "serverUrl", "uri"}
    if not isinstance(value, dict) or not value:
        return False
    entries = cast("dict[str, Any]", value).values()
    return all(isinstance(e, dict) and ways & set(cast("dict[str, Any]", e)) for e in entries)


def with_env_file(server: HostServer, raw: Any, host: Host, machine: Machine) -> HostServer:
    """Returns the entry with `${NAME}` for each name in its envFile; the user sets these from now on."""
    named = cast("dict[str, Any]", raw).get(KEY) if isinstance(raw, dict) else None
    if not isinstance(named, str) or server.skipped or "command" not in server.entry:
        return server
    path = machine.folder / Path(translate(named, host.variables, machine).text).expanduser()
    where = shown(path, machine)
    names = names_in(path)
    if names is None:
        note = f"its envFile {where} can't be read, so nothing of it is carried over"
        return msgspec.structs.replace(server, notes=(*server.notes, note))
    env = {name: f"${{{name}}}" for name in names} | server.entry.get("env", {})
    note = (
        f"its envFile {where} is not read by us; set what it sets: {', '.join(names) or 'nothing'}"
    )
    entry = server.entry | ({"env": env} if env else {})
    return msgspec.structs.replace(server, entry=entry, notes=(*server.notes, note))


def names_in(path: Path) -> tuple[str, ...] | None:
    """Returns the names that are assigned there, in order; None if there is no such file."""
    try:
        text = read_plain(path, MOST_BYTES).decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return None
    return tuple(dict.fromkeys(_LINE.findall(text)))
