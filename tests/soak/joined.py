"""A shared workbench that is killed again and again: each request of its hosts has one answer."""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from tests.kit.clock import eventually
from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost, parsed
from tests.kit.processes import alive
from tests.kit.shared import Shared
from tests.soak.figures import Figure

CALLS = 300
TURNS = 20  # calls one after the other, before


def measure(kills: int = 200) -> list[Figure]:
    """At moments that nobody has chosen, hosts of both eras, tools that may run twice and others."""
    chosen, found = random.Random(kills), Counter[str]()
    for number in range(kills):
        with tempfile.TemporaryDirectory() as folder:
            harmless, modern = number % 2 == 0, number % 4 < 2
            moment = Moment(chosen.randrange(TURNS), chosen.randrange(CALLS))
            found += _killed(Path(folder), moment, harmless=harmless, modern=modern)
    of = f"of {kills * CALLS:,} calls amid {kills} kills"
    rows = (
        ("lost", "requests without an answer"),
        ("doubled", "requests with two answers"),
        ("excused", "calls that may run twice, and were not made again"),
        ("wrong", "answers that are not the call's own"),
    )
    return [
        Figure(
            f"{what} when the shared workbench is killed", "0", f"{found[key]} {of}", not found[key]
        )
        for key, what in rows
    ]


class Moment(NamedTuple):
    """When it is killed: right after an answer has come, for then the next step is a note of it."""

    alone: int  # so many calls were made one after the other
    among: int  # and so many answers have come of those that were made at once


def _killed(folder: Path, moment: Moment, *, harmless: bool, modern: bool) -> Counter[str]:
    bench = Shared(config_file(folder, {"a": _server(folder, harmless=harmless)}))
    pid = bench.up()
    with bench.host(modern=modern) as host:
        host.handshake()
        host.use("a", "stats")
        for _ in range(moment.alone):
            host.use("a", "stats")
        calls = [host.begin_use("a", "echo", {"n": n}) for n in range(CALLS)]
        came = [host.line() for _ in range(moment.among)]
        os.kill(pid, signal.SIGKILL)
        told = _answers(host, calls, came)
    eventually(lambda: not alive(pid), "it is gone")
    found = Counter(lost=sum(not told[id] for id in calls))
    for number, id in enumerate(calls):
        found["doubled"] += len(told[id]) > 1
        for answer in told[id]:
            found[_kind(answer, number, harmless=harmless)] += 1
    return found


def _server(folder: Path, *, harmless: bool) -> dict[str, Any]:
    tools = folder / "tools.json"
    hints = {"readOnlyHint": True} if harmless else {}
    shape = {"inputSchema": {"type": "object"}, "annotations": hints}
    tools.write_text(json.dumps([{"name": name, **shape} for name in ("stats", "echo")]))
    return entry(f"tools={tools}")


def _answers(host: PipeHost, calls: list[int], came: list[bytes]) -> dict[int, list[Any]]:
    """All that came for each; what is asked last is answered when everything else was."""
    told: dict[int, list[Any]] = defaultdict(list)
    for line in came:
        message = parsed(line)
        told[message["id"]].append(message["result"])
    while set(calls) - set(told):
        try:
            message = host.receive()
        except queue.Empty:
            return told
        if message is None:
            return told
        told[message["id"]].append(message["result"])
    host.result("tools/list")
    for message in host.others:
        told[message["id"]].append(message["result"])
    return told


def _kind(result: Any, number: int, *, harmless: bool) -> str:
    if result.get("_meta", {}).get("mcp-workbench/code") == "server_exited":
        return "excused" if harmless else "may have run"
    text = json.loads(result["content"][0]["text"])
    return "right" if text["arguments"] == {"n": number} else "wrong"
