"""The command as a person runs it: a real process, bounded in time, in a folder of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests import quick_command
from tests.quick_command import Streams

COMMAND = quick_command.COMMAND
TIMEOUT = 40

Json = dict[str, Any]


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


def workbench(*argv: str, cwd: Path, stdin: str = "", **variables: str) -> Done:
    return typed(argv, cwd, Streams(stdin), environ(**variables))


def typed(argv: Sequence[str], cwd: Path, streams: Streams, env: dict[str, str]) -> Done:
    """The same, with streams that need not be ours."""
    done = quick_command.run(argv, cwd=cwd, env=env, streams=streams, timeout=TIMEOUT)
    assert "Traceback" not in done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


def demo_server(name: str = "basics", **more: Any) -> Json:
    return {"command": sys.executable, "args": ["-m", "mcp_workbench.demo", name], **more}


def write_config(folder: Path, config: Json | str, name: str = "workbench-config.json") -> Path:
    path = folder / name
    path.write_text(config if isinstance(config, str) else json.dumps(config, indent=2), "utf-8")
    path.chmod(0o600)
    return path


def toolbox(name: str = "dev", /, **servers: Json) -> Json:
    return {"toolboxes": {name: {"mcpServers": servers}}}
