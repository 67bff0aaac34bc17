"""What goes wrong around us: the clock jumps, something in our process prints, a host stops reading."""

import ast
import math
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import mcp_workbench
from mcp_workbench.core.spec import ServerAddress, ServerSpec, StdioCommand
from mcp_workbench.timing import pause
from mcp_workbench.upstream import health
from mcp_workbench.upstream.health import Backoff
from tests.faults.scene import failure, faulty
from tests.kit.clock import eventually, takes_at_most
from tests.kit.config import entry, program_entry
from tests.kit.processes import alive, pids_in
from tests.kit.results import META, json_text, texts
from tests.kit.servers import ASKER

SOURCE = Path(mcp_workbench.__file__).parent

OF_THE_DAY = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
}

# Loaded by Python itself before anything of ours.
JUMPS = """
import os, time
real, monotonic = time.time, time.monotonic
def time_of_day():
    os.utime(os.environ["JUMPED"])
    return real() + (3600 if int(monotonic() * 5) % 2 else -3600)
time.time = time_of_day
open(os.environ["JUMPED"], "w").close()
time.time()
"""
PRINTS = """
import os, threading, time
def chatter():
    while not os.path.exists(os.environ["CHATTER"]):
        time.sleep(0.01)
    for n in range(200):
        print("a stray line", n, flush=True)
        os.write(1, b'{"jsonrpc":"2.0","id":"other-1","result":{}}\\n')
        time.sleep(0.001)
    os.rename(os.environ["CHATTER"], os.environ["CHATTER"] + ".done")
threading.Thread(target=chatter, daemon=True).start()
"""


def meddling(folder: Path, code: str, **more: str) -> dict[str, str]:
    """An environment in which every Python process runs this first; ours does, its servers do not."""
    (folder / "meddling").mkdir()
    (folder / "meddling" / "sitecustomize.py").write_text(code)
    path = f"{folder / 'meddling'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return {"PYTHONPATH": path, **more}


@pytest.mark.fault("F44")
def test_a_clock_that_jumps_an_hour_to_and_fro_moves_no_deadline(tmp_path: Path) -> None:
    pids, jumped = tmp_path / "pids", tmp_path / "jumped"
    servers: dict[str, Any] = {
        "bad": entry(timeout=0.5),
        "mute": entry("hang", connectTimeout=0.5),
        "idle": entry(idleTimeout=0.5, env={"PIDFILE": str(pids)}),
        "loop": entry("exit_start"),
    }
    env = meddling(tmp_path, JUMPS, JUMPED=str(jumped))
    with faulty(tmp_path, servers, env=env) as host:
        assert jumped.exists(), "the clock jumps"
        host.use("idle", "echo")
        for server, tool, code in (("bad", "hang", "timeout"), ("mute", "echo", "connect_failed")):
            host.use("bad", "echo")
            since = time.monotonic()
            with takes_at_most(0.75):
                failure(host.use(server, tool), code)
            assert time.monotonic() - since >= 0.5
        eventually(lambda: not alive(pids_in(pids)[0]), "whoever is idle is stopped")
        assert json_text(host.use("idle", "stats"))["pid"] == pids_in(pids)[1]

        told = ""
        while "next try in" not in told:
            told = failure(host.use("loop", "echo"), "connect_failed")
        failures = int(told.partition("it failed ")[2].split()[0])
        seconds = int(told.rpartition("next try in ")[2].removesuffix(" s"))
        assert 1 <= seconds <= math.ceil(health.pause_after(failures, 0.0)) <= 60


@pytest.mark.fault("F44")
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_question_stays_open_whatever_the_clock_says(tmp_path: Path, era: str) -> None:
    """A legacy server's call is held with us, a modern one's state travels: both are sealed."""
    jumped = tmp_path / "jumped"
    servers = {"asker": program_entry(ASKER, era=era)}
    env = meddling(tmp_path, JUMPS, JUMPED=str(jumped))
    can: Any = {META + "clientCapabilities": {"elicitation": {}}}
    with faulty(tmp_path, servers, modern=True, env=env) as host:
        for _ in range(4):
            asked = host.use("asker", "name", _meta=can)
            [key] = asked["inputRequests"]
            then = int(time.monotonic() * 5)
            eventually(lambda then=then: int(time.monotonic() * 5) > then, "the clock jumps")
            answer = {key: {"action": "accept", "content": {"name": "Ada"}}}
            more = {"inputResponses": answer, "requestState": asked["requestState"], "_meta": can}
            assert "Ada" in texts(host.use("asker", "name", **more))[0]


@pytest.mark.fault("F44")
def test_the_time_of_day_is_asked_for_in_few_places() -> None:
    """Where a server names one, and for what is kept on disk."""
    asked: set[str] = set()
    for file in SOURCE.rglob("*.py"):
        text = file.read_text()
        if not any(f"{of}.{name}" in text for of, name in OF_THE_DAY):
            continue
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and (node.value.id, node.attr) in OF_THE_DAY
                and "demo" not in file.parts
            ):
                asked.add(file.relative_to(SOURCE).as_posix())

    kept_on_disk = {
        "cli/audit_report.py",
        "cli/secret.py",
        "cli/servers.py",
        "cli/backends.py",
        "cli/doctor_checks.py",
        "cli/sign_in_reports.py",
        "upstream/cache.py",
        "upstream/oauth/authorization.py",
        "upstream/oauth/sign_in.py",
        "gateway/audit.py",
        "config/secret_store.py",
        "hosts/journal.py",
        "ui/page_sessions.py",  # what another process has signed
    }
    times_of_servers = {"upstream/http/requests.py", "upstream/http/responses.py"}
    # A task says when it was created, a span when it began.
    times_in_messages = {"server/task_requests.py", "gateway/tracing.py"}
    times_in_tokens = {
        "server/http/resource_server.py",
        "upstream/oauth/client_key.py",
        "gateway/suspended_scripts.py",
        "cluster/replica.py",  # states that other replicas have signed
        "cluster/census.py",  # how far our clock is from the engine's
    }
    known = times_of_servers | kept_on_disk | times_in_messages | times_in_tokens
    assert asked <= known


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.fault("F20", "F21")
def test_ten_minutes_of_outage_cost_twenty_tries_and_a_minute_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a made clock, with somebody who asks all the time."""
    monkeypatch.setattr(health, "FIRST_PAUSE", health.FIRST_PAUSE / pause(1.0))  # not shortened
    spec = ServerSpec(ServerAddress("dev", "a"), StdioCommand("x"))
    for drawn in (0.0, 0.3, 1.0):
        clock = Clock()
        tried = Backoff(clock, lambda drawn=drawn: drawn)
        tries: list[float] = []
        while clock.now < 3600:
            if clock.now >= tried.of(spec).not_before:
                tries.append(clock.now)
                tried.ended(spec, 0.0, 0)
            clock.now += 0.1

        for start in range(0, 3000, 60):
            within_ten = [t for t in tries if start <= t < start + 600]
            assert len(within_ten) <= 20
            assert len([t for t in tries if start <= t < start + 60]) <= 10
        pauses = [b - a for a, b in pairwise(tries)]
        assert max(pauses) <= 60.2, "whenever it is back, it is found within a minute"
        assert tries[-1] > 3500, "it is never given up"


@pytest.mark.fault("F54")
def test_stray_prints_in_our_process_never_reach_the_host(tmp_path: Path) -> None:
    chatter = tmp_path / "chatter"
    env = meddling(tmp_path, PRINTS, CHATTER=str(chatter))
    with faulty(tmp_path, {"a": entry()}, env=env) as host:  # which takes nothing but messages
        chatter.touch()
        done = Path(f"{chatter}.done")
        while not done.exists():
            assert json_text(host.use("a", "echo"))["name"] == "echo"
        eventually(lambda: "a stray line 199" in host.stderr, "all of them are on stderr")
        assert not [line for line in host.lines if b"stray" in line]
