"""Files that others may hold, replace or own: read within bounds, locked without waiting for ever."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from mcp_workbench.config import file_access
from mcp_workbench.config.file_access import (
    LockHeld,
    NotPlain,
    OwnershipWarning,
    TooLarge,
    TooSlow,
    check_ownership,
    exclusive,
    exclusive_to_write,
    ownership_notice,
    read_plain,
)
from tests.kit.clock import PATIENCE
from tests.kit.root import needs_root

if sys.platform == "win32":
    pytest.skip("there are no such locks here", allow_module_level=True)

STRANGER = 12345
MEBIBYTE = 1 << 20


def test_a_file_of_as_many_bytes_as_are_allowed_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"a" * MEBIBYTE)

    assert read_plain(file, MEBIBYTE) == b"a" * MEBIBYTE
    with pytest.raises(TooLarge, match=r"it is larger than 0 MiB$"):
        read_plain(file, MEBIBYTE - 1)


def test_a_pipe_is_read_if_it_is_named_and_until_its_writer_ends(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(NotPlain, match="it is no plain file: "):
        read_plain(pipe, MEBIBYTE)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"a" * 200_000,))
    writer.start()

    assert read_plain(pipe, MEBIBYTE, pipes=True) == b"a" * 200_000
    writer.join(PATIENCE)


def test_a_pipe_that_nobody_writes_to_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_access, "PIPE_WAIT", 0.01)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    os.write(writer, b"half")

    with pytest.raises(TooSlow, match=r"nobody has written the whole of it in 0.01 s$"):
        read_plain(pipe, MEBIBYTE, pipes=True)
    os.close(writer)


@pytest.mark.parametrize("lock", [exclusive, exclusive_to_write])
def test_a_lock_that_is_held_is_refused_with_its_holder_and_free_again_after(
    lock: object, tmp_path: Path
) -> None:
    hold = exclusive if lock is exclusive else exclusive_to_write
    path = tmp_path / "file"
    path.touch()
    locked = path if hold is exclusive else tmp_path / "file.writing"
    me = Path("/proc/self/comm")
    holder = f" ({me.read_text().strip()}, pid {os.getpid()})" if me.exists() else ""

    with hold(str(path)), pytest.raises(LockHeld) as refusal, hold(str(path), wait=0.0):
        pass

    assert refusal.value.strerror == (
        f"another process{holder} is writing it, or holds the lock of {locked}"
    )
    with hold(str(path), wait=0.0):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_failure_while_a_lock_is_held_gives_it_back(tmp_path: Path) -> None:
    path = str(tmp_path / "file")

    with pytest.raises(ZeroDivisionError), exclusive_to_write(path):
        raise ZeroDivisionError
    with exclusive_to_write(path, wait=0.0):
        assert os.path.lexists(f"{path}.writing")
        os.unlink(f"{path}.writing")  # noqa: PTH108 - by somebody else
    with pytest.raises(FileNotFoundError), exclusive(path):
        pass


def test_a_lock_whose_file_its_holder_has_removed_is_asked_for_anew(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    entered, leave = threading.Event(), threading.Event()
    found: list[bool] = []

    def other() -> None:
        with exclusive_to_write(path, wait=PATIENCE):
            entered.set()
            found.append(os.path.lexists(f"{path}.writing"))
            leave.wait(PATIENCE)

    with exclusive_to_write(path):
        thread = threading.Thread(target=other)
        thread.start()
        assert not entered.is_set()
    assert entered.wait(PATIENCE)
    with pytest.raises(LockHeld), exclusive_to_write(path, wait=0.0):
        pass
    leave.set()
    thread.join(PATIENCE)

    assert found == [True]
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "file.writing").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match="symbolic link"), exclusive_to_write(str(tmp_path / "file")):
        pass

    assert not (tmp_path / "elsewhere").exists()


# Ownership


def test_a_notice_has_every_reason_and_there_is_none_without() -> None:
    warnings = [OwnershipWarning("c", "it is theirs"), OwnershipWarning("d", "its folder is open")]

    assert ownership_notice("/x", []) == ""
    assert ownership_notice("/x", warnings) == (
        "mcp-workbench: /x is used because it was named: it is theirs; its folder is open"
    )


@needs_root("nobody else can give a file away")
def test_a_file_that_a_group_can_write_is_told_with_the_name_of_the_group(tmp_path: Path) -> None:
    import grp

    tmp_path.chmod(0o755)
    file = tmp_path / "file"
    file.touch()
    file.chmod(0o660)
    known = next(group for group in grp.getgrall() if group.gr_gid and group.gr_name != "root")

    def told() -> list[OwnershipWarning]:
        return check_ownership(str(file), file.stat())

    assert told() == []
    for gid, name in ((known.gr_gid, known.gr_name), (STRANGER, str(STRANGER))):
        os.chown(file, 0, gid)
        assert told() == [
            OwnershipWarning(
                "WB-CONF-008",
                f"the group {name} can change this file, and so decide what is started",
            )
        ]
    file.chmod(0o640)
    assert told() == []


def test_a_pipe_is_its_user_s_own_whoever_made_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")

    assert check_ownership(str(tmp_path / "pipe"), (tmp_path / "pipe").stat()) == []
    assert check_ownership(str(tmp_path / "file"), (tmp_path / "file").stat()) == [
        OwnershipWarning(
            "WB-CONF-009",
            f"its folder {tmp_path} is open to everybody: another file could be put there",
        )
    ]
