"""What in the state folder is ours, told by room and name; everything else is somebody's, and stays."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mcp_workbench.daemon import folder as daemon
from mcp_workbench.downstream import catalogue_files as catalogues


class Names(NamedTuple):
    """The files of a room: those that are kept, and those in the making."""

    kept: re.Pattern[str]
    unfinished: re.Pattern[str]


def _names(kept: str, unfinished: str) -> Names:
    return Names(re.compile(kept), re.compile(unfinished.format(kept=f"(?:{kept})")))


_WHOLE = r"{kept}\.\d+-[0-9a-f]{{8}}\.tmp"  # `config/state_folder.write_whole`
_PRIVATE = r"\.{kept}\.[0-9a-f]{{12}}"  # `hosts/writing.write_private`
ROOMS = {
    catalogues.ROOM: _names(rf"key|[0-9a-f]{{40}}{re.escape(catalogues.SUFFIX)}", _WHOLE),
    daemon.ROOM: _names(r"[0-9a-f]{16}\.(?:sock|lock|log|log\.1)", "(?!)"),
    "journal": _names(r"\d{4,}\.json", _PRIVATE),
    "backups": _names(r"\d{4,}-\d+", _PRIVATE),
}


class Item(NamedTuple):
    """One file in one of our rooms that has a name which we give."""

    path: Path
    unfinished: bool


def own_files(folder: Path) -> Iterator[Item]:
    """Our files, in order. A room that is a link, or another user's, is none of ours."""
    for room, names in ROOMS.items():
        if not _is_own(folder / room):
            continue
        for path in _listed(folder / room):
            if names.kept.fullmatch(path.name):
                yield Item(path, unfinished=False)
            elif names.unfinished.fullmatch(path.name):
                yield Item(path, unfinished=True)


def foreign(folder: Path) -> str:
    """Something in the folder that is not ours; empty where all is. Raises OSError if it can't be seen."""
    for room in sorted(folder.iterdir()):
        names = ROOMS.get(room.name)
        if names is None or not _is_own(room):
            return room.name
        for file in sorted(room.iterdir()):
            if not (names.kept.fullmatch(file.name) or names.unfinished.fullmatch(file.name)):
                return str(file.relative_to(folder))
    return ""


def _is_own(room: Path) -> bool:
    try:
        about = room.lstat()
    except OSError:
        return False
    ours = os.name != "posix" or about.st_uid == os.geteuid()
    return stat.S_ISDIR(about.st_mode) and ours


def _listed(room: Path) -> list[Path]:
    with suppress(OSError):  # it is gone, or not ours to read
        return sorted(room.iterdir())
    return []
