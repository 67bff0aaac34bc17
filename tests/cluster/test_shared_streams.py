"""Streams of legacy sessions that resume on another replica after their owner was killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.blocking_hosts import StreamHost
from tests.cluster.scenes import LIMIT, Cluster, cluster
from tests.kit.http_host import rpc
from tests.kit.servers import FIXTURE

pytestmark = [pytest.mark.peers, pytest.mark.timeout(LIMIT)]


def configuration() -> dict[str, Any]:
    server = {"command": sys.executable, "args": ["-E", "-S", FIXTURE], "era": "legacy"}
    boxes = {name: {"mcpServers": {"one": server}} for name in ("dev", "ops", "qa", "lab")}
    return {"toolboxes": boxes, "toolMode": "dynamic"}


def progress(id: int, **arguments: Any) -> bytes:
    """A call of which its host hears before its answer."""
    params = {"name": "dev__one__progress", "arguments": arguments}
    return rpc("tools/call", {**params, "_meta": {"progressToken": f"p{id}"}}, id)


def open_toolbox(host: StreamHost, id: int, name: str) -> None:
    """The host's tools change: a message on its own stream."""
    assert "result" in host.call(id, "open_toolbox", {"toolbox_name": name})


def listed_toolboxes(host: StreamHost) -> set[str]:
    """Those whose tools the host sees."""
    _, body = host.post(rpc("tools/list", {}, "list"))
    tools = json.loads(body[body.index(b"{") :])["result"]["tools"]
    return {tool["name"].partition("__")[0] for tool in tools if "__" in tool["name"]}


def finished_elsewhere(host: StreamHost, id: int) -> tuple[str, list[Any]]:
    """The last event that the host has of a call that ends without it, and what it has missed."""
    with host.stream(progress(id, n=2, key=f"k{id}")) as stream:
        (first,) = islice(stream.messages(), 1)
        assert first["params"]["progress"] == 0
        last = stream.last
    assert "result" in host.call(id + 1, "dev__one__release", {"key": f"k{id}"})
    with host.stream(last=last) as stream:  # where it was
        missed = list(stream.messages())
    assert [message.get("id") for message in missed] == [None, id]
    return last, missed


def commands(running: Cluster) -> bytes:
    return running.engine.command("INFO", "commandstats")


def test_streams_resume_after_their_owner_was_killed(tmp_path: Path) -> None:
    with cluster(tmp_path, 2, **configuration()) as running:
        host, quiet = StreamHost(running, 0), StreamHost(running, 0)
        assert b"xadd" not in commands(running)  # a call without a stream leaves nothing
        open_toolbox(host, 2, "dev")
        assert "result" in host.call(3, "dev__one__echo", {"text": "x"})
        with quiet.stream() as stream:
            never = stream.primed()
        with host.stream() as stream:
            next(stream.messages())
            last = stream.last
        open_toolbox(host, 4, "ops")
        open_toolbox(host, 5, "qa")
        done, missed = finished_elsewhere(host, 10)
        with host.stream(progress(20, n=2, key="never")) as stream:
            assert len(list(islice(stream.messages(), 2))) == 2
            running_call = stream.last

            running.replicas[0].kill()

        host.replica = quiet.replica = 1
        with host.stream(last=done) as stream:  # a call that had ended
            assert list(stream.messages()) == missed
        check_that_the_call_is_lost(host, running_call)
        with host.stream(last=last) as stream:  # what belongs to no request, and goes on
            heard = stream.messages()
            assert [message["method"] for message in islice(heard, 2)] == [
                "notifications/tools/list_changed"
            ] * 2
            assert listed_toolboxes(host) == {"dev", "ops", "qa"}  # it has opened them before
            open_toolbox(host, 6, "lab")
            assert next(heard)["method"] == "notifications/tools/list_changed"
        with quiet.stream(last=never) as stream:  # nothing has happened
            assert stream.status == 200
        check_that_gaps_are_said(running, host, last, done)


def test_a_stream_is_followed_while_its_replica_hands_over(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with cluster(tmp_path, 2, later=2, **configuration()) as running:
        for replica in reversed(running.replicas):  # the second may not have heard of the first
            replica.start()
            replica.ready()
        host = StreamHost(running, 0)
        open_toolbox(host, 2, "dev")
        with host.stream(progress(10, n=1, gate=str(gate), seconds=60)) as stream:
            next(stream.messages())
            last = stream.last
        running.replicas[0].signal(signal.SIGTERM)
        host.replica = 1
        with host.stream(last=last) as stream:
            assert stream.status == 200  # it goes on, at the replica that ends
            gate.write_bytes(b"")
            (answer,) = stream.messages()
        assert answer["id"] == 10
        assert "result" in answer
        assert running.replicas[0].wait() == 0


def check_that_the_call_is_lost(host: StreamHost, last: str) -> None:
    with host.stream(last=last) as stream:
        assert stream.status == 200, stream.text()
        (answer,) = stream.messages()
    assert answer["id"] == 20
    assert answer["error"]["data"]["mcp-workbench/code"] == "replica_gone"
    assert "may have run" in answer["error"]["message"]


def check_that_gaps_are_said(running: Cluster, host: StreamHost, last: str, done: str) -> None:
    """Once the events have gone, the same streams are refused with the reason."""
    names = running.engine.command("KEYS", "*:events:*").decode("latin-1").split()
    keys = [name for name in names if ":events:" in name]
    for key in keys:
        assert 0 < int(running.engine.command("TTL", key)[1:]) <= 75
        running.engine.command("DEL", key)
    with host.stream(last=last) as stream:
        assert stream.status == 400
        assert "lost" in stream.text()
    with host.stream(last=done) as stream:
        assert stream.status == 400
        assert "not kept any more" in stream.text()
    with StreamHost(running, 1, "bob").stream(last=done) as stream:
        assert stream.status == 400
