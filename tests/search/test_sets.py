"""Any set of tools and queries can be measured: its files are small, and compared with a full-text search."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from bench.search_sets import FullText, Set, misspelt, recalls

TOOLS: list[object] = [
    {"tool": "readFile", "description": "Shows a document."},
    {"tool": "zip", "server": "files", "description": None, "inputSchema": {"properties": {"folder": {}}}},
]  # fmt: skip


def written(folder: Path, *queries: object) -> Path:
    for name, rows in (("tools", TOOLS), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def test_a_set_needs_little_more_than_names_and_queries(tmp_path: Path) -> None:
    one = {"query": "read", "gold": ["readFile"]}
    any_of = {"query": "pack a folder", "gold": [["files::zip", "readFile"]], "kind": "groups"}
    data = Set(written(tmp_path, one, any_of, {"query": "x", "gold": []}))

    assert [row["id"] for row in data.tools] == ["tools::readFile", "files::zip"]
    assert data.kinds == ["queries", "groups"]
    assert [query["gold"] for query in data.judged] == [
        [["tools::readFile"]],
        [["files::zip", "tools::readFile"]],
    ]
    with closing(FullText(data.tools)) as full_text:
        assert recalls(full_text.find, data.judged, (1,)) == {1: 100.0}


def test_a_tool_that_the_set_does_not_have_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="q7: no tool tools::nothing"):
        Set(written(tmp_path, {"id": "q7", "query": "x", "gold": ["nothing"]}))


def test_a_typing_error_is_the_same_in_every_run() -> None:
    query = {"id": "1", "query": "read the document"}
    wrong = [misspelt(query, seed)["query"] for seed in range(9)]

    assert wrong == [misspelt(query, seed)["query"] for seed in range(9)]
    assert len(set(wrong)) > 3
    assert all(" the " in text for text in wrong)
