"""Who could have written a file that decides what is started here.

Such a file belongs to this user or to root, and so does its folder, in which nobody else may put
files. `doubts` is the decision; `doubts_of` asks the system, of the file and of what it links to.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

FILE = "WB-CONF-008"
FOLDER = "WB-CONF-009"
CODES = frozenset({FILE, FOLDER})
_ROOT = 0


class Owned(NamedTuple):
    """What is known of a file or a folder."""

    path: str
    uid: int
    mode: int


class Doubt(NamedTuple):
    """Why a file may be somebody else's."""

    code: str
    message: str


def doubts(file: Owned, folders: list[Owned], me: int) -> list[Doubt]:
    """Why this file, in these folders, may say something that the user `me` did not write."""
    found: list[Doubt] = []
    if file.uid not in (_ROOT, me):
        message = f"this file belongs to another user ({file.uid}), who decides what is started"
        found.append(Doubt(FILE, message))
    for folder in folders:
        if folder.uid not in (_ROOT, me):
            why = f"belongs to another user ({folder.uid})"
        elif folder.mode & stat.S_IWOTH:  # also where files of others can't be removed, as in /tmp
            why = "is open to everybody"
        else:
            continue
        message = f"its folder {folder.path} {why}, who could put another file there"
        found.append(Doubt(FOLDER, message))
    return found


def doubts_of(path: str, status: os.stat_result) -> list[Doubt]:
    """The doubts about a file that was opened as `path` and has this status."""
    if os.name != "posix" or not stat.S_ISREG(status.st_mode):
        return []  # whoever hands over a pipe has named it
    name = os.path.abspath(path)  # noqa: PTH100 - `pathlib` is slow
    folders = dict.fromkeys(
        os.path.dirname(one)  # noqa: PTH120
        for one in (name, os.path.realpath(name))
    )
    return doubts(
        Owned(name, status.st_uid, status.st_mode),
        [_folder(one) for one in folders],
        os.geteuid(),
    )


def notice(file: str, doubts: list[Doubt]) -> str:
    """One line for a user who has named such a file; empty where nobody doubts it."""
    why = "; ".join(doubt.message for doubt in doubts)
    return f"mcp-workbench: {file} is used because it was named: {why}" if why else ""


def _folder(path: str) -> Owned:
    status = os.stat(path)  # noqa: PTH116
    return Owned(path, status.st_uid, status.st_mode)
