"""What a server writes where we expect a word is as long as a message: what we show of it is not."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config.expand import Environment
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.spec import ServerAddress, ServerSpec, StdioCommand
from mcp_workbench.protocol.handshake import LONGEST_INFO, Agreed, Answered, first_step, step
from mcp_workbench.upstream.dial import LONGEST_REASON, masked
from tests.kit.clock import PATIENCE
from tests.kit.config import snapshot, spec
from tests.kit.inside import InsideWorkbench
from tests.threats.growth import NOISE, cost

PROGRAM = str(Path(__file__).parents[1] / "steps" / "large_server.py")
SIZE = 1 << 20
LONG = "\n" * (SIZE // 2)
SECRET = "a-secret-of-some-length-7q7q7q"
ENVIRON = Environment({"TOKEN": SECRET})
SPEC = spec("s", env={"TOKEN": "${TOKEN}"})


def agreement(revision: str, name: str = "a", version: str = "1") -> dict[str, Any]:
    about = {"name": name, "version": version}
    return {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": about}


ANSWERS = {
    "its revision": {"result": agreement(LONG)},
    "why it refuses": {"error": {"code": -32602, "message": LONG[: SIZE // 4]}},
}


@pytest.mark.parametrize("said", ANSWERS)
async def test_a_reason_of_a_server_is_cut(said: str, tmp_path: Path) -> None:
    (tmp_path / "initialize").write_text(json.dumps(ANSWERS[said])[1:-1], "utf-8")
    command = StdioCommand(sys.executable, ("-E", "-S", PROGRAM, str(tmp_path)))
    server = ServerSpec(ServerAddress("dev", "a"), command, era="legacy")

    async with asyncio.timeout(PATIENCE), InsideWorkbench(snapshot(server)) as workbench:
        with pytest.raises(WorkbenchError) as refused:
            await workbench.open_toolbox("dev")

    assert LONGEST_REASON < len(str(refused.value)) < 6 * LONGEST_REASON


def test_names_and_versions_of_servers_are_cut() -> None:
    state, _ = first_step("legacy")
    result = json.dumps(agreement("2025-06-18", "n" * SIZE, "v" * SIZE)).encode()

    agreed, _ = step(state, Answered("initialize", result))

    assert isinstance(agreed, Agreed)
    assert "n" * LONGEST_INFO in (shown := repr(agreed))
    assert len(shown) < 4 * LONGEST_INFO


@pytest.mark.cost
def test_a_reason_costs_what_is_shown_of_it() -> None:
    short, long = "\n" * LONGEST_REASON, "\n" * SIZE

    allowed = 4 * max(cost(lambda: masked(short, SPEC, ENVIRON)), NOISE)

    assert cost(lambda: masked(long, SPEC, ENVIRON), enough=allowed) <= allowed


@pytest.mark.parametrize("before", range(LONGEST_REASON - len(SECRET) - 1, LONGEST_REASON + 1, 3))
def test_a_secret_at_the_cut_is_masked(before: int) -> None:
    shown = masked("x" * before + SECRET + "y" * SIZE, SPEC, ENVIRON)

    assert not [at for at in range(len(SECRET) - 7) if SECRET[at : at + 8] in shown]
