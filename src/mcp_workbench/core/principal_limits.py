"""What one principal has used of its limits, and whether it may use more. Time is an argument."""

from collections import deque

import msgspec

from mcp_workbench.core.spec import SUBJECT, HttpSettings, PrincipalLimits

WINDOW = 60  # seconds that a limit per minute looks back
# Requests over HTTP for each call: a host also lists, subscribes, answers, cancels and pings.
REQUESTS_PER_CALL = 10
BATCHES = (
    200  # in so many parts a replica takes the calls of a minute: what it holds unused is the error
)
REFUSED_FOR = 0.02  # seconds for which the engine is not asked again after all slots were taken
REFUSED_AT_MOST = (
    1.0  # seconds for which it is not asked again after all calls of a minute were taken
)
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
    """What one principal uses now. `running` are its calls in flight.

    Where replicas share the limits, `permits` are calls that this one may still begin, and `slots` the calls
    that it may have in flight: both were counted for all of them before.
    """

    __slots__ = (
        "calls",
        "permits",
        "permits_until",
        "refusal",
        "refused_until",
        "requests",
        "running",
        "session_slots",
        "sessions_refused_until",
        "slots",
        "waiting",
    )

    def __init__(self) -> None:
        self.calls = CallWindow()
        self.requests = CallWindow()
        self.running: set[object] = set()
        self.permits = 0
        self.permits_until = 0.0
        self.slots = 0
        self.session_slots = 0  # sessions that it may have
        self.sessions_refused_until = 0.0
        self.waiting = 0  # calls that need a grant
        self.refusal: Excess | None = None  # of the last grant
        self.refused_until = 0.0

    def is_idle(self, now: float) -> bool:
        """Whether nothing of it would be missed."""
        self.calls.forget(now)
        self.requests.forget(now)
        counted = self.running or self.calls.total or self.requests.total
        return not (counted or self.slots or self.session_slots or self.waiting)


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


class Wanted(msgspec.Struct, frozen=True):
    """What a replica asks the others for, who share the limits."""

    permits: int  # calls to begin; 0: none
    slots: int  # calls in flight that this replica may have in all
    held: int  # of them, those that it has


class Granted(msgspec.Struct, frozen=True):
    """What it gets."""

    permits: int
    slots: int
    retry_after: float = 0.0  # seconds, if there are no permits


def begin_shared(
    usage: Usage, call: object, limits: PrincipalLimits, now: float
) -> Excess | Wanted | None:
    """Count a call of limits that replicas share; `Wanted` if more has to be granted first."""
    if call in usage.running:
        return None
    running, rate = len(usage.running), limits.calls_per_minute
    if now >= usage.permits_until:
        usage.permits = 0
    needs_permit = rate is not None and usage.permits < 1
    needs_slot = limits.concurrent_calls is not None and running >= usage.slots
    if needs_permit or needs_slot:
        refusal = usage.refusal
        if refusal is not None and now < usage.refused_until:
            is_still = needs_slot if refusal.key == "concurrentCalls" else needs_permit
            if is_still:
                return refusal
        waiting = max(1, usage.waiting)
        permits = max(waiting, (rate or 0) // BATCHES) if needs_permit else 0
        held = max(usage.slots, running)
        return Wanted(permits, running + waiting if needs_slot else held, held)
    if rate is not None:
        usage.permits -= 1
        usage.calls.add(usage.calls.forget(now))  # for the time when the engine is away
    usage.running.add(call)
    return None


def accept(
    usage: Usage, wanted: Wanted, granted: Granted, limits: PrincipalLimits, now: float
) -> None:
    """Use what was granted, and note what was refused."""
    usage.slots = granted.slots
    usage.refusal = None
    if wanted.permits:
        usage.permits += granted.permits
        usage.permits_until = now + WINDOW
    if wanted.permits and not granted.permits:
        wait = max(granted.retry_after, REFUSED_FOR)
        usage.refusal = Excess("callsPerMinute", limits.calls_per_minute or 0, wait)
        usage.refused_until = now + min(wait, REFUSED_AT_MOST)
    elif wanted.slots > wanted.held and granted.slots <= len(usage.running):
        usage.refusal = Excess("concurrentCalls", limits.concurrent_calls or 0, BUSY_RETRY)
        usage.refused_until = now + REFUSED_FOR


def begin_session(usage: Usage, own: int, now: float) -> bool | Wanted:
    """Whether a replica that has `own` sessions may have one more; `Wanted` if it has to ask for it."""
    if own < usage.session_slots:
        return True
    return False if now < usage.sessions_refused_until else Wanted(0, own + 1, own)


def accept_session(usage: Usage, wanted: Wanted, granted: Granted, now: float) -> None:
    """Use what was granted, and note what was refused."""
    usage.session_slots = granted.slots
    if granted.slots < wanted.slots:
        usage.sessions_refused_until = now + REFUSED_AT_MOST


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
