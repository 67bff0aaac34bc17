"""Servers behind a URL and the era of their host: when a legacy host gets a legacy session."""

import asyncio
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.kit.clock import PATIENCE
from tests.kit.command import serving
from tests.kit.config import config_file, url_entry
from tests.kit.http_host import Port
from tests.kit.pipe_host import PipeHost
from tests.kit.results import MODERN, texts, use_tool
from tests.kit.servers.bad_http import BadHttp, Hung, Request, bad_http_in_a_thread, event

pytestmark = pytest.mark.usefixtures("forked_commands")

DISCOVER, INITIALIZE = "server/discover", "initialize"
SERVED = {"text": "hi"}


@pytest.fixture
def bad() -> Generator[BadHttp]:
    with bad_http_in_a_thread() as opened:
        yield opened


def answer_get(bad: BadHttp, path: str, status: int) -> str:
    """The URL of a server that answers every GET with this status."""

    async def act(request: Request, out: Hung) -> None:
        if status == 200:
            await out.events(event(b"{}"), end=False)
            await asyncio.sleep(PATIENCE)
        await out.reply(status, b"{}", location="/site")

    bad.acts[f"GET {path}"] = act
    return bad.url(path)


def requests(bad: BadHttp) -> list[str]:
    """What was sent, each by its method or, without one, by its verb."""
    return [request.method or request.verb for request in bad.seen]


def versions(bad: BadHttp) -> list[str]:
    """The revision that each call names."""
    return [call.headers["mcp-protocol-version"] for call in bad.calls()]


def call_once(folder: Path, url: str, *, modern: bool = False) -> None:
    with PipeHost(config_file(folder, {"s": url_entry(url)}), modern=modern) as host:
        if not modern:
            host.initialize()
        assert texts(host.use("s", "echo", SERVED)) == ["hi"]


@pytest.mark.parametrize("status", [400, 401])
def test_a_modern_server_that_misses_a_session_is_met_as_legacy(
    tmp_path: Path, bad: BadHttp, status: int
) -> None:
    call_once(tmp_path, answer_get(bad, "/dual/ok", status))

    assert requests(bad)[:3] == [DISCOVER, "GET", INITIALIZE]
    assert versions(bad) == ["2025-11-25"]


@pytest.mark.parametrize("status", [200, 301, 404, 405, 500])
@pytest.mark.parametrize("path", ["/modern/ok", "/dual/ok"])
def test_a_server_without_legacy_sessions_is_never_sent_initialize(
    tmp_path: Path, bad: BadHttp, path: str, status: int
) -> None:
    call_once(tmp_path, answer_get(bad, path, status))

    assert requests(bad) == [DISCOVER, "GET", "tools/list", "tools/call"]
    assert versions(bad) == [MODERN]
    assert {request.path for request in bad.seen} == {path}  # a redirect of the GET changes nothing


def test_a_server_that_refuses_initialize_after_all_is_met_as_modern(
    tmp_path: Path, bad: BadHttp
) -> None:
    call_once(tmp_path, answer_get(bad, "/modern/ok", 400))

    assert INITIALIZE in requests(bad)
    assert versions(bad) == [MODERN]


@pytest.mark.usefixtures("short_deadlines")
@pytest.mark.parametrize("silent_to", ["GET", INITIALIZE])
def test_a_server_that_is_silent_about_legacy_sessions_is_met_as_modern(
    tmp_path: Path, bad: BadHttp, silent_to: str
) -> None:
    async def act(request: Request, out: Hung) -> None:
        if silent_to in (request.verb, request.method):
            await asyncio.sleep(PATIENCE)
        elif request.verb == "GET":
            await out.reply(400)
        else:
            await bad.good(request, out)

    bad.acts["/start/modern/silent"] = act
    call_once(tmp_path, bad.url("/start/modern/silent"))

    assert "GET" in requests(bad)
    assert versions(bad) == [MODERN]


def test_a_modern_host_gets_a_server_of_both_eras_as_modern_at_once(
    tmp_path: Path, bad: BadHttp
) -> None:
    call_once(tmp_path, answer_get(bad, "/dual/ok", 400), modern=True)

    assert requests(bad) == [DISCOVER, "tools/list", "tools/call"]


def test_a_legacy_server_of_a_legacy_host_is_sent_what_it_was_sent_before(
    tmp_path: Path, bad: BadHttp
) -> None:
    call_once(tmp_path, bad.url("/ok"))

    assert requests(bad)[:2] == [DISCOVER, INITIALIZE]
    assert versions(bad) == ["2025-11-25"]


@pytest.mark.parametrize(
    ("path", "first", "second"),
    [
        ("/dual/ok", [DISCOVER, "GET", INITIALIZE], [INITIALIZE]),
        ("/modern/ok", [DISCOVER, "GET", "tools/list"], [DISCOVER, "tools/list"]),
    ],
)
async def test_the_connections_of_later_legacy_hosts_know_what_the_first_found_out(
    tmp_path: Path, bad: BadHttp, path: str, first: list[str], second: list[str]
) -> None:
    url = answer_get(bad, path, 400 if path == "/dual/ok" else 405)
    config = config_file(tmp_path, {"s": url_entry(url, scope="session")})
    sent: list[list[str]] = []
    with serving(config) as command:
        port = Port(command.port)
        for _ in range(2):
            before = len(bad.seen)
            session = await port.open()
            result = await session.result("tools/call", use_tool("s", "echo", SERVED))
            assert texts(result) == ["hi"]
            sent.append(requests(bad)[before:])
        port.close()

    assert sent[0][: len(first)] == first
    assert sent[1][: len(second)] == second
