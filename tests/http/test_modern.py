"""Modern hosts over HTTP: what their headers must say, and how each POST is answered."""

import asyncio
import base64
import json
from typing import Any

import pytest

from mcp_workbench.server.http.modern import status_of
from mcp_workbench.transport.json_text import DEPTH
from tests.kit.clock import until
from tests.kit.config import snapshot, spec
from tests.kit.http_host import Port, events_of, port, rpc
from tests.kit.results import ENVELOPE, META, MODERN, Message, use_tool

VERSION = META + "protocolVersion"
CAPABILITIES = META + "clientCapabilities"


async def refusal(opened: Port, body: Any, **headers: Any) -> tuple[int, int, Any]:
    told = {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
    told |= {name.replace("_", "-"): value for name, value in headers.items()}
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await opened.ask(data, told)
    assert answer.headers["content-type"] == "application/json"
    assert "mcp-session-id" not in answer.headers
    return answer.status, answer.error["code"], answer.json["id"]


def request(method: str = "tools/list", meta: Message | None = None, **params: Any) -> Message:
    whole = {**params, "_meta": ENVELOPE if meta is None else meta}
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": whole}


async def test_a_request_alone_is_answered_as_plain_json() -> None:
    async with port() as opened:
        answer = await opened.ask_modern("server/discover")

        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.result["supportedVersions"] == [MODERN]
        assert answer.result["resultType"] == "complete"
        assert "mcp-session-id" not in answer.headers


async def test_a_call_reaches_its_server_and_a_session_id_is_ignored() -> None:
    async with port() as opened:
        answer = await opened.ask_modern(
            "tools/call", use_tool("fixture", "echo", {"text": "hello"}), mcp_session_id="nonsense"
        )

        assert answer.json_text["arguments"] == {"text": "hello"}


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (b"{", {}, (400, -32700, None)),
        (b"\xff", {}, (400, -32700, None)),
        ([request()], {}, (400, -32600, None)),
        ({"jsonrpc": "2.0", "id": 7, "result": {}}, {}, (400, -32600, None)),
        ({**request(), "id": 1.5}, {}, (400, -32600, None)),
        ({**request(), "id": None}, {}, (400, -32600, None)),
        ({**request(), "params": []}, {}, (400, -32602, 7)),
        ({"jsonrpc": "2.0", "id": 7, "method": "tools/list"}, {}, (400, -32602, 7)),
        (request(meta={}), {}, (400, -32602, 7)),
        (request(meta={VERSION: MODERN}), {}, (400, -32602, 7)),
        (request(meta={CAPABILITIES: {}}), {}, (400, -32602, 7)),
        # The envelope is judged before the headers, and they before the version.
        (request(meta={}), {"mcp_method": None}, (400, -32602, 7)),
        (request(), {"mcp_method": None}, (400, -32020, 7)),
        (request(), {"mcp_method": "Tools/List"}, (400, -32020, 7)),
        (request(), {"mcp_method": ["tools/list", "tools/list"]}, (400, -32020, 7)),
        (request(), {"mcp_protocol_version": "2031-01-01"}, (400, -32020, 7)),
        (request(), {"mcp_protocol_version": [MODERN, MODERN]}, (400, -32020, 7)),
        (
            request(meta={**ENVELOPE, VERSION: "2031-01-01"}),
            {"mcp_protocol_version": "2031-01-01"},
            (400, -32022, 7),
        ),
        (request("tools/call", name="a"), {"mcp_method": "tools/call"}, (400, -32020, 7)),
        (
            request("tools/call", name="a"),
            {"mcp_method": "tools/call", "mcp_name": "b"},
            (400, -32020, 7),
        ),
        (
            request("tools/call", name="a"),
            {"mcp_method": "tools/call", "mcp_name": ["a", "a"]},
            (400, -32020, 7),
        ),
        (
            request("tools/call", name="a"),
            {"mcp_method": "tools/call", "mcp_name": "=?base64?YR==?="},
            (400, -32020, 7),
        ),
        (
            request("tools/call", name="a"),
            {"mcp_method": "tools/call", "mcp_name": "a"},
            (400, -32602, 7),  # there is no such tool
        ),
        (request("tools/call"), {"mcp_method": "tools/call"}, (400, -32602, 7)),
        (request("nonsense"), {"mcp_method": "nonsense"}, (404, -32601, 7)),
        (request("ping"), {"mcp_method": "ping"}, (404, -32601, 7)),
        (request("initialize"), {"mcp_method": "initialize"}, (404, -32601, 7)),
        (request(cursor="x"), {}, (400, -32602, 7)),
    ],
)
async def test_what_is_wrong_has_its_status_and_its_code(
    body: Any, headers: Message, expected: tuple[int, int, Any]
) -> None:
    async with port() as opened:
        assert await refusal(opened, body, **headers) == expected


CALL = {"mcp_method": "tools/call"}


@pytest.mark.parametrize(
    ("body", "headers", "text"),
    [
        (request(meta={}), {}, "_meta misses 'io.modelcontextprotocol/protocolVersion'"),
        (request(meta={VERSION: 1, CAPABILITIES: {}}), {}, "_meta has no usable form: "),
        ({**request(), "params": []}, {}, "params must be an object"),
        ({**request(), "params": None}, {}, "_meta misses '"),
        (
            request(),
            {"mcp_method": None},
            "Header mismatch: Mcp-Method is missing or differs from the method",
        ),
        (
            request(),
            {"mcp_method": ["tools/list", "tools/list"]},
            "Header mismatch: the header mcp-method came twice",
        ),
        (
            request(),
            {"mcp_protocol_version": "2031-01-01"},
            "Header mismatch: MCP-Protocol-Version differs from the version in _meta",
        ),
        (
            request("tools/call", name="a"),
            CALL,
            "Header mismatch: Mcp-Name is missing or differs from params.name",
        ),
        (
            request("tools/call", name=5),
            {**CALL, "mcp_name": "5"},
            "Header mismatch: Mcp-Name is missing or differs from params.name",
        ),
        (
            request("resources/read", uri=["a"]),
            {"mcp_method": "resources/read", "mcp_name": "a"},
            "Header mismatch: Mcp-Name is missing or differs from params.uri",
        ),
        (request("tools/call", name=5), CALL, "params.name must be a string"),
        (
            request("initialize"),
            {"mcp_method": "initialize"},
            f"Method not found: initialize (gone in {MODERN})",
        ),
    ],
)
async def test_the_error_says_which_header_or_member_it_is(
    body: Any, headers: Message, text: str
) -> None:
    told = {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
    told |= {name.replace("_", "-"): value for name, value in headers.items()}
    async with port() as opened:
        answer = await opened.ask(json.dumps(body).encode(), told)

    assert answer.error["message"].startswith(text)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"result": {"error": {"code": -32601}}}, 200),
        ({"error": {"code": -32601, "message": "m"}}, 404),
        ({"error": {"code": -32700, "message": "m"}}, 400),
        ({"error": {"code": -32600, "message": "m"}}, 400),
        ({"error": {"code": -32021, "message": "m"}}, 400),
        ({"error": {"code": -32022, "message": "m"}}, 400),
        ({"error": {"code": -32602, "message": "m"}}, 400),
        ({"error": {"code": -32020, "message": "m"}}, 400),
        ({"error": {"code": -32603, "message": "m"}}, 200),
        ({"error": {"code": 1, "message": "m"}}, 200),
    ],
)
def test_the_status_of_an_answer_is_that_of_an_error_which_the_request_caused(
    answer: Message, status: int
) -> None:
    frame = json.dumps({"jsonrpc": "2.0", "id": 7, **answer}, separators=(",", ":")).encode()

    assert status_of(frame, b"7") == status


def test_an_error_that_is_too_deep_to_be_read_has_no_status() -> None:
    deep = b"[" * DEPTH + b"]" * DEPTH
    error = b'{"code":-32601,"message":"m","data":%b}' % deep

    assert status_of(b'{"jsonrpc":"2.0","id":7,"error":%b}' % error, b"7") == 200


async def test_an_unknown_version_is_told_which_are_served() -> None:
    async with port() as opened:
        body, headers = opened.modern("tools/list", {"_meta": {VERSION: "2031-01-01"}})
        answer = await opened.ask(body, {**headers, "mcp-protocol-version": "2031-01-01"})

        assert answer.error["data"] == {"supported": [MODERN], "requested": "2031-01-01"}


async def test_a_modern_body_without_the_header_is_a_mismatch() -> None:
    async with port() as opened:
        answer = await opened.ask(json.dumps(request()).encode())

        assert (answer.status, answer.error["code"], answer.json["id"]) == (400, -32020, 7)


async def test_a_name_that_no_header_can_carry_travels_in_base64() -> None:
    name = "wérk \n=?"
    wrapped = f"=?base64?{base64.b64encode(name.encode()).decode()}?="
    async with port() as opened:
        answer = await opened.ask_modern("tools/call", {"name": name}, mcp_name=wrapped)

        assert (answer.status, answer.error["code"]) == (400, -32602)
        assert "wérk" in answer.error["message"]


async def test_a_notification_is_accepted_and_dropped() -> None:
    async with port() as opened:
        told = {"mcp-protocol-version": MODERN, "mcp-method": "notifications/cancelled"}
        answer = await opened.ask(rpc("notifications/cancelled", {"requestId": 1}), told)

        assert (answer.status, answer.body) == (202, b"")


async def test_one_toolbox_has_an_endpoint_that_shows_only_itself() -> None:
    other = spec("other", toolbox="ops")
    async with port(snapshot(spec("fixture"), other)) as opened:
        body, headers = opened.modern("tools/call", use_tool("fixture", "stats"))
        assert (await opened.ask(body, headers, path="/mcp/dev")).json_text["pid"]
        result = (await opened.ask(body, headers, path="/mcp/ops")).result
        assert result["content"][0]["text"] == "Toolbox 'dev' not found"


async def test_progress_turns_the_answer_into_a_stream() -> None:
    async with port() as opened:
        params = {**use_tool("fixture", "progress", {"n": 3}), "_meta": {"progressToken": "p"}}
        answer = await opened.ask_modern("tools/call", params)

        assert answer.status == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["cache-control"] == "no-cache, no-transform"
        assert not any("id" in event for event in events_of(answer.body))
        *notices, last = answer.messages
        assert [n["params"]["progress"] for n in notices] == [0, 1, 2]
        assert {n["params"]["progressToken"] for n in notices} == {"p"}
        assert last["id"] == 1
        assert last["result"]["resultType"] == "complete"


async def test_a_call_that_takes_long_becomes_a_stream_that_shows_life() -> None:
    async with port() as opened:
        peer = await opened.connect()
        peer.send(opened.modern_use("hold", {"key": "k"}))
        await opened.until_asked()
        now = opened.server.now
        opened.front.tick(now + 4)
        opened.front.tick(now + 6)
        assert await peer.head() == (200, peer.headers)
        assert peer.headers["content-type"] == "text/event-stream"
        opened.front.tick(now + 30)

        await opened.ask_modern("tools/call", use_tool("fixture", "release", {"key": "k"}))

        rest = b"".join([part async for part in peer.chunks()])
        assert rest.startswith(b":\n\n")
        assert b"released k" in rest
        await until(lambda: not opened.front.busy)


async def test_closing_the_response_cancels_the_call_at_its_server() -> None:
    async with port() as opened:
        await opened.ask_modern("tools/call", use_tool("fixture", "stats"))
        peer = await opened.connect()
        peer.send(opened.modern_use("hold", {"key": "k"}))
        await until(lambda: opened.front.busy)

        peer.close()
        await until(lambda: not opened.front.busy)

        stats = (await opened.ask_modern("tools/call", use_tool("fixture", "stats"))).json_text
        assert len(stats["cancelled"]) == 1


async def test_two_requests_on_one_connection_are_two_conversations() -> None:
    async with port() as opened:
        peer = await opened.connect()
        body, headers = opened.modern("tools/call", use_tool("fixture", "stats"))
        peer.send(opened.request(body, headers) * 2)

        assert [(await peer.answer()).json["id"] for _ in "ab"] == [1, 1]


async def test_sixty_four_at_once_each_get_their_own_answer() -> None:
    async with port() as opened:
        await opened.ask_modern("tools/call", use_tool("fixture", "stats"))
        peers = [await opened.connect() for _ in range(64)]
        for number, peer in enumerate(peers):
            peer.send(opened.modern_use("echo", {"text": str(number)}))

        answers = await asyncio.gather(*(peer.answer() for peer in peers))

        assert [a.json_text["arguments"]["text"] for a in answers] == [str(n) for n in range(64)]
        await until(lambda: not opened.front.busy)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_a_pretty_printed_body_reaches_a_server_on_a_pipe_as_one_line(end: bytes) -> None:
    async with port() as opened:
        params = use_tool(
            "fixture", "echo", {"text": "a\nb\rc", "list": [1, {"x": 12345678901234567890}]}
        )
        body, headers = opened.modern("tools/call", {**params, "_meta": {"x": {"y": 1}}})
        pretty = json.dumps(json.loads(body), indent=2).encode().replace(b"\n", end)

        answer = await opened.ask(pretty, headers)

        assert answer.json_text["arguments"] == params["arguments"]["arguments"]
        assert (await opened.ask_modern("tools/call", use_tool("fixture", "stats"))).json_text[
            "methods"
        ].count("tools/call") == 2


async def test_a_line_break_inside_a_string_is_not_json() -> None:
    async with port() as opened:
        body, headers = opened.modern("tools/call", use_tool("fixture", "echo", {"text": "a@b"}))
        answer = await opened.ask(body.replace(b"@", b"\n"), headers)

        assert (answer.status, answer.error["code"]) == (400, -32700)


async def test_a_host_that_listens_gets_a_stream_at_once_and_an_end_with_a_result() -> None:
    async with port(snapshot(spec("fixture"), mode="dynamic")) as opened:
        await opened.ask_modern("tools/list")
        peer = await opened.connect()
        wish = {"notifications": {"toolsListChanged": True}}
        peer.send(opened.request(*opened.modern("subscriptions/listen", wish)))
        assert (await peer.head())[1]["content-type"] == "text/event-stream"
        first = await peer.message()
        assert first["method"] == "notifications/subscriptions/acknowledged"

        await opened.ask_modern(
            "tools/call", {"name": "dev__fixture__flip", "arguments": {"name": "new"}}
        )
        changed = await peer.message()
        assert changed["method"] == "notifications/tools/list_changed"
        assert opened.front.busy

        opened.front.stop()
        last = await peer.message()
        assert last["id"] == 2
        assert last["result"]["resultType"] == "complete"
        await until(lambda: not opened.front.busy)
