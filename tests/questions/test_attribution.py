"""Over HTTP a legacy server speaks on the stream of the call that it speaks about: that call it is."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from mcp_workbench.core.spec import Scope
from tests.kit.clock import until
from tests.kit.config import config_file, snapshot, url_spec
from tests.kit.http_host import Peer, Port, Session, port, rpc
from tests.kit.pipe_host import PipeHost
from tests.kit.results import INITIALIZE, LEGACY, META, Message, texts, use_tool
from tests.kit.servers.bad_http import BadHttp, Hung, Request, bad_http, event, result

ABLE: Message = {"elicitation": {}}
CAN: Message = {META + "clientCapabilities": ABLE}
ADA: Message = {"action": "accept", "content": {"name": "Ada"}}
QUESTION: Message = {"message": "Name?", "requestedSchema": {"type": "object", "properties": {}}}


class Asker:
    """A server that takes its time: a call waits for its turn, then asks or logs on its own stream."""

    def __init__(self, bad: BadHttp) -> None:
        self.bad = bad
        self.url = bad.on("/asks", self.called)
        self.go = asyncio.Event()

    async def called(self, request: Request, out: Hung) -> None:
        what = request.body["params"]["arguments"]["text"]
        await out.events(b": here\n\n", end=False)
        if what == "wait":
            await self.go.wait()
        elif what == "log":
            params: Message = {"level": "error", "data": "mine"}
            await out.more(event(rpc("notifications/message", params)))
            await self.go.wait()
        else:
            await out.more(event(rpc("elicitation/create", QUESTION, what)))
            await until(lambda: self.answer(what) != {})
            told = json.dumps(
                {"content": [{"type": "text", "text": json.dumps(self.answer(what))}]}
            )
            await out.more(event(result(request, told.encode())))
            return
        await out.more(event(result(request)))

    def answer(self, id: str) -> Message:
        """What was answered to the question of this name."""
        bodies = [one.body for one in self.bad.seen if not one.method]
        nothing: Message = {}
        return next((b.get("result", b) for b in bodies if b.get("id") == id), nothing)


def use(text: str) -> Message:
    return use_tool("s", "echo", {"text": text})


def bench(asker: Asker, scope: Scope = "session") -> Any:
    return snapshot(url_spec(asker.url, era="legacy", scope=scope, headers=()))


async def legacy_session(opened: Port) -> Session:
    answer = await opened.ask(rpc("initialize", {**INITIALIZE, "capabilities": ABLE}, 0))
    return Session(opened, answer.headers["mcp-session-id"], LEGACY, "/mcp")


async def test_a_legacy_host_hears_each_question_on_the_stream_of_its_call() -> None:
    async with bad_http() as bad:
        asker = Asker(bad)
        async with port(bench(asker)) as opened:
            session = await legacy_session(opened)
            peers: dict[str, Peer] = {}
            for number, text in enumerate(("wait", "b", "c"), 1):
                peers[text] = await opened.connect()
                peers[text].send(session.request(rpc("tools/call", use(text), number)))
                await until(lambda count=number: len(bad.calls()) == count)
            for text in ("c", "b"):
                await peers[text].head()
                question = await peers[text].message()
                assert question["method"] == "elicitation/create"
                told = {**ADA, "content": {"name": text}}
                answer = {"jsonrpc": "2.0", "id": question["id"], "result": told}
                await session.post(json.dumps(answer).encode())
                last = await peers[text].message()
                assert json.loads(texts(last["result"])[0]) == told
            asker.go.set()
            oldest = await peers["wait"].answer()

            assert oldest.result["content"][0]["text"] == "wait"  # and nothing before it


async def test_a_modern_host_is_asked_in_the_call_that_the_question_came_with(
    tmp_path: Any,
) -> None:
    async with bad_http() as bad:
        asker = Asker(bad)
        entry = {"url": asker.url, "era": "legacy"}
        with PipeHost(config_file(tmp_path, {"s": entry}), modern=True) as host:
            oldest = host.ask("tools/call", {**use("wait"), "_meta": CAN})
            await until(lambda: len(bad.calls()) == 1)
            asked = await asyncio.to_thread(host.result, "tools/call", {**use("b"), "_meta": CAN})
            [key] = asked["inputRequests"]
            back: Message = {"inputResponses": {key: ADA}, "requestState": asked["requestState"]}
            told = await asyncio.to_thread(
                host.result, "tools/call", {**use("b"), **back, "_meta": CAN}
            )
            asker.go.set()
            last = await asyncio.to_thread(host.answer, oldest)

    assert json.loads(texts(told)[0]) == ADA
    assert texts(last["result"]) == ["wait"]


async def test_a_connection_of_many_hosts_promises_nothing_and_so_nobody_is_asked() -> None:
    async with bad_http() as bad:
        asker = Asker(bad)
        async with port(bench(asker, "shared")) as opened:
            answer = await opened.ask_modern("tools/call", {**use("b"), "_meta": CAN})

            [initialize] = bad.calls("initialize")
            assert initialize.body["params"]["capabilities"].keys() == {"extensions"}
            assert json.loads(texts(answer.result)[0])["error"]["code"] == -32601


async def test_what_a_server_logs_for_one_call_reaches_the_host_of_that_call_alone() -> None:
    """Though the connection is shared and both hosts want to hear."""
    wants: Message = {META + "logLevel": "debug"}
    async with bad_http() as bad:
        asker = Asker(bad)
        async with port(bench(asker, "shared")) as opened:
            peers: list[Peer] = []
            for number, text in enumerate(("wait", "log"), 1):
                peers.append(await opened.connect())
                params = {**use(text), "_meta": wants}
                peers[-1].send(opened.request(*opened.modern("tools/call", params)))
                await until(lambda count=number: len(bad.calls()) == count)
            await peers[1].head()
            message = await peers[1].message()
            asker.go.set()
            other = await peers[0].answer()

    assert message["params"] == {"level": "error", "data": "mine"}
    assert "result" in other.json  # one plain answer: nothing was said before it
