"""Known secrets leave no text that we print."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

import msgspec

SHORTEST = 8  # characters; otherwise a value such as `none` or `1` would blank everything


def redact(text: str, secrets: Mapping[str, str]) -> str:
    """The text with every known value, plain or encoded, replaced by `[secret:NAME]`."""
    if not secrets:
        return text
    finder, names = _finder(tuple(secrets.items()))
    return finder.sub(lambda found: f"[secret:{names[found.group()]}]", text)


@lru_cache(maxsize=64)
def _finder(secrets: tuple[tuple[str, str], ...]) -> tuple[re.Pattern[str], dict[str, str]]:
    names = {form: name for value, name in secrets for form in _forms(value)}
    longest_first = sorted(names, key=len, reverse=True)  # a value may begin with another one
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)"), names


def _forms(value: str) -> set[str]:
    if len(value) < SHORTEST:
        return set()
    from base64 import b64encode, urlsafe_b64encode  # start-up prints nothing and needs
    from urllib.parse import quote, quote_plus  # neither of them

    data = value.encode("utf-8", "surrogateescape")  # how the environment spells odd bytes
    coded = {b64encode(data).decode(), urlsafe_b64encode(data).decode()}
    return {
        value,
        quote(data, safe=""),
        quote(data, safe="!'()*"),  # JavaScript's
        quote_plus(data),
        ascii(value)[1:-1],
        repr(value)[1:-1],
        *coded,
        *(text.rstrip("=") for text in coded),
        *_in_json(value),
    }


def _in_json(value: str) -> Iterator[str]:
    """As the writers of several languages put it into JSON."""
    try:
        plain = msgspec.json.encode(value)[1:-1].decode()
    except UnicodeEncodeError:  # no JSON text can hold it
        return
    for text in (plain, _escaped(r"[^ -~]", plain), _escaped("[<>&\u2028\u2029]", plain)):
        yield text
        yield text.replace("/", r"\/")  # PHP's


def _escaped(characters: str, text: str) -> str:
    return re.sub(characters, _escape, text)


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be").hex()
    return "".join(rf"\u{units[at : at + 4]}" for at in range(0, len(units), 4))
