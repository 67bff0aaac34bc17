"""What a host's entry says about its sandbox, as our `sandbox`: VS Code's keys, and our own.

VS Code confines a server with `sandboxEnabled`: it may read everything and write what `sandbox.filesystem`
lists, and reaches the domains of `sandbox.network`. `sandbox` stands in the entry or at the top of the file.
"""

import os
from collections.abc import Iterator
from typing import Any, cast

from mcp_workbench.config.kinds import SANDBOX_WORDS
from mcp_workbench.config.sandbox_settings import foreign_sandbox

Entry = dict[str, Any]

ENABLED, SANDBOX = "sandboxEnabled", "sandbox"
_OWN_KEYS = {"read", "write", "hide", "network"}
# Launchers that download, with the folder in which VS Code lets npm do so.
_FETCHING = ("npx", "npm", "bunx", "uvx", "uv", "pipx", "dnx")
_NPM = ("npx", "npm")
_NPM_CACHE = "~/.npm"


class HostSandbox:
    """The keys of one entry that are about its sandbox."""

    def __init__(self, raw: Entry) -> None:
        self.used: set[str] = set()
        self.notes: list[str] = []
        self.sandbox: str | Entry | None = None  # as we write it; its texts are not translated yet
        value = raw.get(SANDBOX)
        if isinstance(raw.get(ENABLED), bool):
            self.used |= {ENABLED, SANDBOX}
            if raw[ENABLED]:
                self.sandbox = self._foreign(
                    raw, cast("Entry", value) if isinstance(value, dict) else {}
                )
        elif _is_own(value):
            self.used.add(SANDBOX)
            self.sandbox = value

    def _foreign(self, raw: Entry, sandbox: Entry) -> Entry:
        files, network = _lists(sandbox.get("filesystem")), _lists(sandbox.get("network"))
        box = foreign_sandbox(files, network)
        program = os.path.basename(str(raw.get("command", "")))  # noqa: PTH119
        write, online = list(box.write), box.network
        if domains := [domain for domain in network.get("allowedDomains", []) if domain != "*"]:
            shown = ", ".join(domains[:3]) + (", …" if len(domains) > 3 else "")
            self.notes.append(f"its sandbox has the whole network, not only {shown}")
        elif program in _FETCHING and not online:
            online = True
            self.notes.append(f"its sandbox has the whole network, because {program} downloads")
        if program in _NPM and _NPM_CACHE not in write:
            write.append(_NPM_CACHE)
        ours: Entry = {"read": list(box.read), "write": write, "hide": list(box.hide)}
        return {key: paths for key, paths in ours.items() if paths} | {"network": online}


def with_sandbox_of_file(raw: Any, top: Any) -> Any:
    """Returns the entry with the sandbox that stands at the top of its file, if that is for it."""
    if not isinstance(raw, dict) or not isinstance(top, dict):
        return cast("Any", raw)
    entry = cast("Entry", raw)
    if entry.get(ENABLED) is True and SANDBOX not in entry:
        return {**entry, SANDBOX: cast("Entry", top)}
    return entry


def paths_in(sandbox: Entry) -> Iterator[tuple[str, list[str]]]:
    """Yields the lists of paths of a sandbox of ours."""
    for key in ("read", "write", "hide"):
        if isinstance(sandbox.get(key), list):
            yield key, [str(path) for path in sandbox[key]]


def _is_own(value: Any) -> bool:
    if isinstance(value, str):
        return value in SANDBOX_WORDS
    return isinstance(value, dict) and set(cast("Entry", value)) <= _OWN_KEYS


def _lists(value: Any) -> dict[str, list[str]]:
    """Returns the members that are lists of strings."""
    if not isinstance(value, dict):
        return {}
    return {
        name: [text for text in cast("list[Any]", texts) if isinstance(text, str)]
        for name, texts in cast("Entry", value).items()
        if isinstance(texts, list)
    }
