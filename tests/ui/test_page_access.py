"""Who may see the page: addresses that open it once, cookies, origins, and the header of a write."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.core.spec import HttpSettings
from mcp_workbench.ui.page_sessions import ADDRESS_SECONDS, COOKIE_SECONDS, PageKey
from tests.kit.command import run_command
from tests.kit.http_host import port, rpc
from tests.kit.results import INITIALIZE
from tests.ui.scene import opened_page, page

KEY = b"k" * 32
NOW = 1_800_000_000.0
TOKEN = "a-token-of-thirty-two-characters"
READS = ["", "api/home", "api/events?topics=home", "api/calls", "static/x/app.js"]
WRITES = ["api/call", "api/restart", "api/sign-in", "api/start", "api/switch/apply", "api/undo"]


async def test_an_address_opens_the_page_once() -> None:
    async with page() as visitor:
        address = visitor.routes.address

        first = await visitor.visit(address)
        again = await visitor.visit(address)

        assert (first.status, again.status) == (200, 403)
        assert "set-cookie" not in again.headers


async def test_looking_at_the_head_of_an_address_does_not_use_it_up() -> None:
    async with page() as visitor:
        address = visitor.routes.address

        assert (await visitor.visit(address, method="DELETE")).status == 405
        assert (await visitor.visit(address)).status == 200


async def test_the_cookie_is_for_the_page_alone() -> None:
    async with page() as visitor:
        line = (await visitor.open()).headers["set-cookie"]

        assert "HttpOnly" in line
        assert "SameSite=Strict" in line
        path = re.search(r"Path=(/ui/[\w-]{16}/);", line)
        assert path is not None
        assert "Secure" not in line  # plain loopback


@pytest.mark.parametrize("path", READS)
async def test_without_its_cookie_nothing_is_shown(path: str) -> None:
    async with opened_page() as visitor:
        answer = await visitor.get(path, cookie=None)

        assert answer.status == 401
        assert b"mcp-workbench ui" in answer.body


@pytest.mark.parametrize(
    "cookie",
    ["", "workbench-page=", "workbench-page=x.y.z", "workbench-page=é", "other=1", "{good}x"],
)
async def test_a_cookie_that_we_did_not_make_opens_nothing(cookie: str) -> None:
    async with opened_page() as visitor:
        forged = cookie.replace("{good}", visitor.cookie)
        answer = await visitor.get("api/home", cookie=forged.encode().decode("latin-1"))

        assert answer.status == 401


async def test_two_cookies_of_our_name_are_none() -> None:
    async with opened_page() as visitor:
        both = f"{visitor.cookie}; {visitor.cookie}"

        assert (await visitor.get("api/home", cookie=both)).status == 401
        assert (await visitor.get("api/home", cookie=f"a=b; {visitor.cookie}")).status == 200


async def test_a_token_of_a_host_never_opens_the_page() -> None:
    async with page(http=HttpSettings(token=TOKEN)) as visitor:
        bearer = f"Bearer {TOKEN}"
        inside = visitor.routes._key.path  # pyright: ignore[reportPrivateUsage]

        for path in ("/ui", "/ui/", inside, f"{inside}api/home", f"/ui/open/{TOKEN}"):
            answer = await visitor.visit(path, authorization=bearer)
            assert answer.status in (401, 403), path


async def test_the_cookie_of_the_page_never_opens_mcp() -> None:
    async with opened_page(http=HttpSettings(token=TOKEN)) as visitor:
        body = rpc("initialize", INITIALIZE, 1)
        headers = {"authorization": None, "cookie": visitor.cookie}

        assert (await visitor.port.ask(body, headers)).status == 401
        assert (await visitor.get("api/home")).status == 200


@pytest.mark.parametrize("path", READS)
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
async def test_another_origin_reads_nothing(path: str, origin: str) -> None:
    allowed = HttpSettings(allowed_origins=("https://evil.example",))  # for /mcp, and only there
    async with opened_page(http=allowed) as visitor:
        answer = await visitor.get(path, origin=origin)

        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("path", READS)
async def test_another_site_can_embed_nothing(path: str) -> None:
    async with opened_page() as visitor:
        hidden = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}

        assert (await visitor.get(path, **hidden)).status == 403


async def test_a_foreign_host_name_reaches_nothing() -> None:
    async with opened_page() as visitor:
        assert (await visitor.get("api/home", host="evil.example")).status == 421


async def test_without_tokens_the_page_is_for_loopback_even_where_hosts_come_from_elsewhere() -> (
    None
):
    names = HttpSettings(allowed_hosts=("bench.example",))
    async with opened_page(http=names) as visitor:
        assert (await visitor.get("api/home", host="bench.example")).status == 404
    both = HttpSettings(allowed_hosts=("bench.example",), token=TOKEN)
    async with opened_page(http=both) as visitor:
        assert (await visitor.get("api/home", host="bench.example")).status == 200


async def test_behind_tls_the_page_works_under_its_name_and_for_no_other_origin() -> None:
    both = HttpSettings(allowed_hosts=("bench.example",), token=TOKEN)
    async with opened_page(http=both) as visitor:
        statuses = [
            (await visitor.post("api/start", {}, host="bench.example", origin=origin)).status
            for origin in ("https://bench.example", "https://evil.example", "http://bench.example")
        ]
        hosts = await visitor.port.ask(
            b"{}", {"host": "bench.example", "origin": "https://bench.example"}
        )

        assert statuses == [200, 403, 403]
        assert hosts.status == 403  # `/mcp` is for origins that are listed


async def test_behind_tls_the_cookie_is_secure() -> None:
    both = HttpSettings(allowed_hosts=("bench.example",), token=TOKEN)
    async with page(http=both) as visitor:
        answer = await visitor.visit(visitor.routes.address, host="bench.example")

        assert answer.headers["set-cookie"].startswith("__Secure-workbench-page=")
        assert answer.headers["set-cookie"].endswith("; Secure")


@pytest.mark.parametrize("path", WRITES)
@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("x-workbench-page", None, 403),
        ("origin", None, 403),
        ("origin", "https://evil.example", 403),
        ("cookie", None, 401),
        ("content-type", "text/plain", 415),
        ("content-type", "application/x-www-form-urlencoded", 415),
        ("content-length", "1048577", 413),
    ],
)
async def test_a_write_needs_what_no_form_can_send(
    path: str, header: str, value: str | None, status: int
) -> None:
    async with opened_page() as visitor:
        answer = await visitor.post(path, {}, **{header: value})

        assert answer.status == status


@pytest.mark.parametrize("path", WRITES)
async def test_nothing_is_done_by_reading(path: str) -> None:
    async with opened_page() as visitor:
        assert (await visitor.get(path)).status == 404


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_other_methods_are_refused(method: str) -> None:
    async with opened_page() as visitor:
        answer = await visitor.visit(
            f"{visitor.path}api/home", method=method, cookie=visitor.cookie
        )
        assert answer.status == 405


async def test_every_answer_has_the_policy() -> None:
    async with opened_page() as visitor:
        for path in ("", "api/home", "api/nothing", "nothing"):
            headers = (await visitor.get(path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["x-content-type-options"] == "nosniff"


async def test_where_no_page_is_served_there_is_none() -> None:
    async with port() as opened:
        for path in ("/ui", "/ui/", "/ui/open/x"):
            assert (await opened.ask(method="GET", path=path)).status == 404


# Addresses and cookies by themselves


def test_an_address_is_good_for_two_minutes() -> None:
    key = PageKey(KEY, "a.json")
    code = key.new_address(NOW).removeprefix("/ui/open/")

    assert not key.opens(code, NOW + ADDRESS_SECONDS + 1)
    assert not key.opens(code, NOW - 1)  # the clock was set back
    assert key.opens(code, NOW + ADDRESS_SECONDS - 1)


def test_an_address_from_before_a_start_opens_nothing() -> None:
    code = PageKey(KEY, "a.json").new_address(NOW).removeprefix("/ui/open/")

    assert not PageKey(KEY, "a.json", started=NOW + 1).opens(code, NOW + 2)
    assert PageKey(KEY, "a.json", started=NOW).opens(code, NOW + 2)


@pytest.mark.parametrize("other", [PageKey(b"x" * 32, "a.json"), PageKey(KEY, "b.json")])
def test_what_belongs_to_another_key_or_file_opens_nothing(other: PageKey) -> None:
    key = PageKey(KEY, "a.json")
    cookie = key.new_cookie(NOW, secure=False).split(b" ")[1].rstrip(b";")

    assert key.admits(cookie, NOW)
    assert not other.admits(cookie, NOW)
    assert not other.opens(key.new_address(NOW).removeprefix("/ui/open/"), NOW)
    assert other.path != key.path


def test_an_address_is_no_cookie() -> None:
    key = PageKey(KEY, "a.json")
    code = key.new_address(NOW).removeprefix("/ui/open/")

    assert not key.admits(f"workbench-page={code}".encode(), NOW)


def test_a_cookie_lasts_twelve_hours() -> None:
    key = PageKey(KEY, "a.json")
    cookie = key.new_cookie(NOW, secure=False).split(b" ")[1].rstrip(b";")

    assert key.admits(cookie, NOW + COOKIE_SECONDS)
    assert not key.admits(cookie, NOW + COOKIE_SECONDS + 1)


def test_addresses_are_not_kept_without_end() -> None:
    key = PageKey(KEY, "a.json")
    codes = [key.new_address(NOW).removeprefix("/ui/open/") for _ in range(1025)]

    opened = [key.opens(code, NOW) for code in codes]

    assert opened.count(True) == 1024
    assert key.opens(key.new_address(NOW + 200).removeprefix("/ui/open/"), NOW + 200)


# The commands


def test_the_page_needs_a_port(tmp_path: Path) -> None:
    done = run_command("serve", "--ui", cwd=tmp_path)

    assert done.status == 2
    assert "--ui needs --http" in done.err


def test_nothing_of_the_page_is_loaded_where_none_is_served() -> None:
    import subprocess

    code = (
        "import sys, mcp_workbench.http_app, mcp_workbench.app, mcp_workbench.daemon.lifecycle\n"
        "print([name for name in sys.modules if name.startswith('mcp_workbench.ui')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


async def test_a_second_address_can_be_had_while_the_page_is_open() -> None:
    async with opened_page() as visitor:
        other: dict[str, Any] = (await visitor.visit(visitor.routes.address)).headers

        assert other["set-cookie"].partition(";")[0] != visitor.cookie
