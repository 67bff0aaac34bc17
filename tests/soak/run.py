"""All long runs, one after the other: `python -m tests.soak.run [--short] [NAME…]`; `make soak`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tests.soak import cancels, floods, kills, mixups, overload, plateau, reloads
from tests.soak.figures import Figure

LONG: dict[str, Callable[[], Figure | list[Figure]]] = {
    "kills": kills.measure,
    "cancels": cancels.measure,
    "floods": floods.measure,
    "overload": overload.measure,
    "reloads": reloads.measure,
    "plateau": plateau.measure,
    "mixups": mixups.measure,
}
SHORT: dict[str, Callable[[], Figure | list[Figure]]] = {
    "kills": lambda: kills.measure(500),
    "cancels": lambda: cancels.measure(20),
    "floods": lambda: floods.measure(shared=True),
    "overload": lambda: overload.measure(3.0),
    "reloads": lambda: reloads.measure(6),
    "plateau": lambda: plateau.measure(2_000, 20, 200),
    "mixups": lambda: mixups.measure(10_000),
}


def main() -> int:
    words = [word for word in sys.argv[1:] if word != "--short"]
    runs = SHORT if "--short" in sys.argv else LONG
    missed = 0
    for name in words or list(runs):
        began = time.monotonic()
        print(f"{name} …", file=sys.stderr, flush=True)
        found = runs[name]()
        for figure in found if isinstance(found, list) else [found]:
            print(figure, flush=True)
            missed += not figure.holds
        print(f"       ({time.monotonic() - began:.0f} s)", flush=True)
    print("every guarantee holds" if not missed else f"{missed} missed", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
