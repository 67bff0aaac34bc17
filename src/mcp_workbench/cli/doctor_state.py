"""The folder that holds what we remember: whose it is, and what in it is left over."""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mcp_workbench.cli.diagnosis import Line
from mcp_workbench.config.state_folder import VARIABLE

SUBJECT = "state folder"
LEFT_OVER = 3600.0  # seconds; no file is half written for longer
PRIVATE = 0o700


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
        yield _mended(Line("bad", SUBJECT, f"{folder} can't be written"), folder, fix=fix)
    elif about.st_mode & 0o077:
        yield _mended(
            Line("doubtful", SUBJECT, f"other users can look into {folder}"), folder, fix=fix
        )


def _mended(line: Line, folder: Path, *, fix: bool) -> Line:
    remedy = f"chmod 700 {folder}"
    if not fix:
        return Line(line.state, line.subject, line.message, remedy)
    try:
        folder.chmod(PRIVATE)
    except OSError:
        return Line(line.state, line.subject, line.message, remedy)
    return Line("good", line.subject, line.message, remedy, fixed=True)


def _left_over(folder: Path, *, fix: bool) -> Iterator[Line]:
    for path in sorted(folder.rglob("*")):
        why = stale(path)
        if not why:
            continue
        told = f"{path} is left over: {why}"
        if fix:
            with suppress(OSError):
                path.unlink()
        gone = fix and not path.exists()
        remedy = "mcp-workbench doctor --fix"
        yield Line("good" if gone else "doubtful", SUBJECT, told, remedy, fixed=gone)


def stale(path: Path) -> str:
    """Why nobody needs this file any more; empty where somebody may."""
    try:
        about = path.lstat()
    except OSError:
        return ""
    if stat.S_ISSOCK(about.st_mode):
        return "" if _listens(path) else "nobody listens there"
    if not stat.S_ISREG(about.st_mode):
        return ""
    if path.suffix == ".pid":
        return _ended(path)
    if path.suffix == ".tmp" and time.time() - about.st_mtime > LEFT_OVER:
        return "it was being written and never finished"
    return ""


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(1)
        try:
            one.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # busy, or not ours to ask
            return True
    return True


def _ended(path: Path) -> str:
    try:
        number = int(path.read_text("utf-8").split()[0])
        os.kill(number, 0)
    except (ValueError, IndexError, UnicodeDecodeError, OverflowError):
        return ""
    except ProcessLookupError:
        return "its process has ended"
    except OSError:  # it lives, as somebody else's
        return ""
    return ""
