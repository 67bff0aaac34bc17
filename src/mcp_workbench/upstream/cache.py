"""Catalogue cache: what servers offered when last connected, to this process or another of this user.

    cache.recall(spec)        -> Known | None   what is known; no server is started
    cache.note(spec, known)                     a server is ready: store what it offers
    cache.held(spec)          -> Known | None   like `recall`, but reads no file

`recall` reads a small file the first time it is called for a server. `note` never waits: a thread
writes the file. Neither raises; an unusable folder is logged once, and then nothing is cached beyond
this process. `MCP_WORKBENCH_CACHE=off` has the same effect without the warning.

A file is two lines of JSON: our format with a checksum, and the catalogue. Its name is a keyed digest of
what identifies the server. No locks: each process writes whole files, and the last one wins.
"""

from __future__ import annotations

import logging
import os
import time
from binascii import crc32
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.config.expand import (
    Unexpandable,
    expand_without_secrets,
    secrets_of,
    server_identity,
)
from mcp_workbench.config.state_home import private_folder, read_own, state_home, write_whole
from mcp_workbench.core.catalogue import (
    Catalogue,
    Definition,
    KnownCatalogue,
    ToolChange,
    tool_change,
)
from mcp_workbench.core.redact import redact
from mcp_workbench.core.spec import ServerAddress, ServerKey, ServerSpec
from mcp_workbench.timing import pause

if TYPE_CHECKING:
    import asyncio  # not needed to recall

    from mcp_workbench.core.catalogue import OpenedServer
    from mcp_workbench.upstream.definition_locks import DefinitionLocks

SWITCH = "MCP_WORKBENCH_CACHE"
SETTLE = pause(1.0)  # seconds before writing, so that the first calls do not share the processor
_OFF = ("off", "0", "no", "false")

PRINCIPALS = 512  # lists of servers that principals have signed in to for themselves
FOLDER = "catalogues"
FORMAT = 1
SUFFIX = ".catalogue"
KEY_BYTES = 32
EXPIRY = 30 * 86_400.0  # seconds; older files are ignored and removed
ABANDONED = 600.0  # seconds; a temporary file this old is left over from a crash

log = logging.getLogger(__name__)


class CatalogueCache:
    """What servers offered, in memory and on disk; one cache per pool."""

    def __init__(self, environ: Mapping[str, str], limits: CacheLimits | None = None) -> None:
        self._environ = environ
        self._limits = limits
        self._held: dict[ServerKey, KnownCatalogue] = {}
        self._files: CatalogueFiles | None = None
        self._unwritten: dict[ServerKey, Unwritten] = {}
        self._writing: asyncio.Future[None] | None = None
        self._soon: asyncio.TimerHandle | None = None
        self._warned: set[object] = set()
        self.locks: DefinitionLocks | None = None  # decide what is shown
        # With replicas: keeps what may be on disk for the others, too.
        self.share: Callable[[ServerSpec, KnownCatalogue, Mapping[str, str]], None] | None = None

    def held(self, spec: ServerSpec) -> KnownCatalogue | None:
        """What this process knows of the server; reads no file."""
        return self._shown(spec, self._held.get(spec.key))

    def recall(self, spec: ServerSpec) -> KnownCatalogue | None:
        """What this server offered when it was last connected, by us or by another process."""
        return self._shown(spec, self.recall_received(spec))

    def _shown(self, spec: ServerSpec, known: KnownCatalogue | None) -> KnownCatalogue | None:
        if known is None or self.locks is None:
            return known
        return self.locks.recalled(spec, known)

    def received(self, key: ServerKey) -> KnownCatalogue | None:
        """What this process has received from the server, shown or not."""
        return self._held.get(key)

    def recall_received(self, spec: ServerSpec) -> KnownCatalogue | None:
        """What was received from the server, shown or not, by us or by another process."""
        known = self._held.get(spec.key)
        if spec.principal:
            return known  # lists of other people than the local user are in no file
        if known is None and self._is_enabled and _can_start(spec, self._environ):
            known = self._read(spec)
            if known is not None:
                self._held[spec.key] = known
        return known

    def last_list(self, spec: ServerSpec, reason: str = "") -> OpenedServer | None:
        """The tools it had, as its toolbox shows them; `reason` says why it is not connected."""
        known = self.recall(spec)
        return None if known is None else known.opened(spec, time.time(), reason)

    def note(
        self,
        spec: ServerSpec,
        known: KnownCatalogue,
        tokens: Mapping[str, str],
        *,
        expected: bool = False,
    ) -> None:
        """Store what a server offers. A change is a warning in the log unless `expected`.

        On disk nothing is stored that has one of the `tokens` in it, which the server was sent.
        """
        before = self._held.get(spec.key)
        known = msgspec.structs.replace(known, at=time.time())
        self._held[spec.key] = known
        if spec.principal:
            self._forget_oldest()
            return
        if not self._is_enabled:
            return
        if self.share is not None:
            self.share(spec, known, tokens)
        if waiting := self._unwritten.get(spec.key):  # compare with what was there before that
            before, expected = waiting.before, waiting.expected and expected
        self._unwritten[spec.key] = Unwritten(spec, known, tokens, before, expected)
        if self._writing is None and self._soon is None:
            self._soon = _loop().call_later(SETTLE, self._start_writing)

    def learn(self, spec: ServerSpec, known: KnownCatalogue) -> None:
        """Take what another replica has received, unless this process knows the server."""
        if not spec.principal and self._is_enabled and _can_start(spec, self._environ):
            self._held.setdefault(spec.key, known)

    def end(self) -> None:
        """Write what is not yet written. The end of the loop waits for the thread."""
        if self._soon is not None:
            self._soon.cancel()
            self._start_writing()

    def forget(self, addresses: Iterable[ServerAddress]) -> None:
        """These addresses belong to other servers from now on."""
        gone = set(addresses)
        for key in [k for k in self._held if (k[0] if isinstance(k, tuple) else k) in gone]:
            del self._held[key]

    def _forget_oldest(self) -> None:
        """Make room among the lists of very many principals."""
        owned = [key for key in self._held if isinstance(key, tuple)]
        if len(owned) > PRINCIPALS:
            del self._held[min(owned, key=lambda key: self._held[key].at)]

    @property
    def _is_enabled(self) -> bool:
        return is_enabled(self._environ)

    def _open(self) -> CatalogueFiles:
        if self._files is None:
            self._files = CatalogueFiles(self._environ, self._limits)
        return self._files

    # Reading

    def _read(self, spec: ServerSpec) -> KnownCatalogue | None:
        try:
            return self._open().read(spec)
        except CorruptFile as error:
            self._warn(
                spec.target,
                f"{spec.address}: what it offered last time can't be read and is not used: {error}",
            )
            return None

    # Writing, in a thread

    def _start_writing(self) -> None:
        self._soon = None
        with suppress(RuntimeError):  # the loop is closing
            self._writing = _loop().run_in_executor(None, self._write_all)
            self._writing.add_done_callback(self._written)

    def _written(self, done: asyncio.Future[None]) -> None:
        self._writing = None
        if self._unwritten:  # noted meanwhile
            self._start_writing()

    def _write_all(self) -> None:
        """One by one, so that the last note wins."""
        while self._unwritten:
            _, one = self._unwritten.popitem()
            stored = self._read(one.spec)
            self._log_change(one.spec, one.known, one.before or stored, expected=one.expected)
            self._write(one, stored)

    def _write(self, one: Unwritten, stored: KnownCatalogue | None) -> None:
        spec, known = one.spec, one.known
        if stored is not None:
            change = tool_change(stored, known) or stored.change
            offers = {**stored.offers, **known.offers}  # some may not have been listed this time
            known = msgspec.structs.replace(known, change=change, offers=offers)
        try:
            self._open().write(spec, known, one.tokens)
        except NotCached as reason:
            self._open().drop(spec)  # the file would be out of date
            log.info("%s: what it offers is not kept: %s", spec.address, reason)
        except OSError as error:
            reason = error.strerror or str(error)
            self._warn("write", f"what servers offer can't be kept for the next start: {reason}")

    def _log_change(
        self,
        spec: ServerSpec,
        known: KnownCatalogue,
        before: KnownCatalogue | None,
        *,
        expected: bool,
    ) -> None:
        change = tool_change(before, known) if before is not None else None
        if change is not None:
            since = time.strftime("%Y-%m-%d %H:%M", time.localtime(change.since))
            level = logging.INFO if expected else logging.WARNING
            log.log(level, "%s: tools changed since %s: %s", spec.address, since, change)

    def _warn(self, about: object, text: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            log.warning(text)


class Unwritten(msgspec.Struct, frozen=True):
    """What is to be written of one server."""

    spec: ServerSpec
    known: KnownCatalogue
    tokens: Mapping[str, str]
    before: KnownCatalogue | None
    expected: bool

    def __repr__(self) -> str:
        return f"Unwritten({self.spec.address})"


def is_enabled(environ: Mapping[str, str]) -> bool:
    """May anything about servers be kept on disk?"""
    return environ.get(SWITCH, "").lower() not in _OFF


def _loop() -> asyncio.AbstractEventLoop:
    from asyncio import get_running_loop  # loaded already where a loop runs

    return get_running_loop()


def _can_start(spec: ServerSpec, environ: Mapping[str, str]) -> bool:
    """A server with an unset variable can't start, so its cache is not shown."""
    try:
        expand_without_secrets(spec, environ)
    except Unexpandable:
        return False
    return True


# Files: one per server, written atomically, limited in number and size


class CacheLimits(msgspec.Struct, frozen=True):
    """How much is kept on disk."""

    file_bytes: int = 4 << 20  # the largest catalogues we have seen are a tenth of that
    files: int = 256
    bytes: int = 64 << 20


class CorruptFile(Exception):
    """There is a file, and it can't be used; the text says why."""


class NotCached(Exception):
    """A catalogue must not be written; the text says why."""


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
        return read_stored(data)

    def write(
        self, spec: ServerSpec, known: KnownCatalogue, tokens: Mapping[str, str] | None = None
    ) -> None:
        """Replace the file of this server. Raises OSError, or NotCached where it must not be written."""
        if not self._home:
            raise NotCached("there is no home to keep it in")
        secrets = {**secrets_of(spec, self._environ), **(tokens or {})}
        body = stored_form(known, secrets, self._limits.file_bytes)
        private_folder(self._home, FOLDER)
        write_whole(self._path(spec, self._make_key()), body)
        self._prune()

    def drop(self, spec: ServerSpec) -> None:
        """Remove the file of this server, if there is one."""
        if key := self._read_key():
            _unlink(self._path(spec, key))

    def name(self, identity: Iterable[str], *, create: bool = False) -> str:
        """A name for what these texts identify, which reveals none of them without our key.

        Empty if there is no key yet; `create` makes one, and may raise OSError.
        """
        if create:
            private_folder(self._home, FOLDER)
        key = self._make_key() if create else self._read_key()
        return keyed_name(identity, key) if key else ""

    def _path(self, spec: ServerSpec, key: bytes) -> str:
        name = keyed_name(server_identity(spec, self._environ, here()), key)
        return os.path.join(self._folder, name + SUFFIX)  # noqa: PTH118

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


def stored_form(known: KnownCatalogue, secrets: Mapping[str, str], most: int) -> bytes:
    """A catalogue as it is stored. Raises NotCached where it must not be."""
    body = _encoded(known)
    if len(body) > most:  # then only its tools
        body = _encoded(msgspec.structs.replace(known, offers={}))
    if len(body) > most:
        raise NotCached(f"it has more than {most} bytes")
    text = body.decode("utf-8", "replace")
    if redact(text, secrets) != text:
        raise NotCached("a token, a value of a variable or a secret of its entry is in it")
    return body


def read_stored(data: bytes) -> KnownCatalogue | None:
    """What was stored; None if it is too old. Raises CorruptFile where it can't be used."""
    known = _decoded(data)
    return known if known.age(time.time()) < EXPIRY else None


def keyed_name(identity: Iterable[str], key: bytes) -> str:
    # Of hashlib, which loads OpenSSL as well: the instructions need this before the first answer.
    from _blake2 import blake2b

    digest = blake2b(key=key, digest_size=20)
    for text in identity:
        part = text.encode("utf-8", "backslashreplace")
        # With lengths, so that no two lists have the same digest.
        digest.update(b"%d:%b" % (len(part), part))
    return digest.hexdigest()


def here() -> str:
    """The folder that relative commands start from."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # the folder was removed
        return ""


def _unlink(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:  # another process removed it, or it is tried again later
        return


class _Head(msgspec.Struct, frozen=True, rename="camel"):
    mcp_workbench_catalogue: int
    crc32: int


class _Body(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
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
    host_capabilities: tuple[str, ...] = ()
    offers: dict[str, tuple[msgspec.Raw, ...]] = {}
    extensions: dict[str, msgspec.Raw] = {}


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
            host_capabilities=known.host_capabilities,
            offers={kind: tuple(map(msgspec.Raw, raws)) for kind, raws in known.offers.items()},
            extensions=known.extensions,
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
        stored.host_capabilities,
        {kind: tuple(map(bytes, raws)) for kind, raws in stored.offers.items()},
        {name: msgspec.Raw(bytes(raw)) for name, raw in stored.extensions.items()},
    )
