"""What servers offered, on disk: one file for each, whole or not there, and never too many.

A file is two lines of JSON: our format with a checksum, and what was offered. Its name is a keyed
digest of what the server is. Processes need no locks: each writes whole files, and the last one wins.
"""

from __future__ import annotations

import os
import time
from binascii import crc32
from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from mcp_workbench.config.expand import secrets_of
from mcp_workbench.config.likeness import likeness
from mcp_workbench.config.state_folder import private_folder, read_own, state_home, write_whole
from mcp_workbench.core.catalogue import Catalogue, Definition
from mcp_workbench.core.known import Known
from mcp_workbench.core.redact import redact
from mcp_workbench.core.reports import ToolChange
from mcp_workbench.core.spec import ServerSpec

ROOM = "catalogues"
FORMAT = 1
SUFFIX = ".catalogue"
KEY_BYTES = 32
EXPIRY = 30 * 86_400.0  # seconds; a server that nobody used for a month is asked again
LEFT_OVER = 600.0  # seconds; a file in the making this old belongs to nobody any more


class Bounds(msgspec.Struct, frozen=True):
    """How much is kept."""

    file_bytes: int = 4 << 20  # the largest catalogues we have seen are a tenth of that
    files: int = 256
    bytes: int = 64 << 20


class Damaged(Exception):
    """There is a file, and it can't be used."""


class Unkept(Exception):
    """This is not kept; the text says why."""


class _Head(msgspec.Struct, rename="camel"):
    mcp_workbench_catalogue: int
    crc32: int


class _Body(msgspec.Struct, rename="camel", omit_defaults=True):
    at: float
    modern: bool
    tools: dict[str, msgspec.Raw]
    revision: str = ""
    server_name: str = ""
    server_version: str = ""
    instructions: str = ""
    capabilities: dict[str, bool] = {}
    seconds: float = 0.0
    change: ToolChange | None = None
    offers: dict[str, tuple[msgspec.Raw, ...]] = {}


class CatalogueFiles:
    """The room of the catalogues in our state folder. Every method reads or writes, and may be slow."""

    def __init__(self, environ: Mapping[str, str], bounds: Bounds | None = None) -> None:
        self._environ = environ
        self._home = state_home(environ)
        self._room = os.path.join(self._home, ROOM)  # noqa: PTH118 - text in, text out
        self._bounds = bounds or Bounds()
        self._key = b""

    def read(self, spec: ServerSpec) -> Known | None:
        """What this server offered, or None. Raises Damaged where a file is there, but of no use."""
        key = self._read_key()
        if not key:
            return None
        try:
            data = read_own(self._path(spec, key), self._bounds.file_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Damaged(error.strerror or str(error)) from None
        known = _decoded(data)
        return known if known.age(time.time()) < EXPIRY else None

    def write(self, spec: ServerSpec, known: Known) -> None:
        """Keep this in the place of what was. Raises OSError, or Unkept where it is not to be kept."""
        if not self._home:
            raise Unkept("there is no home to keep it in")
        body = _encoded(known)
        if len(body) > self._bounds.file_bytes:  # tools matter most
            body = _encoded(msgspec.structs.replace(known, offers={}))
        if len(body) > self._bounds.file_bytes:
            raise Unkept(f"it has more than {self._bounds.file_bytes} bytes")
        text = body.decode("utf-8", "replace")
        if redact(text, secrets_of(spec, self._environ)) != text:
            raise Unkept("a value of a variable or a secret of its entry is in it")
        private_folder(self._home, ROOM)
        write_whole(self._path(spec, self._make_key()), body)
        self._prune()

    def drop(self, spec: ServerSpec) -> None:
        """Remove what is kept of this server, if anything is."""
        if key := self._read_key():
            _unlink(self._path(spec, key))

    def _path(self, spec: ServerSpec, key: bytes) -> str:
        digest = blake2b(key=key, digest_size=20)
        for text in likeness(spec, self._environ, _here()):
            part = text.encode("utf-8", "backslashreplace")
            digest.update(b"%d:%b" % (len(part), part))  # so that no two lists look the same
        return os.path.join(self._room, digest.hexdigest() + SUFFIX)  # noqa: PTH118

    def _key_path(self) -> str:
        return os.path.join(self._room, "key")  # noqa: PTH118

    def _read_key(self) -> bytes:
        """The secret of this room, without which names of files tell nothing; empty: there is none."""
        if not self._key and self._home:
            try:
                found = read_own(self._key_path(), KEY_BYTES)
            except OSError:
                return b""
            self._key = found if len(found) == KEY_BYTES else b""
        return self._key

    def _make_key(self) -> bytes:
        if not self._read_key():
            # The first process to come decides; a damaged key is replaced, and all begins anew.
            write_whole(self._key_path(), os.urandom(KEY_BYTES), replace=self._key_is_damaged())
            if not self._read_key():
                raise OSError("its key can't be read back")
        return self._key

    def _key_is_damaged(self) -> bool:
        return os.path.lexists(self._key_path())

    def _prune(self) -> None:
        """Remove the oldest files until the rest is within bounds, and what was never finished."""
        kept: list[tuple[float, int, str]] = []
        now = time.time()
        with os.scandir(self._room) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # another process was quicker
                    continue
                if entry.name.endswith(SUFFIX):
                    kept.append((status.st_mtime, status.st_size, entry.path))
                elif entry.name.endswith(".tmp") and now - status.st_mtime > LEFT_OVER:
                    _unlink(entry.path)
        kept.sort(reverse=True)
        total = 0
        for index, (written, size, path) in enumerate(kept):
            total += size
            crowded = index >= self._bounds.files or total > self._bounds.bytes
            if crowded or now - written > EXPIRY:
                _unlink(path)


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # it was removed under us
        return ""


def _unlink(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:  # another process was quicker, or it will be tried again
        return


def _encoded(known: Known) -> bytes:
    body = msgspec.json.encode(
        _Body(
            at=known.at,
            modern=known.modern,
            tools={name: msgspec.Raw(tool.raw) for name, tool in known.catalogue.tools.items()},
            revision=known.revision,
            server_name=known.server_name,
            server_version=known.server_version,
            instructions=known.instructions,
            capabilities=known.capabilities,
            seconds=known.seconds,
            change=known.change,
            offers={kind: tuple(map(msgspec.Raw, raws)) for kind, raws in known.offers.items()},
        )
    )
    return msgspec.json.encode(_Head(FORMAT, crc32(body))) + b"\n" + body + b"\n"


def _decoded(data: bytes) -> Known:
    head, _, body = data.partition(b"\n")
    try:
        found = msgspec.json.decode(head, type=_Head)
        if found.mcp_workbench_catalogue != FORMAT:
            raise Damaged(f"it has format {found.mcp_workbench_catalogue}, not {FORMAT}")
        if crc32(body.removesuffix(b"\n")) != found.crc32:
            raise Damaged("it is incomplete or was changed")
        kept = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damaged(f"it has no usable form: {error}") from None
    return Known(
        Catalogue({name: Definition(name, bytes(raw)) for name, raw in kept.tools.items()}),
        kept.modern,
        kept.revision,
        kept.server_name,
        kept.server_version,
        kept.instructions,
        kept.capabilities,
        kept.seconds,
        kept.at,
        kept.change,
        {kind: tuple(map(bytes, raws)) for kind, raws in kept.offers.items()},
    )
