"""Servers of the official SDK behind a URL, in every form and era that it offers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.spec import ServerAddress
from tests.http_servers.scenes import bench
from tests.kit.config import tool, url_spec
from tests.kit.results import LEGACY, MODERN
from tests.kit.servers import SDK

SCRIPT = SDK / "workshop_http.py"
FORMS: list[tuple[str, dict[str, str], str]] = [
    ("sessions", {}, MODERN),
    ("sessions", {"era": "legacy"}, LEGACY),
    ("stateless", {}, MODERN),
    ("stateless", {"era": "legacy"}, LEGACY),
    ("json", {"era": "modern"}, MODERN),
    ("json", {"era": "legacy"}, LEGACY),
    ("sse", {}, LEGACY),
    ("sse", {"transport": "sse"}, LEGACY),
]
each_form = pytest.mark.parametrize(
    ("kind", "wishes", "revision"),
    FORMS,
    ids=[f"{kind}-{'-'.join(wishes.values()) or 'auto'}" for kind, wishes, _ in FORMS],
)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """One loop: here the servers are the subject."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    kinds = sorted({kind for kind, _, _ in FORMS})
    argv = [sys.executable, str(SCRIPT), *kinds]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield {kind: f"http://127.0.0.1:{int(process.stdout.readline())}/mcp" for kind in kinds}
        finally:
            process.kill()


@each_form
async def test_it_is_met_listed_and_called(
    urls: dict[str, str], kind: str, wishes: Any, revision: str
) -> None:
    async with bench(url_spec(urls[kind], **wishes)) as workbench:
        report = await workbench.survey(ServerAddress("dev", "s"))
        assert report.reason == ""
        assert (report.revision, report.server_name) == (revision, "workshop")
        assert len(report.tools) >= 13

        async def echo(text: str) -> str:
            found = await workbench.use_tool(tool("s", "echo"), {"text": text})
            return found["content"][0]["text"]

        texts = [f"{n} ü" for n in range(16)]
        assert await asyncio.gather(*map(echo, texts)) == texts

        large = await workbench.use_tool(tool("s", "large"), {"characters": 300_000})
        assert large["content"][0]["text"] == "é" * 300_000

        with pytest.raises(WorkbenchError, match="not today"):
            await workbench.use_tool(tool("s", "refuse"), {"code": 77})


@pytest.mark.parametrize(("kind", "wishes"), [(k, w) for k, w, _ in FORMS if k != "json"])
async def test_progress_arrives_in_order(urls: dict[str, str], kind: str, wishes: Any) -> None:
    heard: list[float] = []
    async with bench(url_spec(urls[kind], **wishes)) as workbench:
        await workbench.use_tool(
            tool("s", "count"), {"steps": 20}, on_progress=lambda n: heard.append(n["progress"])
        )

    assert heard == list(range(1, 21))


@pytest.mark.parametrize(
    ("kind", "wishes"),
    # Without a session it knows nobody again; with a plain answer the SDK does not see us leave.
    [(k, w) for k, w, r in FORMS if (k, r) not in (("stateless", LEGACY), ("json", MODERN))],
)
async def test_a_cancel_reaches_it(
    urls: dict[str, str], kind: str, wishes: Any, anyio_backend_name: str
) -> None:
    key = f"{kind}{wishes}{id(wishes)}{asyncio.get_running_loop()!r}"
    begun = asyncio.Event()
    async with bench(url_spec(urls[kind], **wishes)) as workbench:
        waiting = asyncio.ensure_future(
            workbench.use_tool(tool("s", "wait"), {"key": key}, on_progress=lambda _: begun.set())
        )
        if kind == "json":  # which tells of no progress
            await workbench.use_tool(tool("s", "has_begun"), {"key": key})
        else:
            await begun.wait()
        waiting.cancel()
        found = await workbench.use_tool(tool("s", "was_cancelled"), {"key": key})

    assert found["content"][0]["text"] == "yes"


@pytest.mark.parametrize(
    ("kind", "wishes"), [("sessions", {}), ("sessions", {"era": "legacy"}), ("sse", {})]
)
async def test_changes_are_heard(urls: dict[str, str], kind: str, wishes: Any) -> None:
    heard = asyncio.Event()
    async with bench(url_spec(urls[kind], **wishes)) as workbench:
        await workbench.view.open("dev")
        workbench.on_change(lambda _: heard.set())
        name, numbers = "", count()
        while not heard.is_set():  # the stream of changes is opened beside
            name = f"new{id(heard)}_{next(numbers)}"
            await workbench.use_tool(tool("s", "learn"), {"name": name})
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):  # it is told, or nobody listened yet
                    await heard.wait()

        found = await workbench.use_tool(tool("s", name), {})
        assert found["content"][0]["text"] == "newly learned"
