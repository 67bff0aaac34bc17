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
from typing import Any, NamedTuple

from mcp_workbench.config.port import VARIABLE
from tests import quick_command
from tests.kit.clock import PATIENCE
from tests.kit.http_host import ACCEPT, rpc
from tests.kit.results import Json
from tests.quick_command import Streams

COMMAND = quick_command.COMMAND
TIMEOUT = 60  # seconds, on a busy machine


class Done(NamedTuple):
    """What a run of the command came to."""

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
    return typed(argv, cwd, Streams(stdin), environ(**variables))


def typed(argv: Sequence[str], cwd: Path, streams: Streams, env: dict[str, str]) -> Done:
    """The same, with streams that need not be ours."""
    done = quick_command.run(argv, cwd=cwd, env=env, streams=streams, timeout=TIMEOUT)
    assert "Traceback" not in done.stderr
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
        """Few variables, so that no host of this machine is found; those of coverage stay."""
        kept = {k: v for k, v in os.environ.items() if k.startswith(("COVERAGE", "PYTHON"))}
        return {**kept, "HOME": str(self.home), "PATH": self.path, "PYTHONUTF8": "1", **more}

    def types(self, *argv: str, stdin: str = "", **variables: str) -> Done:
        env = self.environ(**variables)
        streams = quick_command.Streams(stdin)
        done = quick_command.run(argv, cwd=self.folder, env=env, streams=streams, timeout=TIMEOUT)
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)


def newcomer(folder: Path) -> Person:
    person = Person(folder / "home", folder / "work")
    person.home.mkdir()
    person.folder.mkdir()
    return person


class HttpCommand:
    """A running command, and requests to it."""

    def __init__(self, process: subprocess.Popen[str], line: str, remark: str) -> None:
        self.process = process
        self.line = line
        self.remark = remark
        found = re.search(r"http://127\.0\.0\.1:(\d+)/mcp", line)
        assert found, line
        self.url = found[0]

    def post(self, body: bytes, **headers: str) -> tuple[int, dict[str, str], Any]:
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        told |= {"content-type": "application/json", "accept": ACCEPT}
        request = urllib.request.Request(self.url, body, told)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                data = answer.read()
                return answer.status, dict(answer.headers), json.loads(data or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), json.loads(error.read())

    def open(self) -> str:
        params: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {}}
        _, headers, _ = self.post(rpc("initialize", params, 1))
        return headers["Mcp-Session-Id"]


@contextmanager
def serving(
    config: Path, address: str = "0", env: dict[str, str] | None = None, *more: str
) -> Generator[HttpCommand]:
    argv = [*COMMAND, "serve", "--config", str(config), "--http", address, *more]
    process = subprocess.Popen(
        argv,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        remark = "" if env and VARIABLE in env else process.stderr.readline()
        yield HttpCommand(process, line, remark)
    finally:
        process.kill()
        process.communicate()


def stopped(command: HttpCommand, number: signal.Signals) -> tuple[int, str, str]:
    command.process.send_signal(number)
    out, err = command.process.communicate(timeout=PATIENCE)
    return command.process.returncode, out, err
