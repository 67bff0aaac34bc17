"""How a server differs from its entry in the lock file, and what a decision changes of the entry."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mcp_workbench.core.lock_changes import (
    Difference,
    Hashes,
    ServerReview,
    approved,
    approved_one,
    launch_state,
    recorded,
    rejected_all,
    review_server,
)
from mcp_workbench.core.lock_states import State, launch_hash
from mcp_workbench.core.spec import LockedServer, LockLevel
from tests.kit.config import spec

LAUNCH = launch_hash(spec("s"))
FRESH = LockedServer(LAUNCH, "line", "npm:s@2", "s 2", (("at", "now"),))
BEFORE = LockedServer(
    LAUNCH,
    "line",
    "npm:s@1",
    "s 1",
    (("at", "then"),),
    lists={"tools": {"a": "1", "b": "2"}, "prompts": {"p": "3"}},
    note="checked by hand",
)
NOW: Hashes = {"tools": {"c": "5", "b": "4"}, "prompts": {"p": "3"}}


def review(
    entry: LockedServer | None = BEFORE,
    hashes: Hashes = NOW,
    level: LockLevel = "pin",
    capabilities: tuple[str, ...] = (),
) -> ServerReview:
    return review_server(spec("s", lock=level), entry, hashes, capabilities)


def with_(entry: LockedServer, **changes: Any) -> LockedServer:
    return msgspec.structs.replace(entry, **changes)


# Differences


def test_all_that_is_not_as_recorded_is_told_in_the_order_of_the_file() -> None:
    found = review()

    assert found.differences == [
        Difference("tools", "b", "changed", "4", "2"),
        Difference("tools", "c", "new", "5"),
        Difference("tools", "a", "gone", "", "1"),
    ]
    assert [one.name for one in found.pending] == ["b", "c"]
    assert found.find("tools", "b") == Difference("tools", "b", "changed", "4", "2")
    assert found.find("prompts", "b") is found.find("prompts", "p") is None


def test_what_a_host_was_asked_for_less_may_be_absent() -> None:
    before = with_(BEFORE, capabilities={"tools": ("elicitation",)})

    assert [one.state for one in review(before).differences] == ["changed", "new"]
    assert [one.state for one in review(before, capabilities=("elicitation",)).differences] == [
        "changed", "new", "gone",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("level", "pending"), [("pin", []), ("record", []), ("review", ["", "b", "c", "p"])]
)
def test_a_first_sight_waits_for_a_person_at_level_review_alone(
    level: LockLevel, pending: list[str]
) -> None:
    found = review(None, level=level)

    assert [one.name for one in found.pending] == pending
    assert [(one.kind, one.name, one.state) for one in found.differences] == [
        ("launch", "", "unrecorded"),
        ("tools", "b", "unrecorded"),
        ("tools", "c", "unrecorded"),
        ("prompts", "p", "unrecorded"),
    ]
    assert not any(map(found.is_conditional, found.differences))


def test_what_is_offered_to_a_host_that_can_be_asked_for_more_may_depend_on_that() -> None:
    found = review(capabilities=("roots",))

    assert {one.name: (one.state, found.is_conditional(one)) for one in found.differences} == {
        "a": ("gone", False),
        "b": ("changed", False),
        "c": ("unrecorded", True),
    }
    assert [one.name for one in found.pending] == ["b", "c"]


@pytest.mark.parametrize(
    ("entry", "state"),
    [
        (None, "unrecorded"),
        (LockedServer(), "unrecorded"),
        (LockedServer(LAUNCH), "recorded"),
        (LockedServer("another"), "changed"),
        (LockedServer("another", rejected={"launch": {"": LAUNCH}}), "rejected"),
        (LockedServer("another", rejected={"launch": {"": "a third"}}), "changed"),
    ],
)
def test_a_launch_line_is_compared_with_the_recorded_one(
    entry: LockedServer | None, state: State
) -> None:
    assert launch_state(spec("s"), entry) == state


def test_a_review_is_identified_by_all_of_it() -> None:
    others = [
        review(hashes={**NOW, "prompts": {"p": "4"}}),
        review(hashes={**NOW, "prompts": {"q": "3"}}),
        review(hashes={"tools": NOW["tools"]}),
        review_server(spec("s", "other"), BEFORE, NOW, ()),
    ]

    assert len({one.hash for one in (review(), *others)}) == 5
    assert review(None).hash == review().hash


# Entries


def test_at_level_record_all_of_a_server_is_recorded() -> None:
    assert recorded(review(level="record"), FRESH) == with_(
        FRESH,
        lists={"tools": {"b": "4", "c": "5"}, "prompts": {"p": "3"}},
        gone={"tools": {"a": "1"}},
        note="checked by hand",
    )


def test_at_level_pin_only_lists_that_are_new_are_recorded() -> None:
    before = with_(BEFORE, lists={"tools": BEFORE.lists["tools"]})

    assert recorded(review(before, capabilities=("roots",)), FRESH) == with_(
        before,
        package="npm:s@2",
        server="s 2",
        recorded=FRESH.recorded,
        lists={"tools": {"b": "2"}, "prompts": {"p": "3"}},
        gone={"tools": {"a": "1"}},
        capabilities={"prompts": ("roots",)},
    )


def test_at_level_review_nothing_is_recorded_by_itself() -> None:
    before = with_(BEFORE, lists={"tools": BEFORE.lists["tools"]})
    found = recorded(review(before, level="review"), FRESH)

    assert found.lists == {"tools": {"b": "2"}}


def test_an_entry_without_a_change_keeps_its_time() -> None:
    same: Hashes = {"tools": {"a": "1", "b": "2"}}
    unknown = with_(FRESH, package="", server="")

    for level in ("pin", "review"):
        assert recorded(review(hashes=same, level=level), unknown) == BEFORE


def test_nothing_is_recorded_of_a_server_with_another_launch_line() -> None:
    before = with_(BEFORE, launch="another")

    assert recorded(review(before), FRESH) is before


def test_what_returns_as_it_was_is_recorded_again() -> None:
    before = with_(BEFORE, gone={"tools": {"c": "5", "d": "6"}, "prompts": {"q": "7"}})

    found = recorded(review(before), FRESH)

    assert found.lists["tools"] == {"b": "2", "c": "5"}
    assert found.gone == {"tools": {"a": "1", "d": "6"}, "prompts": {"q": "7"}}


def test_what_is_approved_is_rejected_no_more() -> None:
    before = with_(
        BEFORE,
        launch="another",
        rejected={"tools": {"b": "4", "c": "another"}, "launch": {"": LAUNCH}},
    )

    found = approved(review(before, capabilities=("roots",)), FRESH)

    assert found == with_(
        FRESH,
        lists={"tools": {"b": "4", "c": "5"}, "prompts": {"p": "3"}},
        gone={"tools": {"a": "1"}},
        rejected={"tools": {"c": "another"}},
        capabilities={"tools": ("roots",), "prompts": ("roots",)},
        note="checked by hand",
    )


def test_one_definition_is_approved_and_no_other() -> None:
    before = with_(BEFORE, rejected={"tools": {"b": "4", "c": "5"}})
    found = review(before)
    one = Difference("tools", "b", "rejected", "4", "2")

    assert approved_one(found, one, FRESH) == with_(
        before,
        lists={"tools": {"a": "1", "b": "4"}, "prompts": {"p": "3"}},
        rejected={"tools": {"c": "5"}},
        recorded=FRESH.recorded,
    )
    assert approved_one(review(None), one, FRESH) == with_(
        FRESH, lists={"instructions": {}, "tools": {"b": "4"}, "prompts": {}, "templates": {}}
    )


def test_what_is_rejected_is_kept_beside_what_was() -> None:
    before = with_(BEFORE, rejected={"tools": {"x": "9"}})
    found = review(before)

    assert rejected_all(found, found.pending, FRESH) == with_(
        before, rejected={"tools": {"x": "9", "b": "4", "c": "5"}}, recorded=FRESH.recorded
    )
    assert before.rejected == {"tools": {"x": "9"}}


def test_a_server_whose_launch_line_is_rejected_gets_an_entry_without_it() -> None:
    found = review(None)

    assert rejected_all(found, found.differences[:1], FRESH) == with_(
        FRESH, launch="", lists={}, rejected={"launch": {"": LAUNCH}}
    )
