"""Tools of servers behind a URL: met in their era, called, cancelled, and left."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mcp_workbench.core.spec import ServerAddress
from tests.http_servers.scenes import TOKEN, bench, echo, trouble
from tests.kit.clock import until
from tests.kit.config import tool, url_spec
from tests.kit.servers.bad_http import Hung, Request, bad_http, event, result
from tests.kit.vitals import open_fds
from tests.upstream.test_connection import call, ready

GOOD = ["ok", "sse", "pretty", "goodgzip", "gzsse", "redir_same", "until_close", "interim", "twice"]


@pytest.mark.parametrize("mode", GOOD)
@pytest.mark.parametrize("era", ["", "/modern"])
async def test_an_answer_of_any_form_arrives(era: str, mode: str) -> None:
    async with bad_http() as bad, bench(url_spec(bad.url(f"{era}/{mode}"))) as workbench:
        assert await echo(workbench, "one") == "one"
        assert await echo(workbench, "two") == "two"


async def test_a_legacy_server_gets_what_its_era_asks_for() -> None:
    async with bad_http() as bad:
        async with bench(url_spec(bad.url("/session"))) as workbench:
            assert await echo(workbench) == "hi"
        seen = {request.method or request.verb: request.headers for request in bad.seen}

    assert list(dict.fromkeys(r.method or r.verb for r in bad.seen if r.verb != "GET")) == [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
        "tools/call",
        "DELETE",
    ]
    assert seen["tools/call"]["accept"] == "application/json, text/event-stream"
    assert seen["tools/call"]["mcp-protocol-version"] == "2025-11-25"
    assert seen["tools/call"]["mcp-session-id"] == "session-0"
    assert seen["tools/call"]["x-token"] == TOKEN
    assert "mcp-session-id" not in seen["initialize"]
    assert "mcp-protocol-version" not in seen["initialize"]
    assert "mcp-method" not in seen["tools/call"]
    assert seen["DELETE"]["mcp-session-id"] == "session-0"
    assert seen["GET"]["accept"] == "text/event-stream"
    assert not any("cookie" in headers for headers in seen.values())


async def test_a_modern_server_gets_headers_that_repeat_the_body() -> None:
    async with bad_http() as bad:
        bad.tools = [
            {"name": "grüße", "inputSchema": {"type": "object", "properties": {
                "region": {"type": "string", "x-mcp-header": "Region"},
                "n": {"type": "integer", "x-mcp-header": "Count"},
                "yes": {"type": "boolean", "x-mcp-header": "Yes"},
                "gone": {"type": "string", "x-mcp-header": "Gone"},
            }}},
        ]  # fmt: skip
        async with bench(url_spec(bad.url("/modern/ok"))) as workbench:
            arguments: dict[str, Any] = {"region": " ü", "n": 7, "yes": True, "gone": None}
            await workbench.use_tool(tool("s", "grüße"), arguments)
        [call] = bad.calls()

    assert call.headers["mcp-protocol-version"] == "2026-07-28"
    assert call.headers["mcp-method"] == "tools/call"
    assert call.headers["mcp-name"] == "=?base64?Z3LDvMOfZQ==?="
    assert call.headers["mcp-param-region"] == "=?base64?IMO8?="
    assert call.headers["mcp-param-count"] == "7"
    assert call.headers["mcp-param-yes"] == "true"
    assert "mcp-param-gone" not in call.headers
    assert bad.seen[0].headers["mcp-method"] == "server/discover"
    assert "mcp-session-id" not in call.headers


async def test_headers_that_a_tool_wants_only_now_are_learned_and_the_call_sent_again() -> None:
    schema = {"properties": {"text": {"type": "string", "x-mcp-header": "Text"}}}

    async def act(request: Request, out: Hung) -> None:
        if request.headers.get("mcp-param-text") == "hi":
            await out.reply(200, result(request))
            return
        error = b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32020,"message":"Header mismatch"}}'
        await out.reply(400, error % request.body["id"])

    async with bad_http() as bad, bench(url_spec(bad.on("/modern/late", act))) as workbench:
        with pytest.raises(Exception, match="Header mismatch"):
            await echo(workbench)
        bad.tools = [{"name": "echo", "inputSchema": schema}]
        assert await echo(workbench) == "hi"
        assert len(bad.calls()) == 4


async def test_headers_are_learned_from_every_page_of_the_list() -> None:
    wanted = {"type": "string", "x-mcp-header": "Text"}
    late = {"name": "late", "inputSchema": {"properties": {"text": wanted}}}

    async def act(request: Request, out: Hung) -> None:
        if request.method == "tools/list":
            if request.body["params"].get("cursor") == "2":
                page: dict[str, Any] = {"tools": [late]}
            else:
                page = {"tools": [{**late, "name": "echo"}], "nextCursor": "2"}
            await out.reply(200, result(request, json.dumps(page).encode()))
        elif request.method == "tools/call" and "mcp-param-text" not in request.headers:
            late["inputSchema"] = {"properties": {"text": wanted}}
            error = b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32020,"message":"Header mismatch"}}'
            await out.reply(400, error % request.body["id"])
        else:
            await bad.good(request, out)

    async with bad_http() as bad:
        bad.acts["/start/modern/pages"] = act
        late["inputSchema"] = {}
        async with bench(url_spec(bad.url("/start/modern/pages"), era="modern")) as workbench:
            for name in ("late", "echo"):
                found = await workbench.use_tool(tool("s", name), {"text": name})
                assert found["content"][0]["text"] == name
        sent = [request.headers.get("mcp-param-text") for request in bad.calls()]

    assert sent == [None, "late", "echo"]


@pytest.mark.fault("F40")
async def test_a_server_that_is_silent_about_the_modern_question_is_greeted_the_old_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_workbench.protocol.handshake.PROBE_PATIENCE", 0.1)

    async def act(request: Request, out: Hung) -> None:
        if request.method == "server/discover":
            await asyncio.sleep(60)
        await bad.good(request, out)

    async with bad_http() as bad:
        bad.acts["/start/quiet"] = act
        async with bench(url_spec(bad.url("/start/quiet"))) as workbench:
            assert await echo(workbench) == "hi"
            await until(lambda: "/start/quiet" in bad.dropped)  # the question was taken back


async def test_a_connection_that_its_server_gave_up_costs_no_listing_and_no_call_is_doubled() -> (
    None
):
    async def act(request: Request, out: Hung) -> None:
        if len(bad.calls(request.method)) == 1 and request.method in ("tools/list", "tools/call"):
            out.writer.close()  # as if its patience with this connection had just ended
        else:
            await bad.good(request, out)

    async with bad_http() as bad:
        bad.acts["/start/modern/brief"] = act
        async with bench(url_spec(bad.url("/start/modern/brief"))) as workbench:
            await workbench.view.open("dev")
            assert len(bad.calls("tools/list")) == 2
            assert (await trouble(workbench)).may_have_run
            assert len(bad.calls("tools/call")) == 1


@pytest.mark.parametrize(
    "property",
    [
        {"type": "number", "x-mcp-header": "N"},
        {"type": "string", "x-mcp-header": "a b"},
        {"type": "string", "x-mcp-header": 5},
        {"type": "array", "items": {"type": "string", "x-mcp-header": "N"}},
    ],
)
async def test_a_tool_that_asks_for_headers_wrongly_is_left_out(property: Any) -> None:
    odd = {"name": "odd", "inputSchema": {"type": "object", "properties": {"p": property}}}
    async with bad_http() as bad:
        bad.tools = [odd, *bad.tools]
        async with bench(url_spec(bad.url("/modern/ok"))) as workbench:
            report = await workbench.survey(ServerAddress("dev", "s"))
            assert [one.name for one in report.tools] == ["echo"]
            assert "x-mcp-header" in report.complaints[0]


async def test_sixty_four_calls_at_once_are_not_mixed_up_and_share_connections() -> None:
    async with bad_http() as bad, bench(url_spec(bad.url("/sse"))) as workbench:
        texts = [f"text {n}" for n in range(64)]
        for _ in range(2):
            assert await asyncio.gather(*(echo(workbench, text) for text in texts)) == texts
        assert bad.connects <= 66


ODD = [
    b'{"content":[],"x":{"big":12345678901234567890123,"float":1.0,"exp":1E+2,"null":null}}',
    b'{"content":[{"type":"hologram","data":{"a":[[[[[[]]]]]]}}],"isError":false}',
    '{"content":[{"type":"text","text":"\\u00e9 é \u2028 \\\\ud83d"}],"structuredContent":[1]}'.encode(),
    b'{"content":null}',
]
MENDED = (
    b'{"content":[{"type":"text","text":"cut \\ud83d"}]}',
    b'{"content":[{"type":"text","text":"cut \\ufffd"}]}',
)


@pytest.mark.parametrize("payload", ODD)
@pytest.mark.parametrize("form", ["json", "sse"])
async def test_odd_results_arrive_byte_for_byte(payload: bytes, form: str) -> None:
    async def act(request: Request, out: Hung) -> None:
        if form == "json":
            await out.reply(200, result(request, payload))
        else:
            await out.events(event(result(request, payload)))

    async with bad_http() as bad, ready(url_spec(bad.on("/odd", act), headers=())) as connection:
        answer = await call(connection, "echo")
        assert bytes(answer.result) == payload


@pytest.mark.parametrize("form", ["json", "sse"])
async def test_half_a_character_is_mended_wherever_the_id_stands(form: str) -> None:
    async def act(request: Request, out: Hung) -> None:
        answer = b'{"result":%b,"id":%d,"jsonrpc":"2.0"}' % (MENDED[0], request.body["id"])
        if form == "json":
            await out.reply(200, b"\xef\xbb\xbf" + answer)
        else:
            await out.events(event(answer))

    async with bad_http() as bad, ready(url_spec(bad.on("/half", act), headers=())) as connection:
        answer = await call(connection, "echo")
        assert bytes(answer.result) == MENDED[1]


async def test_a_large_argument_travels_whole() -> None:
    async with bad_http() as bad, bench(url_spec(bad.url("/ok"))) as workbench:
        text = "x" * 3_000_000
        assert await echo(workbench, text) == text


@pytest.mark.parametrize("era", ["", "/modern"])
async def test_a_cancelled_call_is_cancelled_at_the_server(era: str) -> None:
    async with bad_http() as bad, bench(url_spec(bad.url(f"{era}/hang"))) as workbench:
        waiting = asyncio.ensure_future(echo(workbench))
        await until(lambda: bool(bad.calls()))
        waiting.cancel()
        await until(lambda: bool(bad.dropped))
        [call] = bad.calls()
        told = [r.body["params"]["requestId"] for r in bad.calls("notifications/cancelled")]

    assert told == ([] if era else [call.body["id"]])  # modern: closing is the word


async def test_a_call_past_its_deadline_is_taken_back() -> None:
    async with bad_http() as bad, bench(url_spec(bad.url("/drip"), timeout=0.5)) as workbench:
        with pytest.raises(Exception, match=r"timed out after 0.5 s"):
            await echo(workbench)
        await until(lambda: bool(bad.dropped))
        assert bad.calls("notifications/cancelled")


async def test_notices_of_a_server_are_heard_on_its_own_stream() -> None:
    changed = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    news = asyncio.Event()

    async def stream(request: Request, out: Hung) -> None:
        await out.events(b": here\n\n", end=False)
        await news.wait()
        await out.more(event(changed))
        await asyncio.sleep(60)

    async with bad_http() as bad:
        bad.acts["GET /ok"] = stream
        async with bench(url_spec(bad.url("/ok"))) as workbench:
            await echo(workbench)
            await until(lambda: bool(bad.gets))
            bad.tools = [{"name": "other", "inputSchema": {}}]
            news.set()
            await until(lambda: len(bad.calls("tools/list")) > 1)


async def test_what_a_server_asks_on_a_stream_is_answered_by_a_post() -> None:
    answered = asyncio.Event()

    async def act(request: Request, out: Hung) -> None:
        ping = b'{"jsonrpc":"2.0","id":"p1","method":"ping"}'
        await out.events(event(ping), end=False)
        await answered.wait()
        await out.more(event(result(request)))
        await out.raw(b"0\r\n\r\n")

    async with bad_http() as bad, bench(url_spec(bad.on("/ask", act))) as workbench:
        waiting = asyncio.ensure_future(echo(workbench, "done"))
        await until(lambda: any(r.body.get("id") == "p1" for r in bad.seen))
        answered.set()
        assert await waiting == "done"


async def test_an_answer_that_breaks_off_is_resumed_where_ids_were_given() -> None:
    asked: list[Request] = []

    async def act(request: Request, out: Hung) -> None:
        asked.append(request)
        await out.events(b"retry: 600\nid: s-1\ndata:\n\n")

    async def resume(request: Request, out: Hung) -> None:
        if "last-event-id" not in request.headers:
            await out.reply(405)
            return
        asked.append(request)
        await out.events(event(result(asked[0]), "s-2"))

    async with bad_http() as bad:
        bad.acts["GET /resume"] = resume
        async with bench(url_spec(bad.on("/resume", act))) as workbench:
            began = asyncio.get_running_loop().time()
            assert await echo(workbench, "late") == "late"
            took = asyncio.get_running_loop().time() - began

    assert asked[1].headers["last-event-id"] == "s-1"
    assert 0.5 < took < 5


async def test_the_old_transport_is_found_and_used() -> None:
    await old_transport("http", "/old")


async def test_the_old_transport_can_be_asked_for() -> None:
    seen = await old_transport("sse", "/old")

    assert seen[0] == "GET"


async def old_transport(transport: Any, path: str) -> list[str]:
    """A server of 2024-11-05: answers come on one stream."""
    out: asyncio.Queue[bytes] = asyncio.Queue()

    async def stream(request: Request, hung: Hung) -> None:
        await hung.events(b"event: endpoint\r\ndata: post?id=1\r\n\r\n", end=False)
        while True:
            await hung.more(event(await out.get()))

    async def refuse(request: Request, hung: Hung) -> None:
        await hung.reply(405, b"Method Not Allowed", "text/plain")

    async def post(request: Request, hung: Hung) -> None:
        await hung.reply(202, b"Accepted", "text/plain")
        answers: dict[str, Any] = {
            "initialize": {"protocolVersion": "2024-11-05", "capabilities": {}},
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {}}]},
        }
        if request.method == "tools/call":
            out.put_nowait(result(request))
        elif request.method in answers:
            out.put_nowait(result(request, json.dumps(answers[request.method]).encode()))

    async def both(request: Request, hung: Hung) -> None:
        await (stream if request.verb == "GET" else refuse)(request, hung)

    async with bad_http() as bad:
        bad.acts = {"/start/old": both, "/start/post?id=1": post}
        spec = url_spec(bad.url("/start/old"), transport=transport)
        async with bench(spec) as workbench:
            assert await echo(workbench, "old") == "old"
            report = await workbench.survey(ServerAddress("dev", "s"))
            assert report.revision == "2024-11-05"
        return [request.verb for request in bad.seen]


async def test_nothing_is_left_behind() -> None:
    async with bad_http() as bad:
        async with bench(url_spec(bad.url("/ok"))) as workbench:
            await echo(workbench)  # with its first connection, libuv opens a descriptor for itself
        await until(lambda: bad.open == 0)
        fds, tasks = open_fds(), len(asyncio.all_tasks())
        for mode in ("session", "modern/sse", "rst", "hang"):
            async with bench(url_spec(bad.url(f"/{mode}"), timeout=0.2)) as workbench:
                calls = [asyncio.ensure_future(echo(workbench)) for _ in range(8)]
                await asyncio.wait(calls)
                for one in calls:
                    one.exception()
        await until(lambda: bad.open == 0)
        await until(lambda: open_fds() <= fds)
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
