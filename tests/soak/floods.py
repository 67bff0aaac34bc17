"""Servers that pour out more than anybody wants: the loop stays awake, memory stays bounded, others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from tests.kit.config import quick_entry
from tests.kit.results import error_code, text
from tests.kit.servers.bad_http import bad_http
from tests.soak.bench import Bench, workbench
from tests.soak.figures import Figure
from tests.soak.hosts import BusyHost

CAP = 16 << 20  # bytes; limits.messageBytes of these runs
ROOM = 32  # MiB beyond the cap
LAG = 0.1  # seconds


Call = Callable[[BusyHost], Awaitable[dict[str, Any]]]


class _Flood(NamedTuple):
    name: str
    code: str  # that the caller is told
    call: Call


class Seen(NamedTuple):
    """What one flood did."""

    name: str
    code: str
    right: bool
    lag: float  # by the clock
    busy: float  # by our own doing
    rise: float  # MiB
    others: int  # calls elsewhere meanwhile
    errors: int  # of them


def _calling(server: str, tool: str, arguments: dict[str, Any]) -> Call:
    return lambda host: host.use(server, tool, arguments)


FLOODS = (
    _Flood("a line over the cap", "too_large", _calling("a", "line", {"bytes": 3 * CAP})),
    _Flood("an endless line", "too_large", _calling("a", "endless", {"bytes": 16 * CAP})),
    _Flood("a gzip bomb", "too_large", _calling("bomb", "echo", {"text": "hi"})),
    _Flood("200,000 small messages", "", _calling("a", "flood", {"notices": 200_000})),
)


SMALL_FLOODS = (
    _Flood("a line over the cap", "too_large", _calling("a", "line", {"bytes": 2 * CAP})),
    _Flood("20,000 small messages", "", _calling("a", "flood", {"notices": 20_000})),
)


async def _under(flood: _Flood, bench: Bench) -> Seen:
    host = await BusyHost(bench.port).open()
    beside = await BusyHost(bench.port).open()
    await beside.use("b", "echo", {"nonce": 0})
    await host.use("a", "seen", {})
    before = bench.vitals()
    done = asyncio.Event()
    others = errors = 0

    async def go_on() -> None:
        nonlocal others, errors
        while not done.is_set():
            answer = await beside.use("b", "echo", {"nonce": others})
            errors += text(answer) != f"b {others}"
            others += 1

    going_on = asyncio.ensure_future(go_on())
    answer = await flood.call(host)
    done.set()
    await going_on
    after = bench.vitals()
    found = error_code(answer)
    await host.close()
    await beside.close()
    rise = after.peak - before.rss
    return Seen(flood.name, found, found == flood.code, after.lag, after.busy, rise, others, errors)


async def _all(floods: tuple[_Flood, ...], *, shared: bool) -> list[Figure]:
    figures: list[Figure] = []
    async with bad_http() as bad:
        servers = {
            "a": quick_entry("a"),
            "b": quick_entry("b"),
            "bomb": {"url": f"http://127.0.0.1:{bad.port}/gzbomb", "era": "legacy"},
        }
        for flood in floods:
            with workbench(servers, limits={"messageBytes": CAP}) as bench:
                figures.append(_figure(await _under(flood, bench), shared=shared))
    return figures


def _figure(seen: Seen, *, shared: bool) -> Figure:
    return Figure(
        seen.name,
        "loop lag under 100 ms, other calls go on; memory under the cap + 32 MB",
        f"told {seen.code or 'its result'}; lag {seen.lag * 1000:.0f} ms, "
        f"{seen.busy * 1000:.0f} ms of it our own work; "
        f"{seen.rise:.0f} MiB more at a cap of {CAP >> 20} MiB; "
        f"{seen.others:,} calls beside it, {seen.errors} errors",
        seen.right
        and (seen.busy if shared else seen.lag) < LAG
        and seen.rise < (CAP >> 20) + ROOM
        and seen.others > 0
        and seen.errors == 0,
    )


def measure(floods: tuple[_Flood, ...] = FLOODS, *, shared: bool = False) -> list[Figure]:
    """On a machine that is `shared` with other work, only our own work counts as lag."""
    return asyncio.run(_all(floods, shared=shared))
