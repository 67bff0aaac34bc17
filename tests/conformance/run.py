"""The conformance run: the workbench between the suite and the other side, in all pairs of eras.

    python -m tests.conformance.run [--suite VERSION] [--revision DATE] [--leg server|client|official]
                                    [--other legacy|modern] [--scenario NAME]

A leg is what the suite tests: the workbench as a server of its hosts, or as a client of its servers.
The other side is ours. In the leg `official`, the servers are those of the Python SDK (official.py). A
whole run writes docs/conformance.md. The exit status is 1 where a scored scenario fails that
exceptions.json does not excuse, or that passes without the workbench. What the suite found stays in
.node-conformance/results.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

from tests.conformance.official import Comparison, comparisons
from tests.conformance.report import Pairing, page, told
from tests.conformance.setting import fixture, workbench
from tests.conformance.suite import FOLDER, ROOT, SUITES, Era, Leg, Suite, outcomes

LEGS: tuple[Leg, ...] = ("server", "client")
ERAS: tuple[Era, ...] = ("legacy", "modern")
HOST = Path(__file__).parent / "host.py"
AT_ONCE = 3  # scenarios of signing in


def run(suite: Suite, leg: Leg, other: Era, only: str | None) -> Pairing:
    out = FOLDER / "results" / f"{suite.version}-{suite.revision}-{leg}-{other}"
    shutil.rmtree(out, ignore_errors=True)
    scored, unscored = suite.scenarios(leg)
    if only is not None:
        scored = [name for name in scored if name == only]
        unscored = {name: why for name, why in unscored.items() if name == only}
    if leg == "client":
        test_client(suite, other, out, [*scored, *unscored])
    elif scored or unscored:
        with workbench(fixture(other), out) as url:
            suite.test_server(url, out, only)
    return Pairing(suite, leg, other, outcomes(out, scored), outcomes(out, unscored), unscored)


def test_client(suite: Suite, other: Era, out: Path, names: list[str]) -> None:
    """Scenarios of signing in are many and wait much, so some run at once; others measure time, and run alone."""
    command = f"{sys.executable} {HOST} --era {other}"
    together = [name for name in names if name.startswith("auth/")]
    for name in names:
        if name not in together:
            suite.test_client(command, out, name)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(partial(suite.test_client, command, out), together))


def compare(given: argparse.Namespace) -> list[Comparison]:
    done: list[Comparison] = []
    for comparison in comparisons(given.suite, given.revision, given.scenario):
        done.append(comparison)
        print(f"{comparison.title}: {len(comparison.lost)} lost")
        for line in comparison.lost:
            print(f"  {line}")
        sys.stdout.flush()
    return done


def tell(done: Pairing) -> None:
    failed = sum(done.verdict(outcome) == "failed" for outcome in done.scored)
    print(f"{done.suite.title}, {done.others}: {failed} of {len(done.scored)} failed")
    for line in done.wrong():
        print(f"  {line}")
    for outcome in done.scored:
        for check in outcome.warnings:
            print(f"  (warning) {told(done, outcome, check)}")
    for outcome in done.unscored:
        if outcome.failures and done.why_not[outcome.scenario] != "extension":
            print(f"  (not scored) {told(done, outcome, outcome.failures[0])}")
    sys.stdout.flush()


def chosen(given: argparse.Namespace) -> Iterator[tuple[Suite, Leg, Era]]:
    for suite, leg, other in product(SUITES, LEGS, ERAS):
        wanted = (given.suite, given.revision, given.leg, given.other)
        mine = (suite.version, suite.revision, leg, other)
        if all(want in (None, have) for want, have in zip(wanted, mine, strict=True)):
            yield suite, leg, other


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", choices=sorted({suite.version for suite in SUITES}))
    parser.add_argument("--revision", choices=sorted({suite.revision for suite in SUITES}))
    parser.add_argument("--leg", choices=(*LEGS, "official"))
    parser.add_argument("--other", choices=ERAS)
    parser.add_argument("--scenario")
    given = parser.parse_args()
    done: list[Pairing] = []
    for suite, leg, other in chosen(given):
        done.append(run(suite, leg, other, given.scenario))
        tell(done[-1])
    official: list[Comparison] = []
    if given.leg in (None, "official") and given.other is None:
        official = compare(given)
    if len(done) == len(SUITES) * len(LEGS) * len(ERAS) and given.scenario is None:
        (ROOT / "docs" / "conformance.md").write_text(page(done, official), "utf-8")
    wrong = any(one.wrong() for one in done) or any(one.lost for one in official)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
