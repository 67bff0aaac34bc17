"""Our own entry in each host's words, and the host's own command that would write it."""

from typing import Any, cast

import msgspec

from mcp_workbench.hosts.table import ENTRY, Host
from mcp_workbench.hosts.translate import is_ourselves

Words = tuple[str, ...]

_OFF = {"disabled": True, "enabled": False}  # who installs us wants us to be started


def own_entry(host: Host, words: Words, variables: Words = ()) -> dict[str, Any]:
    """What this host gets to see of us, with the variables that it must hand on: names, no values."""
    return _shaped(host, words) | handed_on(host, variables)


def renewed(there: Any, entry: dict[str, Any]) -> dict[str, Any]:
    """Our entry in the place of an older one of ours: what its person added there is kept."""
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
    """The words that an entry starts a server with, however its host writes them."""
    return (*texts(entry.get("command")), *texts(entry.get("args")))


def texts(value: Any) -> Words:
    """One text or a list of them."""
    if isinstance(value, str):
        return (value,)
    return tuple(map(str, cast("list[Any]", value))) if isinstance(value, list) else ()


def handed_on(host: Host, variables: Words) -> dict[str, Any]:
    """Nothing where the host hands on everything, or can't."""
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
    """The host's own command for it; nothing where it has none for this scope."""
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
