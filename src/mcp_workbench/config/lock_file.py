"""The lock file `mcp-workbench.lock`, beside the configuration: read, checked, written in one step.

It is made to be committed: sorted, one definition per line, nothing in it that changes by itself. Comments
are allowed, and lost when it is written; a server's `note` stays. A file that can't be used is a
`LockFile` with a problem, so that its readers decide what that means.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, cast

import msgspec

from mcp_workbench.config.expand import dotted
from mcp_workbench.config.file_access import (
    LockHeld,
    TooLarge,
    at_once,
    exclusive_to_write,
    read_open,
)
from mcp_workbench.config.state_home import write_new
from mcp_workbench.core.definition_hash import HASH
from mcp_workbench.core.errors import Problem, WorkbenchError, shown_name
from mcp_workbench.core.lock_states import KINDS, LAUNCH, ListKind
from mcp_workbench.core.spec import LOCK_NAME, LockedServer, LockFile
from mcp_workbench.schema.document import json_text, printable

FORMAT = 1
FORMAT_KEY = "mcpWorkbenchLock"
CODE = "WB-LOCK-001"
MOST_BYTES = 8 << 20
MOST_OF_SERVER = (
    1 << 20
)  # bytes of one entry: 10,000 definitions; none takes the place of the others
_ROOT = 0
_MODE = 0o644  # it is no secret, and is committed
_RECORDED = ("at", "by", "version")
_KEYS = {
    "note", "launch", "launchLine", "package", "server", "recorded", "hostCapabilities", "rejected", "gone",
    *KINDS,
}  # fmt: skip
_CONFLICT = re.compile(r"^(?:<{7}|={7}|>{7})(?: |$)", re.MULTILINE)
_FIX = f"correct it there, take {LOCK_NAME} from your version control, or remove it and run `mcp-workbench lock`"
_MERGE = "keep one side of each conflict, then run `mcp-workbench lock diff`"

Path = tuple[str | int, ...]


class NotWritten(WorkbenchError):
    """The lock file can't be written, or can't be changed because it can't be read."""

    code = "lock_unusable"


class NotYetWritten(NotWritten):
    """Another process is writing it."""


def lock_path(config: str) -> str:
    """Returns the path of the lock file of this configuration file."""
    folder = os.path.dirname(os.path.abspath(config))  # noqa: PTH100, PTH120 - text in, text out
    return os.path.join(folder, LOCK_NAME)  # noqa: PTH118


# Reading


def read_lock(path: str) -> LockFile:
    """Returns the lock file; without a file, an empty one. Never raises: it may have a problem."""
    try:
        with open(path, "rb", buffering=0, opener=at_once) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                return _broken(path, "it is no plain file")
            if problem := _owner_problem(path, status):
                return _broken(path, problem[0], fix=problem[1])
            raw = read_open(stream.fileno(), status, MOST_BYTES)
    except FileNotFoundError:
        return LockFile(path)
    except TooLarge:
        return _broken(path, f"it is larger than {MOST_BYTES >> 20} MiB")
    except OSError as error:
        return _broken(path, f"can't be read: {error.strerror or error}")
    return parse_lock(path, raw)


def _owner_problem(path: str, status: os.stat_result) -> tuple[str, str] | None:
    """Returns why another user could approve by changing the file, and the fix.

    The owner of its folder could anyway, and the user was told so when the configuration was read.
    """
    if os.name != "posix":
        return None
    if status.st_mode & stat.S_IWOTH:
        return "everybody on this machine can change this file", f"chmod o-w {path}"
    folder = os.stat(os.path.dirname(path) or ".")  # noqa: PTH116, PTH120
    if status.st_uid in (os.geteuid(), _ROOT, folder.st_uid):
        return None
    message = f"this file belongs to another user ({status.st_uid}), who could approve"
    return message, "use a copy of your own"


def parse_lock(path: str, raw: bytes) -> LockFile:
    """Returns the lock file that has these bytes."""
    try:
        lock = LockFile(path, _Reader().servers(msgspec.json.decode(raw)))
        if encode_lock(lock.servers) == raw:  # as we write it: nothing in it occurs twice
            return lock
    except (_Wrong, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    return _read_slowly(path, raw)


def _read_slowly(path: str, raw: bytes) -> LockFile:
    """Reads a file that a person has changed, with the place of what is wrong."""
    from mcp_workbench.config import jsonc

    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return _broken(path, "the file is not UTF-8 text", jsonc.place_of_byte(raw, error.start))
    if conflict := _CONFLICT.search(text):
        place = jsonc.place(text, conflict.start())
        return _broken(path, "it has conflicts of a merge", place, _MERGE)
    try:
        root = jsonc.read(text)
    except jsonc.SyntaxProblem as error:
        return _broken(path, error.message, (error.line, error.column))
    twice = next(jsonc.duplicates(root), None)
    if twice is not None:
        place = jsonc.place(text, twice.second)
        return _broken(path, "this key occurs twice", place, path_in_file=twice.path)
    try:
        return LockFile(path, _Reader().servers(root.value))
    except _Wrong as error:
        place = jsonc.place(text, jsonc.find(root, error.path).start)
        return _broken(path, error.message, place, path_in_file=error.path)


def _broken(
    path: str,
    message: str,
    place: tuple[int, int] = (0, 0),
    fix: str = _FIX,
    path_in_file: Path = (),
) -> LockFile:
    where = f"{path}:{place[0]}:{place[1]}" if place[0] else path
    inside = f" ({shown_name(dotted(path_in_file))})" if path_in_file else ""
    text = printable(f"{where}{inside}: {message}")
    return LockFile(path, problem=Problem("", text, fix, CODE, severity="warning"))


class _Wrong(Exception):
    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


class _Reader:
    """Reads the value of the file. Raises _Wrong at the first thing that is not as we write it."""

    def servers(self, value: Any) -> dict[str, LockedServer]:
        whole = _object(value, ())
        number = whole.get(FORMAT_KEY)
        if number != FORMAT:
            newer = isinstance(number, int) and number > FORMAT
            fix = "it is of a newer version of this program" if newer else f"must be {FORMAT}"
            raise _Wrong((FORMAT_KEY,), f"the format of the file: {fix}")
        _known(whole, {FORMAT_KEY, "servers"}, ())
        entries = _object(whole.get("servers", {}), ("servers",))
        return {name: self.server(entry, ("servers", name)) for name, entry in entries.items()}

    def server(self, value: Any, path: Path) -> LockedServer:
        entry = _object(value, path)
        _known(entry, _KEYS, path)
        recorded = _object(entry.get("recorded", {}), (*path, "recorded"))
        _known(recorded, set(_RECORDED), (*path, "recorded"))
        rejected = _object(entry.get("rejected", {}), (*path, "rejected"))
        _known(rejected, {*KINDS, LAUNCH}, (*path, "rejected"))
        gone = _object(entry.get("gone", {}), (*path, "gone"))
        _known(gone, set(KINDS), (*path, "gone"))
        return LockedServer(
            _hash(entry["launch"], (*path, "launch")) if "launch" in entry else "",
            _text(entry, "launchLine", path),
            _text(entry, "package", path),
            _text(entry, "server", path),
            tuple(
                (key, _text(recorded, key, (*path, "recorded")))
                for key in _RECORDED
                if key in recorded
            ),
            self.capabilities(entry.get("hostCapabilities", {}), (*path, "hostCapabilities")),
            {kind: self.hashes(entry[kind], (*path, kind)) for kind in KINDS if kind in entry},
            {
                kind: self.hashes(found, (*path, "rejected", kind))
                for kind, found in rejected.items()
            },
            {kind: self.hashes(found, (*path, "gone", kind)) for kind, found in gone.items()},
            _text(entry, "note", path),
        )

    def capabilities(self, value: Any, path: Path) -> dict[str, tuple[str, ...]]:
        lists = _object(value, path)
        _known(lists, set(KINDS), path)
        return {kind: self.names(found, (*path, kind)) for kind, found in lists.items()}

    def names(self, value: Any, path: Path) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(
            isinstance(n, str) for n in cast("list[Any]", value)
        ):
            raise _Wrong(path, "must be a list of strings")
        return tuple(cast("list[str]", value))

    def hashes(self, value: Any, path: Path) -> dict[str, str]:
        if isinstance(value, str):  # the one text of a server
            return {"": _hash(value, path)}
        if value is None:
            return {}
        return {name: _hash(text, (*path, name)) for name, text in _object(value, path).items()}


def _object(value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong(path, "must be an object")
    return cast("dict[str, Any]", value)


def _known(value: dict[str, Any], keys: set[str], path: Path) -> None:
    for key in value:
        if key not in keys:
            raise _Wrong((*path, key), "this key is not known here")


def _text(entry: dict[str, Any], key: str, path: Path) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise _Wrong((*path, key), "must be a string")
    return value


def _hash(value: Any, path: Path) -> str:
    if not isinstance(value, str) or not HASH.fullmatch(value):
        raise _Wrong(path, "must be a hash: sha256: and 64 hexadecimal digits")
    return value


# Writing


def encode_lock(servers: Mapping[str, LockedServer]) -> bytes:
    """Returns the bytes of the file: the same for the same entries."""
    value = {
        FORMAT_KEY: FORMAT,
        "servers": {name: _entry(servers[name]) for name in sorted(servers)},
    }
    return msgspec.json.format(json_text(value).encode(), indent=2) + b"\n"


def _entry(server: LockedServer) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "note": server.note,
        "launch": server.launch,
        "launchLine": server.line,
        "package": server.package,
        "server": server.server,
        "recorded": dict(server.recorded),
        "hostCapabilities": {k: server.capabilities[k] for k in sorted(server.capabilities)},
        "rejected": _filled(server.rejected),
        "gone": _filled(server.gone),
    }
    entry = {key: value for key, value in entry.items() if value}
    return {**entry, **{k: _list(k, server.lists[k]) for k in KINDS if k in server.lists}}


def _filled(lists: dict[str, dict[str, str]]) -> dict[str, Any]:
    return {kind: _list(kind, lists[kind]) for kind in sorted(lists) if lists[kind]}


def _list(kind: ListKind | str, hashes: dict[str, str]) -> Any:
    if kind in ("instructions", LAUNCH):
        return hashes.get("")
    return {name: hashes[name] for name in sorted(hashes)}


Change = Callable[[dict[str, LockedServer]], Mapping[str, LockedServer]]


def change_lock(path: str, change: Change, wait: float | None = None) -> LockFile:
    """Replaces the file by what `change` makes of its entries; returns it. Raises NotWritten.

    One process at a time: the others wait, for `wait` seconds. A reader sees the old file or the new one.
    """
    real = os.path.realpath(path)
    try:
        with exclusive_to_write(real, wait):
            before = read_lock(real)
            if before.problem is not None:
                raise NotWritten(before.problem.message, hint=before.problem.fix)
            after = LockFile(path, dict(change(dict(before.servers))))
            if after.servers != before.servers or not os.path.exists(real):  # noqa: PTH110
                _replace(real, _small_enough(path, before.servers, after.servers))
    except LockHeld as error:
        hint = "try again when it has ended"
        raise NotYetWritten(f"{path} can't be written: {error.strerror}", hint=hint) from None
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "make its folder writable for this user"
        raise NotWritten(f"{path} can't be written: {reason}", hint=hint) from None
    return after


def _small_enough(
    path: str, before: Mapping[str, LockedServer], after: Mapping[str, LockedServer]
) -> bytes:
    """Returns the bytes of the new file. Raises NotWritten for one that could not be read again."""
    for name, entry in after.items():
        if entry != before.get(name) and len(encode_lock({name: entry})) > MOST_OF_SERVER:
            message = f"{path} has no room for {name}: it defines too much"
            raise NotWritten(message, hint=f'write "lock": "off" in the entry of {name}')
    data = encode_lock(after)
    if len(data) > MOST_BYTES:
        message = f"{path} would be larger than {MOST_BYTES >> 20} MiB"
        raise NotWritten(message, hint="remove entries of servers that are gone, or use several")
    return data


def _replace(path: str, data: bytes) -> None:
    temporary = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116
    except FileNotFoundError:
        mode = _MODE
    try:
        write_new(temporary, data, mode=mode, durable=True)
        os.replace(temporary, path)  # noqa: PTH105
    finally:
        with suppress(OSError):  # it is in its place
            os.unlink(temporary)  # noqa: PTH108
