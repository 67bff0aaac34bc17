"""The three suites. Each visits all contenders in turn, round by round, and returns their figures."""

# A yardstick or a measure, not the product: what is plainly wrong is enough.
# pyright: basic, reportOptionalMemberAccess=false

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import msgspec
import proc
from host import SERVER, TOOLBOX, Contender, GatewayFailed, Host, HttpHost, UrlServer

Figures = dict[str, dict[str, float]]  # by contender, then by figure

ECHO = {"text": "x" * 64}
WARM_UP = 400  # calls before the first that counts
BATCH = 100  # calls per contender and round
IN_FLIGHT = 64
SIZES = ((100, 12), (1024, 6))  # KiB per result, calls per contender and round
MANY = 50  # servers, in the suite `open`
SETTLE = 0.3  # seconds before memory is read


class Lineup:
    """Who takes part, where their files are, and who fell out and why."""

    def __init__(self, contenders: Sequence[Contender], folder: Path) -> None:
        self._contenders, self._folder = contenders, folder
        self.failures: dict[str, str] = {}

    def start(
        self, contender: Contender, stack: ExitStack, servers: int = 1, url: str = ""
    ) -> Host:
        """A new process of it, with a folder of its own; `stack` ends both.

        Its servers are started by itself, unless there is the `url` of one.
        """
        prefix = f"{contender.name}-"
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix, dir=self._folder))
        )
        (folder / "config.json").write_bytes(_config(servers, url))
        return stack.enter_context((HttpHost if contender.over_http else Host)(contender, folder))

    def turn(self, number: int) -> Iterator[Contender]:
        """Those still in the run; the other way round every second time."""
        for contender in _turn(self._contenders, number):
            if contender.name not in self.failures:
                yield contender

    def drop(self, contender: Contender, reason: GatewayFailed) -> None:
        self.failures[contender.name] = str(reason)


def latency(lineup: Lineup, rounds: int, *, to_url: bool = False) -> Figures:
    """Calls one by one, 64 at once, and with large results; memory. All contenders live at once.

    `to_url`: the server behind them is one that they reach over HTTP.
    """
    with ExitStack() as stack:
        url = stack.enter_context(UrlServer()).url if to_url else ""
        hosts = []
        for contender in lineup.turn(0):
            try:
                host = lineup.start(contender, stack, url=url)
                host.get_ready()
                hosts.append(host)
            except GatewayFailed as reason:
                lineup.drop(contender, reason)
        time.sleep(1)
        figures: Figures = {host.name: {} for host in hosts}
        for host in filter(_measurable, hosts):
            figures[host.name]["memory_mb"] = host.memory()[0]
        _one_by_one(hosts, figures, rounds)
        _at_once(hosts, figures, max(3, rounds // 2))
        for kib, calls in SIZES:
            _large(hosts, figures, (kib, calls, max(4, rounds * 2 // 5)))
        return figures


def startup(lineup: Lineup, rounds: int) -> Figures:
    """From the spawn to each step of the handshake, with new processes every time."""
    samples: dict[str, list[dict[str, float]]] = {}
    for number in range(rounds):
        for contender in lineup.turn(number):
            with ExitStack() as stack:
                try:
                    host = lineup.start(contender, stack)
                    reached = host.get_ready()
                except GatewayFailed as reason:
                    lineup.drop(contender, reason)
                    continue
                sample = {f"start_{step}_ms": ms for step, ms in reached.items()}
                if _measurable(host):
                    sample["start_cpu_ms"] = host.cpu() * 1e3
                samples.setdefault(contender.name, []).append(sample)
    return {name: _medians(taken) for name, taken in samples.items()}


def open_many(lineup: Lineup, rounds: int) -> Figures:
    """Opening one server and fifty: wall time, and what each further server costs in memory."""
    samples: dict[str, list[dict[str, float]]] = {}
    for number in range(rounds):
        for servers in (1, MANY):
            for contender in lineup.turn(number):
                if not contender.relays:
                    continue
                try:
                    sample = _opened(lineup, contender, servers)
                except GatewayFailed as reason:
                    lineup.drop(contender, reason)
                    continue
                samples.setdefault(contender.name, []).append(sample)
    figures = {name: _medians(taken) for name, taken in samples.items()}
    if proc.KNOWN:
        for mine in figures.values():
            grown = mine.get(f"private_{MANY}_mb", 0) - mine["private_1_mb"]
            mine["growth_mb"] = grown / (MANY - 1)
    return figures


def _opened(lineup: Lineup, contender: Contender, servers: int) -> dict[str, float]:
    with ExitStack() as stack:
        host = lineup.start(contender, stack, servers)
        reached = host.get_ready(servers)
        sample = {
            f"open_{servers}_ms": reached["open"] - reached["list"],
            f"start_open_{servers}_ms": reached["open"],
        }
        if proc.KNOWN:
            time.sleep(SETTLE)
            sample[f"private_{servers}_mb"] = host.memory()[1]
            sample[f"open_{servers}_cpu_ms"] = host.cpu() * 1e3
        return sample


def _one_by_one(hosts: list[Host], figures: Figures, rounds: int) -> None:
    lines = {host.name: host.call("echo", ECHO) for host in hosts}
    for host in hosts:
        host.in_turn(lines[host.name], WARM_UP)
    taken: dict[str, list[int]] = {host.name: [] for host in hosts}
    middle: dict[str, list[float]] = {host.name: [] for host in hosts}
    cpu = dict.fromkeys(lines, 0.0)
    for number in range(rounds):
        for host in _turn(hosts, number):
            host.in_turn(lines[host.name], 10)
            before = host.cpu()
            batch = host.in_turn(lines[host.name], BATCH)
            cpu[host.name] += host.cpu() - before
            taken[host.name] += batch
            middle[host.name].append(median(batch))
    for host in hosts:
        mine, everything = figures[host.name], sorted(taken[host.name])
        mine["p50_us"] = median(everything) / 1e3
        mine["p99_us"] = everything[int(len(everything) * 0.99)] / 1e3
        mine["added_us"] = _added(middle, host) / 1e3
        if _measurable(host):
            mine["cpu_us"] = cpu[host.name] / len(everything) * 1e6


def _at_once(hosts: list[Host], figures: Figures, rounds: int) -> None:
    lines = {host.name: host.call("echo", ECHO) for host in hosts}
    rate: dict[str, list[float]] = {host.name: [] for host in hosts}
    cpu: dict[str, list[float]] = {host.name: [] for host in hosts}
    for number in range(rounds):
        for host in _turn(hosts, number):
            # About a third of a second, if 64 in flight are three times as fast as one.
            calls = int(0.35 / (figures[host.name]["p50_us"] / 1e6 / 3))
            calls = max(60, min(6000, calls))
            if number == 0:
                host.at_once(lines[host.name], min(calls, 200), IN_FLIGHT)
            before = host.cpu()
            rate[host.name].append(calls / host.at_once(lines[host.name], calls, IN_FLIGHT))
            cpu[host.name].append((host.cpu() - before) / calls * 1e6)
    for host in hosts:
        figures[host.name]["calls_per_s"] = median(rate[host.name])
        if _measurable(host):
            figures[host.name]["cpu_at_once_us"] = median(cpu[host.name])


def _large(hosts: list[Host], figures: Figures, plan: tuple[int, int, int]) -> None:
    kib, calls, rounds = plan
    lines = {host.name: host.call("blob", {"kb": kib}) for host in hosts}
    middle: dict[str, list[float]] = {host.name: [] for host in hosts}
    for host in hosts:
        host.in_turn(lines[host.name], 3)
    for number in range(rounds):
        for host in _turn(hosts, number):
            middle[host.name].append(median(host.in_turn(lines[host.name], calls)))
    for host in hosts:
        figures[host.name][f"added_{kib}k_us"] = _added(middle, host) / 1e3


def _measurable(host: Host) -> bool:
    """Whether it has processes of its own, and Linux tells about them."""
    return proc.KNOWN and host.relays


def _added(middle: dict[str, list[float]], host: Host) -> float:
    """The median over the rounds of what a call took longer than a direct one in that round."""
    return median(a - b for a, b in zip(middle[host.name], middle["direct"], strict=True))


def _medians(samples: list[dict[str, float]]) -> dict[str, float]:
    names = {name: None for sample in samples for name in sample}
    return {name: median(s[name] for s in samples if name in s) for name in names}


def _turn(things: Sequence, number: int) -> Sequence:
    return things if number % 2 == 0 else things[::-1]


def _config(servers: int, url: str = "") -> bytes:
    """The same for every gateway: one toolbox with so many servers, or with the one at this URL."""
    behind: dict[str, dict] = {
        f"s{i}": {"command": sys.executable, "args": ["-I", str(SERVER), f"s{i}"]}
        for i in range(servers)
    }
    if url:
        behind = {"s0": {"url": url}}
    box = {"description": "bench", "mcpServers": behind}
    return msgspec.json.encode({"toolboxes": {TOOLBOX: box}})
