"""Shops: one little server, written with every official SDK and put on every road that it has.

| tool | does |
|---|---|
| `echo(text)`, `add(a, b)`, `fail(reason)` | text, a structured result, an error as a result |
| `count(steps, pause)` | says how far it is, with so many milliseconds between |
| `wait(key)`, `was_cancelled(key)` | never answers; whether a `wait` was taken back |
| `ask`, `sample` | asks the person, and the model, before its host |
| `log(text)`, `touch`, `learn(name)` | a log message; a change of its book; one more tool |

Beside them the prompt `greet(who)` and the resource `shop://NAME/book`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from conftest import HERE, SDK1

from tests.kit.results import LEGACY, MODERN, Json

SECONDS = 120  # for a whole visit, on a busy machine

TOOLS = 11
ROADS = {
    "python-1": ("pipe", "http", "sse"),
    "python-2": ("pipe", "http"),
    "typescript-1": ("pipe", "http", "sse"),
    "typescript-2": ("pipe", "http"),
}
SHOPS = [f"{sdk}-{road}" for sdk, roads in ROADS.items() for road in roads]
SOME_SHOPS = ["python-1-http", "python-2-pipe", "typescript-1-sse", "typescript-2-http"]


class Visitor(NamedTuple):
    """A host: which SDK, which era it wants, how it comes, which mode the workbench is in."""

    sdk: str
    mode: str
    road: str
    tools: str

    @property
    def modern(self) -> bool:
        return self.mode != "legacy"

    @property
    def revision(self) -> str:
        return MODERN if self.modern else LEGACY

    @property
    def shops(self) -> list[str]:
        return SHOPS if self.tools == "dynamic" else SOME_SHOPS

    def scope(self, shop: str) -> str:
        """Its own, that it may be asked. Modern hosts on a port take turns with what is their own,
        so a child's memory would be another's each time: those they share, and are not asked by.
        """
        passing = self.modern and self.road == "http"
        return "shared" if passing and shop.endswith("pipe") else "session"

    def may_be_asked_by(self, shop: str) -> bool:
        return self.scope(shop) == "session" or self.road == "pipe" or "-2-" in shop


def visitors() -> list[Visitor]:
    """Everybody, everywhere; `auto` means what a pinned revision means, so each has one mode."""
    modes = [
        ("python-1", "legacy", "dynamic"),
        ("python-1", "legacy", "proxy"),
        ("python-2", "legacy", "dynamic"),
        ("python-2", "auto", "proxy"),
        ("python-2", MODERN, "dynamic"),
        ("typescript-1", "legacy", "dynamic"),
        ("typescript-1", "legacy", "proxy"),
        ("typescript-2", "legacy", "dynamic"),
        ("typescript-2", "auto", "proxy"),
        ("typescript-2", MODERN, "dynamic"),
    ]
    return [
        Visitor(sdk, mode, road, tools) for sdk, mode, tools in modes for road in ("pipe", "http")
    ]


def program(workplace: Path, kind: str, sdk: str) -> list[str]:
    """The start of a command line: the `host` or the `server` of this SDK."""
    language, _, version = sdk.partition("-")
    if language == "typescript":
        return ["node", str(workplace / f"{kind}_v{version}.mjs")]
    python = str(SDK1 / "bin" / "python") if version == "1" else sys.executable
    return [python, str(HERE / f"{kind}_v{version}.py")]


def command(workplace: Path, shop: str) -> list[str]:
    sdk, _, road = shop.rpartition("-")
    return [*program(workplace, "server", sdk), shop, road]


@contextmanager
def open_street(workplace: Path, complaints: IO[bytes]) -> Generator[dict[str, Json]]:
    """Every shop as an entry of a toolbox; those on a port are open already."""
    entries: dict[str, Json] = {}
    started: list[subprocess.Popen[str]] = []
    try:
        for shop in SHOPS:
            argv = command(workplace, shop)
            if shop.endswith("pipe"):
                entries[shop] = {"command": argv[0], "args": argv[1:]}
            else:
                process = subprocess.Popen(
                    argv, stdout=subprocess.PIPE, stderr=complaints, text=True
                )
                started.append(process)
                old = {"type": "sse"} if shop.endswith("sse") else {}
                entries[shop] = {"url": f"http://127.0.0.1:{port_of(process)}/mcp", **old}
        yield entries
    finally:
        for process in started:
            process.terminate()
        for process in started:
            assert process.stdout is not None
            process.stdout.close()
            process.wait(SECONDS)


def port_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.strip().isdecimal(), f"no port: {line!r}"
    return int(line)


@contextmanager
def workbench_on_a_port(argv: list[str], env: dict[str, str]) -> Generator[str]:
    """The URL of the real command, which must end well."""
    with subprocess.Popen(
        [*argv, "--http", "0"], env=env, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://\S+", process.stderr.readline())
            assert found
            yield found[0]
        finally:
            process.terminate()
            assert process.wait(SECONDS) == 0
