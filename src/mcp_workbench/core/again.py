"""Whether a call that was lost may be sent once more. Nothing that may have run is sent twice, unless
its tool says that it may."""

import msgspec

# The road to the server broke. Every other loss would only be repeated, or has been already.
BROKEN = frozenset({"server_exited", "connect_failed"})


class _Hints(msgspec.Struct):
    readOnlyHint: bool | None = None  # noqa: N815 - the wire's word
    idempotentHint: bool | None = None  # noqa: N815


class _Tool(msgspec.Struct):
    annotations: _Hints | None = None


def is_harmless(definition: bytes) -> bool:
    """Does the tool say that a second run changes nothing?"""
    try:
        hints = msgspec.json.decode(definition, type=_Tool).annotations
    except msgspec.DecodeError:
        return False
    return hints is not None and bool(hints.readOnlyHint or hints.idempotentHint)


def may_send_again(code: str, *, may_have_run: bool, harmless: bool) -> bool:
    return code in BROKEN and (harmless or not may_have_run)
