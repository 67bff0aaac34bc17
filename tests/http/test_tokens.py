"""Named tokens: each opens its toolboxes, the others do not exist, and what one began is not another's."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.spec import (
    Era,
    HttpSettings,
    Limits,
    NamedToken,
    ServerAddress,
    ServerSpec,
    Snapshot,
    StdioCommand,
    ToolFilter,
)
from mcp_workbench.server.http.access import Principals
from tests.kit.config import lean, snapshot, spec
from tests.kit.http_host import Answer, Port, port, rpc
from tests.kit.processes import pids_in
from tests.kit.results import INITIALIZE, META, Message, use_tool
from tests.kit.servers import ASKER, OFFERS

ERAS = ("legacy", "modern")
eras = pytest.mark.parametrize("era", ERAS)
modes = pytest.mark.parametrize("mode", ["proxy", "dynamic"])

BOSS, CI, SPARE = "boss-" + "b" * 32, "ci-" + "c" * 32, "spare-" + "s" * 32
SINGLE = "single-" + "1" * 32
WISH = HttpSettings(
    tokens=(
        NamedToken("boss", BOSS),
        NamedToken("ci", CI, ("dev",)),
        NamedToken("spare", SPARE, ("dev",)),
    )
)
CAN: Message = {META + "clientCapabilities": {"elicitation": {}}}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def two_boxes(mode: str = "proxy", era: Era = "legacy") -> Snapshot:
    """`dev` with the server `fixture`, and `ops` with the server `vault`: both offer everything."""
    words = ("modern",) if era == "modern" else ()
    boxes = {"dev": "fixture", "ops": "vault"}
    specs = [
        ServerSpec(
            ServerAddress(box, name),
            StdioCommand(sys.executable, lean(OFFERS, f"{name}-notes", *words)),
            era=era,
        )
        for box, name in boxes.items()
    ]
    return msgspec.structs.replace(snapshot(*specs), tool_mode=mode)


class Guest:
    """One host of either era with a token."""

    def __init__(self, opened: Port, era: str, token: str, path: str = "/mcp") -> None:
        self.opened = opened
        self.era = era
        self.token = token
        self.path = path
        self.headers: dict[str, Any] = bearer(token)

    async def enter(self) -> Guest:
        if self.era == "legacy":
            session = await self.opened.open(path=self.path, **bearer(self.token))
            self.headers = session.headers
        return self

    async def ask(self, method: str, params: Message | None = None, **more: Any) -> Answer:
        if self.era == "legacy":
            body = rpc(method, params, 7)
            return await self.opened.ask(body, self.headers, path=self.path)
        if params and "uri" in params:
            more["mcp_name"] = params["uri"]
        body, headers = self.opened.modern(method, params, **more)
        return await self.opened.ask(body, {**headers, **self.headers}, path=self.path)


async def guest(opened: Port, era: str, token: str, path: str = "/mcp") -> Guest:
    return await Guest(opened, era, token, path).enter()


def open_box(name: str) -> Message:
    return {"name": "open_toolbox", "arguments": {"toolbox_name": name}}


def requests_about(box: str) -> list[tuple[str, Message]]:
    """Every way to name a toolbox, its server or what that offers."""
    tool = {"toolbox": box, "server": "vault", "tool": "stats"}
    uri = f"mcp-workbench://{box}/vault/note://vault-notes/own"
    prompt = {"type": "ref/prompt", "name": f"{box}__vault__greet"}
    template = {"type": "ref/resource", "uri": f"mcp-workbench://{box}/vault/file:///{{path}}"}
    argument = {"name": "who", "value": "x"}
    return [
        ("tools/call", open_box(box)),
        ("tools/call", {"name": "use_tool", "arguments": {"tool": tool, "arguments": {}}}),
        ("tools/call", {"name": f"{box}__vault__stats", "arguments": {}}),
        ("prompts/get", {"name": f"{box}__vault__greet", "arguments": {"who": "x"}}),
        ("resources/read", {"uri": uri}),
        ("resources/subscribe", {"uri": uri}),
        ("resources/unsubscribe", {"uri": uri}),
        ("completion/complete", {"ref": prompt, "argument": argument}),
        ("completion/complete", {"ref": template, "argument": argument}),
        ("resources/read", {"uri": "note://vault-notes/own"}),
        ("resources/read", {"uri": "ui://vault-notes/view"}),
        ("resources/read", {"uri": "item://vault-notes/1"}),
    ]


LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]


async def everything_told(who: Guest, box: str) -> list[tuple[int, str]]:
    """The answers to all of it, without the name and the ids that the host itself has chosen."""
    told: list[tuple[int, str]] = []
    for method, params in requests_about(box):
        answer = await who.ask(method, params)
        text = answer.body.decode().replace(box, "BOX")
        told.append((answer.status, re.sub(r'"id":\d+', '"id":0', text)))
    for path in (f"/mcp/{box}", f"/mcp/{box}?x=1", f"/mcp/{box}/"):
        headers = {**who.headers, "mcp-protocol-version": None}
        answer = await who.opened.ask(rpc("initialize", id=1), headers, path=path)
        told.append((answer.status, answer.body.decode().replace(box, "BOX")))
    return told


@eras
@modes
async def test_a_toolbox_off_the_list_is_answered_like_one_that_does_not_exist(
    era: str, mode: str
) -> None:
    async with port(two_boxes(mode), WISH) as opened:
        boss = await guest(opened, era, BOSS)
        assert "vault" in (await boss.ask("tools/call", open_box("ops"))).body.decode()
        for method in LISTS:  # all that there is to know is known by now
            await boss.ask(method)
        ci = await guest(opened, era, CI)
        await ci.ask("tools/call", open_box("dev"))

        hidden, absent = await everything_told(ci, "ops"), await everything_told(ci, "opz")
        open_to_boss = await everything_told(boss, "ops")

    assert hidden == absent
    assert [text for _, text in hidden if "vault-notes has" in text] == []
    assert len([text for _, text in open_to_boss if "vault" in text]) >= 7


@eras
@modes
async def test_nothing_that_a_host_is_told_speaks_of_toolboxes_off_its_list(
    era: str, mode: str
) -> None:
    async with port(two_boxes(mode), WISH) as opened:
        boss = await guest(opened, era, BOSS)
        await boss.ask("tools/call", open_box("ops"))
        seen: dict[str, str] = {}
        for token in (BOSS, CI):
            who = await guest(opened, era, token)
            await who.ask("tools/call", open_box("dev"))
            first = "server/discover"
            params: Message = {}
            if era == "legacy":
                first = "initialize"
                params = INITIALIZE
                who_asks = {**bearer(token)}
                answer = await opened.ask(rpc(first, params, 1), who_asks)
            else:
                answer = await who.ask(first)
            told = [answer.body.decode()]
            told += [(await who.ask(method)).body.decode() for method in LISTS]
            told.append((await who.ask("tools/call", open_box("nothing"))).body.decode())
            seen[token] = "\n".join(told)

    assert "dev" in seen[CI]
    assert "ops" not in seen[CI]
    assert "vault" not in seen[CI]
    assert "ops" in seen[BOSS]


async def test_a_list_that_differs_by_token_is_not_for_shared_caches() -> None:
    async with port(two_boxes(era="modern"), WISH) as opened:
        for token in (BOSS, CI):
            who = await guest(opened, "modern", token)
            for method in ("server/discover", "tools/list", "prompts/list"):
                assert (await who.ask(method)).result["cacheScope"] == "private"
    alike = HttpSettings(tokens=(NamedToken("a", BOSS), NamedToken("b", CI)))
    async with port(two_boxes(era="modern"), alike) as opened:
        who = await guest(opened, "modern", CI)
        for method in ("server/discover", "tools/list", "prompts/list"):
            assert (await who.ask(method)).result["cacheScope"] == "public"


async def test_an_empty_list_opens_nothing() -> None:
    nothing = HttpSettings(tokens=(NamedToken("nobody", CI, ()), NamedToken("boss", BOSS)))
    async with port(two_boxes(), nothing) as opened:
        who = await guest(opened, "modern", CI)
        assert "ops" not in (await who.ask("server/discover")).body.decode()
        for box in ("dev", "ops"):
            answer = await who.ask("tools/call", open_box(box))
            assert f"Toolbox '{box}' not found" in answer.body.decode()


@eras
async def test_a_changed_list_is_told_to_those_alone_who_see_it(era: str) -> None:
    async with port(two_boxes("dynamic"), WISH) as opened:
        hosts = {token: await guest(opened, era, token) for token in (BOSS, CI)}
        streams: dict[str, Any] = {}
        for token, who in hosts.items():
            for box in ("dev", "ops"):
                await who.ask("tools/call", open_box(box))
            peer = streams[token] = await opened.connect()
            if era == "legacy":
                await who.ask("prompts/list")
                peer.send(opened.request(b"", who.headers, method="GET"))
                await peer.head()
            else:
                wanted = {"notifications": {"promptsListChanged": True}}
                body, headers = opened.modern("subscriptions/listen", wanted)
                peer.send(opened.request(body, {**headers, **who.headers}))
                await peer.head()
                await peer.message()
                await who.ask("prompts/list")  # only what was listed can change

        for box, server in (("ops", "vault"), ("dev", "fixture")):
            tool = {"toolbox": box, "server": server, "tool": "learn"}
            wish = {"tool": tool, "arguments": {"prompt": f"new-{box}"}}
            await hosts[BOSS].ask("tools/call", {"name": "use_tool", "arguments": wish})
            heard = await streams[BOSS].message()
            while heard["method"] != "notifications/prompts/list_changed":
                heard = await streams[BOSS].message()
        first = await streams[CI].message()
        while first["method"] != "notifications/prompts/list_changed":
            first = await streams[CI].message()
        prompts = (await hosts[CI].ask("prompts/list")).body.decode()

    assert "new-dev" in prompts  # the one change that it heard of was its own toolbox's
    assert "new-ops" not in prompts


async def test_a_wish_for_logs_is_for_one_s_own_toolboxes_alone() -> None:
    async with port(two_boxes(), WISH) as opened:
        boss, ci = await guest(opened, "legacy", BOSS), await guest(opened, "legacy", CI)
        for box in ("dev", "ops"):
            await boss.ask("tools/call", open_box(box))
        await ci.ask("tools/call", open_box("dev"))
        await ci.ask("logging/setLevel", {"level": "debug"})
        asked: dict[str, list[Message]] = {}
        for box, server in (("dev", "fixture"), ("ops", "vault")):
            tool = {"toolbox": box, "server": server, "tool": "stats"}
            wish = {"tool": tool, "arguments": {}}
            answer = await boss.ask("tools/call", {"name": "use_tool", "arguments": wish})
            asked[box] = [one for one in answer.json_text if one["method"] == "logging/setLevel"]

    assert [one["params"]["level"] for one in asked["dev"]] == ["debug"]
    assert asked["ops"] == []


async def test_under_bare_names_too_a_change_is_told_to_those_alone_who_see_it() -> None:
    dev = spec("fixture", tools=ToolFilter(("stats",)))
    ops = spec("vault", toolbox="ops", tools=ToolFilter(("flip", "new")))
    bare = msgspec.structs.replace(snapshot(dev, ops), tool_mode="dynamic", naming="bare")
    async with port(bare, WISH) as opened:
        boss, ci = await opened.open(**bearer(BOSS)), await opened.open(**bearer(CI))
        streams = [await boss.listen(), await ci.listen()]
        for who in (boss, ci):
            await who.result("tools/list")

        await boss.result("tools/call", {"name": "flip", "arguments": {"name": "new"}})

        assert (await streams[0].message())["method"] == "notifications/tools/list_changed"
        await ci.post(b"", method="DELETE")
        heard = b"".join([part async for part in streams[1].chunks()])

    assert b"list_changed" not in heard


# What one began


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_another_s_session_is_one_that_does_not_exist(method: str) -> None:
    async with port(http=WISH) as opened:
        mine = await opened.open(**bearer(CI))
        body = rpc("ping", id=1) if method == "POST" else b""
        for thief in (BOSS, SPARE):
            stolen = {**mine.headers, **bearer(thief)}
            absent = {**stolen, "mcp-session-id": "x" * len(mine.id)}
            told = [await opened.ask(body, told, method=method) for told in (stolen, absent)]
            assert told[0].status == told[1].status == 404
            assert told[0].body == told[1].body
        assert (await mine.post(mine.ask("ping"))).status == 200


async def test_another_s_request_can_not_be_cancelled_by_its_id() -> None:
    async with port(http=WISH) as opened:
        mine, theirs = await opened.open(**bearer(CI)), await opened.open(**bearer(SPARE))
        held = await mine.begin("hold", {"key": "k"})
        await mine.use("stats")
        for id in range(4):
            await theirs.post(rpc("notifications/cancelled", {"requestId": id}))
            await theirs.post(json.dumps({"jsonrpc": "2.0", "id": id, "result": {}}).encode())
        await mine.use("release", {"key": "k"})

        assert "result" in (await held.answer()).json


@pytest.mark.parametrize("server", ["legacy", "modern"])
async def test_a_state_is_good_for_the_token_that_got_it(server: Any) -> None:
    command = StdioCommand(sys.executable, lean(ASKER))
    asker = ServerSpec(ServerAddress("dev", "asker"), command, era=server, scope="session")
    wish = {"tool": {"toolbox": "dev", "server": "asker", "tool": "name"}, "arguments": {}}
    params: Message = {"name": "use_tool", "arguments": wish, "_meta": CAN}
    async with port(snapshot(asker), WISH) as opened:
        mine, thief = await guest(opened, "modern", CI), await guest(opened, "modern", SPARE)
        asked = (await mine.ask("tools/call", params)).result
        [key] = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
        back = {**params, "inputResponses": answers, "requestState": asked["requestState"]}

        stolen = await thief.ask("tools/call", back)
        forged = await thief.ask("tools/call", {**back, "requestState": "wb1.AAAA"})
        own = await mine.ask("tools/call", back)

    assert stolen.error == forged.error
    assert stolen.error["code"] == -32602
    assert "Ada" in own.result["content"][0]["text"]


async def test_a_server_of_one_s_own_is_not_shared_between_tokens(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    own = spec("fixture", env={"PIDFILE": str(pids)}, scope="session")
    async with port(snapshot(own), WISH) as opened:
        seen: dict[str, set[int]] = {}
        for token in (CI, SPARE, CI, SPARE):
            who = await guest(opened, "modern", token)
            answer = await who.ask("tools/call", use_tool("fixture", "stats"))
            seen.setdefault(token, set()).add(answer.json_text["pid"])

    assert seen[CI].isdisjoint(seen[SPARE])
    assert len(pids_in(pids)) == 2


async def test_nobody_can_take_the_places_of_another() -> None:
    begin = rpc("initialize", INITIALIZE, 1)
    few = snapshot(spec("fixture"), limits=Limits(sessions=6))
    async with port(few, http=WISH) as opened:
        statuses = [(await opened.ask(begin, bearer(CI))).status for _ in range(4)]
        assert statuses == [200, 200, 503, 503]
        assert (await opened.ask(begin, bearer(SPARE))).status == 200
        assert (await opened.ask(begin, bearer(BOSS))).status == 200


# Who comes in


async def test_a_token_without_a_name_opens_everything_beside_the_named_ones() -> None:
    wish = HttpSettings(SINGLE, tokens=WISH.tokens)
    async with port(two_boxes(), wish) as opened:
        for token, boxes in ((SINGLE, 2), (BOSS, 2), (CI, 1), (SPARE, 1)):
            who = await guest(opened, "modern", token)
            told = (await who.ask("server/discover")).result["instructions"]
            assert len(re.findall(r"^- ", told, re.M)) == boxes
        for path, token, status in (
            ("/mcp/ops", SINGLE, 200),
            ("/mcp/ops", CI, 404),
            ("/mcp/dev", CI, 200),
        ):
            asked = Guest(opened, "modern", token, path)
            assert (await asked.ask("tools/list")).status == status


async def test_two_names_may_open_the_same_list_while_one_token_follows_the_other() -> None:
    async with port(two_boxes(), WISH) as opened:
        told = [
            (await (await guest(opened, "modern", token)).ask("tools/list")).result
            for token in (CI, SPARE)
        ]
    assert told[0] == told[1]


NOT_LET_IN: list[Any] = [
    None,
    "",
    "Bearer",
    "Bearer ",
    f"Bearer {CI}x",
    f"Bearer {CI[:-1]}",
    f"Bearer {CI} {BOSS}",
    f"Bearer {CI}, Bearer {CI}",
    f"Basic {CI}",
    f"Token {CI}",
    CI,
    "Bearer ci",
    "Bearer boss",
    [f"Bearer {CI}", f"Bearer {CI}"],
    [f"Bearer {CI}", f"Bearer {BOSS}"],
]


@pytest.mark.parametrize("given", NOT_LET_IN)
async def test_nothing_but_one_token_in_its_place_lets_in(given: Any) -> None:
    async with port(http=WISH) as opened:
        for path in ("/mcp", "/mcp/dev", "/mcp/nothing", f"/mcp?access_token={CI}"):
            headers = {"authorization": given, "x-api-key": CI, "cookie": f"token={CI}"}
            answer = await opened.ask(rpc("ping", id=1), headers, path=path)
            assert answer.status == 401
            assert CI not in answer.body.decode()


@pytest.mark.parametrize("given", [BOSS, CI, SPARE, SINGLE, "x"])
def test_every_token_is_compared_whichever_it_is(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[bytes] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return one == other

    monkeypatch.setattr("hmac.compare_digest", compare)
    Principals(SINGLE, WISH.tokens).bearer(f"Bearer {given}".encode())

    assert len(set(compared)) == 4
    assert not any(token.encode() in b"".join(compared) for token in (BOSS, CI, SPARE, SINGLE))


def test_no_token_shows_in_what_is_made_of_it() -> None:
    shown = repr(
        (WISH, WISH.tokens, Principals(SINGLE, WISH.tokens).bearer(b"Bearer " + CI.encode()))
    )

    assert "'ci'" in shown
    for token in (BOSS, CI, SPARE):
        assert token not in shown
