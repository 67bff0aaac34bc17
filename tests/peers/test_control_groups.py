"""Limits of a delegated control group (cgroup v2), under a Linux kernel that has nothing else to do.

Few machines delegate a group to their users, so a kernel of our own is started as an ordinary process: User Mode Linux,
with the files of this machine. The servers and the workbench in it are the real ones.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = "linux.uml"
ROOT = Path(__file__).parents[2]
PATIENCE = 200  # seconds to boot, run the scene and halt; it takes 15

pytestmark = [
    pytest.mark.peers,
    pytest.mark.timeout(PATIENCE + 30),
    pytest.mark.skipif(not shutil.which(KERNEL), reason="needs user-mode-linux"),
]

INIT = """#!/bin/sh
mount -t proc proc /proc
mount -t tmpfs none /mnt
mkdir /mnt/groups
mount -t cgroup2 none /mnt/groups
echo "+memory +pids" >/mnt/groups/cgroup.subtree_control
mkdir /mnt/groups/delegated
cd {root}
export HOME={folder} MCP_WORKBENCH_HOME={folder}/home PATH=/usr/local/bin:/usr/bin:/bin
sh -c 'echo 0 >/mnt/groups/delegated/cgroup.procs; exec "$@"' - \\
  {python} -m tests.sandbox.group_scene {folder} {folder}/result.json >{folder}/output 2>&1
sync
echo o >/proc/sysrq-trigger
while :; do sleep 1; done
"""


def test_all_processes_of_a_server_share_its_limits(tmp_path: Path) -> None:
    words = {"root": ROOT, "folder": tmp_path, "python": sys.executable}
    init = tmp_path / "init"
    init.write_text(INIT.format(**{key: shlex.quote(str(word)) for key, word in words.items()}))
    init.chmod(0o700)

    files = ("rootfstype=hostfs", "rootflags=/", "rw", f"init={init}")
    booted = subprocess.run(
        [KERNEL, "mem=768M", *files, "con=null", "con0=null,fd:1"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        cwd=tmp_path,
        check=False,
    )

    result = tmp_path / "result.json"
    said = tmp_path / "output"
    told = said.read_text() if said.exists() else booted.stdout.decode(errors="replace")
    assert result.exists(), told[-2000:]
    found = json.loads(result.read_text())
    assert found["free"] == ["20", "3"]  # without limits, everything is possible
    assert 5 <= int(found["few"][0]) < 10
    assert found["small"] == ["1"]
    assert found["together"] == "server_exited"  # its processes together used too much
    assert found["groups"] == [
        "mcp-workbench",
        "mcp-workbench-server-0",
        "mcp-workbench-server-1",
    ]
    assert found["left"] == []
    assert found["running"] is False
