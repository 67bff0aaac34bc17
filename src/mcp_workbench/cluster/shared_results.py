"""Long results that are read in parts: those of a replica lie in the engine as well, for the others.

A handle begins with the replica that made it. While that lives, it answers; afterwards, whoever is asked reads the
engine. A result that is larger than MOST_SHARED, or was made while the engine was away, ends with its replica.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from mcp_workbench.cluster.engine import Engine, EngineAway
from mcp_workbench.cluster.keys import NONCE, TAG, ValueSeal
from mcp_workbench.cluster.records import read_record, write_record
from mcp_workbench.cluster.resp import EngineError
from mcp_workbench.core.errors import NotFound, WorkbenchError
from mcp_workbench.gateway.result_budget import LIFETIME, Kept, KeptResults, shortened

if TYPE_CHECKING:
    from mcp_workbench.gateway.workbench import Gateway

log = logging.getLogger(__name__)

MOST_SHARED = 1 << 20  # bytes of one result's text that lie in the engine
MOST_FIELDS = 4096  # bytes of a record beside its text: a path, and the name of a principal
LONGEST_HANDLE = 64
# A maker that lives has answered itself.
_GONE = (
    f"the replica that made it has ended, and it is older than half an hour, larger than {MOST_SHARED >> 20} MiB,"
    " or was made while the engine was away"
)
_AGAIN = "Call the tool again for a new one."


class ResultRecord(msgspec.Struct, frozen=True, array_like=True):
    """A kept result, as other replicas read it."""

    owner: str
    text: str
    budget: int
    json_at: int


class ResultUnreadable(WorkbenchError):
    """The engine, where the result may lie, is away."""

    code = "engine_away"


class SharedResults(KeptResults):
    """Kept results of this replica, and a way to those of others."""

    def __init__(self, engine: Engine, vault: ValueSeal, replica: str) -> None:
        super().__init__()
        self._engine = engine
        self._vault = vault
        self._replica = replica

    def keep(self, owner: object, text: str, budget: int, json_at: int = 0) -> str:
        handle = super().keep(owner, text, budget, json_at)
        if handle and isinstance(owner, str) and len(text) <= MOST_SHARED:
            self._share(handle, ResultRecord(owner, text, budget, json_at))
        return handle

    def new_handle(self) -> str:
        return f"{self._replica}.{super().new_handle()}"

    def _share(self, handle: str, record: ResultRecord) -> None:
        """Write it before its host learns the handle. That the engine takes it is not waited for."""
        data = write_record(record)
        if len(data) > MOST_SHARED + MOST_FIELDS:
            return
        name = _name(record.owner, handle)
        try:
            future = self._engine.send(
                "SET", self._key(name), self._vault.close(name, data), "EX", int(LIFETIME)
            )
        except EngineAway:
            return
        future.add_done_callback(_forgive)

    def _drop(self, handle: str) -> None:
        """Results of this replica take no more room there than here."""
        owner = self._kept[handle].owner
        super()._drop(handle)
        if isinstance(owner, str):
            with suppress(EngineAway):  # it expires
                future = self._engine.send("DEL", self._key(_name(owner, handle)))
                future.add_done_callback(_forgive)

    def _key(self, name: bytes) -> bytes:
        return self._engine.key("result", name)

    async def find(self, owner: object, handle: str) -> Kept:
        """Return a kept result, whichever replica has made it. Raises NotFound and ResultUnreadable."""
        try:
            return self.kept(owner, handle)
        except NotFound:
            maker = _maker(handle)
            if maker in ("", self._replica) or not isinstance(owner, str):
                raise
        found = await self._read(owner, handle)
        if found is None:
            raise NotFound(
                "unknown_result", f"Result '{shortened(handle)}' not found: {_GONE}", hint=_AGAIN
            )
        return found

    async def _read(self, owner: str, handle: str) -> Kept | None:
        name = _name(owner, handle)
        longest = MOST_SHARED + MOST_FIELDS
        try:
            sealed = await self._engine.read(self._key(name), longest + NONCE + TAG)
        except EngineAway:
            text = (
                f"Result '{shortened(handle)}' can't be read now: the engine of the cluster is away"
            )
            raise ResultUnreadable(text, hint="Try again in some seconds.") from None
        record = read_record(ResultRecord, self._vault.open(name, sealed), longest)
        if record is None or record.owner != owner or record.budget < 0:
            return None
        if not 0 <= record.json_at <= len(record.text):
            return None
        return Kept(owner, record.text, len(record.text), 0.0, record.budget, record.json_at)


class _Arguments(msgspec.Struct, frozen=True):
    handle: str = ""


class _Params(msgspec.Struct, frozen=True):
    arguments: _Arguments = msgspec.field(default_factory=_Arguments)


class _Reading(msgspec.Struct, frozen=True):
    params: _Params = msgspec.field(default_factory=_Params)


_read_reading = msgspec.json.Decoder(_Reading).decode


def maker_of_result(body: bytes) -> str:
    """Returns the replica that has made the result which this request reads; empty if it names none."""
    try:
        handle = _read_reading(body).params.arguments.handle
    except (msgspec.DecodeError, ValueError, RecursionError):
        return ""
    return _maker(handle)


def _maker(handle: str) -> str:
    maker, has_maker, _ = handle.partition(".")
    return maker if has_maker and len(handle) <= LONGEST_HANDLE else ""


def share_results(gateway: Gateway, results: SharedResults) -> None:
    """Hosts of one principal read each other's results, at the same endpoint and on any replica."""
    gateway.kept_results = results
    gateway.results_owner = _owner


def _owner(principal: str, toolboxes: tuple[str, ...]) -> str:
    return "\0".join((principal, *toolboxes))


def _name(owner: str, handle: str) -> bytes:
    """Under what it lies in the engine: whoever runs that learns neither the owner nor the handle."""
    text = f"result {len(owner)} {owner}{handle}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:40].encode()


def _forgive(future: asyncio.Future[Any]) -> None:
    if not future.cancelled() and isinstance(error := future.exception(), EngineError):
        log.warning("a result could not be kept for other replicas: %s", str(error)[:200])
