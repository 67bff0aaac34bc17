"""The command as a person runs it: a real process, bounded in time, in a folder of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from mcp_workbench.config.http_settings import TOKEN_VARIABLE
from mcp_workbench.config.load import DEMO_NOTICE
from tests.kit import forked
from tests.kit.clock import PATIENCE
from tests.kit.forked import Streams
from tests.kit.http_host import ACCEPT, rpc
from tests.kit.results import INITIALIZE, Json

COMMAND = forked.COMMAND
TIMEOUT = 60  # seconds, on a busy machine
NO_CHECK = "MCP_WORKBENCH_IMPORT_NO_CHECK"
READS = {NO_CHECK: "0"}  # `import` connects to the servers that it writes, as it does for everybody


class Done(NamedTuple):
    """What a run of the command came to: `data` is its output as JSON, `failure` its error as JSON."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)

    @property
    def failure(self) -> Json:
        (line,) = self.err.splitlines()
        return json.loads(line)


def environ(**more: str) -> dict[str, str]:
    """Ours without what would change the command's mind; a terminal's size is its own to tell."""
    ours = {"WORKBENCH_CONFIG", "NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING", "COLUMNS", "LINES"}
    return {k: v for k, v in os.environ.items() if k not in ours} | {"PYTHONUTF8": "1"} | more


def run_command(*argv: str, cwd: Path, stdin: str = "", **variables: str) -> Done:
    """The command in this folder, with our environment and these variables.

    Many tests use the demo for their servers: that it is used is not in `err`. `Person` reads it all.
    """
    done = typed(argv, cwd, Streams(stdin), environ(**variables))
    return done._replace(err=done.err.removeprefix(f"{DEMO_NOTICE}\n"))


def typed(argv: Sequence[str], cwd: Path, streams: Streams, env: dict[str, str]) -> Done:
    """The same, with streams that need not be ours."""
    done = forked.run(argv, cwd=cwd, env=env, streams=streams, timeout=TIMEOUT)
    assert "Traceback" not in done.stderr, done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


class Person(NamedTuple):
    """Somebody with a home, a folder to work in, and the programs of `path`."""

    home: Path
    folder: Path
    path: str = "/usr/bin:/bin"

    @property
    def config(self) -> Path:
        return self.folder / "workbench-config.json"

    def environ(self, **more: str) -> dict[str, str]:
        """Few variables, so that no host of this machine is found; those of coverage stay, and where temporary files go.

        Most servers of their hosts are made up, so that `import` is not to connect to them: `READS`
        among the variables lets it.
        """
        kept = {
            k: v for k, v in os.environ.items() if k.startswith(("COVERAGE", "PYTHON", "TMPDIR"))
        }
        usual = {"HOME": str(self.home), "PATH": self.path, "PYTHONUTF8": "1", NO_CHECK: "1"}
        return {**kept, **usual, **more}

    def types(self, *argv: str, stdin: str = "", **variables: str) -> Done:
        """The command in their folder, with few variables."""
        return typed(argv, self.folder, Streams(stdin), self.environ(**variables))


def newcomer(folder: Path) -> Person:
    """Somebody whose home and folder are empty."""
    person = Person(folder / "home", folder / "work")
    person.home.mkdir()
    person.folder.mkdir()
    return person


class HttpCommand:
    """A running `serve --http`: its two first lines, its URL, and single requests to it."""

    def __init__(self, process: subprocess.Popen[str], line: str, remark: str) -> None:
        self.process = process
        self.line = line
        self.remark = remark
        found = re.search(r"http://127\.0\.0\.1:(\d+)/mcp", line)
        assert found, line
        self.url = found[0]
        self.port = int(found[1])
        self.complaints = ""  # what it wrote after its two lines, as far as `drain` has read

    def post(self, body: bytes, **headers: str) -> tuple[int, dict[str, str], Any]:
        """Status, headers and JSON of an answer. Headers: `mcp_session_id` and so on."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {"content-type": "application/json", "accept": ACCEPT}
        request = urllib.request.Request(self.url, body, sent)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                data = answer.read()
                return answer.status, dict(answer.headers), json.loads(data or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), json.loads(error.read())

    def drain(self) -> Thread:
        """Read its stderr from here on, so that it never waits for a reader; done when it has ended."""
        pipe = self.process.stderr
        assert pipe is not None

        def read() -> None:
            self.complaints += "".join(iter(pipe.readline, ""))

        thread = Thread(target=read, daemon=True)
        thread.start()
        return thread

    def open(self) -> str:
        """The id of a new legacy session."""
        _, headers, _ = self.post(rpc("initialize", INITIALIZE, 1))
        return headers["Mcp-Session-Id"]


@contextmanager
def serving(
    config: Path,
    address: str = "0",
    env: dict[str, str] | None = None,
    *more: str,
    command: Sequence[str] | None = None,
) -> Generator[HttpCommand]:
    """The real command on a port that it chooses itself; it is killed at the end if it still runs."""
    env = {**os.environ, **(env or {})}
    start = command or forked.command(env)
    argv = [*start, "serve", "--config", str(config), "--http", address, *more]
    process = subprocess.Popen(
        argv,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        remark = "" if TOKEN_VARIABLE in env else process.stderr.readline()
        yield HttpCommand(process, line, remark)
    finally:
        process.kill()
        process.communicate()


def stopped(command: HttpCommand, number: signal.Signals) -> tuple[int, str, str]:
    """Its status and what it still wrote, once this signal has ended it."""
    command.process.send_signal(number)
    out, err = command.process.communicate(timeout=PATIENCE)
    return command.process.returncode, out, err
