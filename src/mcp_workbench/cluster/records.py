"""What replicas write down for each other: themselves, and the sessions that they own. Values, no I/O."""

import hashlib
from typing import TypeVar

import msgspec

LONGEST_MEMBER = 1024  # bytes of a record, before it is encrypted
LONGEST_SESSION = 128 << 10
MOST_TOOLBOXES = 1000
MOST_SUBSCRIPTIONS = 256

Record = TypeVar("Record", bound=msgspec.Struct)


class ReplicaAddress(msgspec.Struct, frozen=True, array_like=True):
    """One replica: its id, which is new at each start, and where the others reach it."""

    id: str
    host: str
    port: int
    is_draining: bool = False


class SessionRecord(msgspec.Struct, frozen=True, array_like=True):
    """A legacy session, so that another replica can go on with it."""

    id: str
    owner: str  # a replica; empty: released, whoever is asked next owns it
    epoch: int  # counts its owners
    principal: str
    path: str  # of its endpoint
    initialize: bytes  # the parameters of its host's request
    host: str = ""  # where the owner is
    port: int = 0
    opened: tuple[str, ...] = ()  # toolboxes
    level: bytes = b""  # of log messages, as the host wrote it
    subscriptions: tuple[str, ...] = ()  # URIs
    previous: str = ""  # the owner before, which may still finish calls


def write_record(record: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode(record)


def read_record(kind: type[Record], value: bytes | None, longest: int) -> Record | None:
    """Returns the record; None for everything that we would not have written."""
    if value is None or len(value) > longest:
        return None
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except (msgspec.DecodeError, ValueError):
        return None


def session_name(id: str) -> str:
    """Returns under what a session lies in the engine: whoever runs that does not learn its id."""
    return hashlib.sha256(b"session " + id.encode("latin-1", "replace")).hexdigest()[:40]
