"""Whatever address a schema refers to, nobody is sent there."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

from tests.kit.command import run_command
from tests.kit.config import toolbox, write_config

SERVER = Path(__file__).parents[1] / "cli" / "defining_server.py"


def test_no_reference_in_a_schema_is_fetched(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as canary:
        url = f"http://127.0.0.1:{canary.getsockname()[1]}/schema.json"
        schema = {"type": "object", "$schema": url, "properties": {"a": {"$ref": url}}, "$ref": url}
        tool = {"name": "add", "inputSchema": schema, "outputSchema": {"$ref": url}}
        entry = {"command": sys.executable, "args": [str(SERVER), json.dumps({"tools": [tool]})]}
        write_config(tmp_path, toolbox(bad=entry))

        listed = run_command("check", "--connect", cwd=tmp_path)
        shown = run_command("tools", "dev/bad", cwd=tmp_path)
        called = run_command("call", "dev/bad/add", "a=1", cwd=tmp_path)

        canary.setblocking(False)
        try:
            canary.accept()
        except BlockingIOError:
            connected = False
        else:
            connected = True
    assert (listed.status, shown.status) == (0, 0)
    assert "unknown" in called.out + called.err  # the server has answered
    assert not connected
