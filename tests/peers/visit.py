"""What every host in Python does with the workbench, and what it saw. It knows no version of the SDK."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

Json = dict[str, Any]
PATIENCE = 10.0  # seconds that an event may take


class Host(Protocol):
    """One version of the SDK, in one era."""

    async def names(self) -> list[str]: ...
    async def call(self, name: str, arguments: Json, told: list[float] | None = None) -> Json: ...
    async def take_back(self, name: str, arguments: Json) -> None: ...
    async def prompt(self, name: str, arguments: dict[str, str]) -> str: ...
    async def read(self, uri: str) -> str: ...
    async def listen(self, uris: list[str]) -> None: ...


class Ear:
    """What reached a host unasked."""

    def __init__(self) -> None:
        self.lists = 0
        self.updated: list[str] = []
        self.logged: list[Any] = []
        self.asked: list[str] = []

    async def hears_of_more_than(self, lists: int) -> bool:
        return await self.until(lambda: self.lists > lists)

    async def until(self, true: Callable[[], bool]) -> bool:
        """Has it become true in time?"""
        end = asyncio.get_running_loop().time() + PATIENCE
        while not true():
            if asyncio.get_running_loop().time() > end:
                return False
            await asyncio.sleep(0.01)
        return True


def by_identifier(server: str, tool: str, **arguments: Any) -> tuple[str, Json]:
    identifier = {"toolbox": "peers", "server": server, "tool": tool}
    return "use_tool", {"tool": identifier, "arguments": arguments}


def by_flat_name(server: str, tool: str, **arguments: Any) -> tuple[str, Json]:
    return f"peers__{server}__{tool}", arguments


async def visit(host: Host, ear: Ear, style: str, servers: list[str]) -> Json:
    """The whole visit; one that goes wrong somewhere says so there, and goes on."""
    before = await host.names()
    opened = await host.call("open_toolbox", {"toolbox_name": "peers"})
    after = await host.names()
    await host.listen([f"shop://{server}/book" for server in servers])
    shops = {server: await errands(host, ear, style, server) for server in servers}
    learned = await settled(learn_everywhere(host, ear, style, servers))
    opening = json.loads(opened["content"][0]["text"])
    return {
        "before": before,
        "opened": opening,
        "after": after,
        "shops": shops,
        "learned": learned,
    }


async def errands(host: Host, ear: Ear, style: str, server: str) -> Json:
    named = by_flat_name if style == "dynamic" else by_identifier

    async def use(tool: str, **arguments: Any) -> Json:
        return await host.call(*named(server, tool, **arguments))

    async def said(tool: str, **arguments: Any) -> str:
        return (await use(tool, **arguments))["content"][0]["text"]

    async def counted() -> Json:
        told: list[float] = []
        result = await host.call(*named(server, "count", steps=5, pause=20), told)
        return {"text": result["content"][0]["text"], "progress": told}

    async def taken_back() -> str:
        key = uuid.uuid4().hex
        await host.take_back(*named(server, "wait", key=key))
        return await said("was_cancelled", key=key)

    async def asked() -> Json:
        text = await said("ask")
        return {"text": text, "asked": [one for one in ear.asked if f"/{server}]" in one]}

    async def logged() -> bool:
        text = f"from {server}"
        await use("log", text=text)
        return await ear.until(lambda: text in ear.logged)

    async def updated() -> bool:
        await use("touch")
        return await ear.until(lambda: f"shop://{server}/book" in ear.updated)

    return {
        "echo": await settled(use("echo", text="Grüße 🙂")),
        "add": await settled(use("add", a=2, b=3)),
        "fail": await settled(use("fail", reason="no paper")),
        "unknown": await settled(use("ecco")),
        "count": await settled(counted()),
        "cancelled": await settled(taken_back()),
        "prompt": await settled(host.prompt(f"peers__{server}__greet", {"who": "Ada"})),
        "resource": await settled(host.read(f"shop://{server}/book")),
        "ask": await settled(asked()),
        "sample": await settled(said("sample")),
        "logged": await settled(logged()),
        "updated": await settled(updated()),
    }


async def learn_everywhere(host: Host, ear: Ear, style: str, servers: list[str]) -> Json:
    """Every shop has a new tool: what it says, and whether a host saw it that lists when told to."""
    named = by_flat_name if style == "dynamic" else by_identifier
    new = {server: f"new_{uuid.uuid4().hex[:8]}" for server in servers}
    flat = {f"peers__{server}__{tool}" for server, tool in new.items()}
    known = ear.lists
    learning = (host.call(*named(server, "learn", name=tool)) for server, tool in new.items())
    await asyncio.gather(*learning)
    unseen = flat if style == "dynamic" else set[str]()
    while unseen and await ear.hears_of_more_than(known):
        known = ear.lists
        unseen = flat - set(await host.names())
    said = await asyncio.gather(*(found(host, *named(*one)) for one in new.items()))
    return {"said": dict(zip(new, said, strict=True)), "unseen": sorted(unseen)}


async def found(host: Host, name: str, arguments: Json) -> str:
    """Where a call's answer and the notice of a change take two roads, the answer may come first."""
    while True:
        text = (await host.call(name, arguments))["content"][0]["text"]
        if "not found" not in text:
            return text
        await asyncio.sleep(0.1)


async def settled(errand: Awaitable[Any]) -> Any:
    try:
        async with asyncio.timeout(2 * PATIENCE):
            return await errand
    except Exception as error:  # noqa: BLE001 - whatever it is, the test shows it
        return {"trouble": f"{type(error).__name__}: {error}"}
