"""Decisions of `lock`: how a server differs from its entry, and what an approval changes."""

from __future__ import annotations

import msgspec

from mcp_workbench.core.definition_hash import joint_hash
from mcp_workbench.core.lock_states import (
    KINDS,
    LAUNCH,
    ListKind,
    Review,
    State,
    is_enforced,
    launch_hash,
    review_list,
    with_baseline,
    with_capabilities,
)
from mcp_workbench.core.spec import LockedServer, ServerSpec

Hashes = dict[ListKind, dict[str, str]]  # lists that were read, by kind


class Difference(msgspec.Struct, frozen=True):
    """One definition, or the launch line, that is not as recorded."""

    kind: str  # a `ListKind`, or `launch`
    name: str
    state: State
    hash: str
    recorded: str = ""  # the hash in the lock file


class ServerReview(msgspec.Struct, frozen=True):
    """A server compared with its entry in the lock file."""

    spec: ServerSpec
    entry: LockedServer | None
    launch: State
    launch_hash: str
    reviews: dict[ListKind, Review]
    capabilities: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        """Identifies all of it: what a person approves who approves the server."""
        parts = [(k, n, h) for k, one in self.reviews.items() for n, h in one.hashes.items()]
        return joint_hash([(LAUNCH, "", self.launch_hash), *parts])

    @property
    def differences(self) -> list[Difference]:
        """All that is not as recorded, in the order of the lock file."""
        found = [self._difference(LAUNCH, "", self.launch, self.launch_hash)]
        for kind, review in self.reviews.items():
            names = sorted(review.states)
            found += [self._difference(kind, n, review.states[n], review.hashes[n]) for n in names]
            found += [self._difference(kind, n, "gone", "") for n in sorted(self._gone(kind))]
        return [one for one in found if one.state != "recorded"]

    def _gone(self, kind: ListKind) -> dict[str, str]:
        """What is recorded and not defined any more, although we can be asked for as much."""
        entry = self.entry or LockedServer()
        if not set(entry.capabilities.get(kind, ())) <= set(self.capabilities):
            return {}
        hashes = self.reviews[kind].hashes
        return {n: text for n, text in entry.lists.get(kind, {}).items() if n not in hashes}

    @property
    def pending(self) -> list[Difference]:
        """Those that a person has to decide on: all but what a first sight records by itself."""
        return [one for one in self.differences if not self._is_first_sight(one)]

    def _is_first_sight(self, one: Difference) -> bool:
        if one.state == "gone":
            return True  # nobody has to approve that
        if one.state != "unrecorded" or self.spec.lock == "review":
            return False
        return self.entry is None or one.kind not in self.entry.lists

    def is_conditional(self, one: Difference) -> bool:
        """May it be there because we can be asked for more than the hosts so far?"""
        is_listed = self.entry is not None and one.kind in self.entry.lists
        return one.state == "unrecorded" and is_listed

    def _difference(self, kind: str, name: str, state: State, text: str) -> Difference:
        entry = self.entry or LockedServer()
        before = entry.launch if kind == LAUNCH else entry.lists.get(kind, {}).get(name, "")
        return Difference(kind, name, state, text, before)

    def find(self, kind: ListKind, name: str) -> Difference | None:
        return next((d for d in self.differences if (d.kind, d.name) == (kind, name)), None)


def launch_state(spec: ServerSpec, entry: LockedServer | None) -> State:
    launch = launch_hash(spec)
    if entry is not None and entry.rejected.get(LAUNCH, {}).get("") == launch:
        return "rejected"
    if entry is None or not entry.launch:
        return "unrecorded"
    return "recorded" if entry.launch == launch else "changed"


def review_server(
    spec: ServerSpec, entry: LockedServer | None, hashes: Hashes, capabilities: tuple[str, ...]
) -> ServerReview:
    """Compares a server with its entry."""
    reviews: dict[ListKind, Review] = {
        kind: review_list(spec.lock, entry, kind, hashes[kind], capabilities)
        for kind in KINDS
        if kind in hashes
    }
    state = launch_state(spec, entry)
    return ServerReview(spec, entry, state, launch_hash(spec), reviews, capabilities)


# Entries


def recorded(review: ServerReview, fresh: LockedServer) -> LockedServer:
    """Returns the entry that `lock` writes: all of it at level `record`; what is decided stays otherwise.

    `fresh` is an entry without definitions, as it would be made now.
    """
    entry = review.entry
    if not is_enforced(review.spec.lock):
        return approved(review, fresh)
    if entry is not None and review.launch != "recorded":
        return entry
    made = _without_gone(review, entry or fresh)
    if review.spec.lock == "pin":
        for kind, one in review.reviews.items():
            if kind not in made.lists:
                made = with_baseline(made, kind, one, review.capabilities)
    made = msgspec.structs.replace(
        made, package=fresh.package or made.package, server=fresh.server or made.server
    )
    return _kept(review, made, fresh)


def approved(review: ServerReview, fresh: LockedServer) -> LockedServer:
    """Returns the entry after all of the server was approved."""
    before = _without_gone(review, review.entry or LockedServer())
    lists = {kind: dict(found) for kind, found in before.lists.items()}
    for kind, one in review.reviews.items():
        lists[kind] = {**lists.get(kind, {}), **one.hashes}
    entry = msgspec.structs.replace(fresh, lists=lists, gone=before.gone)
    return _kept(review, entry, fresh)


def _without_gone(review: ServerReview, entry: LockedServer) -> LockedServer:
    """Returns the entry in which what is gone is marked as such, and what has returned is not."""
    lists = {kind: dict(found) for kind, found in entry.lists.items()}
    gone = {kind: dict(found) for kind, found in entry.gone.items()}
    for one in review.differences:
        if one.state == "gone":
            gone.setdefault(one.kind, {})[one.name] = lists[one.kind].pop(one.name)
    for kind, review_ in review.reviews.items():
        for name in [n for n in gone.get(kind, {}) if review_.states.get(n) == "recorded"]:
            lists.setdefault(kind, {})[name] = gone[kind].pop(name)
    return msgspec.structs.replace(entry, lists=lists, gone=_filled(gone))


def approved_one(review: ServerReview, one: Difference, fresh: LockedServer) -> LockedServer:
    """Returns the entry after one definition was approved; of a new server, nothing else is."""
    before = review.entry or msgspec.structs.replace(fresh, lists={kind: {} for kind in KINDS})
    lists = {**before.lists, one.kind: {**before.lists.get(one.kind, {}), one.name: one.hash}}
    rejected = _without(before.rejected, one)
    return msgspec.structs.replace(before, lists=lists, rejected=rejected, recorded=fresh.recorded)


def rejected_all(
    review: ServerReview, differences: list[Difference], fresh: LockedServer
) -> LockedServer:
    """Returns the entry after these differences were rejected."""
    before = review.entry or msgspec.structs.replace(fresh, launch="", lists={})
    rejected = {kind: dict(found) for kind, found in before.rejected.items()}
    for one in differences:
        rejected.setdefault(one.kind, {})[one.name] = one.hash
    return msgspec.structs.replace(before, rejected=rejected, recorded=fresh.recorded)


def _kept(review: ServerReview, entry: LockedServer, fresh: LockedServer) -> LockedServer:
    """Returns the entry with what outlives every change. Without a change, time and person stay, too."""
    before = review.entry or LockedServer()
    rejected = before.rejected
    for kind, one in review.reviews.items():
        found = entry.lists.get(kind, {})
        for name in (n for n, text in one.hashes.items() if found.get(n) == text):
            rejected = _without(rejected, Difference(kind, name, "recorded", found[name]))
    if entry.launch == review.launch_hash:
        rejected = _without(rejected, Difference(LAUNCH, "", "recorded", entry.launch))
    gone = {
        kind: {n: text for n, text in found.items() if n not in entry.lists.get(kind, {})}
        for kind, found in entry.gone.items()
    }
    entry = msgspec.structs.replace(
        entry,
        capabilities=_capabilities(review, before, entry),
        rejected=rejected,
        gone=_filled(gone),
        note=before.note,
        recorded=before.recorded,
    )
    return entry if entry == before else msgspec.structs.replace(entry, recorded=fresh.recorded)


def _capabilities(
    review: ServerReview, before: LockedServer, entry: LockedServer
) -> dict[str, tuple[str, ...]]:
    """Returns what hosts could be asked for, with ours for lists that are recorded as we have seen them."""
    known = msgspec.structs.replace(before, capabilities={**before.capabilities})
    for kind, one in review.reviews.items():
        if all(entry.lists.get(kind, {}).get(n) == text for n, text in one.hashes.items()):
            found = with_capabilities(known, kind, review.capabilities)
            known = msgspec.structs.replace(known, capabilities=found)
    return known.capabilities


def _without(rejected: dict[str, dict[str, str]], one: Difference) -> dict[str, dict[str, str]]:
    found = {kind: dict(names) for kind, names in rejected.items()}
    if found.get(one.kind, {}).get(one.name) == one.hash:
        del found[one.kind][one.name]
    return _filled(found)


def _filled(lists: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {kind: names for kind, names in lists.items() if names}
