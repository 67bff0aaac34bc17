"""Many files' servers as one list: the same server once, every name once, nothing of ours."""

import re
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from mcp_workbench.hosts.secrets import Taken, Vault
from mcp_workbench.hosts.translate import Entry, Found

Identity = tuple[str, ...]

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Chosen(msgspec.Struct, frozen=True):
    """What becomes of one found server."""

    found: Found
    name: str = ""  # under which it is written
    entry: Entry = {}
    same_as: str = ""  # the name of the one that it is
    there: bool = False  # in the configuration already
    notes: tuple[str, ...] = ()

    @property
    def new(self) -> bool:
        return bool(self.name) and not self.same_as and not self.there


class Merged(msgspec.Struct, frozen=True):
    """All of it, in the order in which it was found."""

    chosen: tuple[Chosen, ...]
    taken: tuple[Taken, ...]

    @property
    def new(self) -> dict[str, Entry]:
        return {choice.name: choice.entry for choice in self.chosen if choice.new}


def merge(
    found: list[Found], existing: dict[str, Any], reserved: frozenset[str] = frozenset()
) -> Merged:
    """Choose names and entries; `existing` are the entries that the toolbox has already."""
    vault = Vault(reserved)
    chosen: list[Chosen] = []
    kept: list[Chosen] = []
    names = set(existing)
    for server in found:
        if server.skipped:
            chosen.append(Chosen(server))
            continue
        twin = next((c for c in kept if _same(c.found.entry, server.entry)), None)
        if twin:
            chosen.append(Chosen(server, twin.name, twin.entry, same_as=twin.name))
            continue
        choice = _placed(server, existing, names, vault)
        names.add(choice.name)
        chosen.append(choice)
        kept.append(choice)
    written = {choice.name for choice in chosen if choice.new}
    return Merged(tuple(chosen), tuple(t for t in vault.taken if t.server in written))


def _placed(server: Found, existing: dict[str, Any], names: set[str], vault: Vault) -> Chosen:
    plain = plain_name(server.name)
    if name := served(server, existing, vault.twin()):
        return Chosen(server, name, there=True)
    name = plain if plain not in names else plain_name(f"{plain}-{server.host}")
    number = 2
    while name in names:
        name, number = f"{plain}-{number}", number + 1
    renamed = (f"'{server.name}' is called '{name}' here",) if name != server.name else ()
    return Chosen(server, name, vault.cleaned(server, name), notes=(*renamed, *server.notes))


def served(server: Found, existing: dict[str, Any], vault: Vault) -> str:
    """Under which name one of these entries reaches this server; nothing where none does."""
    cleaned = vault.cleaned(server, plain_name(server.name))
    same = (
        name
        for name, entry in existing.items()
        if isinstance(entry, dict) and _same(cast("Entry", entry), cleaned)
    )
    return next(same, "")


def plain_name(name: str) -> str:
    """The name under the rules of both modes: letters, digits, `-`, `_`, no `__`, no `_` at the end."""
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


def _same(one: Entry, other: Entry) -> bool:
    """The same way, and nothing that says otherwise: two accounts of one service are two servers."""
    if identity(one) != identity(other):
        return False
    for key in ("env", "headers"):
        ours, theirs = one.get(key), other.get(key)
        if not isinstance(ours, dict) or not isinstance(theirs, dict):
            continue
        ours, theirs = cast("Entry", ours), cast("Entry", theirs)
        if any(ours[name] != theirs[name] for name in ours if name in theirs):
            return False
    return True
