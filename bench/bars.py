"""The bars: what our figures must be beside the limit relay's and the SDK gateway's. Pure."""

from math import inf

import msgspec

Results = dict[str, dict[str, float]]  # by contender, then by figure


class Bar(msgspec.Struct, frozen=True):
    """Bounds of our figure divided by another's, or of the figure itself."""

    against: str | None
    most: float = inf
    least: float = -inf

    def ratio(self, figure: str, results: Results) -> float | None:
        ours = results.get("ours", {}).get(figure)
        theirs = results.get(self.against, {}).get(figure) if self.against else 1.0
        return None if ours is None or not theirs else ours / theirs

    def kept(self, ratio: float) -> bool:
        return self.least <= ratio <= self.most

    def __str__(self) -> str:
        bound = f"≥ {self.least:g}" if self.least > -inf else f"≤ {self.most:g}"
        return bound if self.against else f"ours {bound}"


class Row(msgspec.Struct, frozen=True):
    """One line of the table: a figure, what it is called, and its bars."""

    figure: str
    name: str
    bars: tuple[Bar, ...] = ()


class Verdict(msgspec.Struct, frozen=True):
    """One bar, held against one run."""

    figure: str
    against: str | None
    bar: str
    ratio: float
    kept: bool


LIKE_LIMIT = (Bar("limit", most=1.5),)

ROWS = (
    Row("added_us", "added latency per call, p50 (µs)", (*LIKE_LIMIT, Bar("sdk", most=0.1))),
    Row(
        "calls_per_s", "calls/s with 64 in flight", (Bar("limit", least=0.5), Bar("sdk", least=50))
    ),
    Row("added_1024k_us", "1 MiB result, added latency (µs)", LIKE_LIMIT),
    Row("added_100k_us", "100 KiB result, added latency (µs)"),
    Row("cpu_us", "CPU per call, one by one (µs)"),
    Row("cpu_at_once_us", "CPU per call, 64 in flight (µs)"),
    Row("start_initialize_ms", "start to `initialize` answered (ms)", (Bar("limit", most=1.6),)),
    Row("start_first_call_ms", "start to first call answered (ms)"),
    Row("memory_mb", "memory with one server open (MB)", LIKE_LIMIT),
    Row("growth_mb", "memory per further server (MB)", (Bar(None, most=0.1),)),
    Row("start_open_50_ms", "opening 50 servers, from start (ms)", LIKE_LIMIT),
    Row("open_50_ms", "opening 50 servers, that call (ms)", LIKE_LIMIT),
)


def judge(row: Row, results: Results) -> list[Verdict]:
    """A verdict for each bar of the row that could be measured."""
    return [
        Verdict(row.figure, bar.against, str(bar), ratio, bar.kept(ratio))
        for bar in row.bars
        if (ratio := bar.ratio(row.figure, results)) is not None
    ]
