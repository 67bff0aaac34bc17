"""What hosts want for longer: counted, and forgotten with the last who wants it."""

from __future__ import annotations

from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.upstream.subscriptions import (
    ConnectionId,
    ServerNotification,
    SubscriptionRegistry,
)
from tests.kit.results import raw

HERE, THERE = ConnectionId(ServerAddress("a", "b")), ConnectionId(ServerAddress("a", "c"), 1, 7)


def test_the_most_verbose_wish_counts_until_its_host_is_gone() -> None:
    registry = SubscriptionRegistry()
    assert registry.level_at("a") == ""

    registry.want_level("x", "error", ["a"])
    registry.want_level("y", "debug", ["a", "b"])

    assert (registry.level_at("a"), registry.level_of("x"), registry.level_of("z")) == (
        "debug",
        "error",
        "",
    )
    registry.forget("y")
    assert registry.level_at("a") == "error"


def test_a_subscription_lasts_until_the_last_holder_has_left() -> None:
    registry = SubscriptionRegistry()
    for holder in "xy":
        registry.subscribe(HERE, "u", holder)
    registry.subscribe(THERE, "v", "x")

    assert not registry.unsubscribe(HERE, "u", "x")
    assert not registry.unsubscribe(HERE, "u", "x")
    assert not registry.unsubscribe(HERE, "never", "x")
    assert registry.unsubscribe(HERE, "u", "y")
    assert (registry.uris(HERE), registry.uris(THERE)) == ([], ["v"])
    assert registry.forget("x") == [(THERE, "v")]
    assert registry.forget("x") == []


def test_a_subscription_can_be_ended_while_its_server_is_away() -> None:
    registry = SubscriptionRegistry()
    registry.subscribe(HERE, "u", "x")

    assert registry.unsubscribe_at(HERE.address, "u", "y") == []
    assert registry.unsubscribe_at(HERE.address, "u", "x") == [HERE]
    assert registry.uris(HERE) == []


def test_what_the_server_of_one_principal_says_is_for_all_its_hosts_and_nobody_else() -> None:
    registry = SubscriptionRegistry()
    heard: list[str] = []
    for name in ("anna", "anna", "ben", ""):
        registry.on_notification(
            lambda name=name: (1, name), lambda _, name=name: heard.append(name)
        )

    registry.publish(ServerNotification(ConnectionId(HERE.address, owner="anna"), "m", raw({})))

    assert heard == ["anna", "anna"]


def test_what_one_host_s_own_server_says_is_for_that_host_alone() -> None:
    registry = SubscriptionRegistry()
    heard: dict[int, list[ConnectionId]] = {7: [], 8: []}
    ends = [
        registry.on_notification(
            lambda host=host: (host, ""),
            lambda notification, host=host: heard[host].append(notification.connection_id),
        )
        for host in (7, 8)
    ]

    registry.publish(ServerNotification(HERE, "m", raw({})))
    registry.publish(ServerNotification(THERE, "m", raw({})))
    for end in ends:
        end()
        end()
    registry.publish(ServerNotification(HERE, "m", raw({})))

    assert heard == {7: [HERE, THERE], 8: [HERE]}
