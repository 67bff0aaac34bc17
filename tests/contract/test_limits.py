"""What the command refuses: too much, too late, and messages that are none."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.clock import eventually
from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import json_text, texts

pytestmark = pytest.mark.usefixtures("forked_commands")


@pytest.fixture
def legacy(tmp_path: Path) -> Iterator[PipeHost]:
    with PipeHost(config_file(tmp_path, {"a": entry()})) as host:
        host.initialize()
        yield host


@pytest.fixture(scope="module")
def long_lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeHost]:
    with PipeHost(config_file(tmp_path_factory.mktemp("asking"), {"a": entry()})) as host:
        host.initialize()
        yield host


@pytest.fixture
def asking(long_lived: PipeHost) -> PipeHost:
    """The same for all tests; what others have passed over is gone."""
    long_lived.others.clear()
    return long_lived


# Limits


def test_a_call_whose_time_is_up_is_cancelled_and_told(tmp_path: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": entry(timeout=0.2)})) as host:
        host.initialize()

        result = host.use("a", "hold", {"key": "k"})
        seen = json_text(host.use("a", "stats"))
        host.use("a", "release", {"key": "k"})

        assert result["isError"] is True
        assert texts(result)[0].startswith("[dev/a/hold] Error: timed out after 0.2 s")
        assert len(seen["cancelled"]) == 1
        assert host.others == []


def test_a_result_beyond_the_cap_fails_its_call_and_the_next_one_works(tmp_path: Path) -> None:
    file = config_file(tmp_path, {"a": entry()}, limits={"messageBytes": 100_000})
    with PipeHost(file) as host:
        host.initialize()
        held = host.begin_use("a", "hold", {"key": "k"})

        result = host.use("a", "big", {"n": 200_000})

        assert result["isError"] is True
        assert texts(result)[0].startswith("[dev/a/big] Error: ")
        assert "100000 bytes" in texts(result)[0]
        assert "limits.messageBytes" in texts(result)[0]
        [other] = [m["result"] for m in host.others if m["id"] == held]
        assert other["_meta"]["mcp-workbench/code"] == "too_large"
        assert json_text(host.use("a", "big", {"n": 50_000})) == "x" * 50_000


def test_a_request_beyond_the_cap_is_refused_and_the_next_one_works(tmp_path: Path) -> None:
    file = config_file(tmp_path, {"a": entry()}, limits={"messageBytes": 100_000})
    with PipeHost(file) as host:
        host.initialize()
        many = b'{"jsonrpc":"2.0","id":"before","method":"ping"}\n'
        huge = b'{"jsonrpc":"2.0","id":"huge","method":"ping","params":{"x":"%b"}}\n'

        host.write(many + huge % (b"y" * 300_000))

        assert host.answer("before")["result"] == {}
        error = host.answer("huge")["error"]
        assert error["code"] == -32600
        assert "limits.messageBytes" in error["message"]
        assert host.result("ping") == {}
        assert host.others == []


def test_too_many_calls_at_once_are_refused_at_once(tmp_path: Path) -> None:
    file = config_file(tmp_path, {"a": entry()}, limits={"callsPerServer": 2})
    with PipeHost(file) as host:
        host.initialize()
        host.use("a", "echo")
        held = [host.begin_use("a", "hold", {"key": key}) for key in "xy"]

        result = host.use("a", "echo")

        assert result["isError"] is True
        assert texts(result)[0].startswith("[dev/a/echo] Error: the server is busy")
        for id in held:
            host.notify("notifications/cancelled", {"requestId": id})
        assert json_text(host.use("a", "echo"))["name"] == "echo"


@pytest.mark.usefixtures("short_deadlines")  # the server never reads again
@pytest.mark.fault("F51")
def test_a_server_that_does_not_read_is_busy_and_holds_nobody_else(tmp_path: Path) -> None:
    file = config_file(tmp_path, {"a": entry(), "b": entry()}, limits={"queueBytes": 1_000_000})
    with PipeHost(file) as host:
        host.initialize()
        host.use("a", "stop_reading")
        ids = [host.begin_use("a", "echo", {"text": "x" * 400_000}) for _ in range(8)]

        assert json_text(host.use("b", "echo"))["name"] == "echo"
        answer = host.others[0]
        assert answer["id"] in ids
        assert "limits.queueBytes" in texts(answer["result"])[0]
        host.signal(signal.SIGTERM)  # the calls that wait for it are not waited for


@pytest.mark.fault("F52")
def test_a_host_that_does_not_read_holds_the_servers_and_loses_nothing(legacy: PipeHost) -> None:
    server = json_text(legacy.use("a", "stats"))["pid"]
    before = peak_megabytes(legacy.process.pid)
    legacy.stop_reading()
    ids = [legacy.begin_use("a", "big", {"n": 1_000_000}) for _ in range(30)]

    eventually(held_at_its_pipe(server), "the server waits at its full pipe")
    legacy.go_on_reading()

    for id in ids:
        assert len(json_text(legacy.answer(id)["result"])) == 1_000_000
    assert peak_megabytes(legacy.process.pid) - before < 15  # of thirty


def held_at_its_pipe(pid: int) -> Callable[[], bool]:
    """Is the process found writing to its stdout, forty times in a row?"""
    seen: list[bool] = []

    def held() -> bool:
        seen.append(Path(f"/proc/{pid}/syscall").read_text().startswith("1 0x1 "))
        return seen[-40:] == [True] * 40

    return held


def peak_megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError


# Wrong messages


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello\n", -32700),
        (b"{\n", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"\n', -32700),
        (b'{"t":"\xff"}\n', -32700),
        (b"5\n", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}\n', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}\n', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}\n', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}\n', -32602),
    ],
)
def test_a_wrong_message_is_answered_and_the_conversation_goes_on(
    asking: PipeHost, line: bytes, code: int
) -> None:
    asking.write(line)
    asking.request("ping")

    [answer] = asking.others
    assert answer["error"]["code"] == code
    assert answer["id"] == (1 if b'"id":1' in line and not line.startswith(b"[") else None)


def test_blank_lines_and_crlf_are_fine(asking: PipeHost) -> None:
    for blank in (b"\n", b"\r\n", b"   \n", b"\n\r\n \n"):
        asking.write(blank)
        asking.wait_until_read()
    asking.write(b'{"jsonrpc":"2.0","id":"x","method":"ping"}\r\n\r\n')

    assert asking.receive() == {"jsonrpc": "2.0", "id": "x", "result": {}}
    asking.request("ping")
    assert asking.others == []


def test_an_odd_number_in_a_wrong_call_is_answered_too(asking: PipeHost) -> None:
    wish = b'{"tool":"x","arguments":{"n":1e999}}'
    params = b'{"name":"use_tool","arguments":' + wish + b"}"
    asking.write(b'{"jsonrpc":"2.0","id":"x","method":"tools/call","params":' + params + b"}\n")

    result = asking.answer("x")["result"]
    assert texts(result)[0] == "Invalid parameters: tool: Expected object, received string"


def test_answers_and_notices_of_the_host_are_not_answered(asking: PipeHost) -> None:
    asking.send({"id": 5, "result": {}})
    asking.notify("notifications/initialized")
    asking.notify("notifications/roots/list_changed")
    asking.request("ping")

    assert asking.others == []
