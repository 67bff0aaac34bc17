"""The log: what servers say, masked, bounded, and shown."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.daemon.lifecycle import MOST_BYTES, BoundedLog
from mcp_workbench.upstream import dial
from mcp_workbench.upstream.dial import LINES, StderrLog
from tests.kit.clock import eventually
from tests.kit.command import COMMAND
from tests.kit.config import config_file, entry, spec
from tests.kit.shared import Shared, shared

pytestmark = pytest.mark.usefixtures("forked_commands")


def talker(says: str, **more: Any) -> dict[str, Any]:
    """The fixture, which says this on stderr when it starts."""
    plain = entry()
    line = ["-c", 'printf "%b" "$SAYS" >&2; exec "$@"', "sh", plain["command"], *plain["args"]]
    env = {"SAYS": says, **more.pop("env", {})}
    return {**plain, "command": "/bin/sh", "args": line, "env": env, **more}


def test_what_servers_say_is_in_the_log_without_secrets(tmp_path: Path) -> None:
    server = talker("one line\\nthe key is ${SOME_TOKEN} ok\\n\\033[31mred\\n")
    config = config_file(tmp_path, {"a": server, "b": talker("of b\\n")})
    with shared(config, SOME_TOKEN="very-secret-value") as bench, bench.host() as host:
        host.initialize()
        host.open()
        eventually(lambda: "dev/b: of b" in bench.log(), "it is logged")

        shown = bench.done("logs")
        lines = [line.partition(" ")[2] for line in shown.splitlines()]
        assert "dev/a: one line" in lines
        assert "dev/a: the key is [secret:SOME_TOKEN] ok" in lines
        assert "dev/a: \\x1b[31mred" in lines
        assert "very-secret-value" not in bench.log()
        assert any(line.startswith("workbench: host joined") for line in lines)
        own = [json.loads(line) for line in bench.done("logs", "dev/b", "--json").splitlines()]
        assert [(one["who"], one["text"]) for one in own] == [("dev/b", "of b")]
        assert bench.done("logs", "-n", "1").count("\n") == 1
        assert host.stderr == "", "nothing of it goes to the host"


def test_the_log_is_followed(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": talker("hello\\n")})) as bench:
        follower = subprocess.Popen(
            [*COMMAND, "logs", "-f", "--config", str(bench.config)],
            env={**os.environ, **bench.env, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert follower.stdout is not None
            assert "started" in follower.stdout.readline()
            with bench.host() as host:
                host.initialize()
                host.use("a", "stats")
            said = [follower.stdout.readline().partition(" ")[2].strip() for _ in range(3)]
            assert "dev/a: hello" in said
        finally:
            follower.kill()
            follower.wait()
            if follower.stdout is not None:
                follower.stdout.close()


def test_logs_of_nothing_are_empty(tmp_path: Path) -> None:
    config = config_file(tmp_path, {"a": entry()})
    ran = Shared(config).run("logs")

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "nothing was logged\n")


@pytest.mark.parametrize(
    ("who", "told"),
    [
        ("dve", "error: Toolbox 'dve' not found\n  Did you mean 'dev'?\n"),
        ("dev/nope", "error: Server 'nope' not found in toolbox 'dev'\n"),
        ("--follow dev/nope", "error: Server 'nope' not found in toolbox 'dev'\n"),
    ],
)
def test_a_name_that_nobody_has_is_told(tmp_path: Path, who: str, told: str) -> None:
    ran = Shared(config_file(tmp_path, {"a": entry()})).run("logs", *who.split())

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(told)


@pytest.mark.parametrize("who", ["dev/a", "workbench"])
def test_who_has_said_nothing_yet_is_no_mistake(tmp_path: Path, who: str) -> None:
    ran = Shared(config_file(tmp_path, {"a": entry()})).run("logs", who)

    assert (ran.returncode, ran.stderr) == (0, "nothing was logged\n")


def test_a_server_that_was_taken_out_since_is_still_shown(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, {"a": talker("of a\\n"), "b": entry()})) as bench:
        with bench.host() as host:
            host.initialize()
            host.open()
            eventually(lambda: "dev/a: of a" in bench.log(), "it is logged")

        config_file(tmp_path, {"b": entry()})

        assert bench.done("logs", "dev/a").endswith("dev/a: of a\n")


def test_the_file_never_grows_beyond_its_size(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    book = BoundedLog(str(path))
    record = logging.LogRecord("x", logging.INFO, "", 0, "%s", ("y" * 9_000,), None)
    for _ in range(400):
        book.emit(record)

    sizes = [path.stat().st_size, (tmp_path / "x.log.1").stat().st_size]
    assert max(sizes) <= MOST_BYTES
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.log", "x.log.1"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_flood_is_counted_and_not_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mcp_workbench")
    now = 0.0
    heard = StderrLog(spec("a"), {}, lambda: now)
    for _ in range(1000):
        heard.feed(b"flood\n" * 100)
    written = [record.getMessage() for record in caplog.records]
    assert written == ["flood"] * LINES
    now = dial.WINDOW + 1

    heard.feed(b"calm\n")

    told = [record.getMessage() for record in caplog.records[LINES:]]
    assert told == ["(99900 more lines were left out: more than 100 in 10 s)", "calm"]
    assert {getattr(record, "server", "") for record in caplog.records} == {"dev/a"}


def test_a_secret_is_masked_however_its_line_arrives(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mcp_workbench")
    heard = StderrLog(spec("a", env={"A_TOKEN": "${V}"}), {"V": "a-long-secret"})
    for piece in (b"it is a-lo", b"ng-sec", b"ret!\n", b"x" * 20_000 + b"a-long-secret\n"):
        heard.feed(piece)

    first, second = (record.getMessage() for record in caplog.records)
    assert first == "it is [secret:V]!"
    assert second == "x" * dial.LONGEST + "…"
