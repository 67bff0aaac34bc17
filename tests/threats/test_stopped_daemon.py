"""A host does not wait for ever for a shared workbench that was stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mcp_workbench.daemon import attach
from tests.kit.clock import eventually
from tests.kit.config import config_file, entry
from tests.kit.processes import alive
from tests.kit.results import json_text
from tests.kit.shared import Shared, nothing_left, shared

SAYS = "gave no sign of life"
# Hosts whose workbench is stopped wait for it a quarter as long as others do in tests.
SOON = {"MCP_WORKBENCH_TEST_PAUSES": "0.05"}


@contextmanager
def stoppable(folder: Path) -> Generator[Shared]:
    """One that may not leave by itself."""
    bench = Shared(config_file(folder, {"a": entry()}))
    bench.up()
    try:
        yield bench
    finally:
        with suppress(ProcessLookupError):
            os.kill(bench.pid, signal.SIGKILL)


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
def test_a_host_goes_on_by_itself_and_only_one_is_left_to_read_its_pipes(
    tmp_path: Path, *, modern: bool
) -> None:
    with stoppable(tmp_path) as bench, bench.host(modern=modern, real=True, **SOON) as host:
        host.handshake()
        before = json_text(host.use("a", "stats"))["pid"]

        with nothing_left(bench.pid):
            os.kill(bench.pid, signal.SIGSTOP)
            call = host.begin_use("a", "stats")  # left unread
            answer = host.answer(call)

        assert json_text(answer["result"])["pid"] != before
        assert SAYS in host.stderr
        assert host.stderr.count("\n") == 1
        assert not alive(bench.pid)


def test_a_host_that_leaves_a_stopped_workbench_is_let_go(tmp_path: Path) -> None:
    with stoppable(tmp_path) as bench, bench.host(modern=False, real=True, **SOON) as host:
        host.handshake()
        os.kill(bench.pid, signal.SIGSTOP)
        host.close()

        assert host.ended() == 0
        eventually(lambda: not alive(bench.pid), "it was ended")


def test_one_that_is_well_is_left_alone_however_little_it_says(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": entry()})) as bench, bench.host() as host:
        host.handshake()
        before = json_text(host.use("a", "stats"))["pid"]
        until = time.monotonic() + 2 * attach.BEAT
        while time.monotonic() < until:  # a few signs of life are asked for and given
            time.sleep(0.1)

        assert json_text(host.use("a", "stats"))["pid"] == before
        assert host.stderr == ""
