"""The conformance run: the workbench between the suite and the other side, in all pairs of eras.

    python -m tests.conformance.run [--suite VERSION] [--revision DATE] [--leg server|client|official]
                                    [--other legacy|modern] [--scenario NAME]

A leg is what the suite tests: the workbench as a server of its hosts, or as a client of its servers.
The other side is ours. In the leg `official`, the servers are those of the Python SDK (official.py). A
whole run writes docs/conformance.md. The exit status is 1 where a scenario fails that exceptions.json does
not excuse, where one passes without the workbench only, or where the suite has scenarios that are not on the
page. What the suite found stays in .node-conformance/results. Pairs do not depend on each other, so several
run at the same time (slots.py).
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

from tests.conformance.official import Comparison, comparisons
from tests.conformance.report import Pairing, left_out, page, told
from tests.conformance.setting import fixture, workbench
from tests.conformance.slots import slot
from tests.conformance.suite import FOLDER, ROOT, SLOTS, SUITES, Era, Leg, Suite, outcomes

LEGS: tuple[Leg, ...] = ("server", "client")
ERAS: tuple[Era, ...] = ("legacy", "modern")
HOST = Path(__file__).parent / "host.py"
FIRST = "tools-list"  # a server is known to have extensions once it has been connected


def run(suite: Suite, leg: Leg, other: Era, only: str | None) -> Pairing:
    out = FOLDER / "results" / f"{suite.version}-{suite.revision}-{leg}-{other}"
    shutil.rmtree(out, ignore_errors=True)
    scored, unscored = suite.scenarios(leg)
    if only is not None:
        scored = [name for name in scored if name == only]
        unscored = {name: why for name, why in unscored.items() if name == only}
    names = [*scored, *unscored]
    extras = [name for name in suite.extras(leg) if name in names]
    if leg == "client":
        test_client(suite, other, out, extras, only)
    elif names:
        with slot(SLOTS), workbench(fixture(other), out) as url:
            if only not in extras:
                suite.test_server(url, out, only)
            for name in (FIRST, *extras) if extras else ():
                suite.test_server(url, out, name)
    return Pairing(suite, leg, other, outcomes(out, scored), outcomes(out, unscored), unscored)


def test_client(suite: Suite, other: Era, out: Path, extras: list[str], only: str | None) -> None:
    command = f"{sys.executable} {HOST} --slots {SLOTS} --era {other}"
    if only not in extras:
        suite.test_client(command, out, only)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(partial(suite.test_client, command, out), extras))


def show(done: list[Comparison]) -> None:
    for comparison in done:
        print(f"{comparison.title}: {len(comparison.lost)} lost")
        for line in comparison.lost:
            print(f"  {line}")
    sys.stdout.flush()


def tell(done: Pairing) -> None:
    every = [*done.scored, *done.unscored]
    failed = sum(done.verdict(outcome) == "failed" for outcome in every)
    print(f"{done.suite.title}, {done.others}: {failed} of {len(every)} failed")
    for line in done.wrong():
        print(f"  {line}")
    for outcome in every:
        for check in outcome.warnings:
            print(f"  (warning) {told(done, outcome, check)}")
    sys.stdout.flush()


def run_all(given: argparse.Namespace) -> tuple[list[Pairing], list[Comparison]]:
    """What was asked for. Those that test clients run one after the other: each starts all its hosts at once."""
    wanted = list(chosen(given))
    official: list[Callable[[], list[Comparison]]] = []
    if given.leg in (None, "official") and given.other is None:
        official = comparisons(given.suite, given.revision, given.scenario)
    with ThreadPoolExecutor(1) as clients, ThreadPoolExecutor(len(wanted) + len(official)) as pool:
        running: list[Future[Pairing]] = []
        for suite, leg, other in wanted:
            executor = clients if leg == "client" else pool
            running.append(executor.submit(run, suite, leg, other, given.scenario))
        comparing = [pool.submit(compare) for compare in official]
        done: list[Pairing] = []
        for future in running:
            done.append(future.result())
            tell(done[-1])
        compared = [comparison for future in comparing for comparison in future.result()]
    show(compared)
    return done, compared


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
    done, official = run_all(given)
    missing: list[str] = []
    if len(done) == len(SUITES) * len(LEGS) * len(ERAS) and given.scenario is None:
        (ROOT / "docs" / "conformance.md").write_text(page(done, official), "utf-8")
        missing = left_out(done)
        for name in missing:
            print(f"The suite has a scenario that is not on the page: {name}")
    wrong = any(one.wrong() for one in done) or any(one.lost for one in official)
    return 1 if wrong or missing else 0


if __name__ == "__main__":
    sys.exit(main())
