"""Files of others, written whole or not at all, and only if they are still what was looked at."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from mcp_workbench.hosts.refusals import changed_since, is_folder

PRIVATE = 0o600


def read_file(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        raise is_folder(str(path)) from None


def created_folders(path: Path) -> list[Path]:
    """The folders above a file that are not there yet, innermost first."""
    missing: list[Path] = []
    for folder in path.parents:
        if folder.exists():
            break
        missing.append(folder)
    return missing


def replace_file(path: Path, before: bytes | None, after: bytes | None, mode: int) -> None:
    """Bytes for bytes, in one step; a link is followed. None is no file."""
    target = Path(os.path.realpath(path))
    if read_file(target) != before:
        raise changed_since(str(path))
    if after is None:
        target.unlink(missing_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        _write_new(temporary, after, mode)
        if read_file(target) != before:  # the last look: what remains is a moment
            raise changed_since(str(path))
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def remove_folders(folders: tuple[str, ...]) -> None:
    """Folders that were made for a file, unless others have moved in."""
    for folder in folders:
        with suppress(OSError):
            Path(folder).rmdir()


def write_private(path: Path, data: bytes) -> None:
    """A file of ours, for nobody else to read."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        _write_new(temporary, data, PRIVATE)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE)
    with os.fdopen(number, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    path.chmod(mode)
