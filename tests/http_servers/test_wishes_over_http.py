"""What hosts want for longer holds though a server over HTTP forgets its session or ends its stream."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mcp_workbench.upstream.subscriptions import SHORTEST
from tests.http_servers.scenes import bench
from tests.kit.clock import until
from tests.kit.config import snapshot, url_spec
from tests.kit.http_host import Session, port
from tests.kit.servers.bad_http import BadHttp, Hung, Request, bad_http, event

NOTE = "note://one"


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """One loop: here the order of what is asked for is the subject."""
    return "asyncio", {"use_uvloop": True}


Json = dict[str, Any]
OFFERED: Json = {
    "logging": {},
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
}
LISTS: dict[str, Json] = {
    "resources/list": {"resources": [{"uri": NOTE, "name": "one"}]},
    "resources/templates/list": {"resourceTemplates": []},
    "tools/call": {"content": [{"type": "text", "text": "ok"}]},
    "logging/setLevel": {},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
}


class Forgetful:
    """A legacy server with sessions and a stream, both of which it can lose."""

    def __init__(self, bad: BadHttp) -> None:
        self.bad = bad
        self.url = bad.on("/start/forgetful", self.act)
        self.prompts: list[Json] = [{"name": "first"}]
        self.cut = asyncio.Event()
        self.sessions: list[str] = []

    def forget(self) -> None:
        """As if it were started anew."""
        self.sessions.clear()
        self.prompts.append({"name": "second"})
        self.cut.set()
        self.cut = asyncio.Event()

    async def act(self, request: Request, out: Hung) -> None:
        known = request.headers.get("mcp-session-id") in self.sessions
        if request.method == "initialize":
            self.sessions.append(f"session-{len(self.bad.calls('initialize'))}")
            found: Json = {"protocolVersion": "2025-11-25", "capabilities": OFFERED}
            await self.reply(request, out, found, Mcp_Session_Id=self.sessions[-1])
        elif not known:
            await out.reply(404, b"no such session", "text/plain")
        elif request.verb == "GET":
            cut = self.cut
            await out.events(b": here\n\n", end=False)
            await cut.wait()
            out.reset()
        elif "id" not in request.body:
            await out.reply(202, kind="")
        else:
            lists = {
                **LISTS,
                "tools/list": {"tools": self.bad.tools},
                "prompts/list": {"prompts": self.prompts},
            }
            await self.reply(request, out, lists[request.method])

    async def reply(self, request: Request, out: Hung, result: Json, **headers: str) -> None:
        body = {"jsonrpc": "2.0", "id": request.body["id"], "result": result}
        await out.reply(200, json.dumps(body).encode(), **headers)

    def wished(self, session: str) -> list[tuple[str, Json]]:
        """What was wished for in this session."""
        wishes = ("logging/setLevel", "resources/subscribe")
        return sorted(
            (request.method, request.body["params"])
            for request in self.bad.seen
            if request.method in wishes and request.headers.get("mcp-session-id") == session
        )

    @property
    def streams(self) -> int:
        return sum(request.verb == "GET" for request in self.bad.seen)


WISHES: list[tuple[str, Json]] = [
    ("logging/setLevel", {"level": "warning"}),
    ("resources/subscribe", {"uri": NOTE}),
]


async def wish(session: Session) -> None:
    await session.result(
        "tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}
    )
    await session.result("logging/setLevel", {"level": "warning"})
    await session.result("resources/subscribe", {"uri": NOTE})
    await session.result("prompts/list")


async def prompts(session: Session) -> list[str]:
    found = await session.result("prompts/list")
    return [prompt["name"].rpartition("__")[2] for prompt in found["prompts"]]


async def test_a_new_session_is_told_what_hosts_want_and_its_lists_are_read_anew() -> None:
    async with bad_http() as bad:
        server = Forgetful(bad)
        async with port(snapshot(url_spec(server.url, era="legacy", headers=()))) as opened:
            session = await opened.open()
            await wish(session)
            assert server.wished("session-1") == WISHES

            server.forget()
            tool = {"tool": {"toolbox": "dev", "server": "s", "tool": "echo"}, "arguments": {}}
            answer = await session.result("tools/call", {"name": "use_tool", "arguments": tool})
            await until(lambda: len(server.wished("session-2")) == 2)

            assert answer["content"][0]["text"] == "ok"
            assert server.wished("session-2") == WISHES
            assert await prompts(session) == ["first", "second"]
            assert len(bad.calls("initialize")) == 2


async def test_a_stream_that_is_refused_with_404_opens_a_session_without_any_call() -> None:
    async with bad_http() as bad:
        server = Forgetful(bad)
        async with port(snapshot(url_spec(server.url, era="legacy", headers=()))) as opened:
            session = await opened.open()
            await wish(session)
            await until(lambda: server.streams == 1)

            server.forget()
            await until(lambda: len(server.wished("session-2")) == 2)

            assert server.wished("session-2") == WISHES
            assert len(bad.calls("initialize")) == 2


async def test_where_there_never_was_a_stream_its_absence_costs_no_session() -> None:
    async with bad_http() as bad:

        async def none(request: Request, out: Hung) -> None:
            await out.reply(404)

        bad.acts["GET /session"] = none
        async with bench(url_spec(bad.url("/session"), era="legacy")) as workbench:
            await workbench.open_toolbox("dev")
            await until(lambda: bool(bad.gets))
            for _ in range(3):
                await workbench.open_toolbox("dev")

        assert len(bad.calls("initialize")) == len(bad.gets) == 1


# Modern servers


class Listened:
    """A modern server whose listening ends in one way or another."""

    def __init__(self, bad: BadHttp, way: str) -> None:
        self.bad = bad
        self.way = way
        self.url = bad.on("/start/modern/listened", self.act)
        self.since: list[float] = []
        self.ended = asyncio.Event()

    async def act(self, request: Request, out: Hung) -> None:
        if request.method == "server/discover":
            capabilities = {"tools": {"listChanged": True}}
            found: Json = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
        elif request.method == "tools/list":
            found = {"tools": self.bad.tools, "ttlMs": 0, "cacheScope": "private"}
        elif request.method == "subscriptions/listen":
            await self.listened(request, out)
            return
        else:
            found = {}
        body = {"jsonrpc": "2.0", "id": request.body["id"], "result": found}
        await out.reply(200, json.dumps(body).encode())

    async def listened(self, request: Request, out: Hung) -> None:
        self.since.append(asyncio.get_running_loop().time())
        id = request.body["id"]
        tag = {"_meta": {"io.modelcontextprotocol/subscriptionId": id}}
        honoured = {"notifications": {"toolsListChanged": True}, **tag}
        said = {"method": "notifications/subscriptions/acknowledged", "params": honoured}
        await out.events(told(said), end=False)
        if len(self.since) > 1:
            await asyncio.sleep(60)
        await self.ended.wait()
        if self.way == "break":
            out.reset()
        elif self.way == "result":
            await out.more(told({"id": id, "result": {"resultType": "complete", **tag}}))
            await out.raw(b"0\r\n\r\n")
        elif self.way == "cancelled":
            await out.more(told({"method": "notifications/cancelled", "params": {"requestId": id}}))
            await asyncio.sleep(60)  # and does not close
        else:
            await out.raw(b"0\r\n\r\n")


def told(message: Json) -> bytes:
    return event(json.dumps({"jsonrpc": "2.0", **message}).encode())


@pytest.mark.parametrize("way", ["break", "end", "result", "cancelled"])
async def test_a_modern_server_is_listened_to_again_and_not_believed_meanwhile(way: str) -> None:
    async with bad_http() as bad:
        server = Listened(bad, way)
        async with bench(url_spec(server.url, era="modern")) as workbench:
            await workbench.open_toolbox("dev")
            await until(lambda: len(server.since) == 1)
            [connection] = workbench.gateway.connected
            server.ended.set()
            await until(lambda: connection.primitives.subscriptions.is_interrupted)
            bad.tools = [*bad.tools, {"name": "late", "inputSchema": {"type": "object"}}]
            found = await workbench.open_toolbox("dev")
            await until(lambda: len(server.since) == 2)
            await until(lambda: not connection.primitives.subscriptions.is_interrupted)

        assert [tool.name for tool in found.tools] == ["echo", "late"]
        first, second = server.since
        assert second - first >= SHORTEST * 0.9
