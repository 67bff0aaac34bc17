"""Hosts that run scripts, and what came of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from mcp_workbench.gateway.script_messages import (
    CallsMade,
    EngineLimits,
    Finished,
    FromEngine,
    RunScript,
    Settled,
)
from tests.kit.clock import PATIENCE
from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import unmeasured
from tests.kit.results import Message, error_code, texts

CANARY = "canary-7d1f"  # what no script may see
SMALL: dict[str, Any] = {"execution": 30.0, "memory": 20 << 20, "calls": 20, "output": 100_000}


def scripted(folder: Path, servers: dict[str, Any] | None = None, **more: Any) -> Path:
    """A configuration with scripts switched on; calls are recorded in `calls.jsonl`."""
    more = {"scripts": True, "audit": {"file": "calls.jsonl"}, **more}
    return config_file(folder, servers or {"a": entry()}, **more)


def script(host: PipeHost, code: str, **more: Any) -> Message:
    """The result of a script."""
    return host.call("run_script", {"code": code}, **more)


def value(result: Message) -> Any:
    """What a script has returned, as JSON."""
    assert "isError" not in result, result
    return json.loads(result["content"][0]["text"])


def failure(result: Message, code: str = "script_failed") -> str:
    """Everything that an agent reads about a script that has failed."""
    assert result.get("isError") is True, result
    assert error_code(result) == code, result
    return "\n".join(texts(result))


def recorded(folder: Path) -> list[Message]:
    """The calls on record."""
    file = folder / "calls.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def returns(result: Message) -> str:
    """A call of the fixture whose result is this one."""
    return f"await call('dev/a/result', result={json.dumps(json.dumps(result))})"


class Engine:
    """The process that runs scripts, spoken to directly: what it does without the workbench around it."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-P", "-m", "mcp_workbench.gateway.script_engine"]
        env = {**unmeasured(), "CANARY": CANARY}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=folder
        )
        self._number = 0
        self._read()

    def finished(self, code: str, **limits: Any) -> Finished:
        """How a script ends whose calls all return 1."""
        self._number += 1
        self._send(RunScript(self._number, code, EngineLimits(**{**SMALL, **limits})))
        while True:
            message = self._read()
            if isinstance(message, CallsMade):
                for made in message.calls:
                    self._send(Settled(message.id, made.call, msgspec.Raw(b"1")))
            elif isinstance(message, Finished):
                return message

    def _send(self, message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(message) + b"\n")
        self.process.stdin.flush()

    def _read(self) -> Any:
        assert self.process.stdout is not None
        return msgspec.json.decode(self.process.stdout.readline(), type=FromEngine)

    def close(self) -> int:
        """Its exit status, once its input has ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        status = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


def value_of(engine: Engine, code: str, **limits: Any) -> bytes:
    """What a script returns, as JSON."""
    return bytes(engine.finished(code, **limits).value)
