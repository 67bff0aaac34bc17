"""What a hostile server, or very many requests, make of the page and of the metrics."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import warnings
from pathlib import Path

import msgspec
import pytest

from mcp_workbench.core.catalogue import MOST_WEIGHED, definition_tokens
from mcp_workbench.core.lock_states import launch_hash
from mcp_workbench.core.spec import (
    HttpSettings,
    LockedServer,
    LockFile,
    ServerAddress,
    ServerSpec,
    StdioCommand,
)
from mcp_workbench.server.http import metrics_route
from mcp_workbench.ui import page_api, page_locks
from tests.fuzz.material import ODD
from tests.kit.clock import until
from tests.kit.config import snapshot, spec
from tests.kit.http_host import Answer, Peer
from tests.threats import worst
from tests.threats.growth import peak
from tests.ui.scene import Visitor, opened_page

LISTING = str(Path(__file__).with_name("listing_server.py"))
LONG = 2 << 20  # bytes of a description, half as many again in JSON
SPARE = 1 << 20


def listing(**wishes: object) -> ServerSpec:
    command = StdioCommand(sys.executable, ("-E", "-S", LISTING, json.dumps(wishes)))
    return ServerSpec(ServerAddress("dev", "a"), command, era="legacy")


async def at_the_same_moment(visitor: Visitor, path: str, count: int) -> list[Answer]:
    """Requests on as many connections, all of them sent in one turn of the loop."""
    peers = [await visitor.port.connect() for _ in range(count)]
    headers = {"cookie": visitor.cookie, "accept": "text/html", "content-type": None}
    for peer in peers:
        peer.send(visitor.port.request(b"", headers, method="GET", path=path))
    return [await peer.answer() for peer in peers]


async def test_requests_of_one_moment_are_counted_before_they_begin() -> None:
    async with opened_page() as visitor:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            answers = await at_the_same_moment(
                visitor, f"{visitor.path}api/home", page_api.AT_ONCE + 8
            )
            gc.collect()
        again = await visitor.api("home")

    assert sorted({answer.status for answer in answers}) == [200, 503]
    assert sum(answer.status == 200 for answer in answers) == page_api.AT_ONCE
    assert [str(one.message) for one in caught if "never awaited" in str(one.message)] == []
    assert again["servers"]


async def test_those_who_read_the_metrics_at_the_same_moment_are_few() -> None:
    async with opened_page(http=HttpSettings(metrics=True)) as visitor:
        answers = await at_the_same_moment(visitor, "/metrics", metrics_route.AT_ONCE + 8)
        alone = await visitor.visit("/metrics")

    assert sum(answer.status == 200 for answer in answers) == metrics_route.AT_ONCE
    assert alone.status == 200


async def test_a_definition_of_megabytes_is_listed_and_not_read() -> None:
    configuration = snapshot(listing(more_tools=1, tool_bytes=LONG))
    async with opened_page(configuration, HttpSettings(metrics=True)) as visitor:
        await visitor.gateway.view.open("dev")
        rows = (await visitor.api("tools?toolbox=dev"))["rows"]
        shown = await visitor.get("api/tool?toolbox=dev&server=a&tool=more_0")
        small = await visitor.api("tool?toolbox=dev&server=a&tool=seen")
        found = await visitor.api("search?words=more_0")
        scraped = await visitor.visit("/metrics")

    tokens = {row["name"]: row["tokens"] for row in rows}
    assert LONG // 4 <= tokens["more_0"] <= LONG // 2
    assert shown.status == 400
    assert "too long to be shown" in shown.json["error"]
    assert small == {"name": "seen", "inputSchema": {"type": "object"}}
    assert "more_0" in [row["name"] for row in found["rows"]]
    assert b'mcp_workbench_server_tools{toolbox="dev",server="a"} 3' in scraped.body


@pytest.mark.cost
@pytest.mark.parametrize("schema", worst.lists(8 << 20))
def test_the_tokens_of_a_very_long_definition_are_estimated_unread(schema: bytes) -> None:
    definition = b'{"name":"a","inputSchema":%b}' % schema

    assert len(definition) // 5 <= definition_tokens(definition) <= len(definition)
    assert peak(lambda: definition_tokens(definition)) <= SPARE
    assert definition_tokens(b'{"name":"a","x":"%b"}' % (b"b" * MOST_WEIGHED)) > 1000


async def test_hundreds_of_event_streams_leave_the_page_to_those_that_are_open() -> None:
    async with opened_page() as visitor:
        path = f"{visitor.path}api/events?topics=home"
        peers = [
            await visitor.port.connect() for _ in range(300)
        ]  # both ends are files of this process
        headers = {"cookie": visitor.cookie, "accept": "text/event-stream", "content-type": None}
        for peer in peers:
            peer.send(visitor.port.request(b"", headers, method="GET", path=path))
        heads = await asyncio.gather(*(peer.head() for peer in peers))
        home = await visitor.api("home")

    statuses = [status for status, _ in heads]
    assert statuses.count(200) == 16
    assert statuses.count(503) == len(peers) - 16
    assert home["servers"]


BARE = ("", "api/home", "api/events?topics=home", "api/nothing", "static/nothing", "nothing")
ROUTES = ("/ui", "/ui/open/x", "/metrics", "/healthz", "/readyz", "/mcp", "/mcp/dev", "/nothing")


@pytest.mark.parametrize("inside", [True, False])
async def test_the_head_of_any_path_has_no_body_and_leaves_the_connection_usable(
    inside: bool,
) -> None:
    async with opened_page(http=HttpSettings(metrics=True)) as visitor:
        paths = [f"{visitor.path}{path}" for path in BARE] if inside else ROUTES
        headers = {"cookie": visitor.cookie, "content-type": None}
        for path in paths:
            peer = await visitor.port.connect()
            peer.send(visitor.port.request(b"", headers, method="HEAD", path=path))
            peer.send(visitor.port.request(b"", {}, method="GET", path="/healthz"))
            await peer.head()
            answer = await peer.answer()
            assert (path, answer.status, answer.body) == (path, 200, b"ok")


async def test_events_are_for_those_who_read_them() -> None:
    async with opened_page() as visitor:
        posted = await visitor.post("api/events?topics=home", {})

    assert posted.status == 404


async def removed_amid(visitor: Visitor, path: str) -> Peer:
    """Ask for something of the server `a`, which goes while its tools are being read."""
    await visitor.gateway.view.open("dev")
    headers = {"cookie": visitor.cookie, "content-type": None}
    peer = await visitor.port.connect()
    peer.send(visitor.port.request(b"", headers, method="GET", path=f"{visitor.path}{path}"))
    await until(lambda: is_reading(visitor))
    visitor.gateway.reload(snapshot(spec("b")))
    return peer


def is_reading(visitor: Visitor) -> bool:
    return any(task.get_name().startswith("page ") for task in asyncio.all_tasks())


async def test_a_server_that_is_removed_while_it_is_shown_is_said_to_be_gone() -> None:
    async with opened_page(snapshot(listing(more_tools=2000), spec("b"))) as visitor:
        peer = await removed_amid(visitor, "api/server?toolbox=dev&server=a")
        answer = await peer.answer()

    assert (answer.status, answer.json["code"]) == (404, "unknown_server")


async def test_events_go_on_when_the_server_that_is_followed_is_removed() -> None:
    async with opened_page(snapshot(listing(more_tools=2000), spec("b"))) as visitor:
        path = "api/events?topics=home,server&toolbox=dev&server=a"
        peer = await removed_amid(visitor, path)
        await peer.head()
        visitor.gateway.reload(snapshot(spec("b"), spec("c")))
        shown: list[str] = []
        while shown != ["b", "c"]:
            message = json.loads((await peer.event()).get("data", "{}"))
            if message.get("topic") == "home":
                shown = [server["server"] for server in message["data"]["servers"]]


@pytest.mark.parametrize(
    "arguments", [b'{"a":"\xff"}', b'{"a":' + b"[" * 1100 + b"]" * 1100 + b"}"]
)
async def test_a_call_from_the_page_is_what_a_host_could_have_sent(arguments: bytes) -> None:
    body = b'{"toolbox":"dev","server":"fixture","tool":"echo","arguments":%b}'
    async with opened_page() as visitor:
        refused = await visitor.post("api/call", body % arguments)
        called = await visitor.post("api/call", body % b'{"text":"a"}')

    assert refused.status == 400
    assert refused.json["code"] == "invalid_parameters"
    assert "result" in called.json


async def test_definitions_that_differ_from_the_lock_file_are_compared_once_and_in_part() -> None:
    server = msgspec.structs.replace(listing(more_tools=100, tool_bytes=40_000), lock="review")
    known = {"dev/a": LockedServer(launch=launch_hash(server))}
    lock = LockFile("/nowhere", known, is_read_only=True)
    configuration = msgspec.structs.replace(snapshot(server), lock=lock)
    async with opened_page(configuration) as visitor:
        await visitor.gateway.view.open("dev")
        answers = await at_the_same_moment(visitor, f"{visitor.path}api/locks", page_api.AT_ONCE)

    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    (changed,) = answers[0].json
    compared = [change for change in changed["changes"] if change["lines"]]
    assert len(changed["changes"]) == 102
    assert 10 <= len(compared) <= page_locks.MOST_IN_ALL // 40_000 + 2
    longest = max(len(line) for change in compared for line in change["lines"])
    assert longest <= page_locks.LONGEST_LINE + 1


WRITES = ("call", "restart", "sign-in", "switch/preview", "switch/apply", "undo")
ADDRESS = b'{"toolbox":"dev","server":"fixture","tool":"echo","id":1,"switches":%b,"arguments":%b}'


async def test_whatever_is_posted_is_answered() -> None:
    odd = [part for part in ODD if len(part) < 5000]
    async with opened_page() as visitor:
        peer = await visitor.port.connect()
        headers = {
            "cookie": visitor.cookie,
            "origin": f"http://{visitor.host}",
            "x-workbench-page": "1",
        }
        statuses: set[int] = set()
        for path in WRITES:
            for part in odd:
                for body in (part, ADDRESS % (part, part)):
                    target = f"{visitor.path}api/{path}"
                    peer.send(visitor.port.request(body, headers, path=target))
                    statuses.add((await peer.answer()).status)
        home = await visitor.api("home")

    assert statuses <= {200, 400, 404}
    assert home["servers"]
