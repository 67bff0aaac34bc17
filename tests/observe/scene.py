"""Reading metrics as Prometheus does, line by line."""

from __future__ import annotations

import re

_LINE = re.compile(r"([a-z_]+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')

Series = tuple[str, frozenset[tuple[str, str]]]


def series(text: str) -> dict[Series, float]:
    """Every sample by name and labels."""
    found: dict[Series, float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        read = _LINE.fullmatch(line)
        assert read is not None, line
        key = (read[1], frozenset(_LABEL.findall(read[2] or "")))
        assert key not in found, line
        found[key] = float(read[3])
    return found


def value(text: str, name: str, **labels: str) -> float:
    """The sum of all samples that have these labels."""
    wanted = set(labels.items())
    values = [v for (n, has), v in series(text).items() if n == name and wanted <= has]
    assert values, f"no {name} with {labels}"
    return sum(values)
