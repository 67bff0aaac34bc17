"""Plans changes of configuration files, and previews them; nothing is touched.

`plan_install` and `plan_uninstall` decide what changes in a host's file. `diff` shows a planned change with
its secrets hidden.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from difflib import unified_diff
from pathlib import Path
from types import ModuleType
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from mcp_workbench.config import jsonc
from mcp_workbench.core.spec import SecretSources
from mcp_workbench.hosts import edit_json
from mcp_workbench.hosts.environment import inherited_names
from mcp_workbench.hosts.files import CannotEdit, HostFile, Keys, Machine, not_editable
from mcp_workbench.hosts.own_entry import Words, own_entry, passed_on, renewed
from mcp_workbench.hosts.read import (
    Entry,
    HostServer,
    decoded,
    keys_in,
    servers_in,
    text_of,
    value_at,
    value_of,
)
from mcp_workbench.hosts.secrets import Vault, masked
from mcp_workbench.hosts.table import ENTRY, Format, Host

Identity = tuple[str, ...]

_DEFAULT_PORTS = {"http": 80, "https": 443}
_ASKED = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(:-)?")
# Variables that every process inherits.
USUAL = {"HOME", "PATH", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "TMPDIR"}
CONTEXT = 3  # lines around a change


# Changes of one file


class Member(msgspec.Struct, frozen=True):
    """A value that we put into a file, and its path there."""

    keys: Keys
    value: Any

    def __repr__(self) -> str:
        return f"Member({self.keys!r})"


class Change(msgspec.Struct, frozen=True):
    """One file before and after. With `own` the host's command writes it, and `after` is expected."""

    host: str  # or "" for our own configuration
    path: Path
    format: Format
    before: bytes | None  # None: there is no such file
    after: bytes
    added: tuple[Member, ...] = ()
    removed: tuple[Keys, ...] = ()
    own: Words = ()

    def __repr__(self) -> str:
        return f"Change({str(self.path)!r})"

    @property
    def needed(self) -> bool:
        return self.after != (self.before or b"")


def edited(text: str, format: str, put: Sequence[Member] = (), remove: Iterable[Keys] = ()) -> str:
    """Returns the text with these members added and those removed."""
    tool = editor(format)
    text = tool.remove_all(text, remove)
    if not put:
        return text
    text = tool.put_all(text, ((member.keys, member.value) for member in put))
    value = tool.lookup(text, ())
    for member in put:
        if value_at(value, member.keys) != member.value:
            raise CannotEdit(f"{'.'.join(member.keys)} can't be put there")
    return text


def editor(format: str) -> ModuleType:
    if format != "toml":
        return edit_json
    from mcp_workbench.hosts import edit_toml  # only where there is such a file

    return edit_toml


def plan_edit(
    file: HostFile, before: bytes | None, put: tuple[Member, ...], remove: tuple[Keys, ...]
) -> Change:
    """Plans to add these members to a host's file and to remove those."""
    name = str(file.path)
    text = decoded(before or b"", name)
    value_of(text, file.host.format, name)  # fails for what its host could not read either
    try:
        after = edited(text, file.host.format, put, remove)
    except CannotEdit as error:
        raise not_editable(name, error) from None
    return Change(file.host.id, file.path, file.host.format, before, after.encode(), put, remove)


# Installing this program in a host


class Installation(msgspec.Struct, frozen=True):
    """What to install in every host."""

    words: Words  # that start us
    variables: Words  # that our servers need
    own: bool  # by the host's own command, where there is one


def plan_install(
    file: HostFile, before: bytes | None, installation: Installation, served: tuple[Keys, ...]
) -> Change:
    """Plans to add our entry and to remove what we serve. The host's own command adds a command
    line, no more: to replace an entry, pass variables on or remove other entries, we edit the file.
    """
    old = present(file, before)
    member = Member(entry_keys(file, before), entry_to_write(file, before, installation))
    if old == member.value:
        return plan_edit(file, before, (), served)
    change = plan_edit(file, before, (member,), served)
    if (
        old is not None
        or served
        or not installation.own
        or passed_on(file.host, installation.variables)
    ):
        return change
    return msgspec.structs.replace(
        change, own=add_command(file.host, file.scope, installation.words)
    )


def entry_to_write(
    file: HostFile, before: bytes | None, installation: Installation
) -> dict[str, Any]:
    """Returns our entry for this file, with what the user has added to the one that is there."""
    entry = own_entry(file.host, installation.words, installation.variables)
    return renewed(present(file, before), entry)


def plan_uninstall(file: HostFile, before: bytes | None, *, own: bool) -> Change:
    """Plans to remove our entry from this file."""
    if before is None or present(file, before) is None:
        return Change(file.host.id, file.path, file.host.format, before, before or b"")
    change = plan_edit(file, before, (), (entry_keys(file, before),))
    command = remove_command(file.host, file.scope) if own else ()
    return msgspec.structs.replace(change, own=command)


def entry_keys(file: HostFile, before: bytes | None) -> Keys:
    """Returns the path of our entry in this file."""
    value = value_of(decoded(before or b"", str(file.path)), file.host.format, str(file.path))
    return (*keys_in(file.host, value), ENTRY)


def present(file: HostFile, before: bytes | None) -> Any:
    """Returns the entry under our name, or None."""
    text = decoded(before or b"", str(file.path))
    return editor(file.host.format).lookup(text, entry_keys(file, before))


def add_command(host: Host, scope: str, words: Words) -> Words:
    """Returns the host's own command to add us; empty if it has none for this scope."""
    if host.own is None or scope not in host.own.scopes:
        return ()
    entry = msgspec.json.encode(own_entry(host, words)).decode()
    return _filled(host.own.add, scope, entry, words)


def remove_command(host: Host, scope: str) -> Words:
    if host.own is None or scope not in host.own.scopes:
        return ()
    return _filled(host.own.remove, scope, "", ())


def _filled(template: Words, scope: str, entry: str, words: Words) -> Words:
    filled: list[str] = []
    for word in template:
        if word == "{words}":
            filled += words
        else:
            instead = {"{name}": ENTRY, "{scope}": scope, "{json}": entry}
            filled.append(instead.get(word, word))
    return tuple(filled)


# Servers that two files have in common


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
        return next((name for name, entry in alike if same_account(entry, cleaned)), "")


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


def same_account(left: Entry, right: Entry) -> bool:
    """Have two entries of one identity no differing value? Two accounts of one service are two servers."""
    for key in ("env", "headers", "auth"):
        ours, theirs = left.get(key), right.get(key)
        if not isinstance(ours, dict) or not isinstance(theirs, dict):
            continue
        ours, theirs = cast("Entry", ours), cast("Entry", theirs)
        names = ("clientId",) if key == "auth" else tuple(ours)
        if any(name in ours and name in theirs and ours[name] != theirs[name] for name in names):
            return False
    return True


# Our own entries


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


def variables_in(
    entries: dict[str, Any], *, needed: bool = False, secrets: SecretSources = ()
) -> tuple[str, ...]:
    """Returns the variables that these entries of ours use, in order, except those that every process has,
    and `secrets`, which are not taken from the environment.

    `needed`: only those without which a server does not start, because they have no default.
    """
    asked = _ASKED.findall(msgspec.json.encode(entries).decode())
    own = dict(secrets)
    names = [n for n, default in asked if n and n not in own and not (needed and default)]
    if not needed:
        names += inherited_names(entries.values())
    return tuple(dict.fromkeys(name for name in names if name not in USUAL))


# Preview


def diff(change: Change) -> list[str]:
    """Returns the lines of a unified diff, with secrets hidden on both sides."""
    old = masked(_text(change.before), change.format).splitlines()
    new = masked(_text(change.after), change.format).splitlines()
    # Files of a hundred thousand lines are common (histories), and mostly the same.
    first = _common(old, new)
    last = _common(old[first:][::-1], new[first:][::-1])
    skip = max(first - CONTEXT, 0)
    keep = max(last - CONTEXT, 0)
    before, after = old[skip : len(old) - keep], new[skip : len(new) - keep]
    lines = list(unified_diff(before, after, lineterm="", n=CONTEXT))[2:]
    return [_line_header(line, skip) if line.startswith("@@") else line for line in lines]


def _text(data: bytes | None) -> str:
    return (data or b"").decode().removeprefix(jsonc.BOM)


def _common(one: list[str], other: list[str]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _line_header(header: str, skipped: int) -> str:
    """`@@ line 12 @@`: the line number in the new file."""
    start = header.split("+")[1].split(" ")[0].split(",")[0]
    return f"@@ line {int(start) + skipped} @@"
