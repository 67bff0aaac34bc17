"""How a server of each era writes what was recorded."""

from __future__ import annotations

from typing import NamedTuple

from tests.fidelity.corpus import Case

# How a modern server writes what its era demands: before, after, and what is left when it is taken out.
PLACES = {
    "first": (b"{%b,", b"}", b"{", b"}"),
    "last": (b"{", b",%b}", b"{", b"}"),
    "spaced": (b"{ %b ,\t", b"}", b"{  \t", b"}"),
}
STAMP = b'"resultType":"complete"'
STAMPS = {
    "call": STAMP,
    "prompt": STAMP,
    "read": STAMP + b',"ttlMs":60000,"cacheScope":"public"',
}


class Way(NamedTuple):
    """One way of one case: who asks whom, for what, and how the server writes."""

    modern_host: bool
    modern_server: bool
    kind: str = "call"  # call, prompt, read
    place: str = "first"
    events: bool = False

    @property
    def pair(self) -> str:
        eras = ("legacy", "modern")
        return f"{eras[self.modern_host]}<-{eras[self.modern_server]}"


def sent(case: Case, way: Way) -> bytes:
    """What the server of this era writes."""
    if not way.modern_server or case.verbatim or not case.is_object:
        return case.sent
    before, after, _, _ = PLACES[way.place]
    return around(case.sent, before, after, STAMPS[way.kind])


def around(json: bytes, before: bytes, after: bytes, stamp: bytes) -> bytes:
    inside = json[1:-1]
    if not inside.strip():  # there is nothing to put a comma before or after
        before, after = before.replace(b",", b""), after.replace(b",", b"")
    fill = stamp.join
    return fill(before.split(b"%b")) + inside + fill(after.split(b"%b"))
