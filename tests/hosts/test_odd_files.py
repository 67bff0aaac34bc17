"""Where a host's file should be there is something else: it is named, and nobody waits for its end."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from mcp_workbench.config.file_access import NotPlain, TooLarge, read_plain
from tests.hosts.samples import FILES, demo, write_home
from tests.kit.command import Person, newcomer

if sys.platform == "win32":
    pytest.skip("there are no such files here", allow_module_level=True)

CURSOR = FILES["cursor"][0]


@pytest.fixture
def served(tmp_path: Path) -> Person:
    person = newcomer(tmp_path)
    write_home(person.home, person.folder, ("cursor",))
    assert person.types("import", "--yes").status == 0
    (person.home / CURSOR).unlink()
    return person


def put(kind: str, path: Path) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(kind)


@pytest.mark.parametrize("kind", ["/dev/zero", "/dev/full", "pipe"])
@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_a_file_of_a_host_that_is_none_is_named(kind: str, command: str, served: Person) -> None:
    file = served.home / CURSOR
    put(kind, file)

    done = served.types(command, "cursor", "--dry-run")

    assert done.status == 2
    assert done.err.splitlines() == [
        "error: this is no plain file",
        f"  --> {file}",
        "  fix: put a plain file there, or remove what is there; nothing was changed",
        "  WB-HOST-501",
    ]
    assert file.is_fifo() or file.is_symlink()


def test_a_pipe_that_somebody_names_is_imported(served: Person) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w") as pipe:
        pipe.write(json.dumps({"mcpServers": {"one": demo()}}))
        pipe.close()
        path = f"/proc/{os.getpid()}/fd/{reading}"
        if not Path(path).exists():
            pytest.skip("a pipe has no name here")
        done = served.types("import", path, "--yes", "--toolbox", "piped")

    assert done.status == 0
    assert "one" in json.loads(served.config.read_text())["toolboxes"]["piped"]["mcpServers"]


def test_only_a_plain_file_is_read_and_only_up_to_its_bound(tmp_path: Path) -> None:
    plain, link, pipe = tmp_path / "plain", tmp_path / "link", tmp_path / "pipe"
    plain.write_bytes(b"12345")
    link.symlink_to(plain)
    os.mkfifo(pipe)

    assert read_plain(link, 5) == b"12345"
    with pytest.raises(TooLarge):
        read_plain(plain, 4)
    for other in (pipe, Path("/dev/zero")):
        with pytest.raises(NotPlain):
            read_plain(other, 5)
    with pytest.raises(IsADirectoryError):
        read_plain(tmp_path, 5)
    with pytest.raises(FileNotFoundError):
        read_plain(tmp_path / "none", 5)
