"""The folder of our state: where it is, who can look into it, and files that are never half there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mcp_workbench.config.state_home import (
    NotPrivate,
    private_folder,
    read_own,
    state_home,
    write_whole,
)


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_it_is_in_the_user_s_home_and_a_variable_moves_it(tmp_path: Path) -> None:
    assert state_home({"HOME": "/home/me"}) == "/home/me/.mcp-workbench"
    assert state_home({"HOME": "/home/me", "MCP_WORKBENCH_HOME": "/var/x"}) == "/var/x"
    assert state_home({"HOME": "/home/me", "MCP_WORKBENCH_HOME": ""}) == "/home/me/.mcp-workbench"
    assert state_home({}) == ""
    with pytest.raises(OSError, match=r"neither \$MCP_WORKBENCH_HOME nor \$HOME"):
        private_folder("")


def test_rooms_and_files_are_made_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        room = private_folder(str(tmp_path / "home"), "catalogues")
        write_whole(f"{room}/a", b"one")
    finally:
        os.umask(before)

    assert [mode(tmp_path / "home"), mode(room), mode(f"{room}/a")] == [0o700, 0o700, 0o600]
    assert private_folder(str(tmp_path / "home"), "catalogues") == room


def test_a_folder_that_others_can_use_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    private_folder(str(home), "room")
    (home / "room").chmod(0o750)
    with pytest.raises(NotPrivate, match="open to other users: chmod 700"):
        private_folder(str(home), "room")
    home.chmod(0o777)
    with pytest.raises(NotPrivate, match="open to other users"):
        private_folder(str(home))
    home.chmod(0o755)  # made by hand with the usual mode: what is inside is private all the same
    assert private_folder(str(home)) == str(home)


def test_a_link_leads_nowhere_inside_but_the_home_may_be_one(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(0o700)
    (tmp_path / "home").symlink_to(tmp_path / "elsewhere")
    home = private_folder(str(tmp_path / "home"))
    (tmp_path / "target").mkdir(0o700)
    (Path(home) / "room").symlink_to(tmp_path / "target")
    (Path(home) / "file").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text("x")

    with pytest.raises(NotADirectoryError):
        private_folder(home, "room")
    with pytest.raises(OSError, match="symbolic links"):
        read_own(f"{home}/file", 100)
    write_whole(f"{home}/file", b"new")  # takes the place of the link
    assert (tmp_path / "secret").read_text() == "x"
    assert read_own(f"{home}/file", 100) == b"new"


def test_what_is_no_plain_file_or_too_long_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(b"x" * 11)

    with pytest.raises(NotPrivate, match="not a plain file"):
        read_own(str(tmp_path / "pipe"), 10)
    with pytest.raises(OSError, match="more than 10 bytes"):
        read_own(str(tmp_path / "long"), 10)


def test_a_file_is_replaced_or_kept_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    file = str(tmp_path / "file")
    write_whole(file, b"first", replace=False)
    write_whole(file, b"second", replace=False)
    assert read_own(file, 100) == b"first"
    write_whole(file, b"third")
    assert read_own(file, 100) == b"third"
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(str(tmp_path / "folder"), b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
