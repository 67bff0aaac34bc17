"""The API of the page: what it shows, what it does, and what it never does."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench.app import following
from mcp_workbench.config.load import load_config
from mcp_workbench.core.spec import ServerAddress, Snapshot, ToolIdentifier
from mcp_workbench.gateway.reload import restart
from mcp_workbench.ui import page_events
from mcp_workbench.ui.page_api import PageApi
from mcp_workbench.ui.page_calls import try_tool
from mcp_workbench.ui.page_documents import Documents, Home
from mcp_workbench.ui.page_events import PageEvents
from tests.kit.config import config_file, demo_server, program_entry, write_config
from tests.kit.http_host import Peer
from tests.kit.results import Json
from tests.ui.page_server import MARKUP
from tests.ui.scene import Visitor, eventually_read, named, opened_page

SERVER = str(Path(__file__).with_name("page_server.py"))
SECRET = "sk-canary-0123456789"
MISSING = {"command": "no-such-program", "args": ["--api-key", SECRET], "env": {"A_TOKEN": SECRET}}


def loaded(folder: Path, servers: Json, **more: Any) -> Snapshot:
    return load_config(str(config_file(folder, servers, **more)))


async def state_of(visitor: Visitor, server: str, *states: str) -> Json:
    """The line of a server, once it is in one of these states."""

    async def line() -> Json | None:
        lines = (await visitor.api("home"))["servers"]
        one = next(line for line in lines if line["server"] == server)
        return one if one["state"] in states else None

    return await eventually_read(line)


async def test_home_says_which_server_is_broken_and_what_to_do(tmp_path: Path) -> None:
    servers = {"good": demo_server(), "bad": MISSING}
    async with opened_page(loaded(tmp_path, servers)) as visitor:
        before = (await visitor.api("home"))["servers"]
        await visitor.act("start", {})
        bad = await state_of(visitor, "bad", "failed")
        good = await state_of(visitor, "good", "ready")

    assert [line["state"] for line in before] == ["asleep", "asleep"]
    assert bad["reason"].startswith("command not found: no-such-program")
    assert bad["fix"]["text"] == "install no-such-program, or write its absolute path"
    assert bad["fix"]["command"] == "mcp-workbench doctor dev/bad"
    assert bad["fix"]["place"] == "toolboxes.dev.mcpServers.bad"
    assert bad["fix"]["file"] == str(tmp_path / "workbench-config.json")
    assert (good["tools"], good["reason"]) == (4, "")


async def test_home_compares_tokens_with_those_of_listing_every_tool(tmp_path: Path) -> None:
    servers = {"many": program_entry(SERVER, "many", "300")}
    async with opened_page(loaded(tmp_path, servers)) as visitor:
        await visitor.act("start", {})
        await state_of(visitor, "many", "ready")
        home = await visitor.api("home")

    assert home["tokens"]["direct"] > 20 * home["tokens"]["shown"] / 2
    assert home["tokens"]["shown"] == home["tokens"]["menu"] + home["tokens"]["instructions"]
    assert home["unread"] == 0
    assert home["toolboxes"][0]["tools"] == 300


async def test_a_server_is_shown_with_its_history_and_stderr(tmp_path: Path) -> None:
    servers = {"h": program_entry(SERVER, "hostile")}
    async with opened_page(loaded(tmp_path, servers)) as visitor:
        await visitor.act("start", {})
        await state_of(visitor, "h", "ready")

        async def written() -> Json | None:
            page = await visitor.api("server?toolbox=dev&server=h")
            return page if any(line["text"] == MARKUP for line in page["stderr"]) else None

        page = await eventually_read(written)

    assert page["revision"] == "2025-06-18"
    assert page["capabilities"] == ["tools"]
    assert [change["state"] for change in page["timeline"]][-1] == "ready"
    assert len(page["pids"]) == 1
    assert page["place"] == "toolboxes.dev.mcpServers.h"


async def test_no_value_of_an_entry_is_shown(tmp_path: Path) -> None:
    entries = {
        "bad": MISSING,
        "url": {
            "url": f"https://user:{SECRET}@127.0.0.1:1/mcp?key={SECRET}",
            "headers": {"X-Plain": SECRET, "Authorization": "Bearer ${A_VARIABLE}"},
        },
    }
    async with opened_page(loaded(tmp_path, entries)) as visitor:
        pages = [
            (await visitor.get(f"api/server?toolbox=dev&server={name}")).body.decode()
            for name in entries
        ]
        home = (await visitor.get("api/home")).body.decode()

    for text in (*pages, home):
        assert SECRET not in text
    entry = json.loads(pages[0])["entry"]
    assert entry["command"] == "no-such-program"
    assert entry["env"] == {"A_TOKEN": "•••"}
    assert json.loads(pages[1])["entry"]["headers"] == {"X-Plain": "•••", "Authorization": "•••"}


@pytest.mark.parametrize(
    "path",
    ["server?toolbox=dev&server=x", "server?toolbox=x", "tools?toolbox=x", "tool?toolbox=dev"],
)
async def test_what_is_not_there_is_not_found(path: str) -> None:
    async with opened_page() as visitor:
        answer = await visitor.get(f"api/{path}")

        assert answer.status == 404
        assert "not found" in answer.json["error"].lower()


async def test_tools_are_paged(tmp_path: Path) -> None:
    servers = {"many": program_entry(SERVER, "many", "450")}
    async with opened_page(loaded(tmp_path, servers)) as visitor:
        await visitor.act("start", {})
        await state_of(visitor, "many", "ready")
        first = await visitor.api("tools?toolbox=dev")
        last = await visitor.api("tools?toolbox=dev&start=400")
        found = await visitor.api("search?words=part+77+of+a+file&toolbox=dev")

    assert (first["total"], len(first["rows"]), len(last["rows"])) == (450, 200, 50)
    assert first["rows"][0]["tokens"] > 50
    assert "tool_0077" in [row["name"] for row in found["rows"][:5]]


async def test_a_tool_is_tried_on_the_path_of_every_call(tmp_path: Path) -> None:
    servers = {"h": program_entry(SERVER, "hostile")}
    log = tmp_path / "calls.jsonl"
    snapshot = loaded(tmp_path, servers, audit={"file": str(log)})
    async with opened_page(snapshot) as visitor:
        body = '{"toolbox":"dev","server":"h","tool":"shapes","arguments":{\n "n": 1.50,\n "big": 12345678901234567890}}'
        shown = await visitor.post("api/call", body.encode())
        wrong = await visitor.act(
            "call", {"toolbox": "dev", "server": "h", "tool": "wrong", "arguments": {}}
        )
        absent = await visitor.act("call", {"toolbox": "dev", "server": "h", "tool": "none"})

    assert b"12345678901234567890" in shown.body
    assert json.loads(shown.json["result"]["content"][0]["text"])["n"] == 1.5
    assert wrong["result"]["isError"] is True
    assert (absent["code"], "none" in absent["error"]) == ("unknown_tool", True)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["door"] for line in lines] == ["page"] * 3
    assert [line["outcome"] for line in lines] == ["ok", "tool_error", "unknown_tool"]


async def test_the_page_approves_nothing(tmp_path: Path) -> None:
    servers = {"h": program_entry(SERVER, "hostile", approve=["*"])}
    async with opened_page(loaded(tmp_path, servers)) as visitor:
        tried = await visitor.act("call", {"toolbox": "dev", "server": "h", "tool": "text"})

    assert "result" not in tried
    assert "the page approves nothing" in tried["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"toolbox":"dev"}',
        b'{"toolbox":1,"server":"h","tool":"t"}',
        b"{" * 5000,
        b'{"toolbox":"dev","server":"fixture","tool":"echo","arguments":[]}',
    ],
)
async def test_a_call_that_is_not_one_is_refused(body: bytes) -> None:
    async with opened_page() as visitor:
        assert (await visitor.post("api/call", body)).status == 400


async def test_a_restart_lets_calls_finish_and_starts_another_process(tmp_path: Path) -> None:
    servers = {"slow": program_entry(SERVER, "slow", "0.4")}
    async with opened_page(loaded(tmp_path, servers)) as visitor:
        await visitor.act("start", {})
        await state_of(visitor, "slow", "ready")
        before = (await visitor.api("server?toolbox=dev&server=slow"))["pids"]
        peer = await visitor.port.connect()
        body = json.dumps({"toolbox": "dev", "server": "slow", "tool": "wait"}).encode()
        headers = {
            "cookie": visitor.cookie,
            "origin": f"http://{visitor.host}",
            "x-workbench-page": "1",
        }
        peer.send(visitor.port.request(body, headers, path=f"{visitor.path}api/call"))
        await eventually_read(lambda: _in_flight(visitor, "slow"))

        await visitor.act("restart", {"toolbox": "dev", "server": "slow"})
        answer = await peer.answer()
        await state_of(visitor, "slow", "ready")
        after = (await visitor.api("server?toolbox=dev&server=slow"))["pids"]

    assert answer.json["result"]["content"][0]["text"] == "{}"
    assert len(before) == len(after) == 1
    assert before != after


async def _in_flight(visitor: Visitor, server: str) -> bool:
    lines = (await visitor.api("home"))["servers"]
    return any(line["inFlight"] for line in lines if line["server"] == server)


async def test_a_restart_forgets_failures(tmp_path: Path) -> None:
    marker = tmp_path / "there"
    script = tmp_path / "sometimes.py"
    script.write_text(
        f"import os, sys, runpy\nif not os.path.exists({str(marker)!r}): sys.exit('not yet')\n"
        f"sys.argv = ['x', 'many', '2']\nrunpy.run_path({SERVER!r}, run_name='__main__')\n"
    )
    async with opened_page(loaded(tmp_path, {"s": program_entry(str(script))})) as visitor:
        await visitor.act("start", {})
        failed = await state_of(visitor, "s", "failed", "broken")
        marker.touch()
        await visitor.act("restart", {"toolbox": "dev", "server": "s"})
        ready = await state_of(visitor, "s", "ready")

    assert "not yet" in failed["reason"]
    assert ready["tools"] == 2


# Switching tools


async def test_tools_are_switched_after_a_preview_and_back_again(tmp_path: Path) -> None:
    text = json.dumps(
        {"toolboxes": {"dev": {"mcpServers": {"basics": demo_server(env={"A_KEY": SECRET})}}}},
        indent=2,
    ).replace('"toolboxes"', '// a comment\n  "toolboxes"', 1)
    file = write_config(tmp_path, text)
    async with opened_page(load_config(str(file))) as visitor:
        with following(visitor.gateway, (), brief=True):
            await visitor.act("start", {})
            await state_of(visitor, "basics", "ready")
            switch = {"toolbox": "dev", "server": "basics", "off": ["add", "fail"]}
            shown = await visitor.act("switch/preview", {"switches": [switch]})
            unchanged = file.read_text()
            done = await visitor.act(
                "switch/apply", {"switches": [switch], "digest": shown["digest"]}
            )
            written = file.read_text()
            await eventually_read(lambda: _hidden(visitor, 2))
            await visitor.act("undo", {"id": done["undo"]})

    assert unchanged == text
    assert any(line.startswith("+") and '"toolFilters"' in line for line in shown["lines"])
    assert SECRET not in "\n".join(shown["lines"])
    entry = load_config(str(file)).toolboxes["dev"].servers["basics"]
    assert '"toolFilters": ["!add", "!fail"]' in written
    assert "// a comment" in written
    assert entry.tools.shows("add")
    assert file.read_text() == text


async def _hidden(visitor: Visitor, count: int) -> bool:
    line = next(iter((await visitor.api("home"))["servers"]))
    return line["hidden"] == count


async def test_an_edit_that_nobody_has_seen_is_not_made(tmp_path: Path) -> None:
    file = config_file(tmp_path, {"basics": demo_server()})
    async with opened_page(load_config(str(file))) as visitor:
        await visitor.act("start", {})
        await state_of(visitor, "basics", "ready")
        switch = {"toolbox": "dev", "server": "basics", "off": ["add"]}
        shown = await visitor.act("switch/preview", {"switches": [switch]})
        file.write_text(file.read_text() + "\n")
        for digest in ("", shown["digest"]):
            answer = await visitor.post(
                "api/switch/apply", {"switches": [switch], "digest": digest}
            )
            assert (answer.status, answer.json["code"]) == (400, "invalid_parameters")
    assert "toolFilters" not in file.read_text()


@pytest.mark.parametrize(
    "switch",
    [
        {"toolbox": "dev", "server": "basics", "off": ["no_such_tool"]},
        {"toolbox": "dev", "server": "basics", "off": ['x"], "command": ["sh']},
        {"toolbox": "dev", "server": "other", "off": ["add"]},
        {"toolbox": "x", "server": "basics", "off": ["add"]},
    ],
)
async def test_only_tools_that_are_there_can_be_switched(switch: Json, tmp_path: Path) -> None:
    file = config_file(tmp_path, {"basics": demo_server()})
    before = file.read_text()
    async with opened_page(load_config(str(file))) as visitor:
        await visitor.act("start", {})
        await state_of(visitor, "basics", "ready")
        answer = await visitor.post("api/switch/preview", {"switches": [switch]})

    assert answer.status == 400
    assert file.read_text() == before


async def test_only_edits_of_the_page_are_undone_from_the_page(tmp_path: Path) -> None:
    async with opened_page(loaded(tmp_path, {"basics": demo_server()})) as visitor:
        answer = await visitor.post("api/undo", {"id": 1})

    assert (answer.status, answer.json["code"]) == (400, "nothing_to_undo")


def test_no_path_of_the_api_writes_an_entry() -> None:
    """The list of all that the page can do: nothing here takes a command, a variable, a URL or a header."""
    api = PageApi.__new__(PageApi)
    PageApi.__init__(api, *([None] * 3))  # pyright: ignore[reportArgumentType]

    assert set(api._writes) == {  # pyright: ignore[reportPrivateUsage]
        "call",
        "restart",
        "sign-in",
        "start",
        "switch/preview",
        "switch/apply",
        "undo",
    }


ENTRY = {
    "command": "touch",
    "args": ["made"],
    "env": {"A_TOKEN": SECRET},
    "url": "http://127.0.0.1:1/mcp",
    "headers": {"Authorization": SECRET},
    "mcpServers": {"new": {"command": "touch", "args": ["made"]}},
    "approve": [],
    "approval": True,
    "lock": "off",
}


@pytest.mark.parametrize("word", list(ENTRY))
async def test_what_a_write_says_of_an_entry_is_not_heard(word: str, tmp_path: Path) -> None:
    """A command, an argument, a variable, a URL, a header or an approval in a body changes no entry."""
    servers = {"h": program_entry(SERVER, "hostile", approve=["shapes"])}
    file = config_file(tmp_path, servers)
    before = file.read_bytes()
    more = {word: ENTRY[word]}
    async with opened_page(load_config(str(file))) as visitor:
        with following(visitor.gateway, (), brief=True):
            await visitor.act("start", more)
            await state_of(visitor, "h", "ready")
            address = {"toolbox": "dev", "server": "h", **more}
            await visitor.act("restart", address)
            await state_of(visitor, "h", "ready")
            tried = await visitor.act("call", {**address, "tool": "shapes", "arguments": {}})
            switch = {**address, "off": ["text"]}
            shown = await visitor.act("switch/preview", {"switches": [switch], **more})
            done = await visitor.act(
                "switch/apply", {"switches": [switch], "digest": shown["digest"], **more}
            )
            entry = json.loads(file.read_text())["toolboxes"]["dev"]["mcpServers"]["h"]
            await visitor.act("undo", {"id": done["undo"], **more})

    assert "the page approves nothing" in tried["error"]
    assert entry == {**servers["h"], "toolFilters": ["!text"]}
    assert file.read_bytes() == before


# Live


async def following_page(visitor: Visitor, query: str, **headers: str) -> Peer:
    peer = await visitor.port.connect()
    whole = {"cookie": visitor.cookie, "accept": "text/event-stream", **headers}
    path = f"{visitor.path}api/events?{query}"
    peer.send(visitor.port.request(headers=whole, method="GET", path=path))
    status, _ = await peer.head()
    assert status == 200
    return peer


async def message(peer: Peer, topic: str) -> Json:
    while True:
        event = await peer.event()
        if "data" in event and (data := json.loads(event["data"]))["topic"] == topic:
            return {**data["data"], "id": event.get("id")}


async def test_an_open_page_follows_states_and_calls(tmp_path: Path) -> None:
    async with opened_page(loaded(tmp_path, {"basics": demo_server()})) as visitor:
        peer = await following_page(visitor, "topics=home,calls")
        first = await message(peer, "home")
        tried = {"toolbox": "dev", "server": "basics", "tool": "add", "arguments": {"a": 1, "b": 2}}
        await visitor.act("call", tried)
        calls = await message(peer, "calls")
        peer.close()
        # A browser that connects again says what it has got.
        again = await following_page(visitor, "topics=calls", **{"last-event-id": str(calls["id"])})
        await visitor.act("call", {**tried, "tool": "now", "arguments": {}})
        later = await message(again, "calls")
        figures = await visitor.api("numbers")

    assert first["servers"][0]["state"] == "asleep"
    [row] = named(calls)
    assert (row["tool"], row["outcome"], row["door"]) == ("add", "ok", "page")
    assert all(row[part] >= 0 for part in ("queue", "start", "at_server", "workbench"))
    assert row["ended"] + calls["offset"] == pytest.approx(time.time(), abs=30)
    assert [row["tool"] for row in named(later)] == ["now"]
    assert (calls["run"], calls["first"], later["first"]) == (later["run"], 1, 2)
    assert (figures["calls"], figures["errors"]) == (2, 0)
    assert {one["tool"] for one in figures["unused"]} == {"echo", "fail"}


async def test_what_happens_after_a_silence_is_shown_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_events, "LOOK", 3600.0)  # nothing is looked at by itself
    servers = {"basics": demo_server(), "h": program_entry(SERVER, "hostile")}
    async with opened_page(loaded(tmp_path, servers)) as visitor:
        first = await following_page(visitor, "topics=home,calls")
        await message(first, "home")
        tool = ToolIdentifier("dev", "basics", "now")
        await try_tool(visitor.gateway.view, tool, msgspec.Raw(b"{}"))  # not through the API
        calls = await message(first, "calls")
        second = await following_page(visitor, "topics=home,server&toolbox=dev&server=h")
        await message(second, "home")
        before = await message(second, "server")
        await visitor.act("restart", {"toolbox": "dev", "server": "h"})
        await visitor.act("start", {})
        while not (after := await message(second, "server"))["stderr"]:
            pass

    assert [row["tool"] for row in named(calls)] == ["now"]
    assert before["stderr"] == []
    assert after["timeline"] != before["timeline"]


async def test_what_happens_while_no_page_is_open_is_in_the_history(tmp_path: Path) -> None:
    async with opened_page(loaded(tmp_path, {"basics": demo_server()})) as visitor:
        tool = ToolIdentifier("dev", "basics", "now")
        await try_tool(visitor.gateway.view, tool, msgspec.Raw(b"{}"))
        visitor.routes.tick(0.0)
        restart(visitor.gateway, ServerAddress("dev", "basics"))
        page = await visitor.api("server?toolbox=dev&server=basics")

    assert page["timeline"][0]["state"] == "ready"


async def test_the_first_view_is_seldom_made_while_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    home, observe = Documents.home, Documents.observe

    async def counted_home(self: Documents) -> Home:
        made.append("home")
        return await home(self)

    def counted_observe(self: Documents) -> tuple[bool, object]:
        made.append("look")
        return observe(self)

    monkeypatch.setattr(Documents, "home", counted_home)
    monkeypatch.setattr(Documents, "observe", counted_observe)

    async def has_rested() -> bool:
        return made.count("look") >= 4 * page_events.REST

    async with opened_page(loaded(tmp_path, {"basics": demo_server()})) as visitor:
        peer = await following_page(visitor, "topics=home")
        await message(peer, "home")
        await eventually_read(has_rested)

    assert 4 <= made.count("home") <= 6


async def test_nothing_is_measured_before_a_page_is_open(tmp_path: Path) -> None:
    async with opened_page(loaded(tmp_path, {"basics": demo_server()})) as visitor:
        tried = {"toolbox": "dev", "server": "basics", "tool": "now"}
        await visitor.act("call", tried)
        before = visitor.gateway.meter.is_on
        peer = await following_page(visitor, "topics=home")
        await message(peer, "home")

        assert not before
        assert visitor.gateway.meter.is_on
        assert named(await visitor.api("calls")) == []


async def test_a_page_that_is_closed_is_followed_by_nothing(tmp_path: Path) -> None:
    async with opened_page(loaded(tmp_path, {"basics": demo_server()})) as visitor:
        events = visitor.routes._api._events  # pyright: ignore[reportPrivateUsage]
        peer = await following_page(visitor, "topics=home")
        await message(peer, "home")
        open_streams = len(events._streams)  # pyright: ignore[reportPrivateUsage]
        peer.close()
        await eventually_read(lambda: _is_at_rest(events))

        assert open_streams == 1


async def _is_at_rest(events: PageEvents) -> bool:
    await asyncio.sleep(0)
    return not events._streams and not events._running  # pyright: ignore[reportPrivateUsage]


async def test_a_stream_ends_when_the_port_closes(tmp_path: Path) -> None:
    async with opened_page(loaded(tmp_path, {"basics": demo_server()})) as visitor:
        peer = await following_page(visitor, "topics=home")
        await message(peer, "home")
        visitor.port.front.stop()

        assert [part async for part in peer.chunks()] == []
        assert (await visitor.visit(visitor.routes.address)).status == 403
        assert (await visitor.get("api/events?topics=home")).status == 503


async def test_only_so_many_pages_are_open_at_once(tmp_path: Path) -> None:
    async with opened_page(loaded(tmp_path, {"basics": demo_server()})) as visitor:
        for _ in range(16):
            await following_page(visitor, "topics=home")
        answer = await visitor.get("api/events?topics=home")

        assert answer.status == 503


# Files


async def test_files_are_named_after_their_content_and_kept_forever() -> None:
    async with opened_page() as visitor:
        index = (await visitor.get("")).body.decode()
        name = index.partition('src="')[2].partition('"')[0]
        plain = await visitor.get(name)
        packed = await visitor.get(name, **{"accept-encoding": "gzip, br"})
        other = await visitor.get(name.replace("/", "/x", 1))

    import gzip

    assert "immutable" in plain.headers["cache-control"]
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert other.status == 404


@pytest.mark.parametrize(
    "path", ["static/../page_api.py", "static/%2e%2e/x", "static//etc/passwd", "x"]
)
async def test_nothing_but_the_files_of_the_page_is_served(path: str) -> None:
    async with opened_page() as visitor:
        assert (await visitor.get(path)).status == 404
