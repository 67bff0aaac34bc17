"""All long runs, one after the other: `python -m tests.soak.run [--short] [NAME…]`; `make soak`."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable

from tests.soak import cancels, floods, joined, killed, kills, mixups, overload, plateau, reloads
from tests.soak.figures import Figure
from tests.soak.floods import SMALL_FLOODS

LONG: dict[str, Callable[[], Figure | list[Figure]]] = {
    "kills": kills.measure,
    "killed": killed.measure,
    "cancels": cancels.measure,
    "floods": floods.measure,
    "overload": overload.measure,
    "reloads": reloads.measure,
    "plateau": plateau.measure,
    "mixups": mixups.measure,
    "joined": joined.measure,
}
SHORT: dict[str, Callable[[], Figure | list[Figure]]] = {
    "kills": lambda: kills.measure(500),
    "killed": lambda: killed.measure(8),
    "cancels": lambda: cancels.measure(20),
    "floods": lambda: floods.measure(SMALL_FLOODS, shared=True),
    "overload": lambda: overload.measure(3.0),
    "reloads": lambda: reloads.measure(6),
    "plateau": lambda: plateau.measure(2_000, 20, 200),
    "mixups": lambda: mixups.measure(10_000),
    "joined": lambda: joined.measure(8),
}


def missed_in(name: str, run: Callable[[], Figure | list[Figure]]) -> int:
    """Runs it and prints what it found; how many of its figures miss their bar."""
    began = time.monotonic()
    print(f"{name} …", file=sys.stderr, flush=True)
    found = run()
    figures = found if isinstance(found, list) else [found]
    for figure in figures:
        print(figure, flush=True)
    print(f"       ({time.monotonic() - began:.0f} s)", flush=True)
    return sum(not figure.holds for figure in figures)


def main() -> int:
    words = [word for word in sys.argv[1:] if word != "--short"]
    runs = SHORT if "--short" in sys.argv else LONG
    with tempfile.TemporaryDirectory() as home:
        os.environ["MCP_WORKBENCH_HOME"] = home  # what the user's own workbench remembers is theirs
        missed = sum(missed_in(name, runs[name]) for name in words or runs)
    print("every guarantee holds" if not missed else f"{missed} missed", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
