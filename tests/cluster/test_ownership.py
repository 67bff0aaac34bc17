"""Who answers for a session: every case of leases, releases and adoption, as values."""

from __future__ import annotations

import msgspec
import pytest

from mcp_workbench.cluster.ownership import (
    BEAT,
    LEASE,
    SETTLE,
    Absent,
    Adopt,
    ForwardTo,
    Step,
    WaitForLease,
    adopted,
    may_adopt,
    may_run,
    next_step,
    promised_until,
    released,
    successor,
)
from mcp_workbench.cluster.records import (
    LONGEST_MEMBER,
    LONGEST_SESSION,
    ReplicaAddress,
    SessionRecord,
    read_record,
    write_record,
)

ME, A, B = (ReplicaAddress(id, "127.0.0.1", 1) for id in ("me", "a", "b"))
OF_A = SessionRecord("s", "a", 1, "alice", "/mcp", b"{}", "127.0.0.1", 1)
FREE = msgspec.structs.replace(OF_A, owner="")


@pytest.mark.parametrize(
    ("record", "others", "allowed", "step"),
    [
        (None, [A, B], True, Absent()),
        (None, [A, B], False, WaitForLease()),  # the engine may have lost its data
        (OF_A, [A, B], False, ForwardTo("a")),
        (OF_A, [A, B], True, ForwardTo("a")),  # it lives, whatever else
        (OF_A, [B], False, WaitForLease()),  # the engine has just come back
        (OF_A, [B], True, Adopt()),
        (FREE, [A, B], False, Adopt()),  # handed over: nobody has to wait
        # This replica adopted it, and never learned so: the engine's reply was lost on its way.
        (msgspec.structs.replace(OF_A, owner="me"), [A], True, Adopt()),
        (msgspec.structs.replace(OF_A, owner="me"), [A], False, Adopt()),
    ],
)
def test_a_session_that_is_not_here(
    record: SessionRecord | None, others: list[ReplicaAddress], allowed: bool, step: Step
) -> None:
    assert next_step(record, {m.id: m for m in others}, "me", may_adopt=allowed) == step


def test_a_session_that_has_ended_here_is_absent_before_its_record_has_gone() -> None:
    mine = msgspec.structs.replace(OF_A, owner="me")

    assert next_step(mine, {"a": A}, "me", may_adopt=True, has_ended=True) == Absent()


def test_an_owner_that_does_not_answer_is_waited_for_until_its_lease_ends() -> None:
    tried = frozenset(("a",))

    assert next_step(OF_A, {"a": A}, "me", may_adopt=True, unreachable=tried) == WaitForLease()
    assert next_step(OF_A, {}, "me", may_adopt=True, unreachable=tried) == Adopt()


def test_a_replica_that_ends_adopts_nothing() -> None:
    members = {"a": msgspec.structs.replace(A, is_draining=True), "b": B}

    assert next_step(FREE, members, "me", may_adopt=True, is_draining=True) == ForwardTo("b")
    assert next_step(FREE, {}, "me", may_adopt=True, is_draining=True) == WaitForLease()
    mine = msgspec.structs.replace(OF_A, owner="me")
    assert next_step(mine, members, "me", may_adopt=True, is_draining=True) == WaitForLease()


def test_a_missing_lease_means_nothing_before_everybody_could_renew_it() -> None:
    assert not may_adopt(100.0, None, 0.0)
    assert not may_adopt(100.0, 100.0 - SETTLE + 0.1, 0.0)
    assert may_adopt(100.0, 100.0 - SETTLE, 0.0)
    assert not may_adopt(100.0, 0.0, 100.5)  # promised
    assert SETTLE > LEASE


def test_a_replica_that_nobody_knows_yet_may_have_just_started() -> None:
    assert may_run("a", {"a": A}, 100.0)
    assert may_run("a", {"b": B}, 2 * BEAT - 0.01)
    assert not may_run("a", {"b": B}, 2 * BEAT)


def test_every_other_replica_has_to_promise() -> None:
    assert promised_until({"a": 5.0, "b": 7.0}, frozenset(("a", "b"))) == 5.0
    assert promised_until({"a": 5.0}, frozenset(("a", "b"))) == 0.0
    assert promised_until({}, frozenset()) == 0.0
    assert promised_until({"": 3.0}, frozenset()) == 3.0  # there is nobody else


def test_each_adoption_is_another_epoch() -> None:
    taken = adopted(OF_A, B)

    assert (taken.owner, taken.epoch, taken.previous) == ("b", 2, "a")
    assert released(taken, "b").owner == ""
    again = adopted(released(taken, "b"), ME)
    assert (again.owner, again.epoch, again.previous) == ("me", 3, "b")


def test_different_replicas_choose_different_successors() -> None:
    members = {m.id: m for m in (A, B, ME)}

    assert [successor(members, id) for id in ("a", "b", "me")] == ["b", "me", "a"]
    assert successor({}, "a") == ""


def test_replicas_of_other_versions_read_what_this_one_writes() -> None:
    """While replicas are replaced one by one: what a later version adds comes last, and is left out."""
    session: list[object] = ["s", "a", 1, "alice", "/mcp", b"{}", "127.0.0.1", 1, [], b"", [], ""]
    member: list[object] = ["a", "127.0.0.1", 1, False]
    pack = msgspec.msgpack.encode

    assert msgspec.msgpack.decode(write_record(OF_A)) == session
    assert msgspec.msgpack.decode(write_record(A)) == member
    for value in (session[:8], session, [*session, "new"]):
        assert read_record(SessionRecord, pack(value), LONGEST_SESSION) == OF_A
    for value in (member[:3], member, [*member, "new"]):
        assert read_record(ReplicaAddress, pack(value), LONGEST_MEMBER) == A
