"""Files of the catalogue cache: one per server, written atomically, limited in number and size.

A file is two lines of JSON: our format with a checksum, and the catalogue. Its name is a keyed
digest of what identifies the server. No locks: each process writes whole files, and the last one wins.
"""

from __future__ import annotations

import os
import time
from binascii import crc32
from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from mcp_workbench.config.expand import secrets_of, server_identity
from mcp_workbench.config.state_home import private_folder, read_own, state_home, write_whole
from mcp_workbench.core.catalogue import Catalogue, Definition, KnownCatalogue, ToolChange
from mcp_workbench.core.redact import redact
from mcp_workbench.core.spec import ServerSpec

FOLDER = "catalogues"
FORMAT = 1
SUFFIX = ".catalogue"
KEY_BYTES = 32
EXPIRY = 30 * 86_400.0  # seconds; older files are ignored and removed
ABANDONED = 600.0  # seconds; a temporary file this old is left over from a crash


class CacheLimits(msgspec.Struct, frozen=True):
    """How much is kept on disk."""

    file_bytes: int = 4 << 20  # the largest catalogues we have seen are a tenth of that
    files: int = 256
    bytes: int = 64 << 20


class CorruptFile(Exception):
    """There is a file, and it can't be used; the text says why."""


class NotCached(Exception):
    """A catalogue must not be written; the text says why."""


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
    """The catalogues in our state folder. Every method does I/O, and may be slow."""

    def __init__(self, environ: Mapping[str, str], limits: CacheLimits | None = None) -> None:
        self._environ = environ
        self._home = state_home(environ)
        self._folder = os.path.join(self._home, FOLDER)  # noqa: PTH118 - text in, text out
        self._limits = limits or CacheLimits()
        self._key = b""

    def read(self, spec: ServerSpec) -> KnownCatalogue | None:
        """What this server offered, or None. Raises CorruptFile where the file can't be used."""
        key = self._read_key()
        if not key:
            return None
        try:
            data = read_own(self._path(spec, key), self._limits.file_bytes)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CorruptFile(error.strerror or str(error)) from None
        known = _decoded(data)
        return known if known.age(time.time()) < EXPIRY else None

    def write(self, spec: ServerSpec, known: KnownCatalogue) -> None:
        """Replace the file of this server. Raises OSError, or NotCached where it must not be written."""
        if not self._home:
            raise NotCached("there is no home to keep it in")
        body = _encoded(known)
        if len(body) > self._limits.file_bytes:  # then only its tools
            body = _encoded(msgspec.structs.replace(known, offers={}))
        if len(body) > self._limits.file_bytes:
            raise NotCached(f"it has more than {self._limits.file_bytes} bytes")
        text = body.decode("utf-8", "replace")
        if redact(text, secrets_of(spec, self._environ)) != text:
            raise NotCached("a value of a variable or a secret of its entry is in it")
        private_folder(self._home, FOLDER)
        write_whole(self._path(spec, self._make_key()), body)
        self._prune()

    def drop(self, spec: ServerSpec) -> None:
        """Remove the file of this server, if there is one."""
        if key := self._read_key():
            _unlink(self._path(spec, key))

    def _path(self, spec: ServerSpec, key: bytes) -> str:
        digest = blake2b(key=key, digest_size=20)
        for text in server_identity(spec, self._environ, _here()):
            part = text.encode("utf-8", "backslashreplace")
            digest.update(
                b"%d:%b" % (len(part), part)
            )  # lengths, so that no two lists have the same digest
        return os.path.join(self._folder, digest.hexdigest() + SUFFIX)  # noqa: PTH118

    def _key_path(self) -> str:
        return os.path.join(self._folder, "key")  # noqa: PTH118

    def _read_key(self) -> bytes:
        """The key of the file names, which reveal nothing without it; empty where there is none."""
        if not self._key and self._home:
            try:
                key = read_own(self._key_path(), KEY_BYTES)
            except OSError:
                return b""
            self._key = key if len(key) == KEY_BYTES else b""
        return self._key

    def _make_key(self) -> bytes:
        if not self._read_key():
            # The first process wins; a damaged key is replaced, and the cache starts empty.
            write_whole(self._key_path(), os.urandom(KEY_BYTES), replace=self._key_is_damaged())
            if not self._read_key():
                raise OSError("its key can't be read back")
        return self._key

    def _key_is_damaged(self) -> bool:
        return os.path.lexists(self._key_path())

    def _prune(self) -> None:
        """Remove the oldest files until the rest is within the limits, and abandoned temporary files."""
        kept: list[tuple[float, int, str]] = []
        now = time.time()
        with os.scandir(self._folder) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:  # another process removed it
                    continue
                if entry.name.endswith(SUFFIX):
                    kept.append((status.st_mtime, status.st_size, entry.path))
                elif entry.name.endswith(".tmp") and now - status.st_mtime > ABANDONED:
                    _unlink(entry.path)
        kept.sort(reverse=True)
        total = 0
        for index, (written, size, path) in enumerate(kept):
            total += size
            crowded = index >= self._limits.files or total > self._limits.bytes
            if crowded or now - written > EXPIRY:
                _unlink(path)


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # the folder was removed
        return ""


def _unlink(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:  # another process removed it, or it is tried again later
        return


def _encoded(known: KnownCatalogue) -> bytes:
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


def _decoded(data: bytes) -> KnownCatalogue:
    head, _, body = data.partition(b"\n")
    try:
        header = msgspec.json.decode(head, type=_Head)
        if header.mcp_workbench_catalogue != FORMAT:
            raise CorruptFile(f"it has format {header.mcp_workbench_catalogue}, not {FORMAT}")
        if crc32(body.removesuffix(b"\n")) != header.crc32:
            raise CorruptFile("it is incomplete or was changed")
        stored = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptFile(f"it has no usable form: {error}") from None
    return KnownCatalogue(
        Catalogue({name: Definition(name, bytes(raw)) for name, raw in stored.tools.items()}),
        stored.modern,
        stored.revision,
        stored.server_name,
        stored.server_version,
        stored.instructions,
        stored.capabilities,
        stored.seconds,
        stored.at,
        stored.change,
        {kind: tuple(map(bytes, raws)) for kind, raws in stored.offers.items()},
    )
