"""What one principal has used of its limits, and whether it may use more. Time is an argument."""

from collections import deque

import msgspec

from mcp_workbench.core.spec import SUBJECT, HttpSettings, PrincipalLimits

WINDOW = 60  # seconds that a limit per minute looks back
# Requests over HTTP for each call: a host also lists, subscribes, answers, cancels and pings.
REQUESTS_PER_CALL = 10
LEAST_REQUESTS = 600  # a minute, however few calls are allowed: a start alone takes several
BUSY_RETRY = 1.0  # seconds; when a call in flight ends is not known


class CallWindow:
    """Counts what happens in the last minute, by the second: at most so many in any 60 seconds.

    It keeps one number for each second, however many calls there are. The second in which a call was made counts
    as a whole, so that a full window has room again after 60 to 61 seconds.
    """

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts: deque[list[int]] = deque()  # second and number, oldest first
        self.total = 0

    def __len__(self) -> int:
        """How many numbers it keeps."""
        return len(self._counts)

    def take(self, most: int, now: float) -> float:
        """Count one more if that fits. Returns 0, or the seconds until there is room."""
        second = self.forget(now)
        if self.total >= most:
            return self._room_in(most, now)
        self.add(second)
        return 0.0

    def add(self, second: int) -> None:
        """Count one more, whether it fits or not."""
        if not self._counts or self._counts[-1][0] < second:
            self._counts.append([second, 0])
        self._counts[-1][1] += 1
        self.total += 1

    def forget(self, now: float) -> int:
        """Drop what is older than the window. Returns the current second."""
        counts, second = self._counts, int(now)
        if (
            counts and counts[-1][0] > second
        ):  # the clock went back: what was counted is as old as it was
            back = counts[-1][0] - second
            for count in counts:
                count[0] -= back
        while counts and counts[0][0] < second - WINDOW:
            self.total -= counts.popleft()[1]
        return second

    def _room_in(self, most: int, now: float) -> float:
        """The seconds until enough is forgotten; more than one has to go if the limit was lowered."""
        left = self.total
        for second, count in self._counts:
            left -= count
            if left < most:
                return second + WINDOW + 1 - now
        return float(WINDOW)


class Usage:
    """What one principal uses now. `running` are its calls in flight."""

    __slots__ = ("calls", "requests", "running")

    def __init__(self) -> None:
        self.calls = CallWindow()
        self.requests = CallWindow()
        self.running: set[object] = set()

    def is_idle(self, now: float) -> bool:
        """Whether nothing of it would be missed."""
        self.calls.forget(now)
        self.requests.forget(now)
        return not (self.running or self.calls.total or self.requests.total)


class Excess(msgspec.Struct, frozen=True):
    """A limit that is reached."""

    key: str  # in the configuration
    most: int
    retry_after: float  # seconds

    def __str__(self) -> str:
        what = "calls per minute are" if self.key == "callsPerMinute" else "calls in flight are"
        return f"{self.most} {what} allowed to this principal (limits.{self.key})"


def begin_call(
    usage: Usage, call: object, limits: PrincipalLimits | None, now: float
) -> Excess | None:
    """Count a call, unless a limit is reached. One that waits, or is sent again, counts once."""
    if call in usage.running:
        return None
    most = None if limits is None else limits.concurrent_calls
    if most is not None and len(usage.running) >= most:
        return Excess("concurrentCalls", most, BUSY_RETRY)
    rate = None if limits is None else limits.calls_per_minute
    if rate is not None and (wait := usage.calls.take(rate, now)):
        return Excess("callsPerMinute", rate, wait)
    usage.running.add(call)
    return None


def begin_request(usage: Usage, limits: PrincipalLimits | None, now: float) -> float:
    """Count a request over HTTP. Returns 0, or the seconds after which it is accepted."""
    if limits is None or limits.calls_per_minute is None:
        return 0.0
    most = max(LEAST_REQUESTS, REQUESTS_PER_CALL * limits.calls_per_minute)
    return usage.requests.take(most, now)


def limits_of(settings: HttpSettings, principal: str) -> PrincipalLimits | None:
    """Returns the limits of a principal: those of its token, or those of everybody who signs in."""
    if principal.startswith(SUBJECT):
        return None if settings.auth is None else settings.auth.limits
    return next((token.limits for token in settings.tokens if token.name == principal), None)
