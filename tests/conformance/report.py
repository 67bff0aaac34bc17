"""From outcomes to a verdict and to the page docs/conformance.md."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.conformance.official import Comparison
from tests.conformance.suite import Check, Era, Leg, Outcome, Suite, listed

EXCEPTIONS = Path(__file__).parent / "exceptions.json"
NOT_OFFERED = Path(__file__).parent / "not_offered.json"
UNCHECKED = Path(__file__).parent / "unchecked.json"


@dataclass(frozen=True)
class Impossible:
    """A check that cannot pass where host and server are of these eras, and why."""

    host: Era
    server: Era
    scenario: str
    check: str  # empty: any
    says: str  # what the failed, warned or skipped check says; any other failure counts
    reason: str
    on_purpose: bool = False  # it could pass, and we decided otherwise

    def excuses(self, check: Check) -> bool:
        return self.check in ("", check.id) and self.says in check.message


def impossible() -> list[Impossible]:
    return msgspec.json.decode(EXCEPTIONS.read_bytes(), type=list[Impossible])


def not_offered() -> dict[str, str]:
    """Scenarios about what the workbench does not have, and why."""
    return msgspec.json.decode(NOT_OFFERED.read_bytes(), type=dict[str, str])


def unchecked() -> dict[str, str]:
    """Scenarios in which the suite checks nothing, and why."""
    return msgspec.json.decode(UNCHECKED.read_bytes(), type=dict[str, str])


@dataclass(frozen=True)
class Pairing:
    """One suite with the workbench between a host and a server; it plays one of them."""

    suite: Suite
    leg: Leg
    other: Era  # the era of the side that the suite does not play
    scored: list[Outcome]
    unscored: list[Outcome]
    why_not: dict[str, str]  # for each of the unscored

    @property
    def host(self) -> Era:
        return self.suite.era if self.leg == "server" else self.other

    @property
    def server(self) -> Era:
        return self.other if self.leg == "server" else self.suite.era

    @property
    def others(self) -> str:
        return f"{self.other} {'server' if self.leg == 'server' else 'host'}"

    def exception(self, outcome: Outcome) -> Impossible | None:
        for known in impossible():
            pair = (known.host, known.server, known.scenario)
            if pair == (self.host, self.server, outcome.scenario):
                return known
        return None

    def faults(self, outcome: Outcome) -> list[Check]:
        """The failed checks that nothing excuses, and the skipped ones of a scenario that has no others."""
        if outcome.checks and outcome.scenario in {**not_offered(), **unchecked()}:
            return []
        known = self.exception(outcome)
        doubtful = [*outcome.failures, *(outcome.skips if outcome.is_idle else [])]
        return [check for check in doubtful if known is None or not known.excuses(check)]

    def verdict(self, outcome: Outcome) -> str:
        if self.faults(outcome):
            return "failed"
        if outcome.failures and outcome.scenario in not_offered():
            return "not offered"
        known = self.exception(outcome)
        if known is not None and (outcome.failures or outcome.is_idle):
            return ON_PURPOSE if known.on_purpose else "impossible"
        return "nothing to check" if outcome.is_idle else "passed"

    def wrong(self) -> list[str]:
        """Why this run is not accepted, a line for each reason."""
        lines: list[str] = []
        for outcome in (*self.scored, *self.unscored):
            lines += [told(self, outcome, check) for check in self.faults(outcome)]
            known = self.exception(outcome)
            shown = [*outcome.failures, *outcome.warnings, *outcome.skips]
            if known is not None and not any(known.excuses(check) for check in shown):
                lines.append(f"{place(self, outcome)}: passes, but is listed as impossible")
            if outcome.scenario in not_offered() and not outcome.failures:
                lines.append(f"{place(self, outcome)}: passes, but is listed as not offered")
            if outcome.scenario in unchecked() and outcome.passes:
                lines.append(f"{place(self, outcome)}: has checks, but is listed as having none")
        return lines


def place(pairing: Pairing, outcome: Outcome) -> str:
    return f"{pairing.suite.title}, {pairing.others}, {outcome.scenario}"


def told(pairing: Pairing, outcome: Outcome, check: Check) -> str:
    return f"{place(pairing, outcome)}: {check.id}: {one_line(check.message)}"


def one_line(message: str) -> str:
    return " ".join(message.split())[:400]


def left_out(pairings: list[Pairing]) -> list[str]:
    """Scenarios of the suite that are in no pairing, and not said to be about something else."""
    known = {
        (pairing.suite.version, pairing.leg, outcome.scenario)
        for pairing in pairings
        for outcome in (*pairing.scored, *pairing.unscored)
    }
    return [
        f"{version}: {name}"
        for version in dict.fromkeys(pairing.suite.version for pairing in pairings)
        for kind, names in listed(version).items()
        for name in names
        if (version, kind, name) not in known
        and not (kind == "authorization" and name in not_offered())
    ]


def page(pairings: list[Pairing], official: list[Comparison]) -> str:
    parts = [HEAD, "", *everything(pairings)]
    for leg, heading in HEADINGS.items():
        chosen = [pairing for pairing in pairings if pairing.leg == leg]
        parts += ["", heading, "", *totals(chosen)]
    parts += ["", *compared(official)]
    for leg, who in (("server", "hosts"), ("client", "servers")):
        for suite in dict.fromkeys(pairing.suite for pairing in pairings):
            parts += [
                "",
                f"## {suite.version}, {suite.revision}: the suite's {suite.era} {who}",
                "",
            ]
            parts += section([p for p in pairings if (p.suite, p.leg) == (suite, leg)])
    return "\n".join([*parts, "", *reasons()]) + "\n"


HEAD = """\
# Conformance

The official suite (npm `@modelcontextprotocol/conformance`), run through the workbench in all four pairs of eras.

- **Towards hosts.** The suite acts as a host over HTTP. Behind the workbench is a stdio server with everything that the suite
  checks (`tests/kit/servers/everything`), once legacy and once modern, shown under its own names (`"naming": "bare"`).
- **Towards servers.** The suite acts as a server over HTTP. A small stdio host (`tests/conformance/host.py`) uses everything
  that it is shown, once legacy and once modern.
- **Beside the server itself.** The suite runs against the everything server of the Python SDK, directly and through the workbench.

`make conformance` writes this page. A scenario has passed if none of its checks failed; the numbers in brackets count checks
that passed, failed or warned. *Impossible* scenarios are ruled out by their pair of eras, those that are *not offered* are about something
that the workbench does not have, those that *failed on purpose* could pass, but a decision of ours is against it, and in those with
*nothing to check* the suite has no check yet; the reasons are at the end.
The totals have every scenario. Some are not scored by the suite; they are listed separately, with its reason, or with `extension` or a revision
if no set of requirements has them.

In the scenarios `auth/*` the host's person runs `mcp-workbench login` first, and a browser follows the redirects of the suite's
authorization server. A host whose call needs more rights later is asked by URL elicitation. [Tasks](tasks.md) of legacy servers
are shown to modern hosts as the extension."""
ON_PURPOSE = "failed on purpose"
VERDICTS = ("passed", "impossible", "not offered", ON_PURPOSE, "nothing to check", "failed")
HEADINGS = {"server": "## Totals towards hosts", "client": "## Totals towards servers"}


KINDS = {
    "server": "for servers",
    "client": "for clients",
    "authorization": "for authorization servers",
}


def everything(pairings: list[Pairing]) -> list[str]:
    """How many scenarios the suite has, and on how many of them it ran."""
    lines = [
        "## What the suite has",
        "",
        row("suite", *KINDS.values(), "all", "in the totals", "not offered at all"),
    ]
    lines.append("|---" * 7 + "|")
    for version in dict.fromkeys(pairing.suite.version for pairing in pairings):
        counts = {kind: len(names) for kind, names in listed(version).items()}
        apart = counts["authorization"]
        whole = sum(counts.values())
        lines.append(row(version, *(counts[kind] for kind in KINDS), whole, whole - apart, apart))
    return [*lines, "", MANY]


MANY = """\
A scenario that belongs to two revisions, or runs in two pairs of eras, is counted in each of them below. Scenarios for authorization servers test
something that the workbench is not."""


def totals(pairings: list[Pairing]) -> list[str]:
    """A line for each pairing: its scenarios, scored and not scored, and what came of them."""
    head = ("suite, revision", "host", "server", "", "scenarios", *VERDICTS, "checks passed")
    lines = [row(*head), "|---" * len(head) + "|"]
    for pairing in pairings:
        names = (pairing.suite.title, pairing.host, pairing.server)
        lines.append(row(*names, "scored", *counted(pairing, pairing.scored)))
        if pairing.unscored:
            every = [*pairing.scored, *pairing.unscored]
            lines.append(row("", "", "", "not scored", *counted(pairing, pairing.unscored)))
            lines.append(row("", "", "", "all", *counted(pairing, every)))
    return lines


def counted(pairing: Pairing, outcomes: list[Outcome]) -> list[int]:
    verdicts = [pairing.verdict(outcome) for outcome in outcomes]
    counts = [verdicts.count(verdict) for verdict in VERDICTS]
    return [len(verdicts), *counts, sum(outcome.passes for outcome in outcomes)]


def compared(comparisons: list[Comparison]) -> list[str]:
    lines = [OFFICIAL, "", row("suite, revision", "server", "road", "directly", "behind", "lost")]
    lines.append("|---" * 6 + "|")
    for one in comparisons:
        counts = (one.passed(one.direct), one.passed(one.behind), len(one.lost))
        lines.append(row(one.suite.title, one.server, one.road, *counts))
    return lines


OFFICIAL = """\
## The everything server of the Python SDK

The suite runs against the official everything server itself, and against the workbench in front of it: as a command on stdio,
and behind its URL. The numbers are the scenarios that passed, scored or not. None may pass directly and fail behind the workbench; what passes
behind it only, the workbench itself provides."""


def section(pairings: list[Pairing]) -> list[str]:
    lines = table(pairings, [pairing.scored for pairing in pairings])
    if pairings[0].unscored:
        lines += ["", "Not scored:", ""]
        lines += table(pairings, [pairing.unscored for pairing in pairings])
    return lines


def table(pairings: list[Pairing], columns: list[list[Outcome]]) -> list[str]:
    lines = [row("scenario", *(pairing.others for pairing in pairings))]
    lines.append("|---" * (len(pairings) + 1) + "|")
    for outcomes in zip(*columns, strict=True):
        cells = [cell(*pair) for pair in zip(pairings, outcomes, strict=True)]
        name = outcomes[0].scenario
        why = pairings[0].why_not.get(name)
        lines.append(row(f"`{name}`" + (f" ({why})" if why else ""), *cells))
    return lines


def cell(pairing: Pairing, outcome: Outcome) -> str:
    verdict = pairing.verdict(outcome)
    if verdict == "nothing to check":
        return verdict
    counts = [str(outcome.passes)]
    if outcome.failures:
        counts.append(f"{len(outcome.failures)} failed")
    if outcome.warnings:
        counts.append(f"{len(outcome.warnings)} warned")
    return f"{verdict} ({', '.join(counts)})"


def reasons() -> list[str]:
    lines = ["## Impossible scenarios", "", row("host", "server", "scenario", "reason")]
    lines.append("|---|---|---|---|")
    known = {
        chosen: [e for e in impossible() if e.on_purpose is chosen] for chosen in (False, True)
    }
    lines += [row(e.host, e.server, f"`{e.scenario}`", e.reason) for e in known[False]]
    lines += [
        "",
        "## Scenarios that fail on purpose",
        "",
        row("host", "server", "scenario", "reason"),
    ]
    lines.append("|---|---|---|---|")
    lines += [row(e.host, e.server, f"`{e.scenario}`", e.reason) for e in known[True]]
    for heading, reasons in ((OFFERED, not_offered()), (NOTHING, unchecked())):
        lines += ["", heading, "", row("scenario", "reason"), "|---|---|"]
        lines += [row(f"`{scenario}`", reason) for scenario, reason in reasons.items()]
    return lines


OFFERED = "## Scenarios about what is not offered"
NOTHING = "## Scenarios with nothing to check"


def row(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"
