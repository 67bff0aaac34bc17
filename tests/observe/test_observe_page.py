"""The page about metrics, the dashboard and the alerts name metrics that exist, and all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mcp_workbench.server.metrics import metrics
from tests.observe.test_top import figures

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "observe.md").read_text("utf-8")
_PARTS = re.compile(r"_(bucket|sum|count)$")
_NAME = re.compile(r"\b(?:mcp_workbench|process)_[a-z_]+")

KNOWN = {metric.name: metric for metric in metrics(figures(calls=3, memory=1, descriptors=1))}


def dashboard() -> dict[str, Any]:
    return json.loads((DOCS / "grafana-dashboard.json").read_text("utf-8"))


def expressions() -> list[str]:
    targets = [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    return targets + [v["query"] for v in dashboard()["templating"]["list"]]


def named(text: str) -> set[str]:
    whole = {name for name in _NAME.findall(text) if name != "mcp_workbench"}
    return {name if name in KNOWN else _PARTS.sub("", name) for name in whole}


def test_every_metric_of_the_dashboard_exists_and_every_metric_is_on_it() -> None:
    assert named(" ".join(expressions())) == set(KNOWN)


def test_the_dashboard_filters_by_labels_that_the_metrics_have() -> None:
    for expression in expressions():
        for name, inside in re.findall(r"(mcp_workbench_[a-z_]+)\{([^}]*)\}", expression):
            metric = KNOWN.get(name) or KNOWN[_PARTS.sub("", name)]
            samples = [*metric.samples, *metric.histograms]
            has = {key for labels, _ in samples for key, _ in labels}
            assert set(re.findall(r'([a-z_]+)[=!]~?"', inside)) <= has, expression


def test_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        taken = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not taken & cells
        assert at["x"] + at["w"] <= 24
        cells |= taken


def test_the_table_of_the_page_is_that_of_the_program() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (\w+) \| (.*?) \| (.*) \|$", PAGE, re.M)
    shown = {name: (kind, labels, help) for name, kind, labels, help in rows}

    def row(name: str) -> tuple[str, str, str]:
        metric = KNOWN[name]
        labels, _ = [*metric.samples, *metric.histograms][0]
        return metric.kind, ", ".join(f"`{key}`" for key, _ in labels), metric.help

    assert shown == {name: row(name) for name in KNOWN}


def test_the_alerts_of_the_page_name_metrics_that_exist() -> None:
    assert named(PAGE) == set(KNOWN)
