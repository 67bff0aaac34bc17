"""Why a server can't be reached: told to hosts, without what nobody should read."""

import sys
from collections.abc import Iterator

import pytest

from tests.kit.config import write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.results import texts

pytestmark = pytest.mark.usefixtures("forked_commands")

SECRET = "sk-very-secret-0123456789"
REFUSES = """
import json, os, sys
for line in sys.stdin:
    id = json.loads(line).get("id")
    error = {"code": -1, "message": "bad token " + os.environ["TOKEN"] + "\\x1b[31m"}
    print(json.dumps({"jsonrpc": "2.0", "id": id, "error": error}), flush=True)
"""


SERVERS: dict[str, dict[str, object]] = {
    "refuses": {"command": sys.executable, "args": ["-c", REFUSES]},
    "command": {"command": "/nope/${MY_TOKEN}"},
    "cwd": {"command": "true", "cwd": "/nope/${MY_TOKEN}"},
    "stderr": {"command": sys.executable, "args": ["-c", "import os; exit(os.environ['TOKEN'])"]},
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeHost]:
    """Each server in a toolbox that has no other."""
    boxes = {
        name: {"mcpServers": {"a": {**server, "env": {"TOKEN": "${MY_TOKEN}"}}}}
        for name, server in SERVERS.items()
    }
    file = write_config(tmp_path_factory.mktemp("reasons"), {"toolboxes": boxes})
    with PipeHost(file, env={"MY_TOKEN": SECRET}) as host:
        host.initialize()
        yield host


@pytest.mark.parametrize("name", SERVERS)
def test_no_reason_tells_a_secret(host: PipeHost, name: str) -> None:
    [reason] = texts(host.call("open_toolbox", {"toolbox_name": name}))

    assert SECRET not in reason
    assert "[secret:" in reason
    assert reason.isprintable()
