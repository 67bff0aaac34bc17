"""What goes wrong over HTTP costs one call and is named; the server and its neighbours go on."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest

from mcp_workbench.core.spec import Limits
from mcp_workbench.transport.http.client import HttpClient
from mcp_workbench.transport.http.client_response import ExchangeFailed
from mcp_workbench.transport.http.urls import parse_url
from mcp_workbench.transport.jsonrpc import NOTHING
from mcp_workbench.upstream.conversation import Failure, RequestFailed
from mcp_workbench.upstream.http.event_streams import (
    CONNECTS,
    MINUTE,
    SOONEST,
    Pace,
    follow_stream,
)
from mcp_workbench.upstream.http.requests import OutgoingRequest
from mcp_workbench.upstream.subscriptions import LONGEST, SHORTEST
from tests.http_servers.scenes import TOKEN, bench, echo, reason, trouble
from tests.kit.clock import PATIENCE, until
from tests.kit.config import url_spec
from tests.kit.servers.bad_http import MODES, Hung, Request, bad_http, event, result

BROKEN = {
    "rst": ("server_exited", "reset before the response", True),
    "rst_mid": ("server_exited", "in the middle of the response", True),
    "trunc": ("server_exited", "in the middle of the response", True),
    "badgzip": ("server_exited", "compressed response is corrupt", True),
    "cutgzip": ("server_exited", "cut off", True),
    "html": ("protocol_error", "HTTP 200 with text/html", True),
    "notjson": ("protocol_error", "HTTP 200 with application/json", True),
    "wrongid": ("protocol_error", "another request's id", True),
    "nobatch": ("protocol_error", "does not belong to this request", True),
    "twoids": ("protocol_error", "does not belong to this request", True),
    "taken": ("protocol_error", "HTTP 202", True),
    "s401": ("needs_login", '"Authorization": "Bearer ${TOKEN}"', False),
    "s401_meta": ("needs_login", "HTTP 401", False),
    "s403": ("needs_login", "HTTP 403", False),
    "s429": ("rate_limited", "try again in 7 s", False),
    "s503": ("rate_limited", "try again in 9 s", False),
    "s500": ("protocol_error", "HTTP 500 with text/html", True),
    "s502": ("protocol_error", "HTTP 502", True),
    "redir_cross": ("protocol_error", "http://127.0.0.2:1,", False),
    "redir_bad": ("protocol_error", "to no usable address", False),
    "redir_loop": ("protocol_error", "more than 3 times", False),
    "sse_end": ("server_exited", "before it was complete", True),
    "sse_rst": ("server_exited", "in the middle of the response", True),
    "garbage": ("server_exited", "not HTTP", True),
    "headers": ("server_exited", "not HTTP", True),
}


@pytest.mark.fault("F24")
@pytest.mark.parametrize("mode", BROKEN)
@pytest.mark.parametrize("era", ["", "/modern"])
async def test_a_fault_costs_its_call_alone(era: str, mode: str) -> None:
    code, words, may_have_run = BROKEN[mode]
    going, release = asyncio.Event(), asyncio.Event()

    async def act(request: Request, out: Hung) -> None:
        text = request.body["params"]["arguments"]["text"]
        if text == "bad":
            await MODES[mode](request, out)
            return
        going.set()
        await release.wait()
        await out.reply(200, result(request))

    async with bad_http() as bad, bench(url_spec(bad.on(f"{era}/fault", act))) as workbench:
        beside = asyncio.ensure_future(echo(workbench, "fine"))
        await going.wait()
        error = await trouble(workbench, "bad")
        release.set()
        assert await beside == "fine"

    assert error.code == code
    assert words in error.message
    assert error.may_have_run == may_have_run
    assert error.message.endswith("may have run" if may_have_run else "did not run")
    assert TOKEN not in error.message


@pytest.mark.parametrize("form", ["json", "sse"])
async def test_nesting_without_end_is_told_at_once(form: str) -> None:
    async def act(request: Request, out: Hung) -> None:
        answer = result(request, b"[" * 100_000 + b"]" * 100_000)
        if form == "json":
            await out.reply(200, answer)
        else:
            await out.events(event(answer))

    async with bad_http() as bad, bench(url_spec(bad.on("/deep", act))) as workbench:
        assert (await trouble(workbench)).code == "protocol_error"
        bad.acts["/deep"] = bad.good
        assert await echo(workbench) == "hi"


@pytest.mark.fault("F27")
async def test_a_page_is_shown_without_secrets_and_without_control_characters() -> None:
    async with bad_http() as bad, bench(url_spec(bad.url("/html"))) as workbench:
        told = (await trouble(workbench)).message

    assert "<title>Sign in</title>" in told
    assert "[secret:" in told
    assert "\x1b" not in told
    assert len(told) < 400


async def test_an_error_of_the_server_passes_whatever_its_status_and_id() -> None:
    async with bad_http() as bad, bench(url_spec(bad.url("/nullid_error"))) as workbench:
        error = await trouble(workbench)

    assert (error.code, error.message) == ("server_error", "no")


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("s401", "needs login: the server answered HTTP 401"),
        ("s403", "needs login"),
        ("s429", "try again in 7 s"),
        ("s503", "try again in 9 s"),
        ("s500", "HTTP 500"),
        ("html", "Sign in"),
        ("redir_cross", "http://127.0.0.2:1,"),
        ("rst", "reset before the response"),
    ],
)
async def test_a_server_that_can_not_be_met_says_why(mode: str, words: str) -> None:
    async with bad_http() as bad, bench(url_spec(bad.url(f"/start/{mode}"))) as workbench:
        assert words in await reason(workbench)
        asked = [request.method for request in bad.seen]

    if mode in ("s401", "s403", "s429", "s503"):  # none of them says anything about an era
        assert asked == ["server/discover"]


async def test_credentials_that_are_refused_are_told_apart() -> None:
    async with bad_http() as bad:
        spec = url_spec(bad.url("/start/s401"), headers=(("Authorization", "Bearer ${TOKEN}"),))
        async with bench(spec) as workbench:
            told = await reason(workbench)

    assert "refused the credentials" in told
    assert TOKEN not in told


async def test_a_server_that_wants_to_be_left_alone_is_left_alone() -> None:
    async with bad_http() as bad, bench(url_spec(bad.url("/s429"))) as workbench:
        for _ in range(5):
            assert (await trouble(workbench)).code == "rate_limited"
        assert len(bad.calls()) == 1


async def test_nobody_there_and_no_such_host_are_told() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    specs = (
        url_spec(f"http://127.0.0.1:{port}/mcp", "refused"),
        url_spec("http://no-such-host.invalid/mcp", "unknown"),
    )
    async with bench(*specs) as workbench:
        assert await reason(workbench, "refused") == f"connection refused by 127.0.0.1:{port}"
        assert "can't resolve no-such-host.invalid" in await reason(workbench, "unknown")


async def test_a_server_that_speaks_no_tls_is_told() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with bench(url_spec(f"https://127.0.0.1:{port}/mcp")) as workbench:
        assert "TLS handshake failed" in await reason(workbench)
    server.close()


async def test_a_server_that_is_away_for_a_while_is_called_again() -> None:
    async with bad_http() as bad:
        async with bench(url_spec(bad.url("/rst"))) as workbench:
            assert (await trouble(workbench)).code == "server_exited"
            bad.acts["/rst"] = bad.good
            assert await echo(workbench) == "hi"
        assert len(bad.calls("initialize")) == 1


# Sessions


async def test_a_forgotten_session_is_opened_anew_and_nobody_notices() -> None:
    async with bad_http() as bad, bench(url_spec(bad.url("/session"))) as workbench:
        await echo(workbench)
        bad.sessions = {"x", "y"}  # as after a restart
        answers = await asyncio.gather(*(echo(workbench, str(n)) for n in range(5)))
        assert answers == list("01234")
        assert len(bad.calls("initialize")) == 2
        assert bad.calls()[-1].headers["mcp-session-id"] == "session-2"
        await until(lambda: len(bad.calls("tools/list")) > 1)  # it may offer other tools now


async def test_a_call_that_learns_late_of_the_lost_session_uses_the_new_one() -> None:
    release = asyncio.Event()

    async def act(request: Request, out: Hung) -> None:
        if request.body["params"]["arguments"]["text"] == "late" and not release.is_set():
            await release.wait()
        await bad.good(request, out)

    async with bad_http() as bad, bench(url_spec(bad.on("/session", act))) as workbench:
        await asyncio.gather(echo(workbench), echo(workbench))  # two connections
        bad.sessions = {"x", "y"}  # as after a restart
        late = asyncio.ensure_future(echo(workbench, "late"))
        await until(lambda: len(bad.calls()) == 3)
        assert await echo(workbench, "soon") == "soon"
        release.set()
        assert await late == "late"

        assert len(bad.calls("initialize")) == 2


async def test_a_session_that_is_forgotten_again_and_again_is_lost() -> None:
    async def never(request: Request, out: Hung) -> None:
        await out.reply(404, b"no such session", "text/plain")

    async with bad_http() as bad, bench(url_spec(bad.on("/session/s404", never))) as workbench:
        error = await trouble(workbench)

        assert error.code == "session_lost"
        assert not error.may_have_run
        assert len(bad.calls()) == 2
        assert len(bad.calls("initialize")) == 2


async def test_a_call_that_is_cancelled_before_its_task_runs_ends_its_connection() -> None:
    async def read() -> None:
        """Reads the response, if it ever runs."""

    async with bad_http() as bad, asyncio.timeout(PATIENCE):
        client = HttpClient(parse_url(bad.url("/")), {})
        await client.reach()
        head = client.head(b"POST /hang", b"")
        request = OutgoingRequest(1, "tools/call", b"{}", NOTHING)
        request.response = client.send_now(head, b'{"method":"tools/call"}')
        request.task = asyncio.ensure_future(read())
        request.stop()

        await until(lambda: bad.dropped == ["/hang"])
        client.close()


async def test_a_session_that_can_not_be_replaced_is_lost() -> None:
    async def act(request: Request, out: Hung) -> None:
        if request.method == "initialize" and len(bad.calls("initialize")) > 1:
            error = b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32000,"message":"closed"}}'
            await out.reply(200, error % request.body["id"])
        else:
            await bad.good(request, out)

    async with bad_http() as bad:
        bad.acts["/start/session"] = act
        async with bench(url_spec(bad.url("/start/session"), era="legacy")) as workbench:
            await echo(workbench)
            bad.sessions = {"x"}  # as after a restart
            error = await trouble(workbench)

    assert (error.code, error.may_have_run) == ("session_lost", False)
    assert "the server lost the session and opens no other" in error.message


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_an_address_that_has_moved_for_good_is_remembered(status: int) -> None:
    async def act(request: Request, out: Hung) -> None:
        await out.reply(status, location="/ok")

    async with bad_http() as bad:
        bad.acts["/start/moved"] = act
        async with bench(url_spec(bad.url("/start/moved"), era="legacy")) as workbench:
            for text in ("one", "two"):
                assert await echo(workbench, text) == text
        asked = [request.path for request in bad.seen if request.verb == "POST"]

    assert asked[:2] == ["/start/moved", "/ok"]
    again = asked.count("/start/moved")
    assert again == (1 if status in (301, 308) else asked.count("/ok"))


# Sizes

SMALL = Limits(message_bytes=1 << 20)


def rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("mode", ["gzbomb", "endless_sse", "bigsse", "bigjson"])
async def test_what_is_too_large_ends_the_call_and_takes_no_memory(mode: str) -> None:
    async with bad_http() as bad, bench(url_spec(bad.url(f"/{mode}")), limits=SMALL) as workbench:
        before = rss()
        error = await trouble(workbench)

        assert error.code == "too_large"
        assert "limits.messageBytes" in error.message
        assert rss() - before < 64 << 20


@pytest.mark.fault("F28")
async def test_a_decompression_bomb_is_stopped_below_the_usual_limit_too() -> None:
    async with bad_http() as bad, bench(url_spec(bad.url("/gzbomb"))) as workbench:
        before = rss()
        assert (await trouble(workbench)).code == "too_large"
        assert rss() - before < 64 << 20


@pytest.mark.parametrize("mode", ["bigsse", "bigjson"])
async def test_two_megabytes_pass_in_either_form(mode: str) -> None:
    async with bad_http() as bad, bench(url_spec(bad.url(f"/{mode}"))) as workbench:
        assert len(await echo(workbench)) == 2 << 20


async def test_a_host_that_does_not_read_holds_the_server_and_not_our_memory() -> None:
    sent = 0

    async def act(request: Request, out: Hung) -> None:
        nonlocal sent
        note = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"%b"}}'
        await out.events(end=False)
        for _ in range(400):
            await out.more(event(note % (b"x" * 65536)))
            sent += 1
        await out.more(event(result(request)))
        await out.raw(b"0\r\n\r\n")

    async with bad_http() as bad, bench(url_spec(bad.on("/flood", act))) as workbench:
        await workbench.view.open("dev")
        workbench.gateway.hold(True)
        waiting = asyncio.ensure_future(echo(workbench))
        await until(lambda: sent > 0)
        before = -1
        while sent > before:  # the server writes on this loop: it stops where nobody reads
            before = sent
            for _ in range(20):
                await asyncio.sleep(0.001)
        assert sent < 300
        workbench.gateway.hold(False)
        assert await waiting == "hi"


@pytest.mark.parametrize("status", [200, 404, 503])
async def test_an_answer_that_breaks_off_and_is_not_resumed_is_told(status: int) -> None:
    async def resume(request: Request, out: Hung) -> None:
        if "last-event-id" in request.headers:
            await out.reply(status, b"{}")
        else:
            await out.reply(405)

    async with bad_http() as bad:
        bad.acts["GET /sse_id_end"] = resume
        async with bench(url_spec(bad.url("/sse_id_end"))) as workbench:
            error = await trouble(workbench)

    assert (error.code, error.may_have_run) == ("server_exited", True)
    assert "the server ended its response early and does not resume it" in error.message


# Storms


def failed(code: str, *, may_have_run: bool) -> RequestFailed:
    return RequestFailed(Failure(code, "no", may_have_run=may_have_run))


@pytest.mark.parametrize(
    ("outcome", "opened"),
    [
        (False, 1),
        (failed("protocol_error", may_have_run=False), 1),
        (True, 3),
        (failed("rate_limited", may_have_run=False), 3),
        (failed("protocol_error", may_have_run=True), 3),
        (ExchangeFailed("reset"), 3),
    ],
    ids=["ended", "refused", "cut", "busy", "broken", "reset"],
)
async def test_a_stream_is_opened_again_unless_it_is_refused_for_good(
    outcome: bool | Exception, opened: int
) -> None:
    times = 0

    async def once() -> bool:
        nonlocal times
        times += 1
        if times == 3:
            return False
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    pace = Pace()
    pace.delay = lambda failures, now: 0.0
    async with asyncio.timeout(PATIENCE):
        again = [one async for one in follow_stream(once, pace)]

    assert times == opened
    assert again == [True] * (opened - 1)


@pytest.mark.fault("F22")
async def test_a_stream_that_ends_at_once_is_not_opened_in_a_storm() -> None:
    opened: list[float] = []

    async def stream(request: Request, out: Hung) -> None:
        opened.append(time.monotonic())
        await out.events(b"retry: 0\nid: 1\ndata:\n\n")

    async with bad_http() as bad:
        bad.acts["GET /ok"] = stream
        async with bench(url_spec(bad.url("/ok"))) as workbench:
            await echo(workbench)
            await until(lambda: len(opened) == 3)

    first, second, third = opened
    assert second - first >= SHORTEST * 0.9
    assert third - second >= SHORTEST * 1.9


@pytest.mark.fault("F22")
async def test_a_stream_that_is_refused_is_not_opened_again() -> None:
    async with bad_http() as bad:
        async with bench(url_spec(bad.url("/ok"))) as workbench:
            await echo(workbench)
            await until(lambda: bool(bad.gets))
            await asyncio.sleep(SHORTEST * 2)
        assert len(bad.gets) == 1


async def test_an_answer_that_is_never_finished_is_resumed_slowly_until_its_deadline() -> None:
    async def resume(request: Request, out: Hung) -> None:
        await out.events(b"retry: 0\nid: 1\ndata:\n\n")

    async with bad_http() as bad:
        bad.acts["GET /sse_id_end"] = resume
        async with bench(url_spec(bad.url("/sse_id_end"), timeout=1.0)) as workbench:
            assert (await trouble(workbench)).code == "timeout"
            assert len(bad.gets) <= CONNECTS


@pytest.mark.fault("F22")
def test_streams_are_opened_six_times_a_minute_at_most() -> None:
    pace, now, opened = Pace(), 0.0, list[float]()
    pace.retry = 0
    while now < 600:
        pace.opened(now)
        opened.append(now)
        now += pace.delay(0, now)

    for start in opened:
        assert sum(start <= t < start + MINUTE for t in opened) <= CONNECTS


@pytest.mark.parametrize(("retry", "pause"), [(0, SHORTEST), (5000, 5), (10**8, LONGEST)], ids=str)
def test_a_server_may_ask_for_a_pause_within_reason(retry: int, pause: float) -> None:
    pace = Pace()
    pace.retry = retry

    assert pace.delay(0, time.monotonic()) == pause


@pytest.mark.parametrize(
    ("retry", "pause"), [(None, SHORTEST), (0, SOONEST), (500, 0.5), (5000, 5), (10**8, LONGEST)]
)
def test_the_rest_of_an_answer_is_asked_for_sooner(retry: int | None, pause: float) -> None:
    assert Pace().resumption(retry, 0.0) == pause


@pytest.mark.fault("F22")
def test_the_rest_of_an_answer_is_no_way_to_a_storm() -> None:
    pace, now, opened = Pace(), 0.0, list[float]()
    while now < 600:
        pace.opened(now)
        opened.append(now)
        now += pace.resumption(0, now)

    for start in opened:
        assert sum(start <= t < start + MINUTE for t in opened) <= CONNECTS


def test_failures_make_the_pauses_longer() -> None:
    pauses = [Pace().delay(n, 0.0) for n in range(9)]

    assert pauses == [*(SHORTEST * 2**n for n in range(6)), LONGEST, LONGEST, LONGEST]


# The old transport


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"event: endpoint\ndata: http://127.0.0.2:1/steal\n\n", "http://127.0.0.2:1,"),
        (b"event: endpoint\ndata: //127.0.0.2:1/steal\n\n", "http://127.0.0.2:1,"),
        (b"event: endpoint\ndata: ftp://x/\n\n", "no usable address"),
        (b"event: endpoint\ndata: /%s\n\n" % (b"x" * 8192), "of 8193 bytes; 8192 are allowed"),
    ],
)
async def test_an_address_elsewhere_is_not_posted_to(first: bytes, words: str) -> None:
    async def stream(request: Request, out: Hung) -> None:
        await out.events(first, end=False)
        await asyncio.sleep(60)

    async with bad_http() as bad:
        bad.acts["/start/old"] = stream
        async with bench(url_spec(bad.url("/start/old"), transport="sse")) as workbench:
            assert words in await reason(workbench)
        assert {request.verb for request in bad.seen} == {"GET"}


async def test_a_url_without_a_stream_of_events_says_so() -> None:
    async with bad_http() as bad, bench(url_spec(bad.url("/ok"), transport="sse")) as workbench:
        assert "HTTP 405" in await reason(workbench)
