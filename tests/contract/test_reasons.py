"""Why a server can't be reached: told to hosts, without what nobody should read."""

import sys
from pathlib import Path

import pytest

from tests.makers import config_file, texts
from tests.rawhost import RawHost

SECRET = "sk-very-secret-0123456789"
REFUSES = """
import json, os, sys
for line in sys.stdin:
    id = json.loads(line).get("id")
    error = {"code": -1, "message": "bad token " + os.environ["TOKEN"] + "\\x1b[31m"}
    print(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}), flush=True)
"""


@pytest.mark.parametrize(
    "server",
    [
        {"command": sys.executable, "args": ["-c", REFUSES]},
        {"command": "/nope/${MY_TOKEN}"},
        {"command": "true", "cwd": "/nope/${MY_TOKEN}"},
        {"command": sys.executable, "args": ["-c", "import os; exit(os.environ['TOKEN'])"]},
    ],
    ids=["refuses initialize", "command", "cwd", "stderr"],
)
def test_no_reason_tells_a_secret(tmp_path: Path, server: dict[str, object]) -> None:
    entry = {**server, "env": {"TOKEN": "${MY_TOKEN}"}}
    with RawHost(config_file(tmp_path, {"a": entry}), env={"MY_TOKEN": SECRET}) as host:
        host.initialize()
        result = host.call("open_toolbox", {"toolbox_name": "dev"})

    [reason] = texts(result)
    assert SECRET not in reason
    assert "[secret:" in reason
    assert reason.isprintable()
