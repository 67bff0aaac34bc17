"""Texts of recorded definitions, in the state folder: what `lock diff` shows as the old version.

The lock file has hashes only. What is missing here, on another machine or after a cleanup, is shown as
unknown; nothing depends on it. One file per server and lock file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256

import msgspec

from mcp_workbench.config.expand import secrets_of
from mcp_workbench.config.state_home import private_folder, read_own, state_home, write_whole
from mcp_workbench.core.redact import redact
from mcp_workbench.core.spec import ServerSpec

FOLDER = "lock"
MOST_BYTES = 8 << 20  # of one file

Texts = dict[str, bytes]  # definitions as received, by their hash


def read_texts(lock: str, spec: ServerSpec, environ: Mapping[str, str]) -> Texts:
    """Returns what is kept of the definitions of this server; nothing if that can't be read."""
    home = state_home(environ)
    if not home:
        return {}
    try:
        data = read_own(_path(home, lock, spec), MOST_BYTES)
        texts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (OSError, msgspec.DecodeError):
        return {}
    return {name: bytes(raw) for name, raw in texts.items()}


def keep_texts(lock: str, spec: ServerSpec, texts: Texts, environ: Mapping[str, str]) -> None:
    """Keeps these definitions instead of what was kept. A definition with a secret in it is left out."""
    home, secrets = state_home(environ), secrets_of(spec, environ)
    shown = {
        name: msgspec.Raw(raw)
        for name, raw in sorted(texts.items())
        if redact(text := raw.decode("utf-8", "replace"), secrets) == text
    }
    data = msgspec.json.encode(shown)
    if not home or len(data) > MOST_BYTES:
        return
    try:
        private_folder(home, FOLDER)
        write_whole(_path(home, lock, spec), data)
    except OSError:  # the comparison will do without
        return


def _path(home: str, lock: str, spec: ServerSpec) -> str:
    name = f"{os.path.realpath(lock)}\0{spec.address}".encode("utf-8", "surrogateescape")
    return os.path.join(home, FOLDER, f"{sha256(name).hexdigest()[:40]}.json")  # noqa: PTH118
