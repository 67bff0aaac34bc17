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

from mcp_workbench.cli.doctor_checks import CheckResult
from mcp_workbench.config.state_home import VARIABLE
from mcp_workbench.daemon import paths as daemon
from mcp_workbench.daemon.paths import socket_address
from mcp_workbench.upstream import cache_files as catalogues

SUBJECT = "state folder"
LEFT_OVER = 3600.0  # seconds; no write takes longer
PRIVATE = 0o700
_WHOLE = r"{kept}\.\d+-[0-9a-f]{{8}}\.tmp"  # `config/state_folder.write_whole`
_PRIVATE = r"\.{kept}\.[0-9a-f]{{12}}"  # `hosts/files.write_private`


def check_state(home: str, *, fix: bool) -> Iterator[CheckResult]:
    """Checks the state folder. Creates and changes nothing without `fix`."""
    if not home:
        message = (
            f"neither ${VARIABLE} nor $HOME is set: nothing is remembered, nothing can be undone"
        )
        yield CheckResult("doubtful", SUBJECT, message, f"set {VARIABLE} to a folder of your own")
        return
    folder = Path(home)
    try:
        about = folder.stat()
    except FileNotFoundError:
        yield CheckResult("good", SUBJECT, f"{folder} is not there yet; nothing is remembered")
        return
    except OSError as error:
        message = f"{folder} can't be read: {error.strerror}"
        yield CheckResult(
            "bad", SUBJECT, message, f"check its permissions, or set {VARIABLE}", "WB-CLI-005"
        )
        return
    if not stat.S_ISDIR(about.st_mode):
        yield CheckResult(
            "bad", SUBJECT, f"{folder} is no folder", f"move it away, or set {VARIABLE}"
        )
        return
    troubles = [*_rights(folder, about, fix=fix), *_left_over(folder, fix=fix)]
    yield from troubles or [CheckResult("good", SUBJECT, str(folder))]


def _rights(folder: Path, about: os.stat_result, *, fix: bool) -> Iterator[CheckResult]:
    if os.name != "posix":
        return
    if about.st_uid != os.geteuid():
        message = f"{folder} belongs to another user"
        yield CheckResult("bad", SUBJECT, message, f"set {VARIABLE} to a folder of your own")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield _repaired(
            CheckResult("bad", SUBJECT, f"{folder} can't be written"), folder, about, fix=fix
        )
    elif about.st_mode & 0o077:
        message = f"other users can look into {folder}"
        yield _repaired(CheckResult("doubtful", SUBJECT, message), folder, about, fix=fix)


def _repaired(line: CheckResult, folder: Path, about: os.stat_result, *, fix: bool) -> CheckResult:
    if why := _shared(folder, about):
        message = f"{line.message}, and {why}: its mode is left as it is"
        remedy = f"set {VARIABLE} to a folder for this program alone"
        return CheckResult(line.state, line.subject, message, remedy)
    remedy = f"chmod 700 {folder}"
    if not fix:
        return CheckResult(line.state, line.subject, line.message, remedy)
    try:
        folder.chmod(PRIVATE)
    except OSError:
        return CheckResult(line.state, line.subject, line.message, remedy)
    return CheckResult("good", line.subject, line.message, remedy, fixed=True)


def _shared(folder: Path, about: os.stat_result) -> str:
    """Returns why the folder may not be ours alone, so that we leave its mode; empty if it is."""
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


def _left_over(folder: Path, *, fix: bool) -> Iterator[CheckResult]:
    for path, unfinished in own_files(folder):
        why = stale(path, unfinished=unfinished)
        if not why:
            continue
        message = f"{path} is left over: {why}"
        if fix:
            with suppress(OSError):
                path.unlink()
        gone = fix and not os.path.lexists(path)
        remedy = "mcp-workbench doctor --fix"
        yield CheckResult("good" if gone else "doubtful", SUBJECT, message, remedy, fixed=gone)


def stale(path: Path, *, unfinished: bool = False) -> str:
    """Returns why this file of ours is no longer in use; empty if it may be."""
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
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            address, folder = socket_address(str(path))
            probe.connect(address)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # busy, or not permitted
            return True
        finally:
            if folder >= 0:
                os.close(folder)
    return True


class Names(NamedTuple):
    """File names in one of our folders: finished files, and unfinished ones."""

    kept: re.Pattern[str]
    unfinished: re.Pattern[str]


def _names(kept: str, unfinished: str) -> Names:
    return Names(re.compile(kept), re.compile(unfinished.format(kept=f"(?:{kept})")))


FOLDERS = {
    catalogues.FOLDER: _names(rf"key|[0-9a-f]{{40}}{re.escape(catalogues.SUFFIX)}", _WHOLE),
    daemon.FOLDER: _names(r"[0-9a-f]{16}\.(?:sock|lock|log|log\.1)", "(?!)"),
    "journal": _names(r"\d{4,}\.json", _PRIVATE),
    "backups": _names(r"\d{4,}-\d+", _PRIVATE),
}


class Item(NamedTuple):
    """A file of ours, by its folder and its name."""

    path: Path
    unfinished: bool


def own_files(folder: Path) -> Iterator[Item]:
    """Yields our files in order. Skips a folder that is a link or belongs to another user."""
    for subfolder, names in FOLDERS.items():
        if not _is_own(folder / subfolder):
            continue
        for path in _listed(folder / subfolder):
            if names.kept.fullmatch(path.name):
                yield Item(path, unfinished=False)
            elif names.unfinished.fullmatch(path.name):
                yield Item(path, unfinished=True)


def foreign(folder: Path) -> str:
    """Returns a name in the folder that is not ours, or an empty string. Raises OSError if it can't be listed."""
    for subfolder in sorted(folder.iterdir()):
        names = FOLDERS.get(subfolder.name)
        if names is None or not _is_own(subfolder):
            return subfolder.name
        for file in sorted(subfolder.iterdir()):
            if not (names.kept.fullmatch(file.name) or names.unfinished.fullmatch(file.name)):
                return str(file.relative_to(folder))
    return ""


def _is_own(subfolder: Path) -> bool:
    try:
        about = subfolder.lstat()
    except OSError:
        return False
    ours = os.name != "posix" or about.st_uid == os.geteuid()
    return stat.S_ISDIR(about.st_mode) and ours


def _listed(subfolder: Path) -> list[Path]:
    with suppress(OSError):  # it is gone, or not readable
        return sorted(subfolder.iterdir())
    return []
