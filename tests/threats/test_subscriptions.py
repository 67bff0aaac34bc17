"""Hosts that subscribe to very many resources: each has its share, and the others go on."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from mcp_workbench.core.spec import HttpSettings, NamedToken, ServerAddress
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.subscriptions import (
    MOST_BYTES,
    MOST_RESOURCES,
    ONE_HOST,
    ConnectionId,
    ConnectionSubscriptions,
    ListenRequest,
    NoRoom,
    SubscriptionRegistry,
)
from tests.kit.clock import until
from tests.kit.http_host import Session, port, rpc
from tests.kit.pipe_host import PipeHost
from tests.kit.results import Message, enveloped
from tests.kit.servers import OFFERS
from tests.primitives.scenes import MODERN, begin, bench, seen
from tests.primitives.test_many_hosts import SHARED, legacy_host, listening, shared
from tests.threats.growth import assert_linear

AT = ConnectionId(ServerAddress("dev", "a"))


async def subscribed(session: Session, uris: list[str]) -> list[Message]:
    """The answers to a subscription of each, a few at a time."""
    peer = await session.port.connect()
    answers: list[Message] = []
    for start in range(0, len(uris), 20):
        some = uris[start : start + 20]
        peer.send(
            b"".join(session.request(session.ask("resources/subscribe", {"uri": u})) for u in some)
        )
        answers += [(await peer.answer()).message for _ in some]
    return answers


async def test_a_host_that_subscribes_to_long_addresses_keeps_nobody_from_theirs() -> None:
    size = MOST_BYTES // ONE_HOST // 4
    async with port(shared(MODERN)) as opened:
        greedy, _ = await legacy_host(opened)
        modest, stream = await legacy_host(opened)
        answers = await subscribed(
            greedy, [f"item://fixture/{n}{'x' * (size - 30)}" for n in range(8)]
        )
        await modest.result("resources/subscribe", {"uri": SHARED})
        other = await listening(opened, resourceSubscriptions=[SHARED])
        await modest.use("touch", {"uri": SHARED})
        heard = await stream.message()
        other.close()

    refused = [answer["error"] for answer in answers if "error" in answer]
    assert len(refused) == 4
    assert "too many resources: unsubscribe from others first" in refused[0]["message"]
    assert heard["params"]["uri"] == SHARED


def test_each_host_has_a_part_and_all_have_the_whole() -> None:
    registry = SubscriptionRegistry()

    def fill(holder: str, start: int) -> int:
        for n in range(start, start + MOST_RESOURCES):
            try:
                registry.require_room(AT, f"x://{n}", holder)
            except NoRoom:
                return n - start
            registry.subscribe(AT, f"x://{n}", holder)
        return MOST_RESOURCES

    counts = [fill(f"host {n}", n * MOST_RESOURCES) for n in range(ONE_HOST + 1)]

    assert counts == [MOST_RESOURCES // ONE_HOST] * ONE_HOST + [0]
    registry.require_room(AT, "x://0", "another host")  # which somebody subscribes to already
    assert len(registry.forget("host 0")) == counts[0]
    assert fill("host 0", 0) == counts[0]
    for n in range(ONE_HOST):
        registry.forget(f"host {n}")
    assert registry.uris(AT) == []
    assert fill("host 1", 0) == counts[0]


def test_a_principal_with_many_hosts_leaves_room_for_others() -> None:
    registry = SubscriptionRegistry()

    def fill(principal: str, uri: str) -> int:
        """How many resources all hosts of a principal can subscribe to."""
        count = 0
        for n in range(2 * MOST_RESOURCES):
            holder = f"{principal} {n * ONE_HOST // MOST_RESOURCES}"
            try:
                registry.require_room(AT, uri % n, holder, principal)
            except NoRoom:
                break
            registry.subscribe(AT, uri % n, holder, principal)
            count += 1
        return count

    greedy = fill("greedy", "x://%d")

    assert greedy == MOST_RESOURCES // 2
    assert fill("as greedy", "y://%d") == MOST_RESOURCES // 4
    registry.require_room(AT, "z://1", "a host", "modest")
    registry.subscribe(AT, "x://1", "a host", "modest")  # which counts for both
    registry.subscribe(AT, "x://1", "another host", "modest")
    for n in range(ONE_HOST):
        registry.forget(f"greedy {n}")
    assert fill("greedy", "x://%d") == (MOST_RESOURCES - MOST_RESOURCES // 4) // 2
    for holder in [f"{p} {n}" for p in ("greedy", "as greedy") for n in range(ONE_HOST)]:
        registry.forget(holder)
    assert registry.uris(AT) == ["x://1"]
    registry.forget("a host")
    registry.forget("another host")
    assert registry.uris(AT) == []
    assert fill("as greedy", "y://%d") == greedy


async def test_many_hosts_of_one_principal_keep_no_other_from_theirs() -> None:
    length = MOST_BYTES // ONE_HOST // 4
    tokens = (NamedToken("greedy", "g" * 32), NamedToken("modest", "m" * 32))
    async with port(shared(MODERN), HttpSettings(tokens=tokens)) as opened:
        answers: list[Message] = []
        for number in range(ONE_HOST):
            greedy, _ = await legacy_host(opened, authorization=f"Bearer {'g' * 32}")
            long = [f"item://fixture/{number}{n}{'x' * (length - 30)}" for n in range(4)]
            answers += await subscribed(greedy, long)
        modest, _ = await legacy_host(opened, authorization=f"Bearer {'m' * 32}")
        answer = await subscribed(modest, [SHARED])

    refused = [answer["error"]["message"] for answer in answers if "error" in answer]
    assert len(refused) == len(answers) // 2
    assert "your hosts subscribe to too many resources" in refused[0]
    assert "result" in answer[0]


@pytest.mark.parametrize("uri", ["x://" + "\N{GRINNING FACE}" * 6000, "x://" + '"' * 40_000])
def test_an_address_counts_as_it_is_written(uri: str) -> None:
    with pytest.raises(NoRoom):
        SubscriptionRegistry().require_room(AT, uri, "host")


@pytest.mark.cost
def test_a_host_that_leaves_is_forgotten_in_proportion() -> None:
    def made(count: int) -> SubscriptionRegistry:
        registry = SubscriptionRegistry()
        for n in range(count):
            registry.subscribe(AT, f"x://{n}", "host" if n % 2 else "other")
        return registry

    assert_linear(lambda registry: registry.forget("host"), made, 40_000)


@pytest.mark.cost
def test_a_host_that_leaves_with_very_many_requests_is_forgotten_in_proportion() -> None:
    def made(count: int) -> tuple[SubscriptionRegistry, int]:
        registry = SubscriptionRegistry()
        for n in range(count):
            registry.subscribe(AT, f"x://{n}", n)
        return registry, count

    def leave(scene: tuple[SubscriptionRegistry, int]) -> None:
        registry, count = scene
        for n in range(count):
            registry.forget(n)

    assert_linear(leave, made, MOST_RESOURCES)


@pytest.mark.usefixtures("forked_commands")
def test_very_many_who_subscribe_at_once_are_told_to_their_server_in_few_messages(
    tmp_path: Path,
) -> None:
    count = 1500
    entry = {"command": sys.executable, "args": ["-E", "-S", str(OFFERS), "fixture", "modern"]}
    with PipeHost(bench(tmp_path, {"dev": {"fixture": entry}}), modern=True) as host:
        begin(host, "dev")
        uris = [f"item://fixture/{n}" for n in range(count)]
        host.write(b"".join(wish(1000 + n, uri) for n, uri in enumerate(uris)))
        heard = [host.receive() for _ in uris]
        asked = seen(host, "dev", "fixture", "subscriptions/listen")

    told = [one["params"]["notifications"]["resourceSubscriptions"] for one in heard if one]
    assert sorted(uri for (uri,) in told) == sorted(uris)
    most = [one["notifications"].get("resourceSubscriptions", []) for one in asked]
    assert len(asked) < count / 4
    assert sorted(most[-1]) == sorted(uris)


async def test_requests_that_replace_each_other_without_an_answer_are_ended_at_once() -> None:
    conversation = Conversation(1 << 20, lambda message: None)
    last: ListenRequest | None = None
    for _ in range(5000):
        last = ListenRequest(conversation, {}, lambda: None, last)
    assert last is not None

    last.end()

    assert conversation.long_requests == {}


def wish(id: int, uri: str) -> bytes:
    params = enveloped({"notifications": {"resourceSubscriptions": [uri]}})
    return rpc("subscriptions/listen", params, id) + b"\n"


async def test_those_who_leave_are_told_to_their_server_in_one_message() -> None:
    async with port(shared(MODERN)) as opened:
        staying, _ = await legacy_host(opened)
        leaving, _ = await legacy_host(opened)
        await subscribed(staying, [f"item://fixture/s{n}" for n in range(20)])
        await subscribed(leaving, [f"item://fixture/l{n}" for n in range(20)])
        before = await listens(staying)
        await leaving.post(b"", method="DELETE")
        after = await listens(staying)

    assert len(after) == len(before) + 1
    assert len(after[-1]) == 20


async def listens(session: Session) -> list[list[str]]:
    """The resources of each `subscriptions/listen` that the server has got."""
    return resources_listened_to((await session.use("stats")).json_text)


def resources_listened_to(seen: list[Message]) -> list[list[str]]:
    wanted = [one["params"]["notifications"] for one in seen if one["method"].endswith("/listen")]
    return [one["resourceSubscriptions"] for one in wanted if "resourceSubscriptions" in one]


class LegacyServer(ConnectionSubscriptions):
    """Notes what is sent to a legacy server, which answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(AT, SubscriptionRegistry(), lambda: None, lambda uri: None)
        self.sent: list[str] = []
        self.answers: list[asyncio.Event] = []
        self.registry = self._registry

    async def _subscribe_legacy(self, uri: str) -> None:
        self.sent.append("resources/subscribe")
        self.answers.append(asyncio.Event())
        await self.answers[-1].wait()

    def _send_request(self, method: str, params: dict[str, object]) -> None:
        self.sent.append(method)


def left(server: LegacyServer) -> None:
    if server.registry.unsubscribe(AT, SHARED, "one"):
        server.unsubscribed([SHARED])


def without_room(server: LegacyServer) -> None:
    for n in range(MOST_RESOURCES // ONE_HOST):
        server.registry.subscribe(AT, f"x://{n}", "one")


@pytest.mark.parametrize("refused", [False, True])
async def test_a_host_that_gives_a_resource_up_does_not_end_the_subscription_of_another(
    refused: bool,
) -> None:
    server = LegacyServer()
    one = asyncio.ensure_future(server.subscribe(SHARED, "one"))
    await until(lambda: len(server.answers) == 1)
    other = asyncio.ensure_future(server.subscribe(SHARED, "other"))
    await until(lambda: len(server.answers) == 2)

    if refused:
        without_room(server)
    server.answers[0].set()
    await asyncio.wait([one])
    assert (one.exception() is not None) == refused
    left(server)
    server.answers[1].set()
    await other

    assert server.sent == ["resources/subscribe"] * 2
    server.registry.unsubscribe(AT, SHARED, "other")
    server.unsubscribed([SHARED])
    assert server.sent[2:] == ["resources/unsubscribe"]


async def test_a_resource_that_nobody_got_in_the_end_is_unsubscribed_once() -> None:
    server = LegacyServer()
    one = asyncio.ensure_future(server.subscribe(SHARED, "one"))
    await until(lambda: len(server.answers) == 1)
    other = asyncio.ensure_future(server.subscribe(SHARED, "other"))
    await until(lambda: len(server.answers) == 2)

    server.answers[0].set()
    await one
    left(server)
    other.cancel()
    await asyncio.wait([other])

    assert server.sent[2:] == ["resources/unsubscribe"]
