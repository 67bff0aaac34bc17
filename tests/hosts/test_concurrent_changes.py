"""Files that several processes of ours change at once: none loses the change of another."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from mcp_workbench.config import file_access
from mcp_workbench.config.file_access import exclusive
from mcp_workbench.config.secret_store import SecretStore
from mcp_workbench.core.errors import SecretUnavailable
from mcp_workbench.hosts.files import HostFault, read_file, replace_file

WRITERS, LINES = 4, 60

if sys.platform == "win32":
    pytest.skip("there are no such locks here", allow_module_level=True)


def add_lines(file: Path, writer: int) -> None:
    for number in range(LINES):
        while True:
            before = read_file(file) or b""
            try:
                replace_file(file, before, before + b"%d %d\n" % (writer, number), 0o600)
            except HostFault:  # another one was first: its line is kept
                continue
            break


def test_no_change_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.touch()
    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(partial(add_lines, file), range(WRITERS)))

    assert len(set(file.read_bytes().splitlines())) == WRITERS * LINES


def test_a_process_that_stopped_with_the_lock_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_access, "LOCK_WAIT", 0.05)
    file = tmp_path / "settings"
    (tmp_path / "secrets").mkdir(mode=0o700)
    with exclusive(str(tmp_path)), exclusive(str(tmp_path / "secrets")):
        replace_file(file, None, b"new", 0o600)
        with pytest.raises(SecretUnavailable, match=r"another process \(.*\) is writing it"):
            SecretStore(str(tmp_path)).remove(["A"])

    assert file.read_bytes() == b"new"
    assert SecretStore(str(tmp_path)).remove(["A"]) == []
