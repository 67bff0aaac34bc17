"""The cluster in the file: what it needs, what is refused, and that its secrets are never shown."""

from __future__ import annotations

import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mcp_workbench.config.cluster_settings import ClusterConfig, EngineAddress, resolve_cluster
from mcp_workbench.config.json_schema import json_schema
from mcp_workbench.core.errors import ConfigError
from tests.config.scenes import load, problems
from tests.kit.command import run_command, serving, stopped
from tests.kit.config import config_file, write_config
from tests.kit.processes import unmeasured
from tests.kit.servers import FIXTURE
from tests.kit.shared import SHORT
from tests.kit.valkey import free_port, valkey

KEY = "0123456789abcdef0123456789abcdef"
ENVIRON = {"CLUSTER_KEY": KEY, "PASSWORD": "se cret"}
SERVER = {"command": sys.executable, "args": ["-E", "-S", FIXTURE]}
BOTH: dict[str, Any] = {"url": "valkey://127.0.0.1", "key": "${CLUSTER_KEY}"}


TELL = """
import atexit, os, sys
def tell():
    ours = [n for n in sys.modules if n.startswith(("mcp_workbench.cluster", "cryptography"))]
    os.write(2, b"LOADED %b" % str(ours).encode())
atexit.register(tell)
from mcp_workbench.cli.main import main
sys.argv = ["mcp-workbench", *sys.argv[1:]]
main()
"""


def file(**cluster: Any) -> dict[str, Any]:
    return {"mcpServers": {"a": SERVER}, "cluster": cluster}


def resolved(tmp_path: Path, **cluster: Any) -> ClusterConfig:
    found = resolve_cluster(load(tmp_path, file(**cluster)), ENVIRON)
    assert found is not None
    return found


def refusal(tmp_path: Path, **cluster: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        resolved(tmp_path, **cluster)
    return " ".join(f"{p.path} {p.message}" for p in caught.value.problems)


def test_a_url_and_a_key_are_enough(tmp_path: Path) -> None:
    found = resolved(tmp_path, **BOTH)

    assert found.engine == EngineAddress("127.0.0.1")
    assert len(found.key) == 32
    assert found.listen == ("127.0.0.1", 0)
    assert found.advertise is None
    assert found.name == "mcp-workbench"


def test_two_clusters_have_no_key_in_common(tmp_path: Path) -> None:
    one, same, other = (resolved(tmp_path, **BOTH, name=name).key for name in ("a", "a", "b"))

    assert one == same
    assert KEY.encode() != one != other


def test_all_parts_of_the_url_are_read(tmp_path: Path) -> None:
    found = resolved(
        tmp_path,
        url="rediss://wb:${PASSWORD}@[::1]:6380/3",
        key="${CLUSTER_KEY}",
        listen="0.0.0.0:7412",
        advertise="[fd00::5]:7412",
        name="team_a",
    )

    assert found.engine == EngineAddress("::1", 6380, True, "wb", "se cret", 3)
    assert found.listen == ("0.0.0.0", 7412)
    assert found.advertise == ("fd00::5", 7412)


def test_a_server_can_have_one_process_for_all_replicas(tmp_path: Path) -> None:
    servers = {"a": {**SERVER, "placement": "one"}, "b": SERVER}
    specs = load(tmp_path, {"mcpServers": servers, "cluster": BOTH}).toolboxes["default"].servers

    assert (specs["a"].placement, specs["a"].scope) == ("one", "shared")
    assert (specs["b"].placement, specs["b"].scope) == ("every", "auto")


@pytest.mark.parametrize(
    ("entry", "top", "fault"),
    [
        (SERVER, {}, "needs a 'cluster'"),
        ({"url": "https://example.com/mcp"}, {"cluster": BOTH}, "servers with a 'command'"),
        ({**SERVER, "scope": "session"}, {"cluster": BOTH}, "contradicts"),
        ({**SERVER, "scope": "folder"}, {"cluster": BOTH}, "contradicts"),
    ],
)
def test_one_process_is_refused_where_it_means_nothing(
    tmp_path: Path, entry: dict[str, Any], top: dict[str, Any], fault: str
) -> None:
    [problem] = problems(tmp_path, {"mcpServers": {"a": {**entry, "placement": "one"}}, **top})

    assert problem.code == "WB-CONF-069"
    assert fault in problem.message


def test_without_the_section_there_is_no_cluster(tmp_path: Path) -> None:
    plain = load(tmp_path, {"mcpServers": {"a": {"command": sys.executable}}})

    assert plain.cluster is None
    assert resolve_cluster(plain, {}) is None


def test_without_the_section_nothing_of_it_is_loaded(tmp_path: Path) -> None:
    config = config_file(tmp_path, {})
    with serving(config, "0", unmeasured(), command=[sys.executable, "-c", TELL]) as command:
        code, _, err = stopped(command, signal.SIGTERM)

    assert code == 0
    assert err.endswith("LOADED []")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"url": "http://127.0.0.1"}, "cluster.url must begin with"),
        ({"url": "valkey:///0"}, "cluster.url names no host"),
        ({"url": "valkey://h/zero"}, "number of a database"),
        ({"url": "valkey://h/0?x=1"}, "nothing after"),
        ({"url": "valkey://h:99999"}, "cluster.url is no URL"),
        ({"key": "short"}, "cluster.key the key must have 32"),
        ({"listen": "7412"}, "cluster.listen must be an address"),
        ({"listen": "0.0.0.0:7412"}, "address that means all"),
        ({"advertise": "10.0.0.5:0"}, "port 0"),
        ({"name": "a b"}, "cluster.name must be made of"),
        ({"key": "${NOT_SET}"}, "variable NOT_SET is not set"),
    ],
)
def test_a_wrong_value_is_refused_without_being_shown(
    tmp_path: Path, change: dict[str, str], words: str
) -> None:
    text = refusal(tmp_path, **{**BOTH, **change})

    assert words in text
    assert KEY not in text


def test_a_section_without_url_or_key_is_an_error_of_the_file(tmp_path: Path) -> None:
    found = problems(tmp_path, file(listen="127.0.0.1:1"))

    assert [p.code for p in found if p.severity == "error"] == ["WB-CONF-060", "WB-CONF-060"]


def test_a_key_in_the_file_is_a_warning(tmp_path: Path) -> None:
    found = load(tmp_path, file(**{**BOTH, "key": KEY}))

    assert [p.code for p in found.warnings] == ["WB-CONF-043"]
    assert KEY not in repr(found)


def test_editors_know_the_section() -> None:
    editor = Draft202012Validator(json_schema())

    assert editor.is_valid(file(**BOTH))  # pyright: ignore[reportUnknownMemberType]
    assert not editor.is_valid(file(url="valkey://h"))  # pyright: ignore[reportUnknownMemberType]


def test_check_and_doctor_look_at_the_engine(tmp_path: Path) -> None:
    write_config(tmp_path, file(**{**BOTH, "url": f"valkey://127.0.0.1:{free_port()}"}))
    away = run_command("doctor", cwd=tmp_path, CLUSTER_KEY=KEY, **SHORT)
    assert "is away: connection refused" in away.out
    assert "WB-CONN-107" in away.out
    with valkey(tmp_path) as server:
        write_config(tmp_path, file(**{**BOTH, "url": server.url}))
        there = run_command("doctor", cwd=tmp_path, CLUSTER_KEY=KEY)
        assert "the engine answers, and the key" in there.out
        with socket.create_server(("127.0.0.1", 0)) as taken:
            place = f"127.0.0.1:{taken.getsockname()[1]}"
            write_config(tmp_path, file(**{**BOTH, "url": server.url, "listen": place}))
            busy = run_command("doctor", cwd=tmp_path, CLUSTER_KEY=KEY)
            assert f"can't listen on {place}: address already in use" in busy.out
    wrong = run_command("check", cwd=tmp_path, CLUSTER_KEY="short")
    assert "32 characters" in wrong.out + wrong.err
