"""Values in HTTP headers: text that a header can't carry as it is travels in base64."""

from __future__ import annotations

import base64
import binascii
import re

_SAFE = re.compile(r"[\x20-\x7e]*")
_WRAPPED = re.compile(r"=\?base64\?(.*)\?=")


def encode_value(text: str) -> str:
    """The text as a header can carry it: as it is, or wrapped where it would not arrive unchanged."""
    if _SAFE.fullmatch(text) and text == text.strip() and not _WRAPPED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def decode_value(value: bytes) -> str | None:
    """The text that a header's value stands for; None where it is wrapped wrongly."""
    text = value.decode("latin-1").strip()
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped is None:
        return text
    try:
        plain = base64.b64decode(wrapped[1], validate=True)
        return plain.decode() if base64.b64encode(plain).decode() == wrapped[1] else None
    except (binascii.Error, ValueError):
        return None
