"""A real workbench with a fault behind it, and a healthy neighbour that must not notice."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mcp_workbench.upstream.health import pause_after
from tests.kit.clock import PATIENCE, eventually
from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost, parsed
from tests.kit.results import CODE, Message, json_text, texts, use_tool

OTHER = "other"
PAUSE = 0.02  # seconds between two calls of the neighbour
AT_ONCE = 0.1  # seconds: what the rows call at once
LAG = 2.0  # seconds that the neighbour may wait where the row says 0.1: a busy machine is slow
MEGABYTE = 1 << 20

# Every code that a host may read; `internal` is not among them.
CODES = frozenset(
    [
        "unknown_toolbox",
        "unknown_server",
        "unknown_tool",
        "invalid_parameters",
        "connect_failed",
        "server_exited",
        "timeout",
        "protocol_error",
        "too_large",
        "overloaded",
        "rate_limited",
        "session_lost",
        "needs_login",
        "server_error",
    ]
)


class Others:
    """What became of the neighbour's calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.errors: list[Any] = []
        self.hung = 0
        self.worst = 0.0  # seconds that one of them took
        self.late = 0.0  # seconds that the machine woke us later than we wanted, at worst

    def note(self, took: float, *, fine: bool, told: Any) -> None:
        self.calls += 1
        self.worst = max(self.worst, took)
        if not fine:
            self.errors.append(told)

    def woken(self, since: float) -> None:
        self.late = max(self.late, time.monotonic() - since - PAUSE)

    def judge(self, lag: float) -> None:
        """A call wakes four times: us, the workbench twice, the server; each may be as late as we were."""
        assert self.hung == 0, f"{self.hung} calls to the healthy server hung"
        assert self.errors == []
        assert self.calls >= 2, "the healthy server was not watched"
        most = lag + 4 * self.late
        assert self.worst < most, f"the healthy server waited {self.worst:.2f} s of {most:.2f} s"


class Watched(PipeHost):
    """A host that calls its healthy server all the time, beside whatever the test does."""

    def __init__(
        self,
        config: Path,
        *options: str,
        modern: bool = False,
        env: Mapping[str, str] | None = None,
        lag: float = PATIENCE,
    ) -> None:
        super().__init__(config, *options, modern=modern, env=env)
        self.watch = Others()
        self._lag = lag
        self._writing = threading.Lock()
        self._replies: queue.Queue[bytes] = queue.Queue()
        self._leaving = threading.Event()
        self._calling = threading.Thread(target=self._call_other, daemon=True)

    def __enter__(self) -> Self:
        super().__enter__()
        self.handshake()
        assert json_text(self.use(OTHER, "echo"))["name"] == "echo"
        self._calling.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.see_others()
        finally:
            self._leaving.set()
            self._calling.join(2 * PATIENCE)
            super().__exit__(kind, error, trace)
        if error is None:
            self.watch.judge(self._lag)
            for line in self.lines:
                assert b'"internal"' not in line[-400:], line
                assert b"the workbench failed" not in line[:400], line

    def see_others(self) -> None:
        """Until the neighbour has been called twice more: after the fault, too, it answers."""
        seen = self.watch.calls
        until = time.monotonic() + PATIENCE
        while self.watch.calls < seen + 2 and not self.watch.hung:
            assert time.monotonic() < until, "the healthy server does not answer"
            time.sleep(PAUSE)

    def outcome(self, id: Any) -> Message:
        """The result of a call that was begun, whether it has come already or not."""
        for message in self.others:
            if message.get("id") == id and "method" not in message:
                self.others.remove(message)
                return message["result"]
        return self.answer(id)["result"]

    def write(self, data: bytes) -> None:
        with self._writing:
            super().write(data)

    def _take(self, line: bytes) -> None:
        if line.startswith(b'{"jsonrpc":"2.0","id":"other-'):
            self._replies.put(line)
        else:
            super()._take(line)

    def _call_other(self) -> None:
        number = 0
        since = time.monotonic()
        while not self._leaving.wait(PAUSE):
            self.watch.woken(since)
            number += 1
            since = time.monotonic()
            try:
                params = use_tool(OTHER, "echo", {"n": number})
                self.ask("tools/call", params, id=f"other-{number}")
                message = parsed(self._replies.get(timeout=PATIENCE))
            except queue.Empty:
                self.watch.hung += 1
                return
            result = message.get("result", {})
            fine = "isError" not in result and json_text(result)["arguments"] == {"n": number}
            self.watch.note(time.monotonic() - since, fine=fine, told=message)
            since = time.monotonic()


def faulty(
    folder: Path,
    servers: dict[str, Any],
    *,
    lag: float = PATIENCE,
    modern: bool = False,
    env: Mapping[str, str] | None = None,
    **more: Any,
) -> Watched:
    """A host of the real command with these servers and a healthy one."""
    file = config_file(folder, {**servers, OTHER: entry()}, **more)
    return Watched(file, lag=lag, modern=modern, env=env)


def failure(result: Message, code: str) -> str:
    """The text of a result that must be an error with this code."""
    assert code in CODES
    assert result.get("isError") is True, result
    assert result["_meta"][CODE] == code, (result["_meta"], texts(result))
    return texts(result)[0]


def answers(host: PipeHost, server: str) -> None:
    """It still answers; where its deadline is short and the machine busy, not each call is in time."""
    eventually(lambda: "isError" not in host.use(server, "echo"), f"{server} answers")


def tried_in_time(starts: int, told: str, seconds: float) -> None:
    """So many starts of a server that fails at once: no more than its pauses leave room for."""
    assert f"it failed {starts} times in a row, next try in" in told
    # The shortest that can be drawn of each.
    assert sum(pause_after(failures, 1.0) for failures in range(starts)) <= seconds


def line_of(text: bytes) -> dict[str, str]:
    """Arguments of the fixture's tool `line`: these bytes, `@ID@` being the call's id."""
    return {"hex": text.hex()}
