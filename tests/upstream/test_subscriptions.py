"""What hosts want for longer: counted, and forgotten with the last who wants it."""

from __future__ import annotations

from mcp_workbench.core.names import ServerAddress
from mcp_workbench.upstream.subscriptions import Heard, Place, Standing
from tests.kit.results import raw

HERE, THERE = Place(ServerAddress("a", "b")), Place(ServerAddress("a", "c"), 1, 7)


def test_the_most_verbose_wish_counts_until_its_host_is_gone() -> None:
    standing = Standing()
    assert standing.level_at("a") == ""

    standing.want_level("x", "error", ["a"])
    standing.want_level("y", "debug", ["a", "b"])

    assert (standing.level_at("a"), standing.level_of("x"), standing.level_of("z")) == (
        "debug",
        "error",
        "",
    )
    standing.forget("y")
    assert standing.level_at("a") == "error"


def test_a_subscription_lasts_until_the_last_holder_has_left() -> None:
    standing = Standing()
    for holder in "xy":
        standing.subscribe(HERE, "u", holder)
    standing.subscribe(THERE, "v", "x")

    assert not standing.unsubscribe(HERE, "u", "x")
    assert not standing.unsubscribe(HERE, "u", "x")
    assert not standing.unsubscribe(HERE, "never", "x")
    assert standing.unsubscribe(HERE, "u", "y")
    assert (standing.uris(HERE), standing.uris(THERE)) == ([], ["v"])
    assert standing.forget("x") == [(THERE, "v")]
    assert standing.forget("x") == []


def test_a_subscription_can_be_ended_while_its_server_is_away() -> None:
    standing = Standing()
    standing.subscribe(HERE, "u", "x")

    assert standing.unsubscribe_at(HERE.address, "u", "y") == []
    assert standing.unsubscribe_at(HERE.address, "u", "x") == [HERE]
    assert standing.uris(HERE) == []


def test_what_one_host_s_own_server_says_is_for_that_host_alone() -> None:
    standing = Standing()
    heard: dict[int, list[Place]] = {7: [], 8: []}
    ends = [
        standing.on_heard(lambda host=host: host, lambda h, host=host: heard[host].append(h.place))
        for host in (7, 8)
    ]

    standing.pass_on(Heard(HERE, "m", raw({})))
    standing.pass_on(Heard(THERE, "m", raw({})))
    for end in ends:
        end()
        end()
    standing.pass_on(Heard(HERE, "m", raw({})))

    assert heard == {7: [HERE, THERE], 8: [HERE]}
