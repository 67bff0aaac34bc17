"""Who could have written a file that decides what is started here.

Such a file belongs to this user or to root, and so does its folder, in which nobody else may put
files. A group may only where it is the private group of one of them: Debian gives one to each user,
and many a umask there lets it write. `doubts` and `is_private` are the decision; `doubts_of` asks
the system, of the file and of what it links to.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

FILE = "WB-CONF-008"
FOLDER = "WB-CONF-009"
CODES = frozenset({FILE, FOLDER})
_ROOT = 0
_NOBODY_KNOWN = -1  # a member of a group who is no user here, or not yet


class Owned(NamedTuple):
    """What is known of a file or a folder."""

    path: str
    uid: int
    mode: int
    group: str = ""  # that can write to it, and has other members than this user and root


class Group(NamedTuple):
    """What is known of a group; its members are users' numbers."""

    gid: int
    name: str
    members: frozenset[int]


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
    elif file.group:
        message = f"the group {file.group} can change this file, who decides what is started"
        found.append(Doubt(FILE, message))
    for folder in folders:
        if folder.uid not in (_ROOT, me):
            why = f"belongs to another user ({folder.uid})"
        elif folder.mode & stat.S_IWOTH:  # also where files of others can't be removed, as in /tmp
            why = "is open to everybody"
        elif folder.group:
            why = f"is open to the group {folder.group}"
        else:
            continue
        message = f"its folder {folder.path} {why}, who could put another file there"
        found.append(Doubt(FOLDER, message))
    return found


def is_private(group: Group, user: int, name: str) -> bool:
    """Is it the user's own group, and nobody else in it?"""
    return (group.gid == user or group.name == name) and group.members <= {user}


def doubts_of(path: str, status: os.stat_result) -> list[Doubt]:
    """The doubts about a file that was opened as `path` and has this status."""
    if os.name != "posix" or not stat.S_ISREG(status.st_mode):
        return []  # whoever hands over a pipe has named it
    name = os.path.abspath(path)  # noqa: PTH100 - `pathlib` is slow
    folders = dict.fromkeys(
        os.path.dirname(one)  # noqa: PTH120
        for one in (name, os.path.realpath(name))
    )
    me = os.geteuid()
    return doubts(
        _owned(name, status, me),
        [_owned(one, os.stat(one), me) for one in folders],  # noqa: PTH116
        me,
    )


def notice(file: str, doubts: list[Doubt]) -> str:
    """One line for a user who has named such a file; empty where nobody doubts it."""
    why = "; ".join(doubt.message for doubt in doubts)
    return f"mcp-workbench: {file} is used because it was named: {why}" if why else ""


def _owned(path: str, status: os.stat_result, me: int) -> Owned:
    group = _foreign_group(status.st_gid, me) if status.st_mode & stat.S_IWGRP else ""
    return Owned(path, status.st_uid, status.st_mode, group)


def _foreign_group(gid: int, me: int) -> str:
    """The name of a group that is neither this user's private one nor root's, or nothing."""
    import pwd  # few files can be written by a group, and Windows has none

    group = _group(gid)
    for user in (me, _ROOT):
        try:
            name = pwd.getpwuid(user).pw_name
        except KeyError:  # in a container, where users may have numbers only
            name = str(user)
        if is_private(group, user, name):
            return ""
    return group.name


def _group(gid: int) -> Group:
    import grp
    import pwd

    first = {user.pw_uid for user in pwd.getpwall() if user.pw_gid == gid}  # it is their first one
    try:
        entry = grp.getgrgid(gid)
    except KeyError:
        return Group(gid, str(gid), frozenset(first))
    return Group(gid, entry.gr_name, frozenset(first | {_number(name) for name in entry.gr_mem}))


def _number(user: str) -> int:
    import pwd

    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return _NOBODY_KNOWN
