"""Which processes there are, as the system lists them."""

import os
from pathlib import Path

import pytest

from mcp_workbench.transport.process_table import list_processes

LISTED = Path("/proc/self/stat")
HELD = 64 << 20  # bytes


@pytest.mark.skipif(not LISTED.exists(), reason="this system lists no processes in /proc")
def test_our_own_process_is_listed_with_its_group_and_its_memory() -> None:
    pages = HELD // os.sysconf("SC_PAGE_SIZE")
    held = os.urandom(HELD)

    group, resident = list_processes()[os.getpid()]

    assert group == os.getpgrp()
    whole = int(Path("/proc/self/statm").read_text().split()[0])  # with what is not resident
    assert pages < resident < whole
    assert len(held) == HELD
