"""How many poisoned definitions are recognized, and how many honest ones: `make bench-detectors DATA=folder`.

The folder has what is to be read, under these names; what is missing is left out and named:

    livemcpbench/tools.jsonl   honest tools of 70 servers (`bench/search_sets.py`), from icip-cas/LiveMCPBench
    MCPSafety                  a clone of xjzzzzzzzz/MCPSafety: MCP-SafetyBench, which has no licence; never copy it
    getmcpm                    a clone of getmcpm/cli: messages that its guard blocks or passes
    mcpproxy-go                a clone of smart-mcp-proxy/mcpproxy-go: attacks, honest texts, reference servers

Nothing of it is kept. Each set has a bar: what was recorded in docs/security.md, and at most 2.5 % false alarms.
"""

# A measure, not the product: what is plainly wrong is enough.
# pyright: basic

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mcp_workbench.core.definition_warnings import definition_warnings

FALSE_ALARMS = 0.025  # of honest definitions, at most
_FIXTURES = "src/guard/__tests__/fixtures/mcptox"
_EVALUATION = "specs/065-evaluation-foundation/datasets"
_REFERENCE = "specs/083-discovery-profiler/datasets/corpus_v2.tools.json"

Sample = tuple[str, Any]  # its kind, and the definition


class Corpus(NamedTuple):
    """A set of definitions, and how much of it is, or may be, marked."""

    name: str
    read: Callable[[Path], Iterator[Sample]]
    poisoned: bool
    bar: float = FALSE_ALARMS  # least share that is recognized, or greatest of false alarms


def live(folder: Path) -> Iterator[Sample]:
    for line in (folder / "livemcpbench/tools.jsonl").read_text("utf-8").splitlines():
        tool = json.loads(line)
        members = ("tool", "description", "inputSchema", "annotations")
        yield tool["server"], {name: tool[name] for name in members if name in tool}


def safety_bench(folder: Path) -> Iterator[Sample]:
    """Definitions that a task poisons or adds. Attacks in results and in code are not in definitions."""
    tasks = folder / "MCPSafety/mcpuniverse/benchmark/configs/test"
    for file in sorted(tasks.rglob("*.json")):
        task = json.loads(file.read_text("utf-8"))
        kind = task.get("attack_category", "")
        for change in task.get("mcp_server_modifications") or []:
            if "modification_description" in change:
                text = change["modification_description"]
                yield kind, {"name": change["tool_name"], "description": text}
        added = task.get("mcp_server_additions")
        if added:
            members = ("tool_name", "description", "input_parameters")
            yield kind, {name: added.get(name) for name in members}


def getmcpm(folder: Path, kind: str) -> Iterator[Sample]:
    for file in sorted((folder / "getmcpm" / _FIXTURES / kind).glob("*.json")):
        yield file.stem, json.loads(file.read_text("utf-8"))["message"]


def mcpproxy(folder: Path, labels: tuple[str, ...]) -> Iterator[Sample]:
    for name in ("detect_corpus_v1.json", "security_corpus_v1.json"):
        data = json.loads((folder / "mcpproxy-go" / _EVALUATION / name).read_text("utf-8"))
        for entry in data["entries"]:
            label = entry["category"] if entry["label"] == "benign" else "malicious"
            if label in labels:
                yield entry["category"], entry.get("tool") or {"description": entry["description"]}


def reference(folder: Path) -> Iterator[Sample]:
    for tool in json.loads((folder / "mcpproxy-go" / _REFERENCE).read_text("utf-8"))["tools"]:
        members = ("tool", "description", "schema")
        yield tool["server"], {name: tool[name] for name in members if name in tool}


CORPORA = (
    Corpus("MCP-SafetyBench, poisoned", safety_bench, poisoned=True, bar=0.94),
    Corpus("getmcpm, attacks", lambda folder: getmcpm(folder, "attacks"), poisoned=True, bar=0.93),
    Corpus("mcpproxy-go, attacks", lambda f: mcpproxy(f, ("malicious",)), poisoned=True, bar=0.62),
    Corpus("LiveMCPBench, honest", live, poisoned=False),
    Corpus("getmcpm, honest", lambda folder: getmcpm(folder, "benign"), poisoned=False),
    Corpus("reference servers, honest", reference, poisoned=False),
    Corpus("mcpproxy-go, honest", lambda f: mcpproxy(f, ("benign",)), poisoned=False),
    Corpus(
        "mcpproxy-go, honest, made to deceive detectors",
        lambda f: mcpproxy(f, ("hard_negative",)),
        poisoned=False,
        bar=0.45,
    ),
)


def measured(corpus: Corpus, folder: Path) -> bool:
    """Prints a line about this set; returns whether its bar is kept."""
    try:
        samples = list(corpus.read(folder))
    except FileNotFoundError as error:
        print(f"{corpus.name:48} not there: {error.filename}")
        return True
    if not samples:
        print(f"{corpus.name:48} not there")
        return True
    kinds: dict[str, list[bool]] = {}
    for kind, definition in samples:
        kinds.setdefault(kind, []).append(bool(definition_warnings(definition)))
    marked = sum(sum(found) for found in kinds.values())
    share = marked / len(samples)
    kept = share >= corpus.bar if corpus.poisoned else share <= corpus.bar
    verb = "recognized" if corpus.poisoned else "false alarms"
    bar = f"{'at least' if corpus.poisoned else 'at most'} {corpus.bar:.1%}"
    verdict = "kept" if kept else "MISSED"
    print(f"{corpus.name:48} {marked:3} of {len(samples):3} {verb}, {share:.1%} ({bar}: {verdict})")
    odd = {k: v for k, v in kinds.items() if all(v) != corpus.poisoned or any(v) != corpus.poisoned}
    if len(kinds) < len(samples):
        for kind, found in sorted(odd.items()):
            print(f"    {kind}: {sum(found)} of {len(found)}")
    return kept


if __name__ == "__main__":
    verdicts = [measured(corpus, Path(sys.argv[1])) for corpus in CORPORA]
    sys.exit(not all(verdicts))
