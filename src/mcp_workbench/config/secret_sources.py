"""Reads secrets from files, commands, keyrings and the encrypted store. Every function may block.

A command, and the helper for keyrings and the store, run in a session of their own, without a terminal
and with an empty stdin, so that none can ask a question there. Time and output are bounded. What a
command writes to stderr is not shown: it may be the secret.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import msgspec

from mcp_workbench.config import secret_store
from mcp_workbench.config.secret_helper import INSTALL, KEYRING, HelperAnswer, KeyringEntry
from mcp_workbench.config.secret_store import LONGEST, SecretStore
from mcp_workbench.config.state_home import state_home
from mcp_workbench.core.errors import SecretUnavailable
from mcp_workbench.core.spec import OWN_SETTINGS, SecretKind, SecretSource
from mcp_workbench.timing import deadline

COMMAND, FILE = "WB-SEC-602", "WB-SEC-603"
_CODES: dict[SecretKind, str] = {
    "keyring": KEYRING,
    "command": COMMAND,
    "file": FILE,
    "store": secret_store.UNUSABLE,
}
MOST_ANSWER = 16 << 20  # bytes of the helper's answer: many values
_TERMINALS = ("GPG_TTY",)  # with it, gpg's agent asks on the terminal of whoever started us
_BY_HAND = "run it in a terminal and see what it says"
_OTHERS = 0o077
_CHUNK = 1 << 16

Outcome = str | SecretUnavailable


def read_secrets(
    sources: Mapping[str, SecretSource], environ: Mapping[str, str]
) -> dict[str, Outcome]:
    """Returns each value, or why there is none. One process reads all of a keyring, or of the store."""
    outcomes: dict[str, Outcome] = {}
    for kind in ("store", "keyring"):
        some = {name: source for name, source in sources.items() if source.kind == kind}
        outcomes |= _helped(kind, some, environ) if some else {}
    for name, source in sources.items():
        if name not in outcomes:
            try:
                outcomes[name] = _read(source, environ)
            except SecretUnavailable as error:
                outcomes[name] = error
    return {name: _checked(name, source, outcomes[name]) for name, source in sources.items()}


def _read(source: SecretSource, environ: Mapping[str, str]) -> str:
    data = _file(source.file) if source.kind == "file" else _printed(source, environ)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        message = "its value is not UTF-8 text"
        raise SecretUnavailable(_CODES[source.kind], message, hint="save it as UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r")


def _checked(name: str, source: SecretSource, value: Outcome) -> Outcome:
    """Returns a usable value, or the failure with the name in it."""
    code = _CODES[source.kind]
    if value == "":
        value = SecretUnavailable(code, "its value is empty", hint="give it a value")
    elif isinstance(value, str) and len(value) > LONGEST:
        value = SecretUnavailable(
            code, "its value is too long", hint=f"at most {LONGEST} characters"
        )
    if isinstance(value, str):
        return value
    return SecretUnavailable(value.code, f"secret {name}: {value.message}", hint=value.hint)


def doubt(name: str, source: SecretSource, environ: Mapping[str, str]) -> SecretUnavailable | None:
    """Returns what is certainly wrong with a source. Reads no value, starts nothing."""
    try:
        if source.kind == "file":
            os.close(_opened(source.file))
        elif source.kind == "store":
            SecretStore(state_home(environ)).require(name)
        elif source.kind == "keyring" and find_spec("keyring") is None:
            return SecretUnavailable(KEYRING, "the package keyring is not installed", hint=INSTALL)
        elif source.kind == "command" and not shutil.which(
            source.command[0], path=environ.get("PATH", os.defpath)
        ):
            return _not_found(source.command[0])
    except SecretUnavailable as error:
        return error
    return None


# Files


def _opened(path: str) -> int:
    """Opens a file that this user alone can read."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it has a NUL character in its name"
        hint = "correct the path, or write the file"
        raise SecretUnavailable(FILE, f"{path} can't be read: {reason}", hint=hint) from None
    status = os.fstat(descriptor)
    message = fix = ""
    if not stat.S_ISREG(status.st_mode):
        message, fix = f"{path} is not a file", "name the file itself"
    elif os.name == "posix" and status.st_uid != os.geteuid():
        message, fix = f"{path} belongs to another user", "use a file of your own"
    elif os.name == "posix" and status.st_mode & _OTHERS:
        message, fix = f"{path} is open to other users", f"chmod 600 {path}"
    if message:
        os.close(descriptor)
        raise SecretUnavailable(FILE, message, hint=fix)
    return descriptor


def _file(path: str) -> bytes:
    with open(_opened(path), "rb") as file:
        return file.read(LONGEST * 4 + 1)


# Commands


def _printed(source: SecretSource, environ: Mapping[str, str]) -> bytes:
    """Returns what a command prints. It gets our environment, but none of our settings."""
    own = {name: environ[name] for name in environ if not name.startswith(OWN_SETTINGS)}
    return _output(source.command, own, source.timeout, LONGEST * 4)


def _output(command: Sequence[str], environ: Mapping[str, str], seconds: float, most: int) -> bytes:
    """Runs a command to its end and returns what it printed. Raises SecretUnavailable."""
    until = time.monotonic() + deadline(seconds)
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own list of words, without a shell
            command,
            env={name: environ[name] for name in environ if name not in _TERMINALS},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except FileNotFoundError:
        raise _not_found(command[0]) from None
    except (OSError, ValueError) as error:
        if isinstance(error, PermissionError) and not _exists(command[0], environ):
            raise _not_found(command[0]) from None
        reason = getattr(error, "strerror", None) or "a word of it has a NUL character"
        message = f"{command[0]} can't be started: {reason}"
        raise SecretUnavailable(COMMAND, message, hint="correct its 'command'") from None
    try:
        data = b"" if process.stdout is None else _all_of(process.stdout, until, most)
        if len(data) > most:
            message = f"{command[0]} printed more than {most} bytes"
            raise SecretUnavailable(COMMAND, message, hint="let it print the value alone")
        status = process.wait(max(until - time.monotonic(), 0.0))
    except (TimeoutError, subprocess.TimeoutExpired):
        message = f"{command[0]} has not ended within {seconds:g} s"
        hint = f"{_BY_HAND}; 'timeout' allows more"
        raise SecretUnavailable(COMMAND, message, hint=hint) from None
    finally:
        _end(process)
    if status:
        message = f"{command[0]} failed with exit status {status}"
        raise SecretUnavailable(COMMAND, message, hint=_BY_HAND)
    return data


def _all_of(stream: IO[bytes], until: float, most: int) -> bytes:
    """Returns the output up to its end, or a little more than `most`. Raises TimeoutError."""
    data = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while len(data) <= most:
            left = until - time.monotonic()
            if left <= 0 or not selector.select(left):
                raise TimeoutError
            chunk = os.read(stream.fileno(), _CHUNK)
            if not chunk:
                break
            data += chunk
    return bytes(data)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a command that still runs, with all that it started."""
    if process.stdout is not None:
        process.stdout.close()
    if process.poll() is None:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _exists(program: str, environ: Mapping[str, str]) -> bool:
    """Whether there is such a file. Permission is also denied for a closed folder of the PATH."""
    if os.sep in program:
        return True
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    return any(Path(folder, program).exists() for folder in folders if os.access(folder, os.X_OK))


def _not_found(program: str) -> SecretUnavailable:
    message = f"command not found: {program}"
    return SecretUnavailable(COMMAND, message, hint="install it, or write its absolute path")


# Keyrings and the store


def _helped(
    kind: str, sources: Mapping[str, SecretSource], environ: Mapping[str, str]
) -> dict[str, Outcome]:
    entries = {name: KeyringEntry(s.service, s.username) for name, s in sources.items()}
    request = msgspec.json.encode(list(sources) if kind == "store" else entries).decode()
    command = [sys.executable, "-P", "-m", "mcp_workbench.config.secret_helper", kind, request]
    seconds = max(source.timeout for source in sources.values())
    try:
        data = _output(command, environ, seconds, MOST_ANSWER)
        answer = msgspec.json.decode(data, type=HelperAnswer)
    except (SecretUnavailable, msgspec.DecodeError):
        what = "the keyring" if kind == "keyring" else "the encrypted store"
        message = f"{what} has failed, or has not answered within {seconds:g} s"
        fix = f"mcp-workbench explain {_CODES['keyring' if kind == 'keyring' else 'store']}"
        code = KEYRING if kind == "keyring" else secret_store.UNUSABLE
        return {name: SecretUnavailable(code, message, hint=fix) for name in sources}
    failures = {
        name: SecretUnavailable(code, message, hint=fix)
        for name, (code, message, fix) in answer.failures.items()
    }
    return {**answer.values, **failures}
