"""Scenarios of the skills extension, which belong to no revision: the workbench on both sides of them.

    python -m tests.conformance.skills

Skills are modern only: host and server are. The exit status is 1 where a check fails, or where a scenario checks
nothing because the workbench does not offer skills.
"""

from __future__ import annotations

import shutil
import sys

from tests.conformance.setting import fixture, workbench
from tests.conformance.suite import FOLDER, SUITES, Outcome, outcome

SUITE = SUITES[-1]
OUT = FOLDER / "results" / "skills"
FIRST = "tools-list"  # a server is known to have skills once it has been connected
SERVER = tuple(f"sep-2640-skills-{part}" for part in ("enumeration", "directory", "manifest"))
CLIENT = tuple(
    f"sep-2640-client-{part}"
    for part in ("no-prefetch", "verify-digest", "verify-size", "verify-frontmatter")
)


def run(command: str) -> list[Outcome]:
    """All seven; `command` is the host of the client scenarios."""
    shutil.rmtree(OUT, ignore_errors=True)
    with workbench(fixture("modern"), OUT) as url:
        for scenario in (FIRST, *SERVER):
            SUITE.test_server(url, OUT, scenario)
    for scenario in CLIENT:
        SUITE.test_client(command, OUT, scenario)
    return [outcome(OUT, scenario) for scenario in (*SERVER, *CLIENT)]


def wrong(done: Outcome) -> list[str]:
    """Why a scenario does not count as passed."""
    lines = [f"{check.id}: {check.message}" for check in done.failures]
    skipped = [check.id for check in done.checks if check.status == "SKIPPED"]
    return [*lines, *(f"{id}: skipped" for id in skipped)]


def main() -> int:
    from tests.conformance.run import HOST

    done = run(f"{sys.executable} {HOST} --era modern")
    for one in done:
        print(f"{one.scenario}: {one.passes} of {len(one.checks)} checks pass")
        for line in wrong(one):
            print(f"  {line}")
    return 1 if any(map(wrong, done)) else 0


if __name__ == "__main__":
    sys.exit(main())
