"""The page of a workbench in the test's own loop, as a browser with its cookie asks for it."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from mcp_workbench.core.ended_calls import FIELDS
from mcp_workbench.core.spec import HttpSettings, Snapshot
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.http_app import port_of
from mcp_workbench.ui.page_routes import PageRoutes
from tests.kit.clock import PATIENCE
from tests.kit.config import snapshot, spec
from tests.kit.http_host import Answer, OwnPort
from tests.kit.results import Json


class Visitor:
    """A browser that has opened the page."""

    def __init__(self, port: OwnPort, gateway: Gateway, token: str = "") -> None:
        self.port = port
        self.gateway = gateway
        self.cookie = ""
        self.path = ""
        self.headers: dict[str, Any] = {"authorization": f"Bearer {token}"} if token else {}

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port.server.port}"

    @property
    def routes(self) -> PageRoutes:
        return cast("PageRoutes", self.port.front.page)

    async def open(self) -> Answer:
        """Use an address; from then on there is a cookie."""
        answer = await self.visit(self.routes.address)
        if answer.status == 200:
            self.cookie, _, rest = answer.headers["set-cookie"].partition(";")
            self.path = rest.partition("Path=")[2].partition(";")[0]
        return answer

    async def visit(self, path: str, method: str = "GET", **headers: Any) -> Answer:
        """One request, with the headers that a browser sends and no more."""
        whole = {"accept": "text/html", "content-type": None, **headers}
        return await self.port.ask(method=method, path=path, headers=whole)

    async def get(self, path: str, **headers: Any) -> Answer:
        return await self.visit(f"{self.path}{path}", **{"cookie": self.cookie, **headers})

    async def post(self, path: str, document: Any, **headers: Any) -> Answer:
        whole = {
            "cookie": self.cookie,
            "origin": f"http://{self.host}",
            "x-workbench-page": "1",
            "content-type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return await self.port.ask(body, whole, method="POST", path=f"{self.path}{path}")

    async def api(self, path: str) -> Any:
        answer = await self.get(f"api/{path}")
        assert answer.status == 200, answer.body
        return answer.json

    async def act(self, path: str, document: Any) -> Any:
        answer = await self.post(f"api/{path}", document)
        assert answer.status == 200, answer.body
        return answer.json


@asynccontextmanager
async def page(
    configuration: Snapshot | None = None, http: HttpSettings | None = None, *flags: str
) -> AsyncGenerator[Visitor]:
    """A page, and a browser that has not opened it yet."""
    configuration = configuration or snapshot(spec("fixture", *flags))
    async with (
        asyncio.timeout(PATIENCE),
        Gateway(configuration) as gateway,
        port_of(gateway, "127.0.0.1", 0, http or HttpSettings(), ui=True) as (front, server),
    ):
        opened = OwnPort(front, server)
        try:
            yield Visitor(opened, gateway)
        finally:
            opened.close()


@asynccontextmanager
async def opened_page(
    configuration: Snapshot | None = None, http: HttpSettings | None = None, *flags: str
) -> AsyncGenerator[Visitor]:
    """A page, and a browser that has opened it."""
    async with page(configuration, http, *flags) as visitor:
        answer = await visitor.open()
        assert answer.status == 200, answer.body
        yield visitor


T = TypeVar("T")


async def eventually_read(read: Callable[[], Awaitable[T | None]]) -> T:
    """What `read` gives once it gives something; the bound is the caller's."""
    while not (value := await read()):  # noqa: ASYNC110 - the page sends no event for all of it
        await asyncio.sleep(0.005)
    return value


def named(calls: Json) -> list[Json]:
    """The calls of a message, oldest first, by the names of their fields."""
    places, numbers = (base64.b64decode(calls[name]) for name in ("kinds", "numbers"))
    many = len(places) // 2
    read = struct.unpack(f"<{many * len(calls['fields'])}d", numbers)
    columns = {name: read[n * many : (n + 1) * many] for n, name in enumerate(calls["fields"])}
    return [
        {name: columns.get(name, (0.0,) * many)[row] for name in FIELDS}
        | dict(zip(calls["name_fields"], calls["names"][place], strict=True))
        | {"number": calls["first"] + row}
        for row, place in enumerate(struct.unpack(f"<{many}H", places))
    ]
