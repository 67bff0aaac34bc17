"""What is never lost and never doubled: calls whose server died under them."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clock import eventually
from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import alive, pids_in
from tests.kit.results import json_text, texts

pytestmark = pytest.mark.usefixtures("forked_commands")


def server(folder: Path, *flags: str, **annotations: bool) -> dict[str, Any]:
    """The fixture, whose tool `die_once` says this about itself."""
    shown = [{"name": name, "inputSchema": {"type": "object"}} for name in ("stats", "hold")]
    once = {"name": "die_once", "inputSchema": {"type": "object"}, "annotations": annotations}
    tools = folder / "tools.json"
    tools.write_text(json.dumps([*shown, once]))
    return entry(f"tools={tools}", *flags, env={"PIDFILE": str(folder / "pids")})


@pytest.mark.fault("F1")
@pytest.mark.parametrize("hint", ["readOnlyHint", "idempotentHint"])
def test_a_call_that_may_run_twice_is_sent_once_more(tmp_path: Path, hint: str) -> None:
    with PipeHost(config_file(tmp_path, {"a": server(tmp_path, **{hint: True})})) as host:
        host.initialize()

        result = host.use("a", "die_once", {"file": str(tmp_path / "runs")})

    assert json_text(result) == 2
    assert len(pids_in(tmp_path / "pids")) == 2


@pytest.mark.fault("F1")
@pytest.mark.parametrize("annotations", [{}, {"readOnlyHint": False, "destructiveHint": False}])
def test_any_other_that_may_have_run_is_not(tmp_path: Path, annotations: dict[str, bool]) -> None:
    with PipeHost(config_file(tmp_path, {"a": server(tmp_path, **annotations)})) as host:
        host.initialize()

        result = host.use("a", "die_once", {"file": str(tmp_path / "runs")})

        assert texts(result)[0].startswith("[dev/a/die_once] Error: the server exited")
        assert texts(result)[0].endswith("the call may have run")
        assert result["_meta"] == {"mcp-workbench/code": "server_exited"}
        host.use("a", "stats")
        assert (tmp_path / "runs").read_text() == "run\n", "it ran once"


@pytest.mark.fault("F1")
def test_a_call_is_sent_once_more_and_not_for_ever(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    harmless = {"name": "die", "inputSchema": {}, "annotations": {"readOnlyHint": True}}
    tools.write_text(json.dumps([harmless]))
    a = entry(f"tools={tools}", env={"PIDFILE": str(tmp_path / "pids")})
    with PipeHost(config_file(tmp_path, {"a": a})) as host:
        host.initialize()

        [text] = texts(host.use("a", "die", {"status": 3}))

    assert "exit status 3" in text
    assert len(pids_in(tmp_path / "pids")) == 2


def starts_while_it_is_there(marker: Path, started: dict[str, Any]) -> dict[str, Any]:
    """The same server, which does not start once somebody has removed the file."""
    marker.touch()
    script = '[ -e "$0" ] || exit 9; exec "$@"'
    args = ["-c", script, str(marker), started["command"], *started["args"]]
    return {**started, "command": "/bin/sh", "args": args}


@pytest.mark.fault("F1")
def test_a_call_that_may_have_run_says_so_where_the_server_does_not_start_again(
    tmp_path: Path,
) -> None:
    marker = tmp_path / "starts"
    a = starts_while_it_is_there(marker, server(tmp_path, readOnlyHint=True))
    with PipeHost(config_file(tmp_path, {"a": a})) as host:
        host.initialize()
        host.use("a", "stats")
        marker.unlink()

        result = host.use("a", "die_once", {"file": str(tmp_path / "runs")})

    assert texts(result)[0].startswith("[dev/a/die_once] Error: the server exited")
    assert texts(result)[0].endswith("the call may have run")
    assert (tmp_path / "runs").read_text() == "run\n"


def test_a_call_that_never_left_says_why_the_server_does_not_start_again(tmp_path: Path) -> None:
    marker = tmp_path / "starts"
    a = starts_while_it_is_there(marker, entry(env={"PIDFILE": str(tmp_path / "pids")}))
    with PipeHost(config_file(tmp_path, {"a": a})) as host:
        host.initialize()
        host.use("a", "stop_reading", {})
        large = host.begin_use("a", "echo", {"text": "x" * 3_000_000})
        waits = [host.begin_use("a", "echo", {"n": n}) for n in range(3)]
        host.request("ping")
        marker.unlink()
        os.kill(pids_in(tmp_path / "pids")[0], signal.SIGKILL)

        begun = texts(host.answer(large)["result"])[0]
        others = [texts(host.answer(id)["result"])[0] for id in waits]

    assert begun.endswith("the call may have run")
    for text in others:
        assert "exit status 9" in text
        assert "may have run" not in text


def test_a_call_that_never_left_is_sent_on_a_fresh_connection(tmp_path: Path) -> None:
    """The server does not read: its pipe is full, and what comes after waits with us."""
    a = entry(env={"PIDFILE": str(tmp_path / "pids")})
    with PipeHost(config_file(tmp_path, {"a": a})) as host:
        host.initialize()
        host.use("a", "stop_reading", {})
        large = host.begin_use("a", "echo", {"text": "x" * 3_000_000})
        waits = [host.begin_use("a", "echo", {"n": n}) for n in range(5)]
        host.request("ping")
        os.kill(pids_in(tmp_path / "pids")[0], signal.SIGKILL)

        [text] = texts(host.answer(large)["result"])
        answers = [json_text(host.answer(id)["result"]) for id in waits]

    assert "may have run" in text, "part of it had left"
    assert [answer["arguments"] for answer in answers] == [{"n": n} for n in range(5)]
    assert len(pids_in(tmp_path / "pids")) == 2


def test_a_call_that_is_sent_once_more_can_be_cancelled(tmp_path: Path) -> None:
    fifo = tmp_path / "gate"
    os.mkfifo(fifo)
    a = server(tmp_path, f"gate={fifo}", readOnlyHint=True)
    with PipeHost(config_file(tmp_path, {"a": a})) as host:
        host.initialize()
        call = host.begin_use("a", "die_once", {"file": str(tmp_path / "runs")})
        fifo.open("w").close()
        eventually(lambda: len(pids_in(tmp_path / "pids")) == 2, "the server is started again")

        host.notify("notifications/cancelled", {"requestId": call})
        fifo.open("w").close()

        assert json_text(host.use("a", "stats"))["pid"] == pids_in(tmp_path / "pids")[1]
        assert (tmp_path / "runs").read_text() == "run\n", "it was not run again"
        host.close()
        assert call not in [message.get("id") for message in host.rest()]


@pytest.mark.fault("F1")
def test_a_server_killed_between_two_calls_is_back_at_the_next(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with PipeHost(config_file(tmp_path, {"a": server(tmp_path)})) as host:
        host.initialize()
        for _ in range(4):
            host.use("a", "stats")
            for _ in range(10):  # it works, so that its end is no failure to start
                host.use("a", "stats")
            last = pids_in(pids)[-1]
            os.kill(last, signal.SIGKILL)
            eventually(lambda pid=last: not alive(pid), "it is dead")

        assert json_text(host.use("a", "stats"))["pid"] == pids_in(pids)[-1]
    assert len(pids_in(pids)) == 5
