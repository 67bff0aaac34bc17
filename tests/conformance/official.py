"""The official everything server of the Python SDK: what passes directly passes behind the workbench.

`make conformance` takes it from the source distributions of the SDK, version 1 and version 2.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.conformance.setting import free_port, wait_for, workbench
from tests.conformance.slots import slot
from tests.conformance.suite import (
    FOLDER,
    ROOT,
    SLOTS,
    SUITES,
    Era,
    Outcome,
    Suite,
    outcomes,
    required_names,
)

SERVER = "examples/servers/everything-server"
ROADS = ("stdio", "URL")


@dataclass(frozen=True)
class Sdk:
    """One version of the SDK, the Python that has it, and the eras that it speaks."""

    version: str
    python: Path
    eras: tuple[Era, ...]

    @property
    def folder(self) -> Path:
        return FOLDER / "sdk" / f"mcp-{self.version}" / SERVER

    def command(self, start: str) -> list[str]:
        load = f"import sys; sys.path.insert(0, {str(self.folder)!r})"
        return [
            str(self.python),
            "-c",
            f"{load}; from mcp_everything_server import server; {start}",
        ]

    @contextmanager
    def on_a_port(self, out: Path) -> Generator[str]:
        """Its URL, on the transport that it was written for."""
        out.mkdir(parents=True, exist_ok=True)
        port = free_port()
        start = f"server.main(['--port', '{port}'])"
        with (out / "server.log").open("wb") as log:
            process = subprocess.Popen(self.command(start), stdout=log, stderr=log)
        try:
            wait_for(f"http://127.0.0.1:{port}/mcp", process)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()
            process.wait()


SDKS = (
    Sdk("1.30.0", ROOT / ".venv-sdk1" / "bin" / "python", ("legacy",)),
    Sdk("2.3.0", Path(sys.executable), ("legacy", "modern")),
)


@dataclass(frozen=True)
class Comparison:
    """One suite with one server, reached in one way."""

    suite: Suite
    server: str
    road: str
    direct: list[Outcome]
    behind: list[Outcome]

    @property
    def title(self) -> str:
        return f"{self.suite.title}, {self.server} ({self.road})"

    @staticmethod
    def passed(found: list[Outcome]) -> int:
        return sum(not outcome.failures for outcome in found)

    @property
    def lost(self) -> list[str]:
        """What passes directly and fails behind the workbench."""
        return [
            f"{self.title}, {behind.scenario}: {behind.failures[0].id}: {behind.failures[0].message}"
            for direct, behind in zip(self.direct, self.behind, strict=True)
            if behind.failures and not direct.failures
        ]


def comparisons(
    version: str | None, revision: str | None, only: str | None
) -> list[Callable[[], list[Comparison]]]:
    """One piece of work for each suite and SDK."""
    return [
        partial(_compared, suite, sdk, only)
        for suite in SUITES
        if version in (None, suite.version) and revision in (None, suite.revision)
        for sdk in SDKS
        if suite.era in sdk.eras
    ]


def _compared(suite: Suite, sdk: Sdk, only: str | None) -> list[Comparison]:
    done: list[Comparison] = []
    names = [name for name in required_names(suite) if only in (None, name)]
    out = FOLDER / "results" / f"{suite.version}-{suite.revision}-sdk-{sdk.version}"
    shutil.rmtree(out, ignore_errors=True)
    with slot(SLOTS), sdk.on_a_port(out / "direct") as url:
        suite.test_server(url, out / "direct", only)
        direct = outcomes(out / "direct", names)
        argv = sdk.command("server.mcp.run('stdio')")
        entries: dict[str, dict[str, object]] = {
            "stdio": {"command": argv[0], "args": argv[1:]},
            "URL": {"url": url},
        }
        # A modern server asks in its results, so that hosts may share it.
        scope = "session" if suite.era == "legacy" else "shared"
        for road in ROADS:
            with workbench({**entries[road], "scope": scope}, out / road) as front:
                suite.test_server(front, out / road, only)
            behind = outcomes(out / road, names)
            done.append(Comparison(suite, f"SDK {sdk.version}", road, direct, behind))
    return done
