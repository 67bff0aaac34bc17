"""`audit` reads the record of calls: all files of it, as they grow, filtered and summed up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.cli.audit_lines import AuditReader, read_since
from mcp_workbench.gateway.audit_file import AuditFile
from tests.kit.command import run_command
from tests.kit.config import config_file, entry
from tests.kit.forked import COMMAND
from tests.kit.processes import unmeasured
from tests.threats.growth import assert_linear, peak


def line(number: int, tool: str = "echo", outcome: str = "ok", **more: Any) -> bytes:
    known: dict[str, Any] = {
        "v": 1,
        "ts": f"2026-11-14T09:00:{number:02d}.000Z",
        "seq": number,
        "pid": 7,
        "host": "claude-code",
        "host_version": "2.1",
        "door": "stdio",
        "toolbox": "dev",
        "server": "git",
        "tool": tool,
        "outcome": outcome,
        "is_error": outcome not in ("ok", "cancelled"),
        "ms": {"total": number * 10.0},
        "result_bytes": 400,
    }
    return json.dumps({**known, **more}).encode() + b"\n"


LINES = [
    line(1),
    line(2, "fail", "tool_error", result_bytes=40),
    line(3, server="fs", host="cursor"),
    line(4, "hang", "timeout", result_bytes=0),
    line(5, toolbox="ops"),
]


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "calls.jsonl"
    path.write_bytes(b"".join(LINES))
    return path


def shown(record: Path, *options: str) -> list[int]:
    """The numbers of the calls that are listed."""
    done = run_command("audit", "--file", str(record), "--json", *options, cwd=record.parent)
    assert done.status == 0, done.err
    return [json.loads(text)["seq"] for text in done.out.splitlines()]


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_plain_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()

    done = run_command("audit", "--file", str(path), cwd=tmp_path)

    assert done.status == 1
    assert "it is no plain file" in done.err


@pytest.mark.cost
def test_a_line_without_an_end_is_read_in_proportion(tmp_path: Path) -> None:
    def made(size: int) -> Path:
        path = tmp_path / f"{size}.jsonl"
        path.write_bytes(b"x" * size + b"\n" + line(1))
        return path

    def work(path: Path) -> None:
        reader = AuditReader(str(path), 1)
        assert [call.tool for call in reader.lines()] == ["echo"]
        assert reader.unreadable == 1

    assert_linear(work, made, 64 << 20)
    longest = made(64 << 20)
    assert peak(lambda: work(longest)) <= 8 << 20


def test_the_summary(record: Path) -> None:
    done = run_command("audit", "--file", str(record), cwd=record.parent)

    assert done.status == 0
    assert (
        "calls.jsonl: 5 calls, 2 with an error, ≈ 310 tokens of results, 2026-11-14T09:00:01"
        in done.out
    )
    assert "TOOL" in done.out
    assert "not ok: tool_error 1, timeout 1" in done.out
    assert "  50 ms  ops/git/echo  ok  2026-11-14T09:00:05.000Z" in done.out


def test_the_summary_for_programs(record: Path) -> None:
    document = run_command("audit", "--file", str(record), "--json", cwd=record.parent).data

    assert (document["calls"], document["errors"], document["tokens"]) == (5, 2, 310)
    assert (document["p50"], document["p95"]) == (30, 50)
    assert document["outcomes"] == {"tool_error": 1, "timeout": 1}
    assert [tool["tool"] for tool in document["tools"]] == [
        "dev/git/echo",
        "dev/git/fail",
        "dev/fs/echo",
        "dev/git/hang",
        "ops/git/echo",
    ]
    assert {host["host"]: host["calls"] for host in document["hosts"]} == {
        "claude-code": 4,
        "cursor": 1,
    }
    assert document["slow"][0] == {
        "ts": "2026-11-14T09:00:05.000Z",
        "tool": "ops/git/echo",
        "ms": 50,
        "outcome": "ok",
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--calls"], [1, 2, 3, 4, 5]),
        (["--calls", "-n", "2"], [4, 5]),
        (["--calls", "-n", "0"], []),
        (["--errors"], [2, 4]),
        (["--slow", "-n", "2"], [5, 4]),
        (["--calls", "--server", "git"], [1, 2, 4, 5]),
        (["--calls", "--server", "dev/git"], [1, 2, 4]),
        (["--calls", "--tool", "echo"], [1, 3, 5]),
        (["--calls", "--outcome", "timeout"], [4]),
        (["--calls", "--host", "cursor"], [3]),
        (["--calls", "--since", "2026-11-14T09:00:04"], [4, 5]),
        (["--errors", "--server", "git", "--since", "2026-11-14T09:00:03"], [4]),
    ],
)
def test_calls_are_listed_and_filtered(
    record: Path, options: list[str], expected: list[int]
) -> None:
    assert shown(record, *options) == expected


def test_a_call_is_one_line_for_people(record: Path) -> None:
    odd = line(6, "ev\x1bil", arguments='{"a":"\x1b[2J"}')
    record.write_bytes(record.read_bytes() + odd)
    done = run_command("audit", "--file", str(record), "--calls", "-n", "1", cwd=record.parent)

    assert "\x1b" not in done.out
    assert done.out.startswith("2026-11-14T09:00:06.000Z  ok ")
    assert "60 ms  dev/git/ev" in done.out
    assert "claude-code/2.1" in done.out
    assert '{"a":' in done.out


def test_rotated_files_are_read_and_odd_lines_counted(record: Path) -> None:
    record.with_name("calls.jsonl.2").write_bytes(LINES[0])
    record.with_name("calls.jsonl.1").write_bytes(LINES[1] + b"   \n{torn\n" + LINES[2])
    record.write_bytes(LINES[3] + LINES[4][:-10])

    assert shown(record, "--calls") == [1, 2, 3, 4]
    done = run_command("audit", "--file", str(record), cwd=record.parent)
    assert "1 lines can't be read" in done.out


def test_since(record: Path) -> None:
    assert read_since("2h", 10_000) == 10_000 - 7200
    assert read_since("1.5m", 100) == 10
    assert read_since("1970-01-02", 0) == 86400
    assert read_since("1970-01-01T01:00+01:00", 0) == 0
    wrong = run_command("audit", "--file", str(record), "--since", "soon", cwd=record.parent)
    assert wrong.status == 2
    assert "'soon' is no time, such as 90s" in wrong.err


def test_it_finds_the_file_of_the_configuration(tmp_path: Path) -> None:
    config_file(tmp_path, {"a": entry()}, audit={"file": "logs.jsonl"})
    assert run_command("audit", "--json", cwd=tmp_path).data["calls"] == 0
    run_command("call", "dev/a/echo", "text=x", cwd=tmp_path)

    document = run_command("audit", "--json", cwd=tmp_path).data
    assert document["file"] == str(tmp_path / "logs.jsonl")
    assert [tool["tool"] for tool in document["tools"]] == ["dev/a/echo"]
    assert document["tokens"] > 0


def test_without_a_record_it_says_how_to_keep_one(tmp_path: Path) -> None:
    config_file(tmp_path, {"a": entry()})
    done = run_command("audit", cwd=tmp_path, MCP_WORKBENCH_HOME=str(tmp_path / "home"))

    assert done.status == 0
    assert "no calls are recorded" in done.err
    assert '"audit": true' in done.err
    missing = run_command("audit", "--file", "none.jsonl", cwd=tmp_path)
    assert missing.status == 2
    assert "there is no file none.jsonl" in missing.err


def test_it_is_followed_over_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    path.write_bytes(b"".join(LINES))
    file = AuditFile(str(path), 1 << 16)
    stale = AuditFile(str(path), 1 << 16)
    file.append(b"", 0.0)
    stale.append(b"", 0.0)
    argv = [*COMMAND, "audit", "--file", str(path), "-f", "-n", "2", "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=unmeasured()) as process:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline())["seq"] for _ in range(2)]
        for number in range(100, 300):  # several files are begun meanwhile
            file.append(line(9, seq=number, padding="x" * 1000), 0.0)
            seen.append(json.loads(process.stdout.readline())["seq"])
        process.send_signal(signal.SIGINT)

    assert seen == [4, 5, *range(100, 300)]
    assert process.returncode == 130
    assert len(list(tmp_path.glob("calls.jsonl*"))) >= 3
    assert sys.platform != "win32"


def test_what_is_appended_late_to_a_rotated_file_is_followed(record: Path) -> None:
    reader = AuditReader(str(record), 5)
    assert len(list(reader.lines())) == len(LINES)
    following = reader.followed()
    late = record.open("ab")
    record.rename(record.with_name("calls.jsonl.1"))
    record.write_bytes(line(6))
    assert next(following).raw + b"\n" == line(6)
    with late:
        late.write(line(7))

    assert next(following).raw + b"\n" == line(7)
