"""How well and how cheaply tools are found: `make bench-search DATA=folder`.

DATA is a set of queries, as `bench/search_sets.py` describes; of several, recall alone is measured.
Everything but the timings is the same in every run. Times are our own, of the processor, so that
other programs on the same machine do not count; some are told by the clock, too. Each line that has a
bar says whether it holds.
"""

# A yardstick or a measure, not the product: what is plainly wrong is enough.
# pyright: basic, reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
from rs_bpe.bpe import openai

from bench.search_sets import DEPTH, FullText, Set, misspelt, recall, recalls
from mcp_workbench.core.catalogue import Catalogue, Definition, KnownCatalogue
from mcp_workbench.core.spec import ServerAddress, ServerSpec, Snapshot, StdioCommand, ToolboxSpec
from mcp_workbench.gateway.views import View
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.schema.signature import arguments_shape, short_signature
from mcp_workbench.search.index import Index, Search
from mcp_workbench.search.queries import Query, QueryWords, SearchableServer, SearchScope, Words
from mcp_workbench.server.own_definitions import own_definitions
from mcp_workbench.server.own_tools import MOST_SIBLINGS, search_text, search_tools, tool_lines
from tests.schema.blind import blind_arguments
from tests.schema.reader import read_signature

Json = dict[str, Any]

LARGE = 10_000  # tools
LEAST = {"task": 35, "step": 67, "agent": 66}  # recall at 5 of the kinds of queries of LiveMCPBench
TYPOS = 3000  # misspelt queries of a set, at least: each query several times, with different errors
BOX = ToolboxSpec("all")
tokens = openai.o200k_base().count
Times = tuple[float, float]  # of the processor, and of the clock


class Bars:
    """Figures, each with the bar that it has to clear."""

    def __init__(self) -> None:
        self.failed = 0

    def show(self, what: str, value: float, *, least: float = 0, most: float = 0) -> None:
        holds = (not least or value >= least) and (not most or value <= most)
        bar = f"at least {least:g}" if least else f"at most {most:g}" if most else ""
        self.failed += not holds
        mark = ("holds" if holds else "MISSED") if bar else ""
        print(f"  {what:<52}{value:>10,.1f}   {bar:<16}{mark}")


class Bench:
    """The set as servers that are known, and what is asked of it."""

    def __init__(self, rows: list[Json], copies: int = 1) -> None:
        self.words = Words()
        self.known: dict[ServerAddress, SearchableServer] = {}
        by_server: dict[str, list[Json]] = {}
        for row in rows:
            by_server.setdefault(row["server"], []).append(row)
        for copy in range(copies):
            for name, tools in by_server.items():
                server = known_server(f"{name}-{copy}" if copy else name, tools)
                self.known[server.spec.address] = server
        self.index = Index(self.words)

    def build(self) -> float:
        since = time.process_time()
        self.index = Index(self.words)
        self.fill()
        return time.process_time() - since

    def fill(self) -> None:
        for at, one in self.known.items():
            self.index.put(at, one.visible(), one.about, one.fingerprint, weigh=False)
        self.index.fill()

    def ids(self, words: str) -> list[str]:
        return [ident(one.tool) for one in self.search(words, DEPTH).tools]

    def search(self, words: str, limit: int) -> Any:
        knowledge = SearchScope(self.known, ())
        return Search(self.index, knowledge, self.words, None).find(Query(words, limit=limit))


def known_server(name: str, rows: list[Json]) -> SearchableServer:
    keys = ("name", "description", "inputSchema", "annotations")
    tools = {}
    for row in rows:
        whole = {key: row[key] for key in keys if row.get(key) is not None} | {"name": row["tool"]}
        tools[row["tool"]] = Definition(row["tool"], msgspec.json.encode(whole))
    first = rows[0]
    spec = ServerSpec(ServerAddress(BOX.name, name), StdioCommand("x"))
    title, text = first.get("server_title") or "", first.get("server_description") or ""
    return SearchableServer(spec, BOX, Catalogue(tools), title, text)


def judge(bench: Bench, data: Set, bars: Bars) -> None:
    print("Recall, in percent")
    full_text = FullText(data.tools)
    for kind in data.kinds:
        queries = [query for query in data.judged if query["kind"] == kind]
        ours = recalls(bench.ids, queries, (1, 5, 10))
        theirs = recalls(full_text.find, queries, (1, 5))
        print(f" {kind}, {len(queries)} queries")
        for cut in (1, 5, 10):
            bars.show(f"recall at {cut}", ours[cut], least=LEAST.get(kind, 0) if cut == 5 else 0)
        bars.show("recall at 1 of SQLite's full-text search", theirs[1])
        bars.show("recall at 5 of SQLite's full-text search", theirs[5], most=ours[5])
    misspell(bench, data, bars)


def misspell(bench: Bench, data: Set, bars: Bars) -> None:
    """What one typing error costs, and what it would cost if no close words were searched for."""
    cut = 5
    whole = recalls(bench.ids, data.judged, (cut,))[cut]
    rounds = -(-TYPOS // len(data.judged))
    wrong = [misspelt(query, seed) for seed in range(rounds) for query in data.judged]
    lost = whole - recalls(bench.ids, wrong, (cut,))[cut]
    index, bench.index = bench.index, Exact(bench.words)
    bench.fill()
    exact = recalls(bench.ids, data.judged, (cut,))[cut] - recalls(bench.ids, wrong, (cut,))[cut]
    bench.index = index
    bars.show("recall at 5 that a typing error costs without close words", exact)
    bars.show("recall at 5 that a typing error costs", lost, most=exact / 2)


class Exact(Index):
    """An index that searches for words as they are spelled."""

    def with_close_words(self, asked: QueryWords) -> QueryWords:
        return asked


def cover(bench: Bench, data: Set, bars: Bars) -> None:
    """How many of the tools that people named for a task all its queries together show."""
    asked: dict[str, list[str]] = {}
    for query in data.queries:
        if query["kind"] == "agent":
            asked.setdefault(query["task"], []).append(query["query"])
    tasks = {q["id"].removeprefix("task-"): q["gold"] for q in data.judged if q["kind"] == "task"}
    shares: dict[str, list[float]] = {"top 5": [], "top 10": [], "top 5 with siblings": []}
    for task, gold in tasks.items():
        words = asked.get(task, [])
        top = {n: [one for text in words for one in bench.ids(text)[:n]] for n in (5, 10)}
        named = [
            f"{s.address.server}::{name}"
            for text in words
            for s in bench.search(text, 5).siblings
            for name in s.names[:MOST_SIBLINGS]
        ]
        shares["top 5"].append(recall(gold, top[5]))
        shares["top 10"].append(recall(gold, top[10]))
        shares["top 5 with siblings"].append(recall(gold, top[5] + named))
    for what, values in shares.items():
        least = 78 if "siblings" in what else 0
        bars.show(f"coverage, {what}", 100 * sum(values) / len(values), least=least)


def ident(tool: Any) -> str:
    return f"{tool.server}::{tool.tool}"


def weigh(bench: Bench, rows: list[Json], queries: list[Json], bars: Bars) -> None:
    print("Tokens (o200k)")
    snapshot = Snapshot({BOX.name: BOX}, origin="bench")
    shelves = [(at, tuple(one.visible())) for at, one in bench.known.items()]
    seed = sum(tokens(seed_form(row)) for row in rows)
    host = sum(tokens(compact(row)) for row in rows)
    lines, _ = tool_lines(shelves, "signature")
    signatures = tokens("\n".join(lines))
    bars.show("all tools in the seed's form", seed)
    bars.show("all tools as a host injects them", host)
    bars.show("all tools as signatures", signatures, most=min(seed / 5, host / 4))
    for detail in ("schema", "full", "names"):
        bars.show(f"all tools, detail {detail}", tokens("\n".join(tool_lines(shelves, detail)[0])))
    short = [query["query"] for query in queries if query["kind"] != "task"]
    answers = [bench.search(text, 5) for text in short]
    texts = [search_text(found, "signature", snapshot) for found in answers]
    bare = [msgspec.structs.replace(found, siblings=()) for found in answers]
    for name, all_texts, mean, high in (
        (
            "search answer without siblings",
            [search_text(f, "signature", snapshot) for f in bare],
            0,
            450,
        ),
        ("search answer", texts, 420, 700),
    ):
        counts = sorted(map(tokens, all_texts))
        bars.show(f"{name}, mean", sum(counts) / len(counts), most=mean)
        bars.show(f"{name}, p95", counts[int(0.95 * len(counts))], most=high)
    budgeted = Snapshot({"dev": ToolboxSpec("dev", servers={"a": _budgeted()})}, origin="bench")
    for name, menu in (("menu", snapshot), ("menu with read_result", budgeted)):
        bars.show(name, tokens(json.dumps({"tools": own_definitions(menu)})), most=900)


def _budgeted() -> ServerSpec:
    return ServerSpec(ServerAddress("dev", "a"), StdioCommand("x"), result_budget=1000)


def seed_form(row: Json) -> str:
    keys = ("description", "inputSchema", "annotations")
    search_text = {key: row[key] for key in keys if row.get(key) is not None}
    owner = {"toolbox_name": BOX.name, "source_server": row["server"]}
    return json.dumps({"name": row["tool"], **search_text, **owner}, indent=2, ensure_ascii=False)


def compact(row: Json) -> str:
    search_text = {"name": row["tool"], **{key: row[key] for key in ("description", "inputSchema")}}
    return json.dumps(search_text, separators=(",", ":"), ensure_ascii=False)


def call_blindly(rows: list[Json], bars: Bars) -> None:
    print("Calls made from nothing but a signature")
    made = {False: 0, True: 0}
    shortened = 0
    for row in rows:
        signature = short_signature(row["tool"], arguments_shape(row["inputSchema"]))
        shortened += signature.lossy
        for optional in made if not signature.lossy else ():
            arguments = blind_arguments(read_signature(signature.text)[1], optional=optional)
            fits = jsonschema.Draft202012Validator(row["inputSchema"]).is_valid(arguments)
            made[optional] += fits
    whole = len(rows) - shortened
    bars.show("signatures that are shortened", shortened)
    bars.show("valid with required arguments, %", 100 * made[False] / whole, least=99)
    bars.show("valid with all arguments, %", 100 * made[True] / whole, least=99)


def race(rows: list[Json], queries: list[Json], bars: Bars) -> None:
    large = Bench(rows, copies=-(-LARGE // len(rows)))
    count = sum(len(one.catalogue.tools) for one in large.known.values())
    print(f"Speed among {count} tools, at a load of {os.getloadavg()[0]:.1f}")
    bars.show("build, ms", 1000 * min(large.build() for _ in range(3)), most=2000)
    texts = [query["query"] for query in queries]
    queried = [[timed(large, text) for text in texts] for _ in range(3)]
    show_times("query", queried, bars)
    show_times("whole answer", asyncio.run(answered(large, texts)), bars)
    at, one = next(iter(large.known.items()))
    fewer = Catalogue(dict(list(one.catalogue.tools.items())[:-1]))
    other = msgspec.structs.replace(one, catalogue=fewer)
    since = time.perf_counter()
    large.index.put(at, other.visible(), other.about, other.fingerprint)
    bars.show("one server changed, ms", 1000 * (time.perf_counter() - since), most=20)


class Knowing(View):
    """A view of servers that were all met before; none of them is started."""

    def __init__(self, bench: Bench) -> None:
        servers = {at.server: one.spec for at, one in bench.known.items()}
        box = msgspec.structs.replace(BOX, servers=servers)
        gateway = Gateway(Snapshot({box.name: box}, origin="bench"))
        super().__init__(gateway, gateway.scopes.whole)
        self._said = {
            at: KnownCatalogue(
                one.catalogue, modern=False, server_name=one.title, instructions=one.text
            )
            for at, one in bench.known.items()
        }

    def remembered(self, spec: ServerSpec) -> KnownCatalogue | None:
        return self._said[spec.address]


async def answered(bench: Bench, texts: list[str]) -> list[list[Times]]:
    """The whole way from a query to its answer, three times."""
    view = Knowing(bench)
    async with view.gateway:
        await search_tools(view, wish("x"), skills=False)  # makes the index
        rounds: list[list[Times]] = []
        for _ in range(3):
            times: list[Times] = []
            for arguments in map(wish, texts):
                since = now()
                await search_tools(view, arguments, skills=False)
                times.append(passed(since))
            rounds.append(times)
        return rounds


def wish(query: str) -> msgspec.Raw:
    """What a host sends."""
    return msgspec.Raw(msgspec.json.encode({"query": query}))


def timed(bench: Bench, words: str) -> Times:
    since = now()
    bench.search(words, 5)
    return passed(since)


def now() -> Times:
    return time.process_time(), time.perf_counter()


def passed(since: Times) -> Times:
    """Milliseconds of our own, and those of a clock: other programs run on the same machine."""
    own, clock = now()
    return 1000 * (own - since[0]), 1000 * (clock - since[1])


def show_times(what: str, rounds: list[list[Times]], bars: Bars) -> None:
    """The best of three of each query; by the clock, all of them."""
    own = sorted(min(times)[0] for times in zip(*rounds, strict=True))
    clock = sorted(clock for times in rounds for _, clock in times)
    bars.show(f"{what} p50, ms", own[len(own) // 2])
    bars.show(f"{what} p95, ms", own[int(0.95 * len(own))], most=5)
    bars.show(f"{what} p95 by the clock, ms", clock[int(0.95 * len(clock))])


def main(folders: list[Path]) -> int:
    bars = Bars()
    for folder in folders:
        data = Set(folder)
        bench = Bench(data.tools)
        counts = f"{len(data.tools)} tools, {len(data.queries)} queries"
        print(f"{data.name}: {counts}; index built in {1000 * bench.build():.0f} ms")
        judge(bench, data, bars)
        if len(folders) > 1:
            continue
        if set(LEAST) <= set(data.kinds):
            cover(bench, data, bars)
        weigh(bench, data.tools, data.queries, bars)
        call_blindly(data.tools, bars)
        race(data.tools, data.queries, bars)
    return 1 if bars.failed else 0


if __name__ == "__main__":
    sys.exit(main([Path(folder) for folder in sys.argv[1:]]))
