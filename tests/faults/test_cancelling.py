"""A cancel goes through: to the right server, by the server's own number, at once, in both eras."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults.scene import AT_ONCE, Watched, failure, faulty
from tests.kit.clock import eventually, takes_at_most
from tests.kit.config import config_file, entry, url_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import gone, pids_in
from tests.kit.results import json_text
from tests.kit.servers.bad_http import BadHttp, Hung, Request, bad_http_in_a_thread

pytestmark = pytest.mark.usefixtures("forked_commands")

HOSTS = pytest.mark.parametrize("modern", [False, True], ids=["legacy host", "modern host"])
TURNS = 5


@pytest.mark.fault("F31")
@HOSTS
def test_a_cancel_reaches_a_server_on_a_pipe_by_its_own_number(
    tmp_path: Path, modern: bool
) -> None:
    servers = {"legacy": entry(), "modern": entry("modern", era="modern")}
    with faulty(tmp_path, servers, modern=modern) as host:
        for server in servers:
            host.use(server, "echo")
            for turn in range(TURNS):
                cancel_once(host, server, f"k{turn}")
        assert host.others == [], "no late answer"


def cancel_once(host: Watched, server: str, key: str) -> None:
    id = host.begin_use(server, "hold", {"key": key})
    held, _ = (json.loads(line) for line in json_text(host.use(server, "last_line")))
    assert held["params"]["name"] == "hold"
    with takes_at_most(AT_ONCE):
        host.notify("notifications/cancelled", {"requestId": id})
        heard, _ = (json.loads(line) for line in json_text(host.use(server, "last_line")))
    assert heard["method"] == "notifications/cancelled"
    assert heard["params"]["requestId"] == held["id"]
    host.use(server, "release", {"key": key})  # its answer is late


@pytest.mark.fault("F31")
@HOSTS
def test_a_cancel_reaches_a_server_behind_a_url(tmp_path: Path, modern: bool) -> None:
    async def wait(request: Request, out: Hung) -> None:
        await asyncio.sleep(60)

    with bad_http_in_a_thread() as bad:
        servers = {
            "legacy": url_entry(bad.on("/wait", wait)),
            "modern": url_entry(bad.on("/modern/wait", wait)),
        }
        with faulty(tmp_path, servers, modern=modern) as host:
            host.open()
            for server, path in (("legacy", "/wait"), ("modern", "/modern/wait")):
                for turn in range(1, TURNS + 1):
                    cancel_at(bad, host, server, path, turn)
            assert host.others == []


def cancel_at(bad: BadHttp, host: Watched, server: str, path: str, turn: int) -> None:
    def calls(method: str = "tools/call") -> list[Request]:
        return [request for request in bad.calls(method) if request.path == path]

    id = host.begin_use(server, "echo")
    eventually(lambda: len(calls()) == turn, "it is there")
    with takes_at_most(AT_ONCE):
        host.notify("notifications/cancelled", {"requestId": id})
        eventually(lambda: bad.dropped.count(path) == turn, "its answer is not waited for")
    if server == "legacy":
        told = calls("notifications/cancelled")[-1]
        assert told.body["params"]["requestId"] == calls()[-1].body["id"]


@pytest.mark.fault("F31", "F51")
def test_a_cancelled_call_that_never_left_is_not_sent(tmp_path: Path) -> None:
    """Its server does not read; when it is stopped for a moment only, nothing of the call arrives."""
    pids = tmp_path / "pids"
    with faulty(tmp_path, {"bad": entry(env={"PIDFILE": str(pids)})}) as host:
        host.use("bad", "echo")
        asleep = pids_in(pids)[0]
        os.kill(asleep, signal.SIGSTOP)
        large = host.begin_use("bad", "big", {"n": 3, "text": "x" * 3_000_000})
        waits = [host.begin_use("bad", "echo", {"n": n}) for n in range(5)]
        for id in waits[1:4]:
            host.notify("notifications/cancelled", {"requestId": id})
        host.request("ping")  # all of that is read
        os.kill(asleep, signal.SIGCONT)

        assert json_text(host.outcome(large)) == "xxx"
        assert [json_text(host.outcome(id))["arguments"]["n"] for id in (waits[0], waits[4])] == [
            0,
            4,
        ]
        seen = json_text(host.use("bad", "stats"))
        assert seen["cancelled"] == []
        assert seen["methods"].count("tools/call") == 5


@pytest.mark.fault("F31", "F42")
@pytest.mark.usefixtures("short_deadlines")  # the call never ends
@HOSTS
def test_a_host_on_a_pipe_that_vanishes_takes_its_calls_and_servers_along(
    tmp_path: Path, modern: bool
) -> None:
    pids = tmp_path / "pids"
    with PipeHost(config_file(tmp_path, {"a": entry(env={"PIDFILE": str(pids)})})) as host:
        host.modern = modern
        if not modern:
            host.initialize()
        host.use("a", "echo")
        host.begin_use("a", "hang")
        host.close()
        assert host.ended() == 0
        assert host.stderr == ""
    assert gone(pids_in(pids))


@pytest.mark.fault("F3")
@HOSTS
def test_a_deadline_is_a_cancel_for_the_server(tmp_path: Path, modern: bool) -> None:
    bad: dict[str, Any] = {
        "legacy": entry(timeout=1),
        "modern": entry("modern", era="modern", timeout=1),
    }
    with faulty(tmp_path, bad, modern=modern) as host:
        host.open()
        ids = {server: host.begin_use(server, "hold", {"key": "k"}) for server in bad}
        lines = {server: json_text(host.use(server, "last_line")) for server in bad}
        for server in bad:
            failure(host.outcome(ids[server]), "timeout")
            held = json.loads(lines[server][0])
            assert json_text(host.use(server, "stats"))["cancelled"] == [held["id"]]
