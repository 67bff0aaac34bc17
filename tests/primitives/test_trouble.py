"""Requests beside calls that are taken back, time out, or lose their server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.config import offers_entry
from tests.kit.pipe_host import PipeHost
from tests.primitives.scenes import ERAS, LEGACY, MODERN, begin, bench, seen

pairs = pytest.mark.parametrize(("host_era", "server_era"), [(h, s) for h in ERAS for s in ERAS])


def scene(folder: Path, host_era: str, server_era: str, **more: Any) -> PipeHost:
    config = bench(folder, {"dev": {"one": {**offers_entry("one", server_era), **more}}})
    return PipeHost(config, modern=host_era == MODERN)


@pairs
def test_a_request_that_is_taken_back_is_taken_back_at_its_server(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    with scene(tmp_path, host_era, server_era) as host:
        begin(host, "dev")
        id = host.ask("prompts/get", {"name": "dev__one__hang"})
        host.result("prompts/get", {"name": "dev__one__greet"})  # so it is there by now
        host.notify("notifications/cancelled", {"requestId": id})
        (cancelled,) = seen(host, "dev", "one", "notifications/cancelled")
        requests = seen(host, "dev", "one", "prompts/get")

    assert isinstance(cancelled["requestId"], int)
    assert [params["name"] for params in requests] == ["hang", "greet"]
    assert not [message for message in host.others if message.get("id") == id]


@pairs
def test_a_server_that_dies_is_named(tmp_path: Path, host_era: str, server_era: str) -> None:
    with scene(tmp_path, host_era, server_era) as host:
        begin(host, "dev")
        error = host.error("prompts/get", {"name": "dev__one__die"})
        again = host.result("prompts/get", {"name": "dev__one__greet"})

    assert error["code"] == -32603
    assert error["message"].startswith("[dev/one] Error: ")
    assert "may have run" in error["message"]
    assert again["messages"]


def test_a_server_that_does_not_answer_is_given_up_in_time(tmp_path: Path) -> None:
    with scene(tmp_path, LEGACY, LEGACY, timeout=0.3) as host:
        begin(host)
        error = host.error("prompts/get", {"name": "dev__one__hang"})

    assert error == {"code": -32603, "message": "[dev/one] Error: timed out after 0.3 s"}


def test_a_host_that_leaves_takes_its_requests_with_it(tmp_path: Path) -> None:
    with scene(tmp_path, MODERN, LEGACY) as host:
        host.ask("prompts/get", {"name": "dev__one__hang"})
        host.result("prompts/get", {"name": "dev__one__greet"})
        host.process.terminate()
        host.statuses = (0, -15)


@pairs
def test_contents_reach_the_host_byte_for_byte(
    tmp_path: Path, host_era: str, server_era: str
) -> None:
    with scene(tmp_path, host_era, server_era) as host:
        begin(host, "dev")
        host.result("resources/read", {"uri": "note://one/own"})
        host.result("resources/list")
        read, listed = host.lines[-2:]

    content = {"uri": "note://one/own", "text": "one has note://one/own", "x-odd": [1, None]}
    assert json.dumps(content).encode() in read
    resource = {"uri": "note://shared", "name": "shared", "x-odd": [1, None]}
    assert json.dumps(resource, separators=(",", ":")).encode() in listed  # lists are made compact
