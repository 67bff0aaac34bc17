"""A server that tries to get out of its sandbox, and the same one without it, which succeeds."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.root import needs_root
from tests.kit.servers.spy import TEXT
from tests.sandbox.scenes import attempts, denied, files, needs_bubblewrap, spy

pytestmark = needs_bubblewrap

CANARY = "canary-of-another-server"
BOXES = ("none", "process", "files", "open")
Outcomes = dict[str, dict[str, str]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a folder with spaces").resolve()
    for name in ("granted", "outside", "home/.ssh", "state", "shown/hidden"):
        (folder / name).mkdir(parents=True)
    for name in (
        "granted/file",
        "outside/file",
        "home/.ssh/key",
        "shown/file",
        "shown/hidden/file",
    ):
        (folder / name).write_text(f"text of {name}")
    return folder


@pytest.fixture(scope="module")
def neighbour() -> Iterator[int]:
    """Another process of this user, with a secret in its environment."""
    env = {"TOKEN": CANARY, "PATH": os.environ["PATH"]}
    argv = [sys.executable, "-S", "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate()


@pytest.fixture(scope="module")
def outcomes(place: Path, neighbour: int) -> Iterator[Outcomes]:
    """What each attempt came to, in each sandbox."""
    granted = {"write": [str(place / "granted")], "hide": [str(place / "shown/hidden")]}
    shown = [str(place / "shown")]
    servers: dict[str, Any] = {
        "none": spy(),
        "process": spy(sandbox="process"),
        "files": spy(sandbox=files(shown, **granted), cwd=str(place)),
        # May write nearly everything and has the network, and still not what is ours or hidden.
        "open": spy(sandbox=files(shown, **{**granted, "write": [str(place)]}, network=True)),
    }
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(place / "state" / "socket"))
        local.listen()
        tries: dict[str, list[Any]] = {
            "read": ["read", str(place / "outside/file")],
            "read home": ["read", str(place / "home/.ssh/key")],
            "read granted": ["read", str(place / "granted/file")],
            "read hidden": ["read", str(place / "shown/hidden/file")],
            "read shown": ["read", str(place / "shown/file")],
            "write shown": ["write", str(place / "shown/new")],
            "write": ["write", str(place / "outside/new")],
            "write system": ["write", "/usr/lib/written-by-a-test"],
            "write granted": ["write", str(place / "granted/new")],
            "write config": ["write", str(place / "workbench-config.json")],
            "connect": ["connect", listener.getsockname()[1]],
            "connect state": ["connect_unix", str(place / "state/socket")],
            "signal": ["send_signal", neighbour],
            "signal us": ["send_signal", os.getpid()],
            "environ": ["environ", neighbour],
            "environs": ["environs"],
            "memory of others": ["read", f"/proc/{neighbour}/maps"],
            "processes": ["processes"],
            "privileges": ["status", "NoNewPrivs"],
            "capabilities": ["status", "CapEff"],
            "where": ["where"],
        }  # fmt: skip
        if os.geteuid():  # not even tried by root: it would succeed outside
            del tries["write system"]
        env = {"HOME": str(place / "home"), "MCP_WORKBENCH_HOME": str(place / "state")}
        found = attempts(place, servers, [t for n, t in tries.items() if n not in UNSAFE], env)
        names = [name for name in tries if name not in UNSAFE]
        inside = {name: tries[name] for name in UNSAFE if name in tries}
        confined = {name: servers[name] for name in ("files", "open")}
        more = attempts(place, confined, list(inside.values()), env)
        yield {
            box: dict(zip(names, found[box], strict=True))
            | dict(zip(inside, more.get(box, ["not tried"] * len(inside)), strict=True))
            for box in BOXES
        }


# Not tried without a sandbox, where they succeed and leave something behind.
UNSAFE = ("write system", "write config")


def test_without_a_sandbox_the_spy_succeeds(outcomes: Outcomes) -> None:
    assert not [name for name, outcome in outcomes["none"].items() if denied(outcome)]
    assert CANARY in outcomes["none"]["environs"]


@pytest.mark.parametrize("box", ["process", "files", "open"])
def test_other_processes_can_be_neither_seen_nor_signalled(outcomes: Outcomes, box: str) -> None:
    inside = outcomes[box]

    for name in ("signal", "signal us", "environ", "memory of others"):
        assert denied(inside[name]), name
    assert CANARY not in inside["environs"]
    assert int(inside["processes"]) <= 3  # its own, and those of bubblewrap
    assert inside["privileges"] == "1"


def test_the_sandbox_process_leaves_files_and_network_as_they_are(outcomes: Outcomes) -> None:
    inside = outcomes["process"]

    names = [name for name in inside if name.split()[0] in ("read", "write", "connect")]
    assert not [name for name in names if denied(inside[name])]
    assert inside["where"] == outcomes["none"]["where"]


@pytest.mark.parametrize(
    "name",
    [
        "read",
        "read home",
        "read hidden",
        "write",
        "write shown",
        "connect",
        "connect state",
    ],
)
def test_what_is_not_listed_is_out_of_reach(outcomes: Outcomes, name: str) -> None:
    assert denied(outcomes["files"][name])


@needs_root("others may not write there anyway")
def test_nothing_of_the_system_can_be_written(outcomes: Outcomes) -> None:
    assert denied(outcomes["files"]["write system"])
    assert denied(outcomes["open"]["write system"])


def test_what_is_listed_can_be_used(outcomes: Outcomes, place: Path) -> None:
    inside = outcomes["files"]

    assert inside["read granted"] == "text of granted/file"
    assert inside["read shown"] == "text of shown/file"
    assert inside["write granted"] == "written"
    assert (place / "granted/new").read_text() == TEXT


def test_it_runs_in_its_folder_without_seeing_it(outcomes: Outcomes, place: Path) -> None:
    assert outcomes["files"]["where"] == str(place)


def test_no_capability_is_left(outcomes: Outcomes) -> None:
    assert int(outcomes["files"]["capabilities"], 16) == 0
    assert int(outcomes["process"]["capabilities"], 16) & (1 << 21 | 1 << 19) == 0  # admin, ptrace


def test_a_wide_grant_has_the_network_and_still_not_our_own_files(
    outcomes: Outcomes, place: Path
) -> None:
    inside = outcomes["open"]

    assert inside["connect"] == "connected"
    assert inside["read"] == "text of outside/file"
    assert inside["write"] == "written"
    for name in ("read hidden", "connect state", "write config", "write shown"):
        assert denied(inside[name]), name
    assert "toolboxes" in (place / "workbench-config.json").read_text()
