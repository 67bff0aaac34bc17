"""No call ever hangs: every fault of every fixture, ten calls each, one second to answer."""

import time
from pathlib import Path
from typing import Any

import pytest

from tests.faults.scene import CODES, Watched, faulty, line_of
from tests.faults.test_bytes import FOREIGN, ODD, result
from tests.kit.clock import PATIENCE
from tests.kit.config import entry, url_entry
from tests.kit.results import CODE
from tests.kit.servers.bad_http import MODES, bad_http_in_a_thread

pytestmark = pytest.mark.usefixtures("forked_commands")

CALLS = 10  # at once: those that wait behind the first that fails must be answered, too
DEADLINE = 1.0  # seconds, for the start as for the call
# Seconds; a quarter of one is what the row grants on a machine that has time. With five programs that
# want each of two cores, the slowest of a thousand calls took three.
SLACK = 8.0

# What is wrong with the server itself, and then with what it says when it is called.
LIVES = [
    "exit_start",
    "stderr_exit",
    "hang",
    "hang_list",
    "hang_list_again",
    "list_error",
    "list_odd",
    "no_tools",
    "loop_cursor",
    "paged",
    "banner",
    "garbage",
    "crlf",
    "die_on_probe",
    "quiet_probe",
    "late_probe",
    "die_in_list",
    "flip_in_list",
    "grandchild",
    "ignore_term",
    "no_eof_exit",
    "rev=1999-12-31",
    "stderr=300000",
]
LINES = {
    **{f"foreign{n}": result(b"x", id) for n, id in enumerate(FOREIGN)},
    "bad_text": result(b"\xff\xed\xa0\x80"),
    "surrogate": result(b"\\ud800"),
    "twice": result(b"x") + b"\n" + result(b"y"),
    "array": b"[" + result(b"x") + b"]",
    "array_in_array": b"[[" + result(b"x") + b"]]",
    "neither": b'{"jsonrpc":"2.0","id":@ID@}',
    "both": b'{"jsonrpc":"2.0","id":@ID@,"result":{},"error":{}}',
    "broken": b'{"jsonrpc":"2.0","id":@ID@,"result":{',
    "blank": b"",
    "nul": b"\x00" * 10,
    "not_json": b"oops",
}
ACTS: dict[str, tuple[str, Any]] = {
    **{f"line-{name}": ("line", line_of(line)) for name, line in LINES.items()},
    **{f"odd-{n}": ("result", {"result": odd}) for n, odd in enumerate(ODD)},
    "hang": ("hang", {}),
    "die": ("die", {}),
    "half": ("half", {}),
    "deaf": ("stop_reading", {}),
    "deep": ("deep", {"n": 100_000}),
    "big": ("big", {"n": 1 << 20}),
    "too_big": ("big", {"n": 9 << 20}),
    "endless": ("nonewline", {"megabytes": 16}),
    "mute": ("close_stdout", {}),
    "flood": ("flood", {"n": 500}),
    "changes": ("list_changed", {"n": 100}),
    "complaints": ("stderr_flood", {"megabytes": 1}),
    "question": ("ask", {"method": "roots/list"}),
    "error": ("error", {"error": '{"code":"x","message":5}'}),
}
HEAVY = ("deep", "big", "too_big", "endless", "flood", "changes", "complaints")
LIMITS = {"messageBytes": 8 << 20, "openWait": 5}


class Tally:
    """When every call was begun, and when it was answered."""

    def __init__(self, host: Watched) -> None:
        self._host = host
        self._begun: dict[Any, tuple[str, float]] = {}
        self.codes: dict[str, set[str]] = {}
        self.hung: list[str] = []
        self.worst = 0.0

    def begin(self, fault: str, server: str, tool: str, arguments: Any) -> None:
        for _ in range(CALLS):
            id = self._host.begin_use(server, tool, arguments)
            self._begun[id] = (fault, time.monotonic())

    def collect(self) -> None:
        """Every answer as it comes. What is not there by its deadline hangs."""
        while self._begun:
            try:
                message = self._host.until(lambda message: message.get("id") in self._begun)
            except Exception as error:  # noqa: BLE001 - whatever it is, these have no answer
                self.hung += [f"{fault}: {error!r}" for fault, _ in self._begun.values()]
                return
            fault, since = self._begun.pop(message["id"])
            took = time.monotonic() - since
            self.worst = max(self.worst, took)
            if took > DEADLINE + SLACK:
                self.hung.append(f"{fault}: {took:.1f} s")
            self._note(fault, message)

    def _note(self, fault: str, message: Any) -> None:
        result = message.get("result")
        meta = result.get("_meta", {}) if isinstance(result, dict) else {}  # type: ignore[reportUnknownVariableType]
        self.codes.setdefault(fault, set()).add(str(meta.get(CODE, "")))  # type: ignore[reportUnknownMemberType]

    def judge(self, capsys: pytest.CaptureFixture[str]) -> None:
        calls = CALLS * len(self.codes)
        with capsys.disabled():
            print(
                f"\n{calls} calls, {len(self.codes)} faults: {len(self.hung)} hung,"
                f" the slowest took {self.worst:.2f} s of {DEADLINE:g} s"
            )
        assert self.hung == []
        told = set[str]().union(*self.codes.values()) - {""}
        assert told <= CODES, "no other code, and never `internal`"
        liars = [fault for fault, codes in self.codes.items() if "unknown_tool" in codes]
        assert liars in ([], ["life no_tools"]), "only where there is no such tool"


@pytest.mark.usefixtures("short_deadlines")  # some answer nothing, some do not leave
def test_no_call_hangs_whatever_a_server_on_a_pipe_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lives = {f"life-{n}": entry(flag, *wanted(flag), **times(flag)) for n, flag in enumerate(LIVES)}
    acts = {actor(name): entry("floods", timeout=DEADLINE) for name in ACTS}
    with faulty(tmp_path, {**lives, **acts}, limits=LIMITS) as host:
        host.begin("open_toolbox", {"toolbox_name": "dev"})
        host.receive()  # they are started: that is not what is measured
        tally = Tally(host)
        for n, flag in enumerate(LIVES):
            tool = "announce" if "list" in flag and flag != "hang_list" else "echo"
            tally.begin(f"life {flag}", f"life-{n}", tool, {})
        for name, (tool, arguments) in ACTS.items():
            if name not in HEAVY:
                tally.begin(name, actor(name), tool, arguments)
        tally.collect()
        for name in HEAVY:  # one after the other: together they would only measure the machine
            tally.begin(name, actor(name), *ACTS[name])
            tally.collect()
    tally.judge(capsys)
    assert tally.codes["hang"] == {"timeout"}
    assert tally.codes["life hang"] == tally.codes["life hang_list"] == {"connect_failed"}
    assert tally.codes["deep"] == {"protocol_error"}
    assert tally.codes["endless"] == tally.codes["too_big"] == {"too_large"}


def actor(name: str) -> str:
    """The server for an act. Those that leave it as it is share one."""
    for kind in ("line-foreign", "odd-"):
        if name.startswith(kind):
            return f"act-{kind.strip('-')}"
    return f"act-{name}"


def wanted(flag: str) -> tuple[str, ...]:
    return ("modern",) if flag == "late_probe" else ()


def times(flag: str) -> dict[str, Any]:
    """A start may take long on a busy machine, unless it is the start that hangs."""
    era = "auto" if "probe" in flag else "legacy"
    start = DEADLINE if flag in ("hang", "hang_list") else PATIENCE
    return {"timeout": DEADLINE, "connectTimeout": start, "era": era}


@pytest.mark.parametrize("era", ["", "/modern"])
def test_no_call_hangs_whatever_a_server_behind_a_url_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], era: str
) -> None:
    with bad_http_in_a_thread() as bad:
        servers = {mode: url_entry(bad.url(f"{era}/{mode}"), timeout=DEADLINE) for mode in MODES}
        starts = {
            f"start-{mode}": url_entry(
                bad.url(f"/start{era}/{mode}"), timeout=DEADLINE, connectTimeout=DEADLINE
            )
            for mode in (
                "hang",
                "drip",
                "rst",
                "html",
                "s429",
                "s500",
                "taken",
                "garbage",
                "sse_end",
            )
        }
        with faulty(tmp_path, {**servers, **starts}, limits=LIMITS) as host:
            host.begin("open_toolbox", {"toolbox_name": "dev"})
            host.receive()
            tally = Tally(host)
            for server in (*servers, *starts):
                tally.begin(server, server, "echo", {"text": "hi"})
            tally.collect()
    tally.judge(capsys)
    assert tally.codes["hang"] == tally.codes["drip"] == {"timeout"}
    assert tally.codes["start-hang"] == {"connect_failed"}
