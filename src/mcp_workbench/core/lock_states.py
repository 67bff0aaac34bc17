"""What the lock file says of definitions: which are recorded, changed or new, and which are shown.

One decision for lists, search, dynamic mode and calls: `review_list` says which definitions of a list a
host may see. Levels: `off`; `record` shows everything; `pin` shows what is recorded, and a list that is
seen for the first time; `review` shows what is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from mcp_workbench.core.definition_hash import definition_hash, joint_hash, text_hash
from mcp_workbench.core.errors import Quarantined, shown_name
from mcp_workbench.core.spec import (
    LOCK_NAME,
    HttpEndpoint,
    LockedServer,
    LockFile,
    LockLevel,
    ServerAddress,
    ServerSpec,
    ToolIdentifier,
)

# `unrecorded`: nothing like it was seen before, so that there is nothing to compare it with.
# `gone`: recorded, and not defined any more.
State = Literal["recorded", "changed", "new", "rejected", "unrecorded", "gone"]
ListKind = Literal["instructions", "tools", "prompts", "templates"]
KINDS: tuple[ListKind, ...] = ("instructions", "tools", "prompts", "templates")
LAUNCH = "launch"  # beside them among what is rejected
SINGULAR = {
    "instructions": "instructions",
    "tools": "tool",
    "prompts": "prompt",
    "templates": "template",
    LAUNCH: "launch line",
}
_BLOCKED: dict[LockLevel, frozenset[State]] = {
    "off": frozenset(),
    "record": frozenset(),
    "pin": frozenset({"changed", "new", "rejected"}),
    "review": frozenset({"changed", "new", "rejected", "unrecorded"}),
}
_REASONS: dict[State, str] = {
    "changed": f"its definition is not the one in {LOCK_NAME}",
    "new": f"it is not in {LOCK_NAME}",
    "unrecorded": f"it is not in {LOCK_NAME}",
    "rejected": "its definition was rejected",
}
LAUNCH_CHANGED = f"quarantined: its launch line is not the one in {LOCK_NAME}"
LAUNCH_NEW = f"quarantined: it is not in {LOCK_NAME}"
LAUNCH_REJECTED = "quarantined: it was rejected"
UNUSABLE = f"quarantined: {LOCK_NAME} can't be used"


def is_enforced(level: LockLevel) -> bool:
    """Does this level ever block anything?"""
    return level in ("pin", "review")


# Servers


def launch_parts(spec: ServerSpec) -> list[tuple[str, ...]]:
    """Returns what decides which program is reached: texts as written, names of variables and headers."""
    target = spec.target
    if isinstance(target, HttpEndpoint):
        names = [("header", name.lower()) for name, _ in target.headers]
        return [("url", target.url, target.transport), *names]
    args = [("argument", f"{number:04}", text) for number, text in enumerate(target.args)]
    names = [("env", name) for name, _ in target.env]
    inherited = [("inherit", name) for name in target.inherit]
    return [("command", target.command), *args, ("cwd", target.cwd), *names, *inherited]


def launch_hash(spec: ServerSpec) -> str:
    return joint_hash(launch_parts(spec))


def quarantine_reason(level: LockLevel, lock: LockFile, spec: ServerSpec) -> str:
    """Returns why this server is not started at all; empty if it may be."""
    if not is_enforced(level):
        return ""
    if lock.problem is not None:
        return f"{UNUSABLE}: {lock.problem.message}; run `mcp-workbench check`"
    entry = lock.servers.get(str(spec.address))
    if entry is None:
        return _with_command(LAUNCH_NEW, spec.address) if level == "review" else ""
    launch = launch_hash(spec)
    if entry.rejected.get(LAUNCH, {}).get("") == launch:
        return _with_command(LAUNCH_REJECTED, spec.address)
    return "" if entry.launch == launch else _with_command(LAUNCH_CHANGED, spec.address)


def _with_command(reason: str, address: ServerAddress) -> str:
    return f"{reason}; a person can run `mcp-workbench lock diff {address}`"


# Definitions


class Review(msgspec.Struct, frozen=True):
    """The states of the definitions of one list, by name, and which of them are not shown."""

    hashes: dict[str, str]
    states: dict[str, State]
    blocked: dict[str, State]
    is_first: bool = False  # nothing like this list was seen before: it becomes the baseline

    @property
    def findings(self) -> dict[str, State]:
        """Those that nobody has decided on. What is unrecorded is none of them."""
        return {n: s for n, s in self.states.items() if s in ("changed", "new")}


def still_hidden(before: Review, now: Review) -> Review:
    """What was hidden because it could not be recorded stays so until it is recorded."""
    states = now.states.items()
    kept: dict[str, State] = {n: s for n, s in states if s == "unrecorded" and n in before.blocked}
    return msgspec.structs.replace(now, blocked={**now.blocked, **kept}) if kept else now


def hashes_of(raws: Mapping[str, bytes]) -> dict[str, str]:
    return {name: definition_hash(raw) for name, raw in raws.items()}


def instruction_hashes(text: str) -> dict[str, str]:
    """Returns the list of instructions: one, or none."""
    return {"": text_hash(text)} if text else {}


def review_list(
    level: LockLevel,
    entry: LockedServer | None,
    kind: ListKind,
    hashes: dict[str, str],
    capabilities: Iterable[str] = (),
) -> Review:
    """Compare a list with the lock file. `capabilities`: what the host can be asked for.

    A server may offer more to a host that can be asked for more. What it offers to such a host for the
    first time is not new, but unrecorded.
    """
    states: dict[str, State] = {
        name: _state(entry, kind, name, text, capabilities) for name, text in hashes.items()
    }
    hidden = _BLOCKED[level]
    blocked: dict[str, State] = {name: state for name, state in states.items() if state in hidden}
    is_first = (
        entry is None or kind not in entry.lists or not _asked_before(entry, kind, capabilities)
    )
    return Review(hashes, states, blocked, is_first)


def _state(
    entry: LockedServer | None, kind: ListKind, name: str, text: str, capabilities: Iterable[str]
) -> State:
    if entry is None:
        return "unrecorded"
    if entry.rejected.get(kind, {}).get(name) == text:
        return "rejected"
    if kind not in entry.lists:
        return "unrecorded"
    known = entry.lists[kind].get(name) or entry.gone.get(kind, {}).get(name)
    if known == text:
        return "recorded"
    if known is not None:
        return "changed"
    return "new" if _asked_before(entry, kind, capabilities) else "unrecorded"


def _asked_before(entry: LockedServer, kind: ListKind, capabilities: Iterable[str]) -> bool:
    """Could hosts be asked for as much when this list was recorded?"""
    return set(capabilities) <= set(entry.capabilities.get(kind, ()))


def with_baseline(
    entry: LockedServer, kind: ListKind, review: Review, capabilities: Iterable[str]
) -> LockedServer:
    """Returns the entry with what was seen for the first time."""
    first = {n: review.hashes[n] for n, state in review.states.items() if state == "unrecorded"}
    lists = {**entry.lists, kind: {**entry.lists.get(kind, {}), **first}}
    return msgspec.structs.replace(
        entry, lists=lists, capabilities=with_capabilities(entry, kind, capabilities)
    )


def with_capabilities(
    entry: LockedServer, kind: ListKind, capabilities: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """Returns what hosts could be asked for so far, by kind of list."""
    known = tuple(sorted({*entry.capabilities.get(kind, ()), *capabilities}))
    return {**entry.capabilities, kind: known} if known else dict(entry.capabilities)


def quarantined_tool(tool: ToolIdentifier, state: State) -> Quarantined:
    """The error for a call of a tool that is not shown."""
    return Quarantined(
        tool, f"{_REASONS[state]}, so it was not called", state, hint=_hint(str(tool))
    )


def quarantined_prompt(tool: ToolIdentifier, name: str, state: State) -> Quarantined:
    """The same for a prompt."""
    reason = f"the prompt '{shown_name(name)}': {_REASONS[state]}"
    return Quarantined(tool, reason, state, hint=_hint(str(tool.address)))


def _hint(target: str) -> str:
    return f"A person can read and approve it in a terminal: {diff_command(target)}"


def diff_command(target: str) -> str:
    """Returns the command that shows what is to be approved."""
    from shlex import quote  # a tool may have any name

    return f"mcp-workbench lock diff {quote(shown_name(target))}"
