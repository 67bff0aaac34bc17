"""What `top` shows: the figures of now, and what has changed since the last ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from mcp_workbench.cli.terminal import about, cut, number, table
from mcp_workbench.core.call_stats import NO_TIMES, PHASES, CallSeries, Histogram, merged
from mcp_workbench.core.figures import Figures, ServerFigures

_HEAD = (
    "SERVER", "STATE", "CALLS/S", "CALLS", "ERRORS", "P50", "P95", "IN FLIGHT", "WAITING", "RESTARTS",
    "MEMORY", "TOKENS", "CONNECTIONS",
)  # fmt: skip
_RIGHT = frozenset(range(2, len(_HEAD)))
_TOOLS = ("TOOL", "CALLS", "ERRORS", "MEAN", "RESULT TOKENS")
MOST_TOOLS = 10  # shown
_MB = 1 << 20


class FiguresChange(NamedTuple):
    """What happened between two readings."""

    seconds: float
    calls: int
    per_server: dict[tuple[str, str], int]
    cpu: float  # share of one processor


def are_whole(figures: Figures) -> bool:
    """Whether they are as we count them: whoever answers at a URL may say anything."""
    stats, usual = figures.stats, len(NO_TIMES.counts)
    times = [h for series in stats.series for h in (series.total, *series.phases)]
    return (
        all(len(series.phases) == len(PHASES) for series in stats.series)
        and all(len(histogram.counts) == usual for histogram in times)
        and all(tool.calls > 0 for tool in stats.tools)
        and (stats.calls > 0 or not stats.series)
    )


def change_between(before: Figures | None, now: Figures) -> FiguresChange | None:
    """None if there is nothing to compare with: no earlier reading, or one of another process."""
    if before is None or before.pid != now.pid or now.seconds <= before.seconds:
        return None
    seconds = now.seconds - before.seconds
    past, present = _calls(before.stats.series), _calls(now.stats.series)
    grown = {address: count - past.get(address, 0) for address, count in present.items()}
    calls = now.stats.calls - before.stats.calls
    return FiguresChange(seconds, calls, grown, (now.cpu - before.cpu) / seconds)


def _calls(series: Iterable[CallSeries]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for one in series:
        address = (one.toolbox, one.server)
        counts[address] = counts.get(address, 0) + one.calls
    return counts


def screen(now: Figures, change: FiguresChange | None, width: int, height: int) -> list[str]:
    """The lines for a terminal of this size; 0 is any height."""
    lines = [*_summary(now, change), "", *_servers(now, change)]
    tools = _tools(now)
    if tools and (not height or len(lines) + len(tools) + 1 <= height):
        lines += ["", *tools]
    elif tools and height - len(lines) > 3:
        lines += ["", *tools[: height - len(lines) - 1]]
    shown = [cut(_on_one_line(line), width) for line in lines]
    return shown[:height] if height else shown


def _summary(now: Figures, change: FiguresChange | None) -> list[str]:
    servers, hosts, tokens = now.servers, now.hosts, now.tokens
    total = merged(series.total for series in now.stats.series)
    errors = sum(series.calls for series in now.stats.series if series.is_error)
    memory = sum(server.memory for server in servers)
    cpu = "-" if change is None else f"{change.cpu * 100:.1f} %"
    rate = "-" if change is None else _rate(change.calls, change.seconds)
    ready = sum(server.state in ("ready", "degraded") for server in servers)
    share = f" ({errors / now.stats.calls * 100:.1f} %)" if errors else ""
    lines = (
        (
            f"mcp-workbench {now.version} (pid {now.pid})",
            _duration(now.seconds),
            f"{now.mode} mode",
        ),
        (f"cpu {cpu}", f"memory {_memory(now.memory)}", f"memory of servers {_memory(memory)}"),
        (
            f"servers {ready} of {len(servers)} connected",
            f"calls in flight {sum(server.in_flight for server in servers)}",
            f"waiting {sum(server.waiting for server in servers)}",
        ),
        (
            f"calls {number(now.stats.calls)}, {rate}/s",
            f"errors {number(errors)}{share}",
            f"p50 {_time(total, 0.5)}",
            f"p95 {_time(total, 0.95)}",
            f"p99 {_time(total, 0.99)}",
        ),
        (_split(now), _outcomes(now)),
        (
            f"hosts {hosts.joined} joined",
            f"{hosts.sessions} sessions over HTTP",
            f"{hosts.http_connections} connections",
        ),
        (
            f"tokens {about(tokens.direct)} listed directly",
            f"{about(tokens.shown)} shown",
            f"{about(tokens.saved)} saved",
        ),
    )
    return ["   ".join(parts) for parts in lines]


def _split(now: Figures) -> str:
    """Which part of the time was spent where."""
    sums = [sum(s.phases[i].sum for s in now.stats.series) for i in range(len(PHASES))]
    whole = sum(sums)
    if not whole:
        return "time -"
    parts = (f"{name} {part / whole * 100:.0f} %" for name, part in zip(PHASES, sums, strict=True))
    return "time " + ", ".join(parts)


def _outcomes(now: Figures) -> str:
    """How calls ended, the most frequent first."""
    counts: Counter[str] = Counter()
    for series in now.stats.series:
        counts[series.outcome] += series.calls
    parts = (f"{word} {number(count)}" for word, count in counts.most_common())
    return f"outcomes {', '.join(parts) or '-'}"


def _servers(now: Figures, change: FiguresChange | None) -> list[str]:
    rows = [_HEAD, *(_row(server, now, change) for server in now.servers)]
    return table(rows, right=_RIGHT)


def _row(server: ServerFigures, now: Figures, change: FiguresChange | None) -> tuple[str, ...]:
    address = (server.toolbox, server.server)
    mine = [s for s in now.stats.series if (s.toolbox, s.server) == address]
    total = merged(series.total for series in mine)
    rate = "-" if change is None else _rate(change.per_server.get(address, 0), change.seconds)
    return (
        f"{server.toolbox}/{server.server}",
        server.state,
        rate,
        number(sum(series.calls for series in mine)),
        number(sum(series.calls for series in mine if series.is_error)),
        _time(total, 0.5),
        _time(total, 0.95),
        number(server.in_flight),
        number(server.waiting),
        number(server.restarts),
        _memory(server.memory),
        about(server.tokens) if server.tools else "-",
        number(server.connections),
    )


def _tools(now: Figures) -> list[str]:
    busiest = sorted(now.stats.tools, key=lambda tool: -tool.calls)[:MOST_TOOLS]
    rows = [
        (
            _on_one_line(f"{tool.toolbox}/{tool.server}/{tool.tool}"),
            number(tool.calls),
            number(tool.errors),
            _seconds(tool.seconds / tool.calls),
            about(tool.result_tokens),
        )
        for tool in busiest
    ]
    return table([_TOOLS, *rows], right=frozenset({1, 2, 3, 4})) if rows else []


def _on_one_line(text: str) -> str:
    """A tool's name is text of its server, and everything is text of whoever answers at a URL."""
    return text if text.isprintable() else ascii(text)


# Numbers


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:.1f}"


def _memory(size: int) -> str:
    return f"{size / _MB:,.0f} MB" if size else "-"


def _time(histogram: Histogram, share: float) -> str:
    return _seconds(histogram.quantile(share)) if histogram.count else "-"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _duration(seconds: float) -> str:
    minutes, _ = divmod(int(seconds), 60)
    if not minutes:
        return f"up {int(seconds)} s"
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min")]
    return "up " + " ".join(f"{count} {unit}" for count, unit in parts if count)
