"""Our entry in a host's file as it stands there: which words start us, with which configuration."""

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.core import jsonc
from mcp_workbench.hosts.entry import texts, words_of
from mcp_workbench.hosts.places import HostFile, Surroundings
from mcp_workbench.hosts.plan import Keys, Words, editor
from mcp_workbench.hosts.reading import servers_in
from mcp_workbench.hosts.table import ENTRY
from mcp_workbench.hosts.translate import URLS

VARIABLE = "WORKBENCH_CONFIG"
_ENVIRONMENT = ("env", "environment", "envs")


class OwnEntry(msgspec.Struct, frozen=True):
    """An entry under our name, or one that starts us under another."""

    file: HostFile
    keys: Keys
    words: Words
    env: dict[str, Any]
    names: tuple[str, ...]  # of variables that the host hands on without a value of their own
    ours: bool  # False: somebody else's program under our name
    off: bool  # the host does not start it
    remote: bool  # it leads to a port, where whoever listens answers for itself

    def __repr__(self) -> str:
        return f"OwnEntry({str(self.file.path)!r}, {self.keys!r})"  # its env may hold a secret

    @property
    def name(self) -> str:
        return self.keys[-1]

    @property
    def program(self) -> Words:
        """The words before `serve`: those that start us, whatever we are to do."""
        return self.words[: self.words.index("serve")] if "serve" in self.words else self.words[:1]

    @property
    def config(self) -> str:
        """The configuration that it names; empty where the host's folder decides."""
        given = self.env.get(VARIABLE)
        return next(_values(self.words, "--config"), given if isinstance(given, str) else "")

    @property
    def toolboxes(self) -> tuple[str, ...]:
        return tuple(_values(self.words, "--toolbox"))

    def lacks(self, variables: tuple[str, ...]) -> tuple[str, ...]:
        """Those of these variables that do not reach us from this host."""
        if self.file.host.passes == "all":
            return ()
        return tuple(name for name in variables if name not in {*self.env, *self.names})


def own_entries_in(file: HostFile, text: str, around: Surroundings) -> list[OwnEntry]:
    """Every entry of this file that is about us."""
    lookup = editor(file.host.format).lookup
    return [
        _entry(file, found.keys, lookup(text, found.keys), ours=found.ourselves)
        for found in servers_in(file, text, around)
        if found.ourselves or found.name == ENTRY
    ]


def place_of(entry: OwnEntry, text: str) -> str:
    """`file:line:column` of the entry."""
    if entry.file.host.format == "toml":
        from mcp_workbench.hosts.toml_scan import statements  # only where there is such a file

        size = len(entry.keys)
        starts = (s.start for s in statements(text) if s.path[:size] == entry.keys)
        line, column = text.count("\n", 0, next(starts, 0)) + 1, 1
    else:
        line, column = jsonc.locate(text, entry.keys)
    return f"{entry.file.path}:{line}:{column}"


def _entry(file: HostFile, keys: Keys, raw: Any, *, ours: bool) -> OwnEntry:
    entry = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
    env = next((entry[key] for key in _ENVIRONMENT if isinstance(entry.get(key), dict)), None)
    off = entry.get("disabled") is True or entry.get("enabled") is False
    words = words_of(entry)
    names = texts(entry.get("env_vars"))
    return OwnEntry(
        file,
        keys,
        words,
        cast("dict[str, Any]", env or {}),
        names,
        ours,
        off,
        remote=not words and any(key in entry for key in URLS),
    )


def _values(words: Words, option: str) -> Iterator[str]:
    for index, word in enumerate(words):
        if word == option and index + 1 < len(words):
            yield words[index + 1]
        elif word.startswith(f"{option}="):
            yield word.removeprefix(f"{option}=")
