"""The checks at the door: what each refuses, with which status, and in which order."""

from typing import Any

import pytest

from mcp_workbench.core.spec import HttpSettings, Limits
from mcp_workbench.server.http.access import is_loopback, names_of
from tests.kit.config import snapshot, spec
from tests.kit.http_host import ACCEPT, port, rpc

TOKEN = "a-token-of-thirty-two-characters"
ROUTES = ["/mcp", "/mcp/dev", "/healthz", "/readyz", "/nothing"]

# Each check with a request that fails it; a request that fails several is told the first.
WRONG: list[tuple[str, dict[str, Any], int]] = [
    ("host", {"host": "evil.example"}, 421),
    ("origin", {"origin": "https://evil.example"}, 403),
    ("token", {"authorization": None}, 401),
    ("accept", {"accept": "application/json"}, 406),
    ("type", {"content-type": "text/plain"}, 415),
    ("size", {"content-length": "2000"}, 413),
]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1", "localhost:1", "127.0.0.1.evil.example", "", None, "LOCALHOST"],
)
async def test_a_foreign_host_is_misdirected_on_every_route(path: str, host: str | None) -> None:
    async with port() as opened:
        answer = await opened.ask(method="GET", path=path, headers={"host": host})

        assert answer.status in ((421,) if host is not None else (400, 421))


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1", ""])
async def test_a_foreign_origin_is_forbidden_on_every_route(path: str, origin: str) -> None:
    async with port() as opened:
        answer = await opened.ask(method="GET", path=path, headers={"origin": origin})

        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers


async def test_our_own_names_are_known_in_any_case() -> None:
    async with port() as opened:
        number = opened.server.port
        for name in ("localhost", "LocalHost", "127.0.0.1", "[::1]"):
            host = f"{name}:{number}"
            told = {"host": host, "origin": f"http://{host}"}
            assert (await opened.ask(method="GET", path="/healthz", headers=told)).status == 200


@pytest.mark.parametrize("first", range(len(WRONG)))
async def test_the_first_check_that_fails_answers(first: int) -> None:
    limits = Limits(message_bytes=1024)
    configuration = snapshot(spec("fixture"), limits=limits)
    async with port(configuration, HttpSettings(TOKEN)) as opened:
        headers: dict[str, Any] = {"authorization": f"Bearer {TOKEN}"}
        for _, wrong, _ in WRONG[first:]:
            headers |= wrong
        answer = await opened.ask(rpc("initialize", id=1), headers)

        assert answer.status == WRONG[first][2]


@pytest.mark.parametrize("path", ["/mcp", "/mcp/dev", "/mcp/nothing"])
@pytest.mark.parametrize(
    "given", [None, "Bearer wrong", "Basic " + TOKEN, TOKEN, "Bearer", "bearer "]
)
async def test_without_the_token_nobody_is_let_in(path: str, given: str | None) -> None:
    async with port(http=HttpSettings(TOKEN)) as opened:
        answer = await opened.ask(rpc("ping", id=1), {"authorization": given}, path=path)

        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_with_the_token_one_is_let_in_and_health_needs_none() -> None:
    async with port(http=HttpSettings(TOKEN)) as opened:
        session = await opened.open(authorization=f"bearer {TOKEN}")
        assert "tools" in await session.result("tools/list")
        for path in ("/healthz", "/readyz"):
            answer = await opened.ask(method="GET", path=path)
            assert (answer.status, answer.body) == (200, b"ok")


async def test_a_verb_that_is_not_taken_is_named_with_those_that_are() -> None:
    async with port() as opened:
        for verb in ("PUT", "PATCH", "HEAD", "OPTIONS"):
            peer = await opened.connect()
            peer.send(opened.request(method=verb))
            status, headers = await peer.head()
            assert (status, headers["allow"]) == (405, "POST, GET, DELETE")
        for verb in ("GET", "DELETE", "PUT"):
            answer = await opened.ask(method=verb, headers={"mcp-protocol-version": "2026-07-28"})
            assert (answer.status, answer.headers["allow"]) == (405, "POST")
        answer = await opened.ask(rpc("ping"), path="/healthz")
        assert (answer.status, answer.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize(
    "path", ["/", "/mcpx", "/mcp/", "/mcp/nothing", "/mcp/../mcp", "/mcp/%64ev"]
)
async def test_other_paths_lead_nowhere(path: str) -> None:
    async with port() as opened:
        assert (await opened.ask(rpc("ping", id=1), path=path)).status == 404


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        (ACCEPT, 400),  # let in: there is no session
        ("text/event-stream,application/json;q=0.9", 400),
        ("*/*", 400),
        ("application/*, text/*;q=0.1", 400),
        ("application/json", 406),
        ("text/event-stream", 406),
        ("application/json, text/event-stream;q=0", 406),
        ("text/html", 406),
        (None, 406),
        (["application/json", "text/event-stream"], 400),
    ],
)
async def test_both_types_must_be_accepted(accept: Any, status: int) -> None:
    async with port() as opened:
        answer = await opened.ask(rpc("ping", id=1), {"accept": accept})

        assert answer.status == status


@pytest.mark.parametrize("kind", ["text/plain", None, "application/jsonx", "multipart/form-data"])
async def test_what_a_form_can_send_is_not_read(kind: str | None) -> None:
    async with port() as opened:
        answer = await opened.ask(rpc("ping", id=1), {"content-type": kind})

        assert answer.status == 415


async def test_a_content_type_may_have_a_parameter() -> None:
    async with port() as opened:
        kind = {"content-type": "Application/JSON; charset=utf-8"}
        assert (await opened.ask(rpc("ping", id=1), kind)).status == 400


async def test_a_listed_origin_is_named_exactly_and_may_ask_first() -> None:
    page = "https://page.example"
    async with port(http=HttpSettings(allowed_origins=(page,))) as opened:
        asked = {
            "origin": page,
            "access-control-request-method": "POST",
            "access-control-request-headers": "mcp-method, mcp-param-x",
        }
        preflight = await opened.ask(method="OPTIONS", headers=asked)
        answer = await opened.ask(rpc("ping", id=1), {"origin": page})

        assert preflight.status == 204
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert preflight.headers["access-control-allow-headers"] == "mcp-method, mcp-param-x"
        for one in (preflight, answer):
            assert one.headers["access-control-allow-origin"] == page
            assert one.headers["vary"] == "Origin"
            assert "access-control-allow-credentials" not in one.headers


async def test_an_allowed_host_is_exact_and_loopback_needs_none() -> None:
    assert names_of("0.0.0.0", 7411, ("box.example", "other:80")) == {
        "box.example",
        "box.example:7411",
        "other:80",
    }
    assert names_of("127.0.0.1", 80, ()) >= {"localhost", "localhost:80", "[::1]", "127.0.0.1"}
    assert names_of("::1", 1, ()) == {"localhost:1", "[::1]:1", "127.0.0.1:1"}


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("127.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("10.0.0.1", False),
        ("box", False),
    ],
)
def test_only_this_machines_own_addresses_are_loopback(host: str, own: bool) -> None:
    assert is_loopback(host) == own


async def test_every_refusal_at_the_door_is_an_error_that_can_be_read() -> None:
    async with port() as opened:
        answer = await opened.ask(rpc("ping", id=1), {"accept": "text/html"})

        assert answer.headers["content-type"] == "application/json"
        assert answer.json["id"] is None
        assert answer.error["code"] == -32600
