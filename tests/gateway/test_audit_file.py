"""The file of the audit: no line is lost or torn, whoever writes, rotates, kills or fills the disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.core.spec import AUDIT_BYTES, AUDIT_FILES
from mcp_workbench.gateway.audit_file import BETWEEN, AuditFile
from tests.kit.clock import PATIENCE
from tests.kit.config import config_file, entry
from tests.kit.forked import COMMAND
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import unmeasured
from tests.kit.results import error_code

if sys.platform == "win32":
    pytest.skip("an open file can't be renamed there", allow_module_level=True)

SMALL = 1 << 16  # bytes of a file
WRITERS = 4
EACH = 3000  # lines


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; each is whole, or blank where a disk was full."""
    text = path.read_bytes()
    assert text.endswith(b"\n")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def files_of(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}*"))


def run_script(script: str, *argv: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *argv],
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        env=unmeasured(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


WRITER = """
import sys, time
from mcp_workbench.gateway.audit_file import AuditFile
path, name, each, files = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sys.stdin.read(1)  # all begin together
file = AuditFile(path, 65536, files)
for number in range(each):
    file.append(b'{"name":"%s","number":%d,"more":"%s"}\\n' % (name.encode(), number, b"x" * 200), time.monotonic())
assert not file.trouble and not file.lost
"""


def test_several_processes_write_and_rotate_one_file_and_no_line_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    files = WRITERS * EACH * 300 // SMALL + 2  # all of them are kept
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [
        subprocess.Popen(
            [*command, f"w{n}", str(EACH), str(files)], stdin=subprocess.PIPE, env=unmeasured()
        )
        for n in range(WRITERS)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    assert [writer.wait(3 * PATIENCE) for writer in writers] == [0] * WRITERS

    written = [line for file in files_of(path) for line in read(file)]
    assert len(files_of(path)) > 10, "it was rotated often"
    assert len(written) == WRITERS * EACH
    expected = {(f"w{n}", number) for n in range(WRITERS) for number in range(EACH)}
    assert {(line["name"], line["number"]) for line in written} == expected
    assert {file.stat().st_mode & 0o777 for file in files_of(path)} == {0o600}


def test_so_many_files_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    file = AuditFile(str(path), SMALL, 3)
    line = b'{"x":"%s"}\n' % (b"x" * 1000)
    for _ in range(1000):
        file.append(line, time.monotonic())
    file.close()

    assert [found.name for found in files_of(path)] == [
        "calls.jsonl",
        "calls.jsonl.1",
        "calls.jsonl.2",
    ]
    assert all(found.stat().st_size < SMALL + 2000 for found in files_of(path))


def test_ten_mebibytes_and_five_files_by_default(tmp_path: Path) -> None:
    assert (AUDIT_BYTES, AUDIT_FILES) == (10 << 20, 5)
    path = tmp_path / "calls.jsonl"
    path.write_bytes(b'{"x":"%s"}\n' % (b"x" * AUDIT_BYTES))
    file = AuditFile(str(path))
    file.append(b"{}\n", 0.0)
    file.append(b"{}\n", 0.0)

    assert (tmp_path / "calls.jsonl.1").stat().st_size > AUDIT_BYTES
    assert path.read_bytes() == b"{}\n"


def test_one_file_that_was_rotated_away_under_a_sleeper_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    sleeper, other = AuditFile(str(path), SMALL, 2), AuditFile(str(path), SMALL, 2)
    sleeper.append(b'{"sleeper":1}\n', 0.0)
    for _ in range(200):  # the file that the sleeper has open is removed
        other.append(b'{"x":"%s"}\n' % (b"x" * 1000), 0.0)
    sleeper.append(b'{"sleeper":2}\n', 0.0)

    assert {"sleeper": 2} in read(path)


@pytest.mark.parametrize("act", ["moved", "removed"])
def test_a_file_may_be_moved_away_or_removed(tmp_path: Path, act: str) -> None:
    path = tmp_path / "calls.jsonl"
    file = AuditFile(str(path))
    file.append(b'{"n":1}\n', 0.0)
    if act == "moved":
        path.rename(tmp_path / "elsewhere")
    else:
        path.unlink()
    file.append(b'{"n":2}\n', BETWEEN + 0.1)

    assert read(path) == [{"n": 2}]


def test_what_a_killed_writer_has_left_does_not_spoil_the_next_line(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_bytes(b'{"n":1}\n{"n":')
    AuditFile(str(path)).append(b'{"n":2}\n', 0.0)

    assert path.read_bytes() == b'{"n":1}\n{"n":\n{"n":2}\n'


# Full disks


LIMITED = """
import resource, sys, time
from mcp_workbench.gateway.audit_file import AuditFile

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

file, other = AuditFile(sys.argv[1]), AuditFile(sys.argv[1])
other.append(b'{"n":0}\\n', 0.0)
file.append(b'{"n":1}\\n', 0.0)
limit(20)  # room for a part of a line
file.append(b'{"n":2}\\n{"n":3}\\n', 0.0)
print(file.trouble, file.lost, file.problem(0.0), sep="|")
limit(resource.RLIM_INFINITY)
other.append(b'{"n":4}\\n', 0.0)
file.append(b'{"n":5}\\n', 0.0)
print(file.trouble, file.lost, file.problem(0.0), sep="|")
limit(100)
for n in range(9000):
    file.append(b'{"n":%d}\\n' % (10 + n), 0.0)
print(bool(file.trouble), file.lost > 0, sep="|")
limit(resource.RLIM_INFINITY)
file.append(b"", 0.0)
print(file.lost)
"""


def test_a_full_disk_tears_no_line_and_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    done = run_script(LIMITED, str(path))

    first, second, third, lost = done.stdout.splitlines()
    reason, none_lost, later = first.split("|")
    assert reason
    assert later
    assert none_lost == "0"
    assert (second, third) == ("|0|", "True|True")
    numbers = [line["n"] for line in read(path)]
    assert numbers[:6] == [0, 1, 4, 2, 3, 5]
    assert len(numbers) + int(lost) == 6 + 9000, "all others are counted"
    assert done.stderr.count("calls can't be logged") == 2, "until it works again"
    assert b"\n   \n" in path.read_bytes(), "a part of a line is blank"


REQUIRED = """
import asyncio, resource, sys
from mcp_workbench import ToolIdentifier, Workbench, WorkbenchError, load_config

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    async with Workbench(load_config(sys.argv[1])) as workbench:
        async def use():
            try:
                await workbench.use_tool(ToolIdentifier("dev", "a", "echo"))
                print("ok")
            except WorkbenchError as error:
                print(error.code, error.may_have_run, error)
        await use()
        limit(600)
        await use()
        await use()
        limit(resource.RLIM_INFINITY)
        await use()

asyncio.run(main())
"""


@pytest.mark.parametrize("required", [False, True])
def test_calls_that_can_not_be_recorded_are_refused_where_they_must_be(
    tmp_path: Path, *, required: bool
) -> None:
    path = tmp_path / "calls.jsonl"
    audit = {"file": str(path), "required": required}
    done = run_script(REQUIRED, str(config_file(tmp_path, {"a": entry()}, audit=audit)))

    first, second, third, last = done.stdout.splitlines()
    assert (first, second, last) == ("ok", "ok", "ok")
    outcomes = [line["outcome"] for line in read(path)]
    if required:
        assert third.startswith("denied False [dev/a/echo] Error: calls must be recorded, and ")
        assert outcomes == ["ok", "ok", "denied", "ok"]
    else:
        assert third == "ok"
        assert outcomes == ["ok"] * 4
    assert done.stderr.count("calls can't be logged") == 1


def test_required_and_nowhere_to_write_is_said_in_each_answer(tmp_path: Path) -> None:
    audit = {"file": str(tmp_path / "none" / "calls.jsonl"), "required": True}
    with PipeHost(config_file(tmp_path, {"a": entry()}, audit=audit)) as host:
        host.initialize()
        refused = [host.use("a", "echo") for _ in range(2)]
        (tmp_path / "none").mkdir()
        answered = host.use("a", "echo")

    assert [error_code(result) for result in refused] == ["denied", "denied"]
    assert "No such file or directory" in refused[0]["content"][0]["text"]
    assert "isError" not in answered
    lines = read(tmp_path / "none" / "calls.jsonl")
    assert [line["outcome"] for line in lines] == ["denied", "denied", "ok"]


SMALL_DISK = """
mount -t tmpfs -o size=32k none "$1" && exec "$2" -c '
import sys, time
from mcp_workbench.gateway.audit_file import AuditFile
file = AuditFile(sys.argv[1])
print(file.problem(0.0))
' "$1/calls.jsonl"
"""


def can_mount() -> bool:
    try:
        probe = subprocess.run(
            ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"],
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return probe.returncode == 0


@pytest.mark.skipif(not can_mount(), reason="needs a file system of its own")
def test_a_disk_without_room_for_lines_is_noticed_before_a_call(tmp_path: Path) -> None:
    argv = ["unshare", "-rm", "sh", "-c", SMALL_DISK, "sh", str(tmp_path), sys.executable]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=PATIENCE, env=unmeasured(), check=False
    )

    assert done.stdout == "No space left on device\n", done.stderr


# Kills


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("at_once", [1, 50])
def test_a_kill_loses_at_most_the_calls_in_flight(
    tmp_path: Path, at_once: int, *, required: bool
) -> None:
    path = tmp_path / "calls.jsonl"
    audit = {"file": str(path), "required": required}
    with PipeHost(config_file(tmp_path, {"a": entry()}, audit=audit), command=COMMAND) as host:
        host.statuses = (-signal.SIGKILL,)
        host.initialize()
        for _ in range(200 // at_once):
            for id in [host.begin_use("a", "echo") for _ in range(at_once)]:
                host.answer(id)
        sent = [host.begin_use("a", "echo") for _ in range(at_once)]
        host.answer(sent[0])
        os.kill(host.process.pid, signal.SIGKILL)
        answers = 200 + 1 + sum("result" in message for message in host.rest())

    recorded = len(read(path))
    assert answers - (not required) <= recorded <= 200 + at_once
