"""The pages on which people sign in for themselves, and what each of them sees afterwards (`scope: principal`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
import pytest

from mcp_workbench.core.spec import HttpEndpoint, HttpSettings, NamedToken, ServerSpec, Snapshot
from mcp_workbench.gateway.sign_ins import MOST_OF_ONE, TRIES
from mcp_workbench.server.http.sign_in_pages import LARGEST
from tests.kit.authorization_server.person import Page
from tests.kit.config import snapshot, url_spec
from tests.kit.http_host import Answer, OwnPort, Port, Session, port, rpc
from tests.kit.personal_server import PersonalServer, personal_server
from tests.kit.results import INITIALIZE, META, Message, use_tool

TOKENS = {"anna": "anna-" + "a" * 32, "ben": "ben-" + "b" * 32}
PEOPLE = HttpSettings(tokens=tuple(NamedToken(name, token) for name, token in TOKENS.items()))
PROXY = "workbench.example.com"
URLS: Message = {"elicitation": {"url": {}}}
eras = pytest.mark.parametrize("era", ["legacy", "modern"])


@pytest.fixture
def personal() -> Iterator[PersonalServer]:
    with personal_server() as server:
        yield server


def configuration(personal: PersonalServer, **settings: Any) -> Snapshot:
    spec = url_spec(personal.url, "p", headers=(), scope="principal", era="legacy")
    return msgspec.structs.replace(snapshot(spec), **settings)


class Browser:
    """Keeps the cookie of the port."""

    def __init__(self, opened: Port, host: str = "") -> None:
        self.opened = opened
        self.host = host or opened.name
        self.cookie = ""

    async def load(self, url: str, form: dict[str, str] | None = None, **headers: Any) -> Answer:
        parts = urlsplit(url)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        whole: dict[str, Any] = {"host": self.host, "accept": "text/html"}
        if self.cookie:
            whole["cookie"] = self.cookie
        body = b""
        if form is not None:
            body = urlencode(form).encode()
            whole["content-type"] = "application/x-www-form-urlencoded"
        whole |= {name.replace("_", "-"): value for name, value in headers.items()}
        method = "GET" if form is None else "POST"
        answer = await self.opened.ask(body, whole, method=method, path=path)
        if cookie := answer.headers.get("set-cookie"):
            self.cookie = cookie.partition(";")[0]
        return answer

    async def fields(self, url: str) -> dict[str, str]:
        answer = await self.load(url)
        assert answer.status == 200, answer.body
        return Page(answer.body.decode()).fields

    async def prove(self, url: str, proof: str, **headers: Any) -> Answer:
        return await self.load(url, {**await self.fields(url), "proof": proof}, **headers)


def target_of(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    [target] = Page(answer.body.decode()).links
    return target


class Guest:
    """A host of one person, in either era, that can show addresses."""

    def __init__(self, opened: Port, era: str, name: str) -> None:
        self.opened = opened
        self.era = era
        self.headers: dict[str, Any] = {"authorization": f"Bearer {TOKENS[name]}"}
        self.name = name
        self.session: Session | None = None

    async def enter(self) -> Guest:
        if self.era == "legacy":
            first = rpc("initialize", {**INITIALIZE, "capabilities": {}}, 0)
            answer = await self.opened.ask(first, self.headers)
            self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
            self.headers["mcp-protocol-version"] = answer.result["protocolVersion"]
            await self.opened.ask(rpc("notifications/initialized"), self.headers)
        return self

    async def ask(self, method: str, params: Message | None = None) -> Answer:
        if self.era == "legacy":
            return await self.opened.ask(rpc(method, params, 7), self.headers)
        body, headers = self.opened.modern(method, params)
        return await self.opened.ask(body, {**headers, **self.headers})

    async def sub(self) -> str:
        return (await self.ask("tools/call", use_tool("p", "whoami"))).json_text["sub"]


async def guest(opened: Port, name: str, era: str = "legacy") -> Guest:
    return await Guest(opened, era, name).enter()


async def link_for(opened: Port, name: str, **headers: Any) -> str:
    """The address that a modern host of this person is given."""
    params = {**use_tool("p", "whoami"), "_meta": {META + "clientCapabilities": URLS}}
    whole = {"authorization": f"Bearer {TOKENS[name]}", **headers}
    body, modern = opened.modern("tools/call", params)
    result = (await opened.ask(body, {**modern, **whole})).result
    [question] = result["inputRequests"].values()
    return question["params"]["url"]


async def connect(opened: Port, personal: PersonalServer, name: str, login: str) -> None:
    """This person signs in, with this account."""
    browser, link = Browser(opened), await link_for(opened, name)
    back = personal.consent(target_of(await browser.prove(link, TOKENS[name])), login)
    answer = await browser.load(back)
    assert answer.status == 200, answer.body
    assert f"{name} can use dev/p now".encode() in answer.body


# The page


async def test_the_page_says_who_is_connected_to_what(personal: PersonalServer) -> None:
    async with port(configuration(personal), PEOPLE) as opened:
        link = await link_for(opened, "anna")
        assert re.fullmatch(rf"http://{opened.name}/sign-in/[A-Za-z0-9_-]{{32}}", link)
        answer = await Browser(opened).load(link)

        text = answer.body.decode()
        assert "<b>anna</b>" in text
        assert "<b>dev/p</b>" in text
        assert f"<b>{personal.origin}</b>" in text
        assert not Page(text).links  # nothing leads on before the proof
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["x-frame-options"] == "DENY"
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "form-action 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        flags = answer.headers["set-cookie"].split("; ")[1:]
        assert {"HttpOnly", "SameSite=Lax", "Path=/sign-in/"} <= set(flags)
        [registered] = personal.registered
        assert registered["redirect_uris"] == [f"http://{opened.name}/sign-in/callback"]


async def test_behind_a_proxy_the_link_is_https_and_the_cookie_secure(
    personal: PersonalServer,
) -> None:
    people = msgspec.structs.replace(PEOPLE, allowed_hosts=(PROXY,))
    async with port(configuration(personal), people) as opened:
        link = await link_for(opened, "anna", host=PROXY)
        assert link.startswith(f"https://{PROXY}/sign-in/")
        browser = Browser(opened, PROXY)
        answer = await browser.load(link)
        assert answer.headers["set-cookie"].startswith("__Host-workbench-sign-in=")
        assert {"Secure", "Path=/"} <= set(answer.headers["set-cookie"].split("; "))
        target_of(await browser.prove(link, TOKENS["anna"], origin=f"https://{PROXY}"))
        [registered] = personal.registered
        assert registered["redirect_uris"] == [f"https://{PROXY}/sign-in/callback"]
        assert registered["application_type"] == "web"


@pytest.mark.parametrize("proof", [TOKENS["ben"], "", "anna", TOKENS["anna"][:-1]])
async def test_only_the_person_of_a_link_goes_on(personal: PersonalServer, proof: str) -> None:
    async with port(configuration(personal), PEOPLE) as opened:
        link = await link_for(opened, "anna")
        answer = await Browser(opened).prove(link, proof)
        assert answer.status == 403
        assert b"belongs to somebody else" in answer.body
        assert not Page(answer.body.decode()).links
        target_of(await Browser(opened).prove(link, TOKENS["anna"]))  # it is still hers


async def test_a_link_ends_after_a_few_wrong_proofs(personal: PersonalServer) -> None:
    async with port(configuration(personal), PEOPLE) as opened:
        link = await link_for(opened, "anna")
        for _ in range(TRIES):
            assert (await Browser(opened).prove(link, "guess")).status == 403
        assert (await Browser(opened).load(link)).status == 404


async def test_a_form_that_another_site_sends_is_refused(personal: PersonalServer) -> None:
    """Also with a good proof: an attacker knows their own."""
    async with port(configuration(personal), PEOPLE) as opened:
        link = await link_for(opened, "anna")
        attacker, victim = Browser(opened), Browser(opened)
        stolen = {**await attacker.fields(link), "proof": TOKENS["anna"]}
        await victim.fields(link)
        assert (await Browser(opened).load(link, stolen)).status == 403  # no cookie
        assert (await victim.load(link, stolen)).status == 403  # the form of another browser
        for header in (
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": "same-site"},
            {"content_type": "text/plain"},
        ):
            assert (await attacker.load(link, stolen, **header)).status == 403
        own = {"origin": f"http://{opened.name}", "sec_fetch_site": "same-origin"}
        target_of(await attacker.load(link, stolen, **own))


async def test_only_the_browser_that_gave_the_proof_comes_back(personal: PersonalServer) -> None:
    async with port(configuration(personal), PEOPLE) as opened:
        browser, link = Browser(opened), await link_for(opened, "anna")
        early = f"http://{opened.name}/sign-in/callback"
        assert (await browser.load(f"{early}?code=x&state=y")).status == 404
        back = personal.consent(target_of(await browser.prove(link, TOKENS["anna"])), "alice")
        for other in (Browser(opened), await somebody_else(opened, link_of=link)):
            assert (await other.load(back)).status == 403
        assert (await browser.load(link)).status == 404  # it was used
        assert (await browser.load(back)).status == 200
        assert (await browser.load(back)).status == 404


async def somebody_else(opened: Port, link_of: str) -> Browser:
    """A browser with a cookie of its own."""
    browser = Browser(opened)
    other = await link_for(opened, "ben")
    assert other != link_of
    target_of(await browser.prove(other, TOKENS["ben"]))
    return browser


async def test_a_link_that_was_used_is_replaced_at_the_next_call(personal: PersonalServer) -> None:
    async with port(configuration(personal), PEOPLE) as opened:
        link = await link_for(opened, "anna")
        assert await link_for(opened, "anna") == link
        target_of(await Browser(opened).prove(link, TOKENS["anna"]))
        newer = await link_for(opened, "anna")
        assert newer != link
        browser = Browser(opened)
        back = personal.consent(target_of(await browser.prove(newer, TOKENS["anna"])), "alice")
        assert (await browser.load(back)).status == 200
        assert await (await guest(opened, "anna")).sub() == "alice"


async def test_strangers_cost_little(personal: PersonalServer) -> None:
    async with port(configuration(personal), PEOPLE) as opened:
        link = await link_for(opened, "anna")
        browser = Browser(opened)
        for path in ("/sign-in/", "/sign-in/x", "/sign-in/callback", "/sign-in/callback?state="):
            assert (await browser.load(f"http://{opened.name}{path}")).status == 404
        assert (await browser.load(link, {"proof": "x" * LARGEST})).status == 413
        assert (await browser.load(link + "?" + "x" * LARGEST)).status == 413
        assert (await browser.load(link, {}, content_length=None)).status == 411
        assert (await browser.load(link, host="evil.example")).status == 421
        path = urlsplit(link).path
        for method in ("PUT", "DELETE", "OPTIONS"):
            assert (await opened.ask(method=method, path=path)).status == 405
        # A page of an allowed path without people: there is none.
    async with port() as opened:
        assert (await Browser(opened).load(f"http://{opened.name}/sign-in/x")).status == 404


async def test_one_person_has_a_bounded_number_of_open_links(personal: PersonalServer) -> None:
    entries = [
        url_spec(personal.url, f"p{n}", headers=(), scope="principal", era="legacy")
        for n in range(MOST_OF_ONE + 1)
    ]
    async with port(snapshot(*entries), PEOPLE) as opened:
        texts: list[str] = []
        for spec in entries:
            params = use_tool(spec.address.server, "whoami")
            params["_meta"] = {META + "clientCapabilities": URLS}
            body, headers = opened.modern("tools/call", params)
            headers["authorization"] = f"Bearer {TOKENS['anna']}"
            texts.append((await opened.ask(body, headers)).body.decode())
        assert ["too many sign-ins are open" in text for text in texts] == [
            *[False] * MOST_OF_ONE,
            True,
        ]


# Afterwards


@eras
@pytest.mark.parametrize("mode", ["proxy", "dynamic"])
async def test_nobody_sees_the_tools_of_another(
    personal: PersonalServer, era: str, mode: str
) -> None:
    """Where a server lists other tools for each of its users."""
    async with port(configuration(personal, tool_mode=mode), PEOPLE) as opened:
        await connect(opened, personal, "anna", "alice")
        await connect(opened, personal, "ben", "bob")
        hosts = {name: await guest(opened, name, era) for name in TOKENS}
        subs = {name: await host.sub() for name, host in hosts.items()}
        assert subs == {"anna": "alice", "ben": "bob"}
        for name, login, other in (("anna", "alice", "bob"), ("ben", "bob", "alice")):
            texts = [(await hosts[name].ask(*request)).body.decode() for request in SEEN]
            assert not [text for text in texts if f"notes_of_{other}" in text]
            assert f"notes_of_{login}" in texts[mode == "dynamic"]
            assert mode == "dynamic" or f"notes_of_{login}" in texts[2]


SEEN: list[tuple[str, Message]] = [
    ("tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}),
    ("tools/list", {}),
    ("tools/call", {"name": "search_tools", "arguments": {"query": "notes"}}),
]


async def test_one_sign_in_that_ends_does_not_touch_the_other(personal: PersonalServer) -> None:
    async with port(configuration(personal), PEOPLE) as opened:
        await connect(opened, personal, "anna", "alice")
        await connect(opened, personal, "ben", "bob")
        anna, ben = await guest(opened, "anna"), await guest(opened, "ben")
        assert [await anna.sub(), await ben.sub()] == ["alice", "bob"]
        for token in [token for token, login in personal.logins.items() if login == "alice"]:
            del personal.logins[token]
        answer = await anna.ask("tools/call", use_tool("p", "whoami"))
        assert b"needs login: anna is not signed in there" in answer.body
        assert await ben.sub() == "bob"
        assert personal.calls == ["alice", "bob", "bob"]


@eras
async def test_a_port_without_tokens_has_nobody_to_sign_in(
    personal: PersonalServer, era: str
) -> None:
    personal.logins["local"] = "local"
    async with port(configuration(personal)) as opened:
        answer = await (await guest(opened, "anna", era)).ask("tools/call", use_tool("p", "whoami"))
        assert b"set http.tokens or http.auth" in answer.body
        assert personal.calls == []


async def test_what_all_would_share_is_never_sent(personal: PersonalServer) -> None:
    """`check` refuses such a file; variables can still lead to it."""
    spec = url_spec(personal.url, "p", scope="principal", era="legacy")
    login = HttpEndpoint(personal.url, (("Authorization", "Bearer shared"),))
    personal.logins["shared"] = "everybody"
    shared: ServerSpec = msgspec.structs.replace(spec, target=login)
    async with port(snapshot(shared), PEOPLE) as opened:
        answer = await (await guest(opened, "anna")).ask("tools/call", use_tool("p", "whoami"))
        assert b"credentials that all people would share" in answer.body
        assert personal.calls == []


async def test_the_links_of_a_session_end_with_it(personal: PersonalServer) -> None:
    async with port(configuration(personal), PEOPLE) as opened:
        headers = {"authorization": f"Bearer {TOKENS['anna']}"}
        params = {**INITIALIZE, "capabilities": URLS}
        answer = await opened.ask(rpc("initialize", params, 0), headers)
        headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        headers["mcp-protocol-version"] = answer.result["protocolVersion"]
        await opened.ask(rpc("notifications/initialized"), headers)
        call = await opened.connect()
        call.send(opened.request(rpc("tools/call", use_tool("p", "whoami"), 1), headers))
        await call.head()
        asked = await call.message()
        link = asked["params"]["url"]
        assert (await Browser(opened).load(link)).status == 200
        assert (await opened.ask(headers=headers, method="DELETE")).status in (200, 204)
        assert await ended(opened, link)


async def ended(opened: OwnPort, link: str) -> bool:
    return (await Browser(opened).load(link)).status == 404
