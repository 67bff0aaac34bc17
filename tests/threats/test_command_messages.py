"""Whoever speaks the protocol of commands badly is disconnected; the workbench and its hosts go on."""

from __future__ import annotations

import socket
from collections.abc import Generator

import msgspec
import pytest

from mcp_workbench.core.spec import ServerAddress, ToolIdentifier
from mcp_workbench.daemon import control
from mcp_workbench.daemon.attach import host_fields
from mcp_workbench.daemon.command_messages import CallTool, Request, Survey
from tests.kit.clock import PATIENCE, eventually
from tests.kit.config import config_file, entry
from tests.kit.shared import Shared, shared

LARGEST = 1 << 20  # bytes of a message: a backlog of the usual ones would be 64 MiB
DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, forked_commands: None) -> Generator[Shared]:
    """One for all of them: whatever came before, it goes on."""
    folder, limits = tmp_path_factory.mktemp("shared"), {"messageBytes": LARGEST}
    with shared(config_file(folder, {"a": entry()}, limits=limits)) as bench:
        yield bench


@pytest.fixture
def bench(running: Shared) -> Generator[Shared]:
    yield running
    assert "Traceback" not in running.log()
    assert running.done("call", "dev/a/echo", "text=hi")


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def encoded(request: Request) -> bytes:
    return framed(msgspec.json.encode(request))


def is_disconnected(connection: socket.socket) -> bool:
    try:
        while connection.recv(1 << 20):
            pass
    except ConnectionError:
        pass
    return True


BAD = {
    "no JSON": framed(b"x"),
    "another message": framed(b'{"type":"Nothing"}'),
    "no text": framed(b'{"type":"\xff"}'),
    "many levels": framed(b'{"type":"CallTool","x":%b}' % DEEP),
    "arguments of many levels": framed(
        b'{"type":"CallTool","id":1,"tool":{"toolbox":"dev","server":"a","tool":"echo"},"arguments":%b}'
        % DEEP
    ),
    "an answer of many levels": framed(b'{"type":"Answer","id":1,"answer":%b}' % DEEP),
    "the largest length": b"\xff\xff\xff\xff",
    "a length beyond the largest message": (LARGEST * 2).to_bytes(4, "big"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_message_ends_its_connection(bench: Shared, kind: str) -> None:
    with bench.joined() as connection:
        connection.sendall(BAD[kind])
        assert is_disconnected(connection)
    eventually(lambda: not bench.status()["hosts"], "it is gone")


def test_a_command_that_does_not_read_is_disconnected(bench: Shared) -> None:
    size = LARGEST // 8
    arguments = msgspec.Raw(msgspec.json.encode({"text": "x" * size}))
    call = encoded(CallTool(1, ToolIdentifier("dev", "a", "echo"), arguments))
    with bench.joined() as connection:

        def is_cut_off() -> bool:
            try:
                connection.sendall(call)
            except ConnectionError:
                return True
            return False

        # Some are refused as too many, and some answers come late: nobody knows how many it takes.
        eventually(is_cut_off, "it is disconnected")
    eventually(lambda: not bench.status()["hosts"], "it is gone")
    assert "does not read: disconnected" in bench.log()


@pytest.mark.parametrize("capabilities", [b"", b"{", b"[]", DEEP])
def test_capabilities_that_can_t_be_read_are_refused(bench: Shared, capabilities: bytes) -> None:
    connection = control.connect(bench.paths)
    assert connection is not None
    with connection, pytest.MonkeyPatch.context() as patch:
        for name, value in bench.env.items():
            patch.setenv(name, value)
        fields = host_fields(bench.paths, b"test", capabilities)
        response = control.request(connection, PATIENCE, control.COMMAND, *fields)
    assert response[0] == control.REFUSED


def test_a_command_killed_in_the_middle_of_a_message_is_forgotten(bench: Shared) -> None:
    request = encoded(Survey(1, ServerAddress("dev", "a")))
    for cut in (1, 4, len(request) // 2, len(request) - 1):
        with bench.joined() as connection:
            connection.sendall(request[:cut])
    eventually(lambda: not bench.status()["hosts"], "they are gone")
