"""Ten times more calls than a server can take: it goes on at its own pace, the rest is refused at once."""

from __future__ import annotations

import threading
import time
from collections import Counter

from tests.kit.config import quick_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import error_code, text
from tests.soak.bench import pipe_workbench
from tests.soak.figures import Figure

SERVICE = 0.002  # seconds that the server takes for a call
PLACES = 64  # calls that may be in flight
TIMES = 10
SLICE = 0.01  # seconds


def _capacity(host: PipeHost, seconds: float) -> float:
    """Calls a second with as many in flight as there may be."""
    until, done = time.monotonic() + seconds, 0
    for _ in range(PLACES):
        host.begin_use("s", "echo", {"nonce": 0})
    began = time.monotonic()
    while time.monotonic() < until:
        host.receive()
        done += 1
        host.begin_use("s", "echo", {"nonce": 0})
    rate = done / (time.monotonic() - began)
    for _ in range(PLACES):
        host.receive()
    return rate


class _Storm:
    """Calls at a steady rate, whatever becomes of them."""

    def __init__(self, host: PipeHost, rate: float, seconds: float) -> None:
        self._host = host
        self._per_slice = max(int(rate * SLICE), 1)
        self._slices = int(seconds / SLICE)
        self._sent: dict[int, float] = {}
        self.codes: Counter[str] = Counter()
        self.refusals: list[float] = []
        self.unnamed = 0
        self.seconds = 0.0

    def blow(self) -> None:
        reader = threading.Thread(target=self._read)
        reader.start()
        began = time.monotonic()
        for number in range(self._slices):
            time.sleep(max(0.0, began + number * SLICE - time.monotonic()))
            for _ in range(self._per_slice):
                now = time.monotonic()
                self._sent[self._host.begin_use("s", "echo", {"nonce": 0})] = now
        self.seconds = time.monotonic() - began
        reader.join(120)
        assert not reader.is_alive(), "answers are missing"

    def _read(self) -> None:
        for _ in range(self._slices * self._per_slice):
            message = self._host.receive()
            assert message is not None, "the command has ended"
            result = message["result"]
            code = error_code(result)
            self.codes[code] += 1
            if code:
                while message["id"] not in self._sent:  # its sender is still writing it down
                    time.sleep(0)
                self.refusals.append(time.monotonic() - self._sent[message["id"]])
                self.unnamed += "dev/s/echo" not in text(result)


def measure(seconds: float = 20.0) -> Figure:
    limits = {"callsPerServer": PLACES}
    with pipe_workbench({"s": quick_entry("s", f"slow={SERVICE}")}, limits=limits) as host:
        host.use("s", "echo", {"nonce": 0})
        capacity = _capacity(host, seconds / 4)
        storm = _Storm(host, capacity * TIMES, seconds)
        storm.blow()
    good = storm.codes[""] / storm.seconds
    refused = sorted(storm.refusals)
    worst = refused[int(len(refused) * 0.99)] if refused else 0.0
    return Figure(
        f"overload, {TIMES} x capacity",
        "throughput at least 80 % of capacity, the rest refused at once by name",
        f"{good / capacity:.0%} of {capacity:,.0f} calls/s; {len(refused):,} refused "
        f"({', '.join(sorted(storm.codes - Counter({'': 10**9})))}), 99 % of them within "
        f"{worst * 1000:.1f} ms, {storm.unnamed} unnamed",
        good >= 0.8 * capacity
        and set(storm.codes) <= {"", "overloaded"}
        and len(refused) > 0
        and storm.unnamed == 0,
    )
