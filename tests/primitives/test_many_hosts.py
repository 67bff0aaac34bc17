"""Several hosts over HTTP share servers; each hears what it asked for, and nothing of the others."""

from __future__ import annotations

import sys

import pytest

from mcp_workbench.core.spec import Scope, ServerAddress, ServerSpec, Snapshot, StdioCommand
from tests.kit.config import snapshot
from tests.kit.http_host import Peer, Port, Session, port
from tests.kit.results import META, Message
from tests.kit.servers import OFFERS
from tests.primitives.scenes import ERAS, LEGACY, MODERN

SHARED = "note://shared"
UPDATED = "notifications/resources/updated"
servers = pytest.mark.parametrize("server_era", ERAS)


def shared(server_era: str, scope: Scope = "shared") -> Snapshot:
    words = ("-E", "-S", str(OFFERS), "fixture", *(["modern"] if server_era == MODERN else []))
    address = ServerAddress("dev", "fixture")
    era = "modern" if server_era == MODERN else "legacy"
    command = StdioCommand(sys.executable, words)
    return snapshot(ServerSpec(address, command, era=era, scope=scope))


async def legacy_host(opened: Port, **headers: str) -> tuple[Session, Peer]:
    """A host that has opened the toolbox and seen its prompts, and its stream."""
    session = await opened.open(**headers)
    stream = await session.listen()
    await session.result(
        "tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}
    )
    await session.result("prompts/list")
    return session, stream


async def listening(opened: Port, meta: Message | None = None, **wanted: object) -> Peer:
    """The stream of a modern host, after the acknowledgement."""
    peer = await opened.connect()
    params = {"notifications": wanted, **(meta or {})}
    peer.send(opened.request(*opened.modern("subscriptions/listen", params)))
    assert (await peer.head())[0] == 200
    assert (await peer.message())["method"] == "notifications/subscriptions/acknowledged"
    return peer


@servers
async def test_each_host_hears_of_what_it_subscribed_to(server_era: str) -> None:
    async with port(shared(server_era)) as opened:
        one, stream_of_one = await legacy_host(opened)
        two, stream_of_two = await legacy_host(opened)
        three = await listening(opened, resourceSubscriptions=[SHARED])
        await one.result("resources/subscribe", {"uri": SHARED})

        await two.use("touch", {"uri": SHARED})
        await two.use("learn", {"prompt": "late"})

        heard = [await stream_of_one.message(), await stream_of_one.message()]
        assert [message["method"] for message in heard] == [
            UPDATED,
            "notifications/prompts/list_changed",
        ]
        assert (await stream_of_two.message())["method"] == "notifications/prompts/list_changed"
        told: Message = (await three.message())["params"]
        assert told["uri"] == SHARED
        assert META + "subscriptionId" in told["_meta"]


@servers
async def test_a_server_is_left_in_peace_when_the_last_listener_has_gone(server_era: str) -> None:
    async with port(shared(server_era)) as opened:
        asking = await opened.open()

        async def count(method: str) -> int:
            said: list[Message] = (await asking.use("stats")).json_text
            return len([one for one in said if one["method"] == method])

        ends = "resources/unsubscribe" if server_era == LEGACY else "notifications/cancelled"
        first = await listening(opened, resourceSubscriptions=[SHARED])
        second = await listening(opened, resourceSubscriptions=[SHARED])
        begins = "resources/subscribe" if server_era == LEGACY else "subscriptions/listen"
        begun = await count(begins)
        first.close()
        second.close()
        while not await count(ends):
            """The hosts' going has not been noticed yet; each question takes its time."""

        assert await count(ends) == 1
        assert await count(begins) == begun == (1 if server_era == LEGACY else 2)  # one for lists


@servers
async def test_the_log_of_a_request_comes_on_its_own_stream(server_era: str) -> None:
    async with port(shared(server_era)) as opened:
        legacy, stream = await legacy_host(opened)
        arguments = {"tool": {"toolbox": "dev", "server": "fixture", "tool": "log"}}
        call = {"name": "use_tool", "arguments": arguments}

        chatty = await opened.ask_modern(
            "tools/call", {**call, "_meta": {META + "logLevel": "info"}}
        )
        silent = await opened.ask_modern("tools/call", call)

        *messages, result = chatty.messages
        assert [message["params"]["level"] for message in messages] == ["info", "error"]
        assert result["result"]["resultType"] == "complete"
        assert silent.result["resultType"] == "complete"  # plain JSON: nothing came before it
        if server_era == MODERN:  # it speaks of one request, which was another host's
            await legacy.use("learn", {"prompt": "late"})
            assert (await stream.message())["method"] == "notifications/prompts/list_changed"


@servers
@pytest.mark.parametrize("can", [{}, {"elicitation": {}}], ids=["declares nothing", "can be asked"])
async def test_requests_of_one_principal_hear_of_each_other_where_servers_are_its_own(
    server_era: str, can: Message
) -> None:
    meta = {"_meta": {META + "clientCapabilities": can}}
    async with port(shared(server_era, "session")) as opened:
        await opened.ask_modern("prompts/list", meta)
        stream = await listening(opened, meta, promptsListChanged=True)
        stranger = await opened.open()  # a session has servers of its own

        arguments = {"prompt": "late"}
        wish = {"toolbox": "dev", "server": "fixture", "tool": "learn"}
        call = {"name": "use_tool", "arguments": {"tool": wish, "arguments": arguments}, **meta}
        await opened.ask_modern("tools/call", call)

        assert (await stream.message())["method"] == "notifications/prompts/list_changed"
        box = {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}
        await stranger.result("tools/call", box)
        names = [prompt["name"] for prompt in (await stranger.result("prompts/list"))["prompts"]]
        assert names == ["dev__fixture__greet", "dev__fixture__bare__name"]
