"""Sets of queries for `bench/search.py`: their format, typing errors, and the full-text search to compare with.

A set is a folder with two files, one JSON object per line:

- tools.jsonl: `tool` (its name) and, if known, `server`, `description`, `inputSchema`, `annotations`, `server_title`,
  `server_description`.
- queries.jsonl: `query` and `gold`, the tools that answer it as `server::tool`, or only `tool` where the set has no
  servers. An entry of `gold` may be a list, of which any one will do. `kind` groups queries, `id` names them.
"""

# A measure, not the product: what is plainly wrong is enough.
# pyright: basic

from __future__ import annotations

import json
import random
import re
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mcp_workbench.search.queries import DEEPEST, STOP_WORDS, parameters, parts

Json = dict[str, Any]
Find = Callable[[str], list[str]]  # the ids of the best tools for a query, best first

SERVER = "tools"  # of tools that have none
COLUMNS = (3, 1, 0.5)  # weights of names, descriptions and parameters in the full-text search
MOST_WORDS = 500  # of a query in the full-text search
DEPTH = 10  # tools of a ranking


class Set:
    """The tools and queries of a folder."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.tools = [_tool(row) for row in _rows(folder / "tools.jsonl")]
        self.queries = [_query(n, row) for n, row in enumerate(_rows(folder / "queries.jsonl"))]
        known = {row["id"] for row in self.tools}
        for query in self.queries:
            strange = [tool for group in query["gold"] for tool in group if tool not in known]
            if strange:
                raise SystemExit(f"{folder}: {query['id']}: no tool {strange[0]}")
        self.judged = [query for query in self.queries if query["gold"]]

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(query["kind"] for query in self.judged))


def _rows(path: Path) -> Iterable[Json]:
    lines = path.read_text("utf-8").splitlines()
    return (json.loads(line) for line in lines if line.strip())


def _tool(row: Json) -> Json:
    empty = {"server": SERVER, "description": "", "inputSchema": {"type": "object"}}
    row = empty | {key: value for key, value in row.items() if value is not None}
    return row | {"id": f"{row['server']}::{row['tool']}"}


def _query(number: int, row: Json) -> Json:
    groups = [[one] if isinstance(one, str) else one for one in row["gold"]]
    gold = [[one if "::" in one else f"{SERVER}::{one}" for one in group] for group in groups]
    return {"id": str(number), "kind": "queries"} | row | {"gold": gold}


def recalls(find: Find, queries: list[Json], cuts: tuple[int, ...]) -> dict[int, float]:
    """The mean share of a query's needs that the first tools meet, in percent, for each cut."""
    sums = dict.fromkeys(cuts, 0.0)
    for query in queries:
        ranked = find(query["query"])
        for cut in cuts:
            sums[cut] += recall(query["gold"], ranked[:cut])
    return {cut: 100 * total / len(queries) for cut, total in sums.items()}


def recall(gold: list[list[str]], shown: Iterable[str]) -> float:
    known = set(shown)
    return sum(not known.isdisjoint(group) for group in gold) / len(gold)


def misspelt(query: Json, seed: int) -> Json:
    """The query with one typing error: a letter more, one less, another one, or two swapped."""
    text, rng = query["query"], random.Random(f"{query['id']} {seed}")
    words = re.finditer(r"[A-Za-z]{4,}", text)
    places = [word for word in words if word[0].lower() not in STOP_WORDS]
    if not places:
        return query
    place = rng.choice(places)
    word, letter = place[0], rng.choice("abcdefghijklmnopqrstuvwxyz")
    at = rng.randrange(1, len(word) - 1)
    wrong = rng.choice(
        [
            word[:at] + letter + word[at:],
            word[:at] + word[at + 1 :],
            word[:at] + letter + word[at + 1 :],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
        ]
    )
    return query | {"query": text[: place.start()] + wrong + text[place.end() :]}


class FullText:
    """SQLite's full-text search over names, descriptions and parameters; names are split into words."""

    def __init__(self, tools: list[Json]) -> None:
        self._ids = [row["id"] for row in tools]
        self._db = sqlite3.connect(":memory:")
        columns = "name, description, parameters"
        self._db.execute(f"CREATE VIRTUAL TABLE t USING fts5({columns}, tokenize='porter')")
        for number, row in enumerate(tools):
            texts: list[str] = []
            for name, descriptions in parameters(row["inputSchema"], DEEPEST):
                texts += [_split(name), *descriptions]
            values = (number, _split(row["tool"]), row["description"], " ".join(texts))
            self._db.execute(f"INSERT INTO t(rowid, {columns}) VALUES (?, ?, ?, ?)", values)

    def close(self) -> None:
        self._db.close()

    def find(self, query: str) -> list[str]:
        words = list(dict.fromkeys(re.findall(r"\w+", query.lower())))[:MOST_WORDS]
        if not words:
            return []
        rank = f"bm25(t, {', '.join(map(str, COLUMNS))})"
        sql = f"SELECT rowid FROM t WHERE t MATCH ? ORDER BY {rank}, rowid LIMIT {DEPTH}"
        rows = self._db.execute(sql, (" OR ".join(f'"{word}"' for word in words),))
        return [self._ids[number] for (number,) in rows]


def _split(name: str) -> str:
    return " ".join(parts(name))
