"""One call is found in the audit: in any of its files, wherever it lies, and no other call for it."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mcp_workbench.gateway import audit_search
from mcp_workbench.gateway.audit_file import AuditFile
from mcp_workbench.gateway.audit_search import recorded_call

MOMENT = 1_800_000_000.0


def line(number: int, pid: int = 0, size: int = 2, **more: object) -> bytes:
    ts = datetime.fromtimestamp(MOMENT, UTC).isoformat()
    start = {"v": 1, "ts": ts, "seq": number, "pid": pid or os.getpid(), "host": "h"}
    text = json.dumps({**start, "args_bytes": size, **more}, separators=(",", ":"))
    return text.encode() + b"\n"


def text_of(file: AuditFile, number: int, size: int = 2, ended: float = MOMENT) -> str | None:
    found = recorded_call(file, number, size, ended)
    return None if found is None else found.arguments


@pytest.mark.parametrize("block", [130, 1000, 1 << 20])
def test_every_call_of_every_file_is_found(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_search, "BLOCK", block)
    file = AuditFile(str(tmp_path / "calls.jsonl"), most_bytes=8000, files=5)
    for number in range(1, 101):
        file.append(line(number, arguments=f"{number}" * (number % 37 * 20)), time.monotonic())
    file.close()

    assert len(list(tmp_path.iterdir())) > 2
    first = next(n for n in range(1, 101) if text_of(file, n) is not None)
    assert [text_of(file, n) for n in range(first, 101)] == [
        f"{n}" * (n % 37 * 20) for n in range(first, 101)
    ]


def test_a_line_of_another_process_time_or_size_is_none_of_this_call(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    forged = f'{{"seq":2,"pid":{os.getpid()},"arguments":"forged"}}'
    path.write_bytes(line(1, pid=os.getpid() + 1) + line(3, arguments="own") + line(4, name=forged))
    file = AuditFile(str(path))

    assert text_of(file, 3) == "own"
    assert recorded_call(file, 1, 2, MOMENT) is None
    assert recorded_call(file, 2, 2, MOMENT) is None
    assert recorded_call(file, 3, 3, MOMENT) is None
    assert recorded_call(file, 3, 2, MOMENT + 3600) is None


def test_the_search_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_search, "MOST_SEARCHED", 2000)
    monkeypatch.setattr(audit_search, "BLOCK", 1000)
    path = tmp_path / "calls.jsonl"
    path.write_bytes(b"".join(line(n, arguments="x" * 900) for n in range(1, 12)))
    file = AuditFile(str(path))

    assert text_of(file, 11) == "x" * 900
    assert text_of(file, 1) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "calls.jsonl")
    (tmp_path / "calls.jsonl.1").write_bytes(b"[" * 5000 + b"\n" + line(1, arguments="kept"))

    assert text_of(AuditFile(str(tmp_path / "calls.jsonl")), 1) == "kept"
