"""Checks the state folder: its owner and mode, and files left over in it."""

from __future__ import annotations

import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from mcp_workbench.cli.doctor_checks import Line
from mcp_workbench.config.state_folder import VARIABLE
from mcp_workbench.daemon import folder as daemon
from mcp_workbench.daemon.folder import socket_address
from mcp_workbench.downstream import catalogue_files as catalogues

SUBJECT = "state folder"
LEFT_OVER = 3600.0  # seconds; no file is half written for longer
PRIVATE = 0o700
_WHOLE = r"{kept}\.\d+-[0-9a-f]{{8}}\.tmp"  # `config/state_folder.write_whole`
_PRIVATE = r"\.{kept}\.[0-9a-f]{{12}}"  # `hosts/writing.write_private`


def look_at_state(home: str, *, fix: bool) -> Iterator[Line]:
    """Nothing is made or changed, unless `fix` says so."""
    if not home:
        told = f"neither ${VARIABLE} nor $HOME is set: nothing is remembered, nothing can be undone"
        yield Line("doubtful", SUBJECT, told, f"set {VARIABLE} to a folder of your own")
        return
    folder = Path(home)
    try:
        about = folder.stat()
    except FileNotFoundError:
        yield Line("good", SUBJECT, f"{folder} is not there yet; nothing is remembered")
        return
    except OSError as error:
        told = f"{folder} can't be looked at: {error.strerror}"
        yield Line("bad", SUBJECT, told, f"see to its permissions, or set {VARIABLE}", "WB-CLI-005")
        return
    if not stat.S_ISDIR(about.st_mode):
        yield Line("bad", SUBJECT, f"{folder} is no folder", f"move it away, or set {VARIABLE}")
        return
    troubles = [*_rights(folder, about, fix=fix), *_left_over(folder, fix=fix)]
    yield from troubles or [Line("good", SUBJECT, str(folder))]


def _rights(folder: Path, about: os.stat_result, *, fix: bool) -> Iterator[Line]:
    if os.name != "posix":
        return
    if about.st_uid != os.geteuid():
        told = f"{folder} belongs to another user"
        yield Line("bad", SUBJECT, told, f"set {VARIABLE} to a folder of your own")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield _mended(Line("bad", SUBJECT, f"{folder} can't be written"), folder, about, fix=fix)
    elif about.st_mode & 0o077:
        told = f"other users can look into {folder}"
        yield _mended(Line("doubtful", SUBJECT, told), folder, about, fix=fix)


def _mended(line: Line, folder: Path, about: os.stat_result, *, fix: bool) -> Line:
    if why := _shared(folder, about):
        told = f"{line.message}, and {why}: its mode is left as it is"
        remedy = f"set {VARIABLE} to a folder for this program alone"
        return Line(line.state, line.subject, told, remedy)
    remedy = f"chmod 700 {folder}"
    if not fix:
        return Line(line.state, line.subject, line.message, remedy)
    try:
        folder.chmod(PRIVATE)
    except OSError:
        return Line(line.state, line.subject, line.message, remedy)
    return Line("good", line.subject, line.message, remedy, fixed=True)


def _shared(folder: Path, about: os.stat_result) -> str:
    """Why the folder is not for us alone, so that its mode is not ours to change; empty if it is."""
    real = os.path.realpath(folder)
    if real == os.path.dirname(real):  # noqa: PTH120
        return "it is the root of the file system"
    if real == os.path.realpath(os.path.expanduser("~")):  # noqa: PTH111 - it never raises
        return "it is your home folder"
    if about.st_mode & stat.S_ISVTX:
        return "it is meant for several users"
    try:
        other = foreign(folder)
    except OSError:
        return "what it holds can't be seen"
    return f"it holds {other}, which is not ours" if other else ""


def _left_over(folder: Path, *, fix: bool) -> Iterator[Line]:
    for path, unfinished in own_files(folder):
        why = stale(path, unfinished=unfinished)
        if not why:
            continue
        told = f"{path} is left over: {why}"
        if fix:
            with suppress(OSError):
                path.unlink()
        gone = fix and not os.path.lexists(path)
        remedy = "mcp-workbench doctor --fix"
        yield Line("good" if gone else "doubtful", SUBJECT, told, remedy, fixed=gone)


def stale(path: Path, *, unfinished: bool = False) -> str:
    """Why nobody needs this file of ours any more; empty where somebody may."""
    try:
        about = path.lstat()
    except OSError:
        return ""
    if stat.S_ISSOCK(about.st_mode):
        return "" if _listens(path) else "nobody listens there"
    if not (unfinished and stat.S_ISREG(about.st_mode)):
        return ""
    old = time.time() - about.st_mtime > LEFT_OVER
    return "it was being written and never finished" if old else ""


def _listens(path: Path) -> bool:
    folder = -1
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(1)
        try:
            address, folder = socket_address(str(path))
            one.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # busy, or not ours to ask
            return True
        finally:
            if folder >= 0:
                os.close(folder)
    return True


class Names(NamedTuple):
    """The files of a room: those that are kept, and those in the making."""

    kept: re.Pattern[str]
    unfinished: re.Pattern[str]


def _names(kept: str, unfinished: str) -> Names:
    return Names(re.compile(kept), re.compile(unfinished.format(kept=f"(?:{kept})")))


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
