"""Our own entry in each host's words, and the host's own command that would write it."""

from typing import Any

import msgspec

from mcp_workbench.hosts.table import ENTRY, Host

Words = tuple[str, ...]


def own_entry(host: Host, words: Words, variables: Words = ()) -> dict[str, Any]:
    """What this host gets to see of us, with the variables that it must hand on: names, no values."""
    return _shaped(host, words) | handed_on(host, variables)


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
