"""Servers in containers of Podman: none is left after any end of the workbench, and no other is touched."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clock import eventually, within
from tests.kit.config import argv, config_file
from tests.kit.pipe_host import PipeHost
from tests.kit.servers import FIXTURE

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]

PROMISE = 5.0  # seconds after which there is no container of ours
SECONDS = 60  # for one command of the client
IMAGE = "localhost/empty"
# Neither a network nor a control group of their own, and low limits: more is not allowed everywhere.
OPTIONS = [
    "--network=none",
    "--cgroups=disabled",
    "--ulimit=nofile=512:512",
    "--ulimit=nproc=512:512",
]
# Where both versions of control groups are mounted, the runtime of Podman refuses to work. This
# one shows it the second alone, in a mount namespace of its own.
WRAPPER = """#!/bin/sh
exec unshare --mount sh -c 'mount -t cgroup2 none /sys/fs/cgroup && exec PODMAN "$@"' podman "$@"
"""


class Podman:
    """An engine with storage of its own, whose containers have the programs of this machine."""

    def __init__(self, program: str, folder: Path) -> None:
        self.client = [program, "--root", str(folder / "r"), "--runroot", str(folder / "s")]
        self.client += ["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]
        python = Path(sys.executable).resolve()
        places = {"/usr", sys.base_prefix, str(python.parent), str(Path(FIXTURE).parent)}
        places |= {place for place in ("/lib", "/lib64", "/bin") if not Path(place).is_symlink()}
        self.mounts = [f"--volume={place}:{place}:ro" for place in sorted(places)]
        self.python = str(python)

    def run(self, *words: str, given: bytes = b"") -> str:
        done = subprocess.run(
            [*self.client, *words], input=given, capture_output=True, timeout=SECONDS
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def names(self) -> list[str]:
        return sorted(self.run("ps", "--all", "--format", "{{.Names}}").split())

    def line(self, *words: str) -> list[str]:
        return [*self.client, "run", *OPTIONS, *self.mounts, *words]


def empty_image() -> bytes:
    """A file system with places for what is mounted, and the usual links."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for place in ("proc", "sys", "dev", "tmp", "etc", "usr"):
            directory = tarfile.TarInfo(place)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(directory)
        for place in ("/lib", "/lib64", "/bin"):
            if Path(place).is_symlink():
                link = tarfile.TarInfo(place[1:])
                link.type, link.linkname = tarfile.SYMTYPE, str(Path(place).readlink())
                tar.addfile(link)
    return data.getvalue()


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    program = shutil.which("podman")
    if program is None:
        pytest.skip("podman is not installed")
    if os.getuid() != 0:
        pytest.skip("podman without root leaves a process and files of other users behind")
    # Its path is short: Podman allows 50 characters.
    with tempfile.TemporaryDirectory(prefix="wb", dir="/tmp") as folder:
        wrapper = Path(folder, "podman")
        wrapper.write_text(WRAPPER.replace("PODMAN", program))
        wrapper.chmod(0o755)
        engines = [Podman(program, Path(folder)), Podman(str(wrapper), Path(folder))]
        reasons = [problem(engine) for engine in engines]
        if "" not in reasons:
            pytest.skip(f"podman can't run a container here: {reasons[0]}")
        engine = engines[reasons.index("")]
        try:
            yield engine
        finally:
            engine.run("rm", "--all", "--force", "--time", "0")
            engine.run("rmi", "--all", "--force")


def problem(engine: Podman) -> str:
    """Why it can't run a container; empty if it can."""
    program = [engine.python, "-I", "-S", "-c", "print(6 * 7)"]
    line = engine.line("--rm", IMAGE, *program)[len(engine.client) :]
    try:
        engine.run("import", "-", IMAGE, given=empty_image())
        return "" if engine.run(*line) == "42\n" else "it prints something else"
    except (AssertionError, subprocess.TimeoutExpired) as error:
        return str(error).partition("\n")[0]


@pytest.fixture(scope="module")
def foreign(podman: Podman) -> str:
    """A container that is none of the workbench."""
    wait = [podman.python, "-I", "-S", "-c", "import time; time.sleep(600)"]
    line = podman.line("--detach", "--name=foreign", "--label=mcp-workbench.server", IMAGE, *wait)
    podman.run(*line[len(podman.client) :])
    return "foreign"


def server(podman: Podman, *words: str) -> dict[str, Any]:
    """A server that ignores the end of its input and SIGTERM, in a container."""
    program = [podman.python, *argv("no_eof_exit", "ignore_term")[1:]]
    command, *args = podman.line("--interactive", *words, IMAGE, *program)
    return {"command": command, "args": args, "era": "legacy", "connectTimeout": 60}


ENDS: dict[str, tuple[Callable[[PipeHost], None], int]] = {
    "end of input": (PipeHost.close, 0),
    "SIGTERM": (lambda host: host.signal(signal.SIGTERM), 0),
    "SIGKILL": (lambda host: host.signal(signal.SIGKILL), -signal.SIGKILL),
}


@pytest.mark.parametrize("end", list(ENDS))
def test_no_container_is_left(podman: Podman, foreign: str, tmp_path: Path, end: str) -> None:
    servers = {"a": server(podman, "--rm", "--name=a"), "b": server(podman, "--name=b")}
    act, status = ENDS[end]
    with PipeHost(config_file(tmp_path, servers)) as host:
        host.initialize()
        assert "echo" in json.dumps(host.open())
        assert podman.names() == ["a", "b", foreign]
        host.statuses = (status,)

        act(host)
        host.ended()

        assert within(PROMISE, lambda: podman.names() == [foreign]), podman.names()
        assert podman.run("inspect", "--format", "{{.State.Running}}", foreign) == "true\n"


def test_a_name_can_be_used_again(podman: Podman, foreign: str, tmp_path: Path) -> None:
    """A server that has exited is started again by the next call, once its container is removed."""
    with PipeHost(config_file(tmp_path, {"a": server(podman, "--name=a")})) as host:
        host.initialize()
        host.open()
        podman.run("kill", "a")

        eventually(lambda: not host.use("a", "echo").get("isError"), "it is there again")
    assert within(PROMISE, lambda: podman.names() == [foreign])
