"""Plans a change of one host file, and previews it, before anything is touched."""

from collections.abc import Iterable, Sequence
from difflib import unified_diff
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import msgspec

from mcp_workbench.config import jsonc
from mcp_workbench.hosts import edit_json
from mcp_workbench.hosts.files import CannotEdit, HostFile, not_editable
from mcp_workbench.hosts.read import decoded, is_ourselves, keys_in, value_at, value_of
from mcp_workbench.hosts.secrets import masked
from mcp_workbench.hosts.table import ENTRY, Format, Host

Keys = tuple[str, ...]
Words = tuple[str, ...]
_OFF = {"disabled": True, "enabled": False}  # installing us enables us
CONTEXT = 3  # lines around a change


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


def editor(format: str) -> ModuleType:
    if format != "toml":
        return edit_json
    from mcp_workbench.hosts import edit_toml  # only where there is such a file

    return edit_toml


def edited(text: str, format: str, put: Sequence[Member] = (), remove: Iterable[Keys] = ()) -> str:
    """Returns the text with these members added and those removed."""
    tool = editor(format)
    for keys in remove:
        text = tool.remove(text, keys)
    if not put:
        return text
    text = tool.put_all(text, ((member.keys, member.value) for member in put))
    value = tool.lookup(text, ())
    for member in put:
        if value_at(value, member.keys) != member.value:
            raise CannotEdit(f"{'.'.join(member.keys)} can't be put there")
    return text


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


def entry_keys(file: HostFile, before: bytes | None) -> Keys:
    """Returns the path of our entry in this file."""
    value = value_of(decoded(before or b"", str(file.path)), file.host.format, str(file.path))
    return (*keys_in(file.host, value), ENTRY)


def present(file: HostFile, before: bytes | None) -> Any:
    """Returns the entry under our name, or None."""
    text = decoded(before or b"", str(file.path))
    return editor(file.host.format).lookup(text, entry_keys(file, before))


class Installation(msgspec.Struct, frozen=True):
    """What to install in every host."""

    words: Words  # that start us
    variables: Words = ()  # that our servers need
    own: bool = True  # by the host's own command, where there is one


def plan_install(
    file: HostFile, before: bytes | None, installation: Installation, served: tuple[Keys, ...]
) -> Change:
    """Plans to add our entry and to remove what we serve. The host's own command adds a command
    line, no more: to replace an entry, pass variables on or remove other entries, we edit the file.
    """
    there = present(file, before)
    entry = own_entry(file.host, installation.words, installation.variables)
    member = Member(entry_keys(file, before), renewed(there, entry))
    if there == member.value:
        return plan_edit(file, before, (), served)
    change = plan_edit(file, before, (member,), served)
    if (
        there is not None
        or served
        or not installation.own
        or passed_on(file.host, installation.variables)
    ):
        return change
    return msgspec.structs.replace(
        change, own=add_command(file.host, file.scope, installation.words)
    )


def plan_uninstall(file: HostFile, before: bytes | None, *, own: bool) -> Change:
    """Plans to remove our entry from this file."""
    if before is None or present(file, before) is None:
        return Change(file.host.id, file.path, file.host.format, before, before or b"")
    change = plan_edit(file, before, (), (entry_keys(file, before),))
    command = remove_command(file.host, file.scope) if own else ()
    return msgspec.structs.replace(change, own=command)


def own_entry(host: Host, words: Words, variables: Words = ()) -> dict[str, Any]:
    """Returns our entry for this host, with the variables that it must pass on: names, no values."""
    return _shaped(host, words) | passed_on(host, variables)


def renewed(there: Any, entry: dict[str, Any]) -> dict[str, Any]:
    """Returns our entry merged into an older one of ours: what the user added is kept."""
    if not isinstance(there, dict):
        return entry
    old = cast("dict[str, Any]", there)
    words = words_of(old)
    if not words or not is_ourselves({"command": words[0], "args": words[1:]}):
        return entry
    kept = {key: value for key, value in old.items() if _OFF.get(key) is not value}
    for key in ("env", "env_vars"):
        entry = entry | _both(key, kept.get(key), entry.get(key))
    return kept | entry


def _both(key: str, old: Any, new: Any) -> dict[str, Any]:
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: cast("dict[str, Any]", new) | cast("dict[str, Any]", old)}
    if isinstance(old, list) and isinstance(new, list):
        return {key: list(dict.fromkeys([*cast("list[Any]", old), *cast("list[Any]", new)]))}
    return {}


def words_of(entry: dict[str, Any]) -> Words:
    """Returns the command line of an entry, in any host's format."""
    return (*texts(entry.get("command")), *texts(entry.get("args")))


def texts(value: Any) -> Words:
    """Returns a string, or a list of them, as a tuple."""
    if isinstance(value, str):
        return (value,)
    return tuple(map(str, cast("list[Any]", value))) if isinstance(value, list) else ()


def passed_on(host: Host, variables: Words) -> dict[str, Any]:
    """Returns the part of an entry that passes variables on; empty if the host passes all, or can't."""
    if not variables or host.passes in ("all", "none"):
        return {}
    if host.passes == "names":
        return {"env_vars": list(variables)}
    how = "${env:%s}" if host.passes == "env" else "${%s}"
    return {"env": {name: how % name for name in variables}}


def _shaped(host: Host, words: Words) -> dict[str, Any]:
    plain = {"command": words[0], "args": list(words[1:])}
    match host.shape:
        case "claude":  # its tool search would hide our two tools behind a search of its own
            return {"type": "stdio", **plain, "alwaysLoad": True}
        case "typed":
            return {"type": "stdio", **plain}
        case "opencode":
            return {"type": "local", "command": list(words)}
        case "copilot":
            return {"type": "local", **plain, "tools": ["*"]}
        case "plain":
            return plain


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
    return [_placed(line, skip) if line.startswith("@@") else line for line in lines]


def _text(data: bytes | None) -> str:
    return (data or b"").decode().removeprefix(jsonc.BOM)


def _common(one: list[str], other: list[str]) -> int:
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _placed(header: str, skipped: int) -> str:
    """`@@ line 12 @@`: the line number in the new file."""
    start = header.split("+")[1].split(" ")[0].split(",")[0]
    return f"@@ line {int(start) + skipped} @@"
