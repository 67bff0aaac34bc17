"""What hosts do with the names of tools, and with lists that change: `check --host` warns of it.

From the sources of the hosts, and for closed ones (Claude Code, Cursor) from public reports of what they say and do,
in autumn 2026; none was tried here. A host without a line has no limit that we know of.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from mcp_workbench.hosts.table import ENTRY, HOSTS, Host

# Whether it reads its list of tools again after `notifications/tools/list_changed`; empty: not known.
Relists = Literal["yes", "sometimes", "no", ""]

_PLAIN = "A-Za-z0-9_-"
_CUT = "cuts it"


class HostLimits(msgspec.Struct, frozen=True):
    """How one host names tools to its model, and whether it follows a list that changes."""

    relists: Relists = ""
    prefix: str = ""  # before each name; `{entry}` is our name in the host's file
    longest: int = 0  # characters of a whole name; 0: not known
    effect: str = ""  # what happens to a longer one
    characters: str = ""  # that stay as they are, as in a regular expression; others become `_`

    def room(self, entry: str = ENTRY) -> int:
        """Returns the characters that a name may have under an entry of this name; 0: any number."""
        return self.longest and max(self.longest - len(self.prefix.format(entry=entry)), 1)

    def model_name(self, name: str, entry: str = ENTRY) -> str:
        """Returns the name that the model sees."""
        whole = self.prefix.format(entry=entry) + name
        whole = re.sub(f"[^{self.characters}]", "_", whole) if self.characters else whole
        return whole[: self.longest] if self.effect == _CUT else whole


_VSCODE = HostLimits("yes", "mcp_{entry}_", 64, _CUT, _PLAIN)
LIMITS = {
    "claude-code": HostLimits("sometimes", "mcp__{entry}__", 64, "may refuse it", _PLAIN),
    "cursor": HostLimits("", "{entry}:", 60, "drops the tool"),
    "vscode": _VSCODE,
    "vscode-insiders": _VSCODE,
    "codex": HostLimits("no", "mcp__{entry}__", 64, "ends it with a hash", _PLAIN),
    "gemini": HostLimits("yes", "mcp_{entry}_", 63, "cuts its middle", "A-Za-z0-9_.-"),
    "zed": HostLimits("yes", "", 64, _CUT),
    "opencode": HostLimits("yes", "{entry}_", characters=_PLAIN),
}


class NameProblem(msgspec.Struct, frozen=True):
    """A name that a host does not take as it is."""

    name: str
    message: str
    is_twin: bool = False  # two tools have one name there


def long_names(names: Iterable[str]) -> Iterator[NameProblem]:
    """Yields the names that are too long for some host, under an entry of our usual name."""
    rooms = [(HOSTS[id].title, limits.room(), limits.effect) for id, limits in LIMITS.items()]
    for name in names:
        effects = [f"{title} {effect}" for title, room, effect in rooms if 0 < room < len(name)]
        if effects:
            message = f"the name '{name}' has {len(name)} characters: {', '.join(effects)}"
            yield NameProblem(name, message)


def problems_in(host: Host, names: Iterable[str], entry: str = ENTRY) -> Iterator[NameProblem]:
    """Yields the names that this host does not take, with our entry under this name."""
    limits = LIMITS.get(host.id, HostLimits())
    shown: dict[str, str] = {}
    room = limits.room(entry)
    for name in names:
        if 0 < room < len(name):
            why = f"{host.title} {limits.effect}, since {room} are left beside the entry's name '{entry}'"
            yield NameProblem(name, f"the name '{name}' has {len(name)} characters: {why}")
        other = shown.setdefault(limits.model_name(name, entry), name)
        if other != name:
            same = limits.model_name(name, entry)
            message = f"{host.title} has one name, '{same}', for the tools '{other}' and '{name}'"
            yield NameProblem(name, message, is_twin=True)


def unseen_tools(host: Host) -> str:
    """Returns why this host sees no tool of a toolbox that is opened in dynamic mode; empty if it does."""
    relists = LIMITS.get(host.id, HostLimits()).relists
    if relists not in ("no", "sometimes"):
        return ""
    how = "does not read" if relists == "no" else "does not always read"
    return (
        f"{host.title} {how} its list of tools again after a toolbox was opened: in dynamic mode it "
        "sees open_toolbox and use_tool, and none of the toolbox's tools"
    )
