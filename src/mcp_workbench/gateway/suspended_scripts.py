"""A suspended script that any process can go on with: what it consists of, and how it is sealed.

A modern host that is asked something gets the whole script as its `requestState`: encrypted and authenticated
(ChaCha20-Poly1305) with a key of the state folder, bound to its principal and to the request that it belongs to. It
expires, and it counts once: whoever goes on with it first leaves a mark in the state folder. docs/decisions/0022 says what
that guarantees. Nothing of a snapshot is given to the interpreter before all of this was verified.
"""

import asyncio
import logging
import os
import time
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from importlib.util import find_spec

import msgspec

from mcp_workbench.config.state_home import (
    SCRIPTS,
    private_folder,
    read_own,
    state_home,
    write_new,
    write_whole,
)
from mcp_workbench.core.script_texts import ScriptedCall
from mcp_workbench.gateway.script_messages import EngineState

log = logging.getLogger(__name__)

PREFIX = "wbs1."
MOST_SNAPSHOT = 256 << 10  # bytes of the interpreter's state; most scripts have 8 KiB
MOST_SEALED = 64 << 10  # characters of a sealed script, which its host sends back
MOST_STATE = 1 << 20  # bytes of one before it is compressed, which stops the loop for 20 ms
LIFETIME = 600.0  # seconds that a question of a server may stay open
SKEW = 60.0  # seconds by which the clocks of two machines may differ
MARKED = 2 * (LIFETIME + SKEW)  # seconds that a mark is kept
MOST_MARKS = 20_000  # scripts that went on in that time; beyond that they stay in their process
SWEEP = 60.0  # seconds between looks for old marks
KEY, USED = "key", "used"
KEY_BYTES, NONCE_BYTES = 32, 12
_FORMAT = b"mcp-workbench script 1"

_encode = msgspec.msgpack.encode


class AskedQuestion(msgspec.Struct, frozen=True, array_like=True):
    """A question of a server to a host."""

    key: str  # under which the host answers
    method: str
    params: bytes


class AskedApproval(msgspec.Struct, frozen=True, array_like=True, tag="approval"):
    """A call that is sent if a person approves it."""

    key: str
    digest: bytes  # of this call
    tool: bytes  # of what an answer for the whole session is about


class AskedInput(msgspec.Struct, frozen=True, array_like=True, tag="input"):
    """A call that is sent again with the answers to its server's questions."""

    questions: dict[str, AskedQuestion]  # by the server's key
    answers: dict[str, bytes]  # that are there already
    state: bytes  # the server's own; empty if it has none
    round: int
    approved: bytes = b""  # the digest of the call, if a person has approved it


class OpenCall(msgspec.Struct, frozen=True, array_like=True):
    """A call that the script waits for."""

    call: int  # the interpreter's number
    tool: str
    arguments: bytes
    place: int  # in the list of calls
    generation: bytes  # digest of its server's entry in the configuration
    asked: AskedApproval | AskedInput | None = None  # None: it waits for others to end


class RunState(msgspec.Struct, frozen=True, array_like=True):
    """What was used and made so far."""

    script: str  # its id, the parent of its calls
    left: float  # seconds of its whole time
    ended: int  # calls
    calls: list[ScriptedCall]
    kept: dict[str, bytes]  # content other than text, by handle
    metas: list[tuple[str, bytes]]


class SuspendedScript(msgspec.Struct, frozen=True, array_like=True):
    """All that it takes to go on."""

    id: bytes  # counts once
    born: float  # by the time of day
    until: float
    engine: EngineState
    run: RunState
    open: list[OpenCall]
    budgets: list[int]

    def is_fresh(self, now: float) -> bool:
        return self.born - SKEW <= now <= self.until

    @property
    def toolboxes(self) -> set[str]:
        """Those of the tools that it has called."""
        sent = [call.tool for call in self.run.calls if call.state != "not sent"]
        return {tool.partition("/")[0] for tool in sent}


class CannotMove(Exception):
    """The script stays in its process; the text says why."""


class ScriptSeals:
    """Seals and opens suspended scripts, with the key of this state folder."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._home = state_home(environ)
        self._swept = -SWEEP
        self._is_full = False

    def seal(self, script: SuspendedScript, owner: str, digest: str) -> str:
        """Return the script for its host. Raises CannotMove."""
        if find_spec("cryptography") is None:
            raise CannotMove("the package cryptography is not installed")
        key = self._sealing_key()
        state = _encode(script)
        if len(state) > MOST_STATE:
            raise CannotMove(f"its state needs more than {MOST_SEALED >> 10} KiB")
        sealed = PREFIX + _encrypted(key, zlib.compress(state, 1), _bound_to(owner, digest))
        if len(sealed) > MOST_SEALED:
            raise CannotMove(f"its state needs more than {MOST_SEALED >> 10} KiB")
        return sealed

    def _sealing_key(self) -> bytes:
        """The key for a new one. Raises CannotMove."""
        try:
            key = self._key()
            self._sweep(private_folder(self._home, SCRIPTS, USED))
        except OSError as error:
            raise CannotMove(f"the state folder can't be used: {error}") from None
        if self._is_full:
            raise CannotMove("too many scripts were suspended lately")
        return key

    def open(self, sealed: str, owner: str, digest: str) -> SuspendedScript | None:
        """Return the script, of whatever age; None if it is not ours, or not of this owner and request."""
        if len(sealed) > MOST_SEALED or find_spec("cryptography") is None:
            return None
        try:
            data = _decrypted(self._key(), sealed.removeprefix(PREFIX), _bound_to(owner, digest))
        except OSError as error:
            log.warning("suspended scripts can't be read: %s", error)
            return None
        if data is None:
            return None
        state = zlib.decompressobj().decompress(data, MOST_STATE)
        try:
            return msgspec.msgpack.decode(state, type=SuspendedScript)
        except msgspec.DecodeError:  # of a version of ours with another format
            return None

    async def claim_for_all(self, script: SuspendedScript) -> bool:
        """Mark the script as used, for everybody who can open it; see `claim`."""
        return await asyncio.to_thread(self.claim, script)

    def claim(self, script: SuspendedScript) -> bool:
        """Mark the script as used; False if it was before, by any process of this state folder.

        May block. Raises OSError if no mark can be left: then it must not go on.
        """
        folder = private_folder(self._home, SCRIPTS, USED)
        try:
            write_new(os.path.join(folder, script.id.hex()), b"", durable=True)  # noqa: PTH118
        except FileExistsError:
            return False
        return True

    def _key(self) -> bytes:
        """The key, which all processes of this state folder share. Raises OSError."""
        path = os.path.join(private_folder(self._home, SCRIPTS), KEY)  # noqa: PTH118
        if not os.path.lexists(path):
            write_whole(path, os.urandom(KEY_BYTES), replace=False, durable=True)
        key = read_own(path, KEY_BYTES)
        if len(key) != KEY_BYTES:
            raise OSError(f"{path} is damaged; remove it")
        return key

    def _sweep(self, folder: str) -> None:
        """Remove marks that are not needed any more: their scripts have expired."""
        if time.monotonic() - self._swept < SWEEP:
            return
        self._swept = time.monotonic()
        oldest, marks = time.time() - MARKED, 0
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    os.unlink(entry.path)  # noqa: PTH108
                else:
                    marks += 1
        self._is_full = marks >= MOST_MARKS


def now() -> float:
    """The time of day: the processes that seal and open a script may be on two machines."""
    return time.time()


def _bound_to(owner: str, digest: str) -> bytes:
    return _encode((_FORMAT, owner, digest))


def _encrypted(key: bytes, data: bytes, bound_to: bytes) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305  # 8 MB

    nonce = os.urandom(NONCE_BYTES)
    sealed = nonce + ChaCha20Poly1305(key).encrypt(nonce, data, bound_to)
    return urlsafe_b64encode(sealed).decode().rstrip("=")


def _decrypted(key: bytes, text: str, bound_to: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return ChaCha20Poly1305(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], bound_to)
    except (InvalidTag, Base64Error, ValueError):
        return None
