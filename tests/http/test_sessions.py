"""Legacy hosts over HTTP: sessions, streams, and what happens when a connection breaks."""

import asyncio
import json

import pytest

from mcp_workbench.core.spec import HttpSettings, Limits
from mcp_workbench.server.http import sessions
from mcp_workbench.server.http.access import Access, Principals
from tests.kit.clock import until
from tests.kit.config import snapshot, spec
from tests.kit.http_host import Answer, OwnPort, Session, events_of, port, rpc
from tests.kit.results import use_tool

PROGRESS = {"_meta": {"progressToken": "p"}}


async def test_a_session_is_opened_used_and_ended() -> None:
    async with port() as opened:
        session = await opened.open()

        assert len(session.id) >= 22  # 128 bits in base64
        assert session.id.isascii()
        assert session.id.isprintable()
        assert (await session.use("echo", {"text": "x"})).json_text["arguments"] == {"text": "x"}
        assert (await session.post(b"", method="DELETE")).status == 200
        for method in ("POST", "GET", "DELETE"):
            assert (await session.post(session.ask("ping"), method=method)).status == 404


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_request_needs_a_session_that_exists(method: str) -> None:
    async with port() as opened:
        body = rpc("tools/list", id=3) if method == "POST" else b""
        missing = await opened.ask(body, method=method)
        unknown = await opened.ask(body, {"mcp-session-id": "x" * 32}, method=method)

        assert (missing.status, unknown.status) == (400, 404)
        if method == "POST":
            assert missing.json["id"] == unknown.json["id"] == 3


async def test_a_session_belongs_to_its_endpoint_and_to_who_opened_it() -> None:
    async with port(snapshot(spec("fixture"), spec("o", toolbox="ops"))) as opened:
        session = await opened.open(path="/mcp/dev")
        assert (await session.post(session.ask("ping"))).status == 200
        for path in ("/mcp", "/mcp/ops"):
            session.path = path
            assert (await session.post(session.ask("ping"))).status == 404
    tokens = ("one" * 12, "two" * 12)
    async with port(http=HttpSettings(tokens[0])) as opened:
        session = await opened.open(authorization=f"Bearer {tokens[0]}")
        opened.front.access = Access(frozenset({opened.name}), principals=Principals(tokens[1]))
        session.headers["authorization"] = f"Bearer {tokens[1]}"
        assert (await session.post(session.ask("ping"))).status == 404


async def test_an_answer_is_accepted_and_errors_of_a_conversation_have_status_200() -> None:
    async with port() as opened:
        session = await opened.open()
        accepted = await session.post(
            json.dumps({"jsonrpc": "2.0", "id": 9, "result": {}}).encode()
        )
        unknown = await session.post(session.ask("nonsense"))

        assert (accepted.status, accepted.body) == (202, b"")
        assert (unknown.status, unknown.error["code"]) == (200, -32601)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[" * 100_000, -32700),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
    ],
)
async def test_what_is_no_message_is_refused(body: bytes, code: int) -> None:
    async with port() as opened:
        session = await opened.open()
        answer = await session.post(body)

        assert (answer.status, answer.error["code"]) == (400, code)


async def test_an_id_that_is_in_use_is_refused_where_it_came_from() -> None:
    async with port() as opened:
        session = await opened.open()
        first = await session.begin("hold", {"key": "k"})
        await opened.until_asked()
        again = await session.post(rpc("ping", id=1))
        await session.use("release", {"key": "k"})

        assert (again.status, again.error["code"]) == (400, -32600)
        assert (await first.answer()).json_text == "released k"


@pytest.mark.fault("F39")
async def test_initialize_that_is_refused_opens_nothing() -> None:
    async with port() as opened:
        answer = await opened.ask(b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":[]}')

        assert answer.error["code"] == -32602
        assert "mcp-session-id" not in answer.headers


@pytest.mark.parametrize("told", [None, "2025-06-18", "2025-03-26"])
async def test_the_revision_is_the_negotiated_one_whatever_the_header_says(
    told: str | None,
) -> None:
    async with port() as opened:
        session = await opened.open()
        session.headers["mcp-protocol-version"] = told

        assert "tools" in await session.result("tools/list")


# Streams


def ids(answer: Answer) -> list[str]:
    return [event["id"] for event in events_of(answer.body)]


async def test_progress_streams_with_ids_that_name_their_stream() -> None:
    async with port() as opened:
        session = await opened.open()
        await session.use("stats")
        answer = await session.use("progress", {"n": 3}, **PROGRESS)
        second = await session.use("progress", {"n": 1}, **PROGRESS)

        first, *_ = events_of(answer.body)
        assert (first["retry"], first["data"]) == ("1000", "")
        stream = first["id"].partition("-")[0]
        assert ids(answer) == [f"{stream}-{n}" for n in range(5)]
        assert not set(ids(answer)) & set(ids(second))
        assert [m["method"] for m in answer.messages[:-1]] == ["notifications/progress"] * 3
        assert answer.messages[-1]["id"] == 2


async def test_an_older_host_gets_no_event_without_data() -> None:
    async with port() as opened:
        session = await opened.open("2025-06-18")
        answer = await session.use("progress", {"n": 2}, **PROGRESS)

        events = events_of(answer.body)
        assert all(event["data"] for event in events)
        assert [event.get("retry") for event in events] == ["1000", None, None]


async def hold(session: Session, key: str = "k") -> str:
    """A call that waits, whose stream has begun and then broken; its last event's id."""
    peer = await session.begin("hold", {"key": key})
    assert isinstance(session.port, OwnPort)
    await session.port.until_asked()
    session.port.front.tick(session.port.server.now + 6)
    await peer.head()
    event = await peer.event()
    peer.close()
    connections = session.port.server.connections
    await until(lambda: len(connections) < len(session.port.peers))
    return event["id"]


async def test_a_lost_connection_is_no_cancel_and_the_result_waits() -> None:
    async with port() as opened:
        session = await opened.open()
        last = await hold(session)
        await session.use("release", {"key": "k"})
        assert (await session.use("stats")).json_text["cancelled"] == []

        resumed = await session.listen(last)
        message = await resumed.message()
        assert message["id"] == 1
        assert "released k" in message["result"]["content"][0]["text"]
        assert await resumed.reader.readline() == b"0\r\n"


async def test_a_stream_can_be_resumed_before_its_answer_and_only_from_where_it_broke() -> None:
    async with port() as opened:
        session = await opened.open()
        last = await hold(session)
        resumed = await session.listen(last)
        await session.use("release", {"key": "k"})
        event = await resumed.event()
        again = await session.listen(last)

        assert json.loads(event["data"])["id"] == 1
        assert event == await again.event()
        after = await session.listen(event["id"])
        assert await after.reader.readline() == b"0\r\n"


async def test_what_was_not_fetched_in_time_is_dropped() -> None:
    async with port() as opened:
        session = await opened.open()
        last = await hold(session)
        await session.use("release", {"key": "k"})
        now = opened.server.now
        opened.front.tick(now + sessions.KEPT - 1)
        assert await (await session.listen(last)).message()
        opened.front.tick(now + sessions.KEPT + 10)

        answer = await session.post(b"", method="GET", last_event_id=last)
        assert answer.status == 400


@pytest.mark.parametrize("last", ["nonsense", "1", "-1", "1-", "1-x", "99-1", "1-" + "9" * 60])
async def test_an_event_that_never_was_is_refused(last: str) -> None:
    async with port() as opened:
        session = await opened.open()
        answer = await session.post(b"", method="GET", last_event_id=last)

        assert answer.status == 400


async def test_a_host_cannot_resume_a_stream_of_another_session() -> None:
    async with port() as opened:
        mine, other = await opened.open(), await opened.open()
        last = await hold(mine)
        answer = await other.post(b"", method="GET", last_event_id=last)

        assert answer.status == 400
        await mine.use("release", {"key": "k"})


async def test_the_standalone_stream_carries_what_belongs_to_no_request() -> None:
    async with port(snapshot(spec("fixture"), mode="dynamic")) as opened:
        session = await opened.open()
        listening = await session.listen()
        assert (await listening.event())["data"] == ""
        await session.result(
            "tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}
        )
        assert (await listening.message())["method"] == "notifications/tools/list_changed"


async def test_a_second_get_takes_the_place_of_the_first() -> None:
    async with port(snapshot(spec("fixture"), mode="dynamic")) as opened:
        session = await opened.open()
        first = await session.listen()
        await first.event()
        second = await session.listen()
        await second.event()
        assert await first.reader.readline() == b"0\r\n"
        await session.result(
            "tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}
        )
        assert "list_changed" in (await second.message())["method"]


async def test_what_nobody_heard_on_the_standalone_stream_is_told_to_the_next_listener() -> None:
    async with port(snapshot(spec("fixture"), mode="dynamic")) as opened:
        session = await opened.open()
        await session.result(
            "tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}
        )
        listening = await session.listen()
        assert "list_changed" in (await listening.message())["method"]


async def test_a_get_must_accept_events() -> None:
    async with port() as opened:
        session = await opened.open()
        answer = await session.post(b"", method="GET", accept="application/json")

        assert answer.status == 406


async def test_a_cancelled_request_is_not_answered_and_its_post_ends() -> None:
    async with port() as opened:
        session = await opened.open()
        await session.use("stats")
        peer = await session.begin("hold", {"key": "k"})
        await until(lambda: opened.front.busy)
        told = await session.post(rpc("notifications/cancelled", {"requestId": 2}))
        answer = await peer.answer()

        assert told.status == 202
        assert (answer.status, answer.messages) == (200, [])
        assert len((await session.use("stats")).json_text["cancelled"]) == 1


async def test_ending_a_session_cancels_its_calls_and_ends_its_streams() -> None:
    async with port() as opened:
        session, other = await opened.open(), await opened.open()
        await other.use("stats")
        listening = await session.listen()
        await listening.event()
        waiting = await session.begin("hold", {"key": "a"})
        streaming = await session.begin("hold", {"key": "b"})
        await until(lambda: opened.front.busy)
        await session.post(b"", method="DELETE")

        assert (await waiting.answer()).status == 404
        assert (await streaming.answer()).status == 404
        assert await listening.reader.readline() == b"0\r\n"
        assert len((await other.use("stats")).json_text["cancelled"]) == 2


# Bounds


@pytest.mark.fault("F39")
async def test_an_idle_session_ends_and_one_that_listens_does_not() -> None:
    async with port() as opened:
        idle, listens = await opened.open(), await opened.open()
        stream = await listens.listen()
        await stream.event()
        now = opened.server.now
        for minute in range(32):
            opened.front.tick(now + 60 * minute)

        assert (await idle.post(idle.ask("ping"))).status == 404
        assert (await listens.post(listens.ask("ping"))).status == 200


async def test_a_session_is_idle_from_the_end_of_its_last_call_on() -> None:
    async with port() as opened:
        session = await opened.open()
        peer = await session.begin("hold", {"key": "k"})
        await until(lambda: opened.front.busy)
        now = opened.server.now
        clock = opened.server._timer  # pyright: ignore[reportPrivateUsage]
        assert clock is not None
        clock.cancel()  # time is what we say
        for minute in range(50):
            opened.front.tick(now + 60 * minute)
        other = await opened.open()
        await other.use("release", {"key": "k"})
        assert (await peer.answer()).status == 200
        for minute in range(50, 70):
            opened.front.tick(now + 60 * minute)

        assert (await session.post(session.ask("ping"))).status == 200


async def test_sessions_that_were_ended_leave_nothing_behind() -> None:
    async with port() as opened:
        lasting = await opened.open()
        for _ in range(200):
            session = await opened.open()
            assert (await session.post(b"", "DELETE")).status == 200
            opened.close()

        assert len(opened.front._sessions._expiries) < 100  # pyright: ignore[reportPrivateUsage]
        now = opened.server.now
        opened.front.tick(now + sessions.IDLE - 60)
        assert (await lasting.post(lasting.ask("ping"))).status == 200
        for minute in range(1, 3):
            opened.front.tick(now + minute * sessions.IDLE)
        assert (await lasting.post(lasting.ask("ping"))).status == 404


@pytest.mark.fault("F39")
async def test_sessions_are_bounded() -> None:
    async with port(snapshot(spec("fixture"), limits=Limits(sessions=2))) as opened:
        first, _ = await opened.open(), await opened.open()
        full = await opened.ask(rpc("initialize", {"protocolVersion": "2025-11-25"}, 1))
        assert (full.status, full.headers["retry-after"]) == (503, "60")
        await first.post(b"", method="DELETE")
        await opened.open()


@pytest.mark.fault("F39")
async def test_what_opens_no_conversation_leaves_no_session() -> None:
    async with port(snapshot(spec("fixture"), limits=Limits(sessions=1))) as opened:
        for _ in range(50):
            for method in ("GET", "PUT", "OPTIONS", "DELETE"):
                assert (await opened.ask(method=method)).status >= 400
            peer = await opened.connect()
            peer.send(opened.request(method="HEAD"))  # whose answer has no body
            assert (await peer.reader.readline()).split()[1] == b"405"
            peer.close()
            assert (await opened.ask(b"{not json")).status == 400
            assert (await opened.ask(rpc("tools/list", {}, 1))).status == 400

        await opened.open()  # there is still room for the one


async def test_events_kept_for_a_host_that_does_not_come_are_bounded() -> None:
    async with port() as opened:
        session = await opened.open()
        peer = await session.begin("progress", {"n": 1000}, **PROGRESS)
        peer.close()
        await until(lambda: not opened.front.busy)
        answer = await session.use("progress", {"n": 600}, **PROGRESS)
        stream = ids(answer)[0].partition("-")[0]

        resumed = await session.listen(f"{stream}-0")
        kept = [part async for part in resumed.chunks()]
        assert len(kept) == 256
        assert b'"id":2' in kept[-1]


# Batches


async def test_a_batch_is_answered_as_one_where_the_revision_has_them() -> None:
    async with port() as opened:
        session = await opened.open("2025-03-26")
        batch = [
            json.loads(rpc("ping", id=1)),
            json.loads(rpc("notifications/roots/list_changed")),
            json.loads(rpc("tools/call", use_tool("fixture", "echo", {"text": "x"}), "two")),
            json.loads(rpc("nonsense", id=3)),
        ]
        answer = await session.post(json.dumps(batch, indent=1).encode())

        assert answer.status == 200
        by_id = {message["id"]: message for message in answer.json}
        assert by_id.keys() == {1, "two", 3}
        assert by_id[3]["error"]["code"] == -32601


async def test_a_batch_with_progress_is_a_stream_with_every_answer() -> None:
    async with port() as opened:
        session = await opened.open("2025-03-26")
        batch = [
            json.loads(rpc("ping", id=1)),
            json.loads(
                rpc("tools/call", {**use_tool("fixture", "progress", {"n": 2}), **PROGRESS}, 2)
            ),
        ]
        answer = await session.post(json.dumps(batch).encode())

        assert answer.headers["content-type"] == "text/event-stream"
        assert [m.get("id") for m in answer.messages] == [1, None, None, 2]


@pytest.mark.parametrize(
    "batch",
    [
        [],
        [rpc("ping", id=1), rpc("ping", id=1)],
        [rpc("initialize", id=1)],
        [b"1"],
        [rpc("ping", id=n) for n in range(1001)],
    ],
)
async def test_a_batch_that_makes_no_sense_is_refused_whole(batch: list[bytes]) -> None:
    async with port() as opened:
        session = await opened.open("2025-03-26")
        answer = await session.post(b"[" + b",".join(batch) + b"]")

        assert (answer.status, answer.error["code"]) == (400, -32600)


async def test_a_batch_of_notifications_is_accepted() -> None:
    async with port() as opened:
        session = await opened.open("2025-03-26")
        answer = await session.post(b"[" + rpc("notifications/initialized") + b"]")

        assert (answer.status, answer.body) == (202, b"")


async def test_sixty_four_at_once_in_one_session() -> None:
    async with port() as opened:
        session = await opened.open()
        await session.use("stats")
        calls = [session.use("echo", {"text": str(n)}) for n in range(64)]

        answers = await asyncio.gather(*calls)

        assert [a.json_text["arguments"]["text"] for a in answers] == [str(n) for n in range(64)]
        assert not opened.front.busy
