"""A port that is told to end: what is under way has its time, and whoever comes is told."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clock import PATIENCE, eventually
from tests.kit.command import HttpCommand, serving
from tests.kit.config import config_file, entry
from tests.kit.http_host import ACCEPT, modern_headers, rpc
from tests.kit.processes import alive, pids_in
from tests.kit.results import enveloped, use_tool

pytestmark = pytest.mark.usefixtures("forked_commands")

CODE = "mcp-workbench/code"
LONG = PATIENCE * 3  # seconds of draining; a test that waited for its end would have failed before


def health(command: HttpCommand, path: str) -> tuple[int, bytes]:
    """What a new connection is told."""
    try:
        url = command.url.replace("/mcp", path)
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def modern_call(tool: str, arguments: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    params = use_tool("fixture", tool, arguments)
    return rpc("tools/call", enveloped(params), 9), modern_headers("tools/call", params)


Asked = tuple[int, dict[str, str], Any]


@contextmanager
def under_way(post: Callable[[], Asked], asked: Path) -> Generator[Future[Asked]]:
    """A call that waits at a gate, in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(post)
        eventually(asked.exists, "the call has reached its server")
        yield waiting


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("modern", [False, True])
def test_the_port_says_that_it_ends_while_what_is_under_way_goes_on(
    tmp_path: Path, gate: Path, modern: bool
) -> None:
    reached = tmp_path / "reached"
    config = config_file(tmp_path, {"fixture": entry()}, limits={"drain": LONG})
    arguments = {"gate": str(gate), "reached": str(reached)}
    with serving(config) as command:
        session = command.open()
        assert health(command, "/readyz") == (200, b"ok")
        if modern:
            body, told = modern_call("wait_at", arguments)
        else:
            body, told = (
                rpc("tools/call", use_tool("fixture", "wait_at", arguments), 3),
                {"mcp_session_id": session},
            )
        with under_way(lambda: command.post(body, **told), reached) as waiting:
            command.process.send_signal(signal.SIGTERM)
            eventually(lambda: health(command, "/readyz") == (503, b"draining"), "it is told")

            assert health(command, "/healthz") == (200, b"ok")
            late = [
                command.post(rpc("tools/list", {}, 4), mcp_session_id=session),
                command.post(rpc("initialize", {"protocolVersion": "2025-11-25"}, 1)),
                command.post(modern_call("echo", {})[0], **modern_call("echo", {})[1]),
            ]
            gate.open("w").close()
            status, _, answer = waiting.result(PATIENCE)

        assert command.process.wait(PATIENCE) == 0
    for refused, headers, error in late:
        assert (refused, error["error"]["data"]) == (503, {CODE: "draining"})
        assert headers["Retry-After"] == "5"
    assert status == 200
    assert json.loads(answer["result"]["content"][0]["text"]) == "through"


@pytest.mark.usefixtures("short_deadlines")  # its server is stuck, and does not leave
def test_an_answer_of_the_host_still_reaches_what_is_under_way(tmp_path: Path) -> None:
    """A cancel, here: it is a message of its own, not a new request."""
    config = config_file(tmp_path, {"fixture": entry()}, limits={"drain": LONG})
    reached = tmp_path / "reached"
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    body = rpc(
        "tools/call",
        use_tool("fixture", "wait_at", {"gate": str(gate), "reached": str(reached)}),
        3,
    )
    with serving(config) as command:
        session = command.open()
        call = lambda: command.post(body, mcp_session_id=session)  # noqa: E731
        with under_way(call, reached):
            command.process.send_signal(signal.SIGTERM)
            eventually(lambda: health(command, "/readyz")[0] == 503, "it is told")

            cancel = rpc("notifications/cancelled", {"requestId": 3})
            assert command.post(cancel, mcp_session_id=session)[0] == 202
            assert command.process.wait(PATIENCE) == 0  # there was nothing more to wait for


@pytest.mark.usefixtures("short_deadlines")  # its server does not leave
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_again_it_waits_no_longer(tmp_path: Path, gate: Path, number: signal.Signals) -> None:
    pids, reached = tmp_path / "pids", tmp_path / "reached"
    fixture = entry("no_eof_exit", "ignore_term", "grandchild", env={"PIDFILE": str(pids)})
    config = config_file(tmp_path, {"fixture": fixture}, limits={"drain": LONG})
    body, told = modern_call("wait_at", {"gate": str(gate), "reached": str(reached)})
    with (
        serving(config) as command,
        under_way(lambda: command.post(body, **told), reached) as waiting,
    ):
        command.process.send_signal(signal.SIGTERM)
        eventually(lambda: health(command, "/readyz")[0] == 503, "it is told")
        command.process.send_signal(number)

        assert command.process.wait(PATIENCE) == (130 if number == signal.SIGINT else 0)
        status, _, answer = waiting.result(PATIENCE)

    assert status == 503
    assert "may have run" in answer["error"]["message"]
    assert len(pids_in(pids)) == 2
    eventually(lambda: not any(map(alive, pids_in(pids))), "its servers end")


def test_the_last_answer_leaves_whole_also_to_a_slow_reader(tmp_path: Path, gate: Path) -> None:
    reached, size = tmp_path / "reached", 8_000_000
    arguments = {"gate": str(gate), "reached": str(reached), "n": size}
    with serving(config_file(tmp_path, {"fixture": entry()})) as command, socket.socket() as slow:
        name = command.url[7:-4]
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)  # it does not fit on the way
        slow.connect(("127.0.0.1", int(name.rpartition(":")[2])))
        body, told = modern_call("wait_at", arguments)
        headers = {"Host": name, "Content-Type": "application/json", "Accept": ACCEPT}
        headers |= {key.replace("_", "-"): value for key, value in told.items()}
        headers["Content-Length"] = str(len(body))
        lines = ["POST /mcp HTTP/1.1", *(f"{key}: {value}" for key, value in headers.items())]
        slow.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        eventually(reached.exists, "the call has reached its server")
        command.process.send_signal(signal.SIGTERM)
        eventually(lambda: health(command, "/readyz")[0] == 503, "it is told")
        gate.open("w").close()
        eventually(lambda: closed(command), "all that is left to do is to send")

        received = 0
        while data := slow.recv(1 << 20):
            received += len(data)

        assert received > size
        assert command.process.wait(PATIENCE) == 0


def closed(command: HttpCommand) -> bool:
    """Does nobody listen any more?"""
    try:
        health(command, "/readyz")
    except OSError:
        return True
    return False
