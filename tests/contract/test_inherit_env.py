"""A server gets what `inheritEnv` names of the environment of `serve`, and nothing else of it."""

from pathlib import Path

from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import json_text

VARIABLES = {
    "AWS_PROFILE": "work",
    "SSH_AUTH_SOCK": "/run/agent",
    "SOME_TOKEN": "secret-of-others",
    "MCP_WORKBENCH_HTTP_TOKEN": "our-own-token-0123456789",
}


def test_each_server_has_its_own_part(tmp_path: Path) -> None:
    servers = {
        "none": entry(),
        "some": entry(inheritEnv=["AWS_*"]),
        "most": entry(inheritEnv=["*", "!*_TOKEN"]),
        "all": entry(inheritEnv=True),
    }
    with PipeHost(config_file(tmp_path, servers), env=VARIABLES) as host:
        host.handshake()
        got = {name: {*json_text(host.use(name, "env"))["env"]} & {*VARIABLES} for name in servers}

    assert got == {
        "none": set(),
        "some": {"AWS_PROFILE"},
        "most": {"AWS_PROFILE", "SSH_AUTH_SOCK"},
        "all": {"AWS_PROFILE", "SSH_AUTH_SOCK", "SOME_TOKEN"},
    }
