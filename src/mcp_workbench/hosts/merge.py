"""Merges the servers of many files: each server once, each name once, none that we serve already."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from mcp_workbench.hosts.files import HostFile, Machine
from mcp_workbench.hosts.read import Entry, HostServer, servers_in, text_of, value_of
from mcp_workbench.hosts.secrets import ExtractedSecret, Vault

Identity = tuple[str, ...]

_DEFAULT_PORTS = {"http": 80, "https": 443}
Keys = tuple[str, ...]
_ASKED = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(:-)?")
# Variables that every process inherits.
_USUAL = {"HOME", "PATH", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TMPDIR"}


class ImportChoice(msgspec.Struct, frozen=True):
    """What the import does with one server."""

    server: HostServer
    name: str = ""  # in our configuration
    entry: Entry = {}
    same_as: str = ""  # the name of the identical server before it
    there: bool = False  # already in our configuration
    notes: tuple[str, ...] = ()

    @property
    def new(self) -> bool:
        return bool(self.name) and not self.same_as and not self.there


class Merged(msgspec.Struct, frozen=True):
    """All choices, in the order of the files."""

    chosen: tuple[ImportChoice, ...]
    taken: tuple[ExtractedSecret, ...]

    @property
    def new(self) -> dict[str, Entry]:
        return {choice.name: choice.entry for choice in self.chosen if choice.new}


def merge(
    servers: list[HostServer], existing: dict[str, Any], reserved: frozenset[str] = frozenset()
) -> Merged:
    """Chooses names and entries; `existing` are the entries of the toolbox."""
    vault = Vault(reserved)
    chosen: list[ImportChoice] = []
    kept: defaultdict[Identity, list[ImportChoice]] = defaultdict(list)
    ours = EntriesByIdentity(existing)
    names = set(existing)
    for server in servers:
        if server.skipped:
            chosen.append(ImportChoice(server))
            continue
        alike = kept[identity(server.entry)]
        twin = next((c for c in alike if _same_account(c.server.entry, server.entry)), None)
        if twin:
            chosen.append(ImportChoice(server, twin.name, twin.entry, same_as=twin.name))
            continue
        choice = _placed(server, ours, names, vault)
        names.add(choice.name)
        chosen.append(choice)
        alike.append(choice)
    written = {choice.name for choice in chosen if choice.new}
    return Merged(tuple(chosen), tuple(t for t in vault.taken if t.server in written))


def _placed(
    server: HostServer, existing: EntriesByIdentity, names: set[str], vault: Vault
) -> ImportChoice:
    plain = plain_name(server.name)
    if name := existing.serving(server, vault.twin()):
        return ImportChoice(server, name, there=True)
    name = plain if plain not in names else plain_name(f"{plain}-{server.host}")
    number = 2
    while name in names:
        name, number = f"{plain}-{number}", number + 1
    renamed = (f"'{server.name}' is called '{name}' here",) if name != server.name else ()
    return ImportChoice(server, name, vault.cleaned(server, name), notes=(*renamed, *server.notes))


class EntriesByIdentity:
    """Entries of our configuration, to be searched for many servers."""

    def __init__(self, entries: dict[str, Any]) -> None:
        self._named: defaultdict[Identity, list[tuple[str, Entry]]] = defaultdict(list)
        for name, value in entries.items():
            if isinstance(value, dict):
                entry = cast("Entry", value)
                self._named[identity(entry)].append((name, entry))

    def serving(self, server: HostServer, vault: Vault) -> str:
        """Returns the name of the entry that reaches this server, or an empty string."""
        cleaned = vault.cleaned(server, plain_name(server.name))
        alike = self._named.get(identity(cleaned), ())
        return next((name for name, entry in alike if _same_account(entry, cleaned)), "")


def plain_name(name: str) -> str:
    """Returns a name that is valid in both modes: letters, digits, `-`, `_`, no `__`, no `_` at the end."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")
    return re.sub(r"__+", "-", plain.rstrip("_-")) or "server"


def identity(entry: Entry) -> Identity:
    """Entries with the same identity reach the same server."""
    if isinstance(entry.get("url"), str):
        return ("url", normal_url(entry["url"]))
    args = entry.get("args")
    words = cast("list[Any]", args) if isinstance(args, list) else []
    return ("command", str(entry.get("command", "")), *map(str, words))


def normal_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return url
    usual = port in (None, _DEFAULT_PORTS.get(parts.scheme))
    host = f"{parts.hostname or ''}{'' if usual else f':{port}'}"
    query = f"?{parts.query}" if parts.query else ""
    user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return f"{parts.scheme}://{user}{host}{parts.path.rstrip('/')}{query}"


def _same_account(left: Entry, right: Entry) -> bool:
    """Have two entries of one identity no differing value? Two accounts of one service are two servers."""
    for key in ("env", "headers"):
        ours, theirs = left.get(key), right.get(key)
        if not isinstance(ours, dict) or not isinstance(theirs, dict):
            continue
        ours, theirs = cast("Entry", ours), cast("Entry", theirs)
        if any(ours[name] != theirs[name] for name in ours if name in theirs):
            return False
    return True


def own_entries(config: str, toolboxes: list[str]) -> dict[str, Any]:
    """Returns the enabled server entries of these toolboxes from our configuration file."""
    value = value_of(text_of(Path(config)) or "", "json", config)
    boxes = value.get("toolboxes", {"default": value})
    return {
        f"{box}/{name}": entry
        for box in toolboxes
        for name, entry in cast("dict[str, Any]", boxes[box].get("mcpServers", {})).items()
        if not entry.get("disabled")
    }


def direct(file: HostFile, ours: dict[str, Any], machine: Machine) -> list[Keys]:
    """Returns the entries of a host's file that we serve as well."""
    text = text_of(file.path)
    if text is None:
        return []
    vault = Vault()
    entries = EntriesByIdentity(ours)
    servers = [server for server in servers_in(file, text, machine) if not server.skipped]
    return [server.keys for server in servers if entries.serving(server, vault)]


def variables_in(entries: dict[str, Any], *, needed: bool = False) -> tuple[str, ...]:
    """Returns the variables that these entries of ours use, in order, except those that every process has.

    `needed`: only those without which a server does not start, because they have no default.
    """
    asked = _ASKED.findall(msgspec.json.encode(entries).decode())
    names = (name for name, default in asked if name and not (needed and default))
    return tuple(dict.fromkeys(name for name in names if name not in _USUAL))
