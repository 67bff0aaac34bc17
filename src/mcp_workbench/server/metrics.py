"""The figures in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from mcp_workbench.core.call_stats import BOUNDS, PHASES, CallSeries, Histogram, merged

if TYPE_CHECKING:
    from mcp_workbench.core.figures import Figures, ServerFigures

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
STATES = ("idle", "starting", "ready", "degraded", "failed", "broken")
_UP = ("ready", "degraded")

Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]


class Metric(NamedTuple):
    """One name with its samples."""

    name: str
    kind: str  # counter, gauge or histogram
    help: str
    samples: list[Sample]
    histograms: list[tuple[Labels, Histogram]] = []  # noqa: RUF012 - never changed

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            yield _line(self.name, labels, value)
        for labels, histogram in self.histograms:
            yield from _histogram_lines(self.name, labels, histogram)


def metrics_text(figures: Figures) -> bytes:
    """The whole document."""
    lines = (line for metric in metrics(figures) for line in metric.lines())
    return ("\n".join(lines) + "\n").encode()


def metrics(figures: Figures) -> list[Metric]:
    """Every metric, also those that have no samples yet."""
    return [*_process(figures), *_calls(figures.stats.series), *_servers(figures.servers)]


def _process(figures: Figures) -> Iterable[Metric]:
    hosts, tokens = figures.hosts, figures.tokens
    about = (("version", figures.version), ("mode", figures.mode))
    yield Metric("mcp_workbench_info", "gauge", "Version and tool mode.", [(about, 1)])
    yield _one("uptime_seconds", "gauge", "Since the start.", figures.seconds)
    yield _one("http_connections", "gauge", "Open connections to the port.", hosts.http_connections)
    sessions: list[Sample] = [
        ((("kind", "http"),), hosts.sessions),
        ((("kind", "joined"),), hosts.joined),
    ]
    yield Metric(
        "mcp_workbench_sessions",
        "gauge",
        "Hosts: sessions over HTTP, and hosts that share a workbench in the background.",
        sessions,
    )
    yield _one(
        "tokens_direct",
        "gauge",
        "Estimated tokens that every request would have with each tool listed directly.",
        tokens.direct,
    )
    yield _one(
        "tokens_shown",
        "gauge",
        "Estimated tokens of the workbench's own tools and instructions.",
        tokens.shown,
    )
    yield _one("tokens_saved", "gauge", "The difference of the two.", tokens.saved)
    memory: list[Sample] = [((), figures.memory)] if figures.memory else []
    yield Metric(
        "process_resident_memory_bytes", "gauge", "Of the workbench, without servers.", memory
    )
    yield Metric("process_cpu_seconds_total", "counter", "Of the workbench.", [((), figures.cpu)])
    fds: list[Sample] = [((), figures.descriptors)] if figures.descriptors else []
    yield Metric("process_open_fds", "gauge", "File descriptors of the workbench.", fds)


def _one(name: str, kind: str, help: str, value: float) -> Metric:
    return Metric(f"mcp_workbench_{name}", kind, help, [((), value)])


def _calls(series: Iterable[CallSeries]) -> Iterable[Metric]:
    series = tuple(series)
    of: dict[tuple[str, str], list[CallSeries]] = {}
    for one in series:
        of.setdefault((one.toolbox, one.server), []).append(one)
    yield Metric(
        "mcp_workbench_calls_total",
        "counter",
        "Calls that have ended.",
        [((*_address(s.toolbox, s.server), ("outcome", s.outcome)), s.calls) for s in series],
    )
    for name, help, value in _SIZES:
        samples: list[Sample] = [
            (_address(*address), sum(map(value, those))) for address, those in of.items()
        ]
        yield Metric(f"mcp_workbench_{name}", "counter", help, samples)
    totals: list[tuple[Labels, Histogram]] = []
    for address, those in of.items():
        for word, is_error in (("ok", False), ("error", True)):
            if alike := [s.total for s in those if s.is_error is is_error]:
                totals.append(((*_address(*address), ("result", word)), merged(alike)))
    yield Metric(
        "mcp_workbench_call_duration_seconds",
        "histogram",
        "From the request of a host to our answer; result is ok or error.",
        [],
        totals,
    )
    phases = [
        ((*_address(*address), ("phase", phase)), merged(s.phases[number] for s in those))
        for address, those in of.items()
        for number, phase in enumerate(PHASES)
    ]
    yield Metric(
        "mcp_workbench_call_phase_seconds",
        "histogram",
        "The same, split: waiting, start of the server, the server, the workbench itself.",
        [],
        phases,
    )


_SIZES: tuple[tuple[str, str, Callable[[CallSeries], int]], ...] = (
    ("call_argument_bytes_total", "Bytes of arguments.", lambda s: s.arguments_bytes),
    ("call_result_bytes_total", "Bytes of results.", lambda s: s.result_bytes),
)

_SERVER: tuple[tuple[str, str, str, Callable[[ServerFigures], float]], ...] = (
    ("up", "gauge", "1 if the server answers.", lambda s: s.state in _UP),
    ("connections", "gauge", "Connections that take calls.", lambda s: s.connections),
    ("starts_total", "counter", "Connections that were begun.", lambda s: s.starts),
    ("restarts_total", "counter", "Those after one that had failed.", lambda s: s.restarts),
    ("failures", "gauge", "Failures in a row.", lambda s: s.failures),
    ("calls_in_flight", "gauge", "Calls that it has not answered.", lambda s: s.in_flight),
    ("calls_waiting", "gauge", "Calls that wait until it is ready.", lambda s: s.waiting),
    ("processes", "gauge", "Its processes on this machine.", lambda s: s.processes),
    ("memory_bytes", "gauge", "Resident memory of these.", lambda s: s.memory),
    ("tools", "gauge", "Tools that a model can see.", lambda s: s.tools),
    ("tokens", "gauge", "Estimated tokens of these, listed directly.", lambda s: s.tokens),
)


def _servers(servers: Iterable[ServerFigures]) -> Iterable[Metric]:
    servers = tuple(servers)
    states: list[Sample] = [
        ((("state", state),), sum(server.state == state for server in servers)) for state in STATES
    ]
    yield Metric("mcp_workbench_servers", "gauge", "Servers of the configuration.", states)
    for name, kind, help, value in _SERVER:
        samples: list[Sample] = [(_address(s.toolbox, s.server), value(s)) for s in servers]
        yield Metric(f"mcp_workbench_server_{name}", kind, help, samples)


# The format


def _address(toolbox: str, server: str) -> Labels:
    return (("toolbox", toolbox), ("server", server))


def _histogram_lines(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    bounds = [f"{bound:g}" for bound in BOUNDS]
    for bound, count in zip((*bounds, "+Inf"), histogram.cumulative(), strict=True):
        yield _line(f"{name}_bucket", (*labels, ("le", bound)), count)
    yield _line(f"{name}_sum", labels, histogram.sum)
    yield _line(f"{name}_count", labels, histogram.count)


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    shown = f"{name}{{{inside}}}" if labels else name
    return f"{shown} {value if isinstance(value, float) else int(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
