"""The files of the page: read once, compressed once, and named after their content.

All of them share one folder whose name is the digest of all, so that browsers may keep them forever and modules
import each other by plain relative names. Compressing takes a few milliseconds at the first request; files that are
compressed beforehand could differ from their sources.
"""

from __future__ import annotations

import gzip
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable

from mcp_workbench.transport.http.messages import Reply

INDEX = "index.html"
STATIC = "static/"
_VERSION = b"@VERSION@"  # in the index: the folder of the others
_KINDS = {
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
}
_FOREVER = b"Cache-Control: private, max-age=31536000, immutable\r\n"
_GZIP = b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"


class PageFiles:
    """What the page consists of."""

    def __init__(self) -> None:
        self._files = dict(_read(resources.files("mcp_workbench.ui") / "static", ""))
        digest = sha256(b"\0".join(name.encode() + b"\0" + data for name, data in self._sorted()))
        self.version = digest.hexdigest()[:16]
        self._files[INDEX] = self._files[INDEX].replace(_VERSION, self.version.encode())
        self._compressed: dict[str, bytes] = {}

    def _sorted(self) -> list[tuple[str, bytes]]:
        return sorted(self._files.items())

    def index(self, headers: bytes, *, compressed: bool) -> Reply:
        return self._reply(INDEX, headers + b"Cache-Control: no-store\r\n", compressed=compressed)

    def find(self, path: str, headers: bytes, *, compressed: bool) -> Reply | None:
        """The file at this path below `static/`; None if there is none."""
        version, _, name = path.partition("/")
        if version != self.version or name not in self._files or name == INDEX:
            return None
        return self._reply(name, headers + _FOREVER, compressed=compressed)

    def _reply(self, name: str, headers: bytes, *, compressed: bool) -> Reply:
        kind = _KINDS[name.rpartition(".")[2]]
        if not compressed:
            return Reply(200, self._files[name], headers, kind)
        data = self._compressed.get(name)
        if data is None:
            data = self._compressed[name] = gzip.compress(self._files[name], 9, mtime=0)
        return Reply(200, data, headers + _GZIP, kind)


def _read(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    files: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            files += _read(entry, f"{name}/")
        elif name.rpartition(".")[2] in _KINDS:
            files.append((name, entry.read_bytes()))
    return files
