"""Masks known secrets in every text that we print.

A text is masked as a whole and only then cut into lines. Where it was cut before, or arrives in
pieces, the remaining part of a secret counts as the secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

SHORTEST = 8  # characters; otherwise a value such as `none` or `1` would blank everything
_ARMOUR = "-----"  # around `BEGIN PRIVATE KEY`: not secret itself, and a hint at the cause
_WRAPPED = (64, 76)  # columns at which base64 is wrapped


def redact(text: str, secrets: Mapping[str, str]) -> str:
    """Returns the text with every known value, plain or encoded, replaced by `[secret:NAME]`."""
    if not secrets:
        return text
    return _replaced(text, _known(tuple(secrets.items())).names)


def redact_cut(text: str, secrets: Mapping[str, str]) -> str:
    """Masks a text that was cut at either end, where only a part of a secret may be left."""
    if not secrets:
        return text
    names = _known(tuple(secrets.items())).names
    inner = text.strip()
    if len(inner) >= SHORTEST and (around := next((f for f in names if inner in f), "")):
        return _mark(names[around])
    start, head = max(_endings(text, names), default=(0, ""))
    stop, tail = min(_beginnings(text, names), default=(len(text), ""))
    middle = _replaced(text[start:stop], names)
    return f"{_mark(names[head]) if head else ''}{middle}{_mark(names[tail]) if tail else ''}"


class LineRedactor:
    """Masks a text that arrives line by line.

    A line that may belong to a secret of several lines is held back until that is decided: never more
    than the length of the secret.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = secrets
        self._blocks = _known(tuple(secrets.items())).blocks if secrets else ()
        self._held = ""

    def feed(self, text: str) -> str:
        """Returns what can be shown now of this text (whole lines) and of what was held back."""
        text = self._held + text
        whole = max((m.end() for m in _matches(text, self._blocks)), default=0)
        start = min((_begun(text, block, whole) for block in self._blocks), default=len(text))
        self._held = text[start:]
        return redact(text[:start], self._secrets)

    def cut(self, text: str = "") -> str:
        """Returns the rest: it may be cut anywhere, and nothing follows."""
        held, self._held = self._held, ""
        return redact_cut(held + text, self._secrets)


class _Known(NamedTuple):
    """The texts to look for."""

    names: dict[str, str]  # by form, longest first: a value may begin with another one
    blocks: tuple[str, ...]  # forms of several lines


@lru_cache(maxsize=64)
def _known(secrets: tuple[tuple[str, str], ...]) -> _Known:
    names = {form: name for value, name in secrets for form in _forms(value)}
    longest_first = sorted(names, key=len, reverse=True)
    return _Known(
        {form: names[form] for form in longest_first},
        tuple(form for form in longest_first if "\n" in form.strip() and form == form.strip()),
    )


def _replaced(text: str, names: Mapping[str, str]) -> str:
    parts: list[str] = []
    end = 0
    for match in _matches(text, names):
        parts += (text[end : match.start()], _mark(names[match.group()]))
        end = match.end()
    return "".join((*parts, text[end:]))


def _matches(text: str, forms: Iterable[str]) -> Iterator[re.Match[str]]:
    """Yields the matches of these forms, from left to right."""
    # Most texts hold none; testing one by one is much faster than a pattern.
    present = [form for form in forms if form in text]
    return re.finditer("|".join(map(re.escape, present)), text) if present else iter(())


def _mark(name: str) -> str:
    return f"[secret:{name}]"


def _begun(text: str, form: str, start: int) -> int:
    """Returns where, from `start` on, an incomplete form begins; the end of the text if nowhere."""
    first = form.partition("\n")[0]
    at = text.find(first, max(len(text) - len(form) + 1, start))
    while at >= 0 and not form.startswith(text[at:]):
        at = text.find(first, at + 1)
    return len(text) if at < 0 else at


def _beginnings(text: str, forms: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yields where a form begins that is cut by the end of the text."""
    for form in forms:
        at = text.find(form[:SHORTEST], max(len(text) - len(form) + 1, 0))
        while at >= 0 and not form.startswith(text[at:]):
            at = text.find(form[:SHORTEST], at + 1)
        if at >= 0:
            yield at, form


def _endings(text: str, forms: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yields where a form ends that is cut by the start of the text."""
    for form in forms:
        last = form[-SHORTEST:]
        at = text.rfind(last, 0, len(form) - 1)
        while at >= 0 and not form.endswith(text[: at + SHORTEST]):
            at = text.rfind(last, 0, at + SHORTEST - 1)
        if at >= 0:
            yield at + SHORTEST, form


# Forms


def _forms(value: str) -> set[str]:
    """Returns all ways in which a value may be printed; of several lines, also each line."""
    whole = {value, value.strip()}
    parts = {line.strip() for line in value.splitlines()} if "\n" in value else set[str]()
    lines = {line for line in parts if not (line.startswith(_ARMOUR) and line.endswith(_ARMOUR))}
    found = {form for text in whole | lines if len(text) >= SHORTEST for form in _spelled(text)}
    for text in whole:
        found.update((text.replace("\n", "\r\n"), text.replace("\n", " ")))
        found.update(_wrapped(text))
    return {form for form in found if len(form) >= SHORTEST}


def _spelled(value: str) -> Iterator[str]:
    from base64 import b64encode, urlsafe_b64encode  # not needed at start-up

    yield value
    yield ascii(value)[1:-1]
    yield repr(value)[1:-1]
    data = _bytes(value)
    yield repr(data)[2:-1]  # as Python prints bytes
    for text in (b64encode(data).decode(), urlsafe_b64encode(data).decode()):
        yield text
        yield text.rstrip("=")
    yield from _in_urls(data)
    yield from _in_json(value)


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogateescape")  # as `os.environ` decodes odd bytes


def _wrapped(value: str) -> Iterator[str]:
    """Yields the lines of wrapped base64, as mail and command line tools print it."""
    from base64 import b64encode

    text = b64encode(_bytes(value)).decode()
    for width in _WRAPPED:
        if len(text) > width:
            yield from (text[at : at + width] for at in range(0, len(text), width))


def _in_urls(data: bytes) -> Iterator[str]:
    """Yields the URL encodings of several languages, with hex digits of either case."""
    from urllib.parse import quote, quote_plus

    for text in (
        quote(data, safe=""),
        quote(data),  # Python's own keeps slashes
        quote(data, safe="!'()*"),  # JavaScript's for components
        quote(data, safe=";,/?:@&=+$!*'()#"),  # and for whole URLs
        quote(data, safe="$&+=:@"),  # Go's for paths
        quote_plus(data),
    ):
        yield text
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), text)


def _in_json(value: str) -> Iterator[str]:
    """Yields the JSON encodings of several languages."""
    try:
        plain = msgspec.json.encode(value)[1:-1].decode()
    except UnicodeEncodeError:  # JSON can't hold it
        return
    for text in (plain, _escaped(r"[^ -~]", plain), _escaped("[<>&\u2028\u2029]", plain)):
        yield text
        yield text.replace("/", r"\/")  # PHP's


def _escaped(characters: str, text: str) -> str:
    return re.sub(characters, _escape, text)


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be").hex()
    return "".join(rf"\u{units[at : at + 4]}" for at in range(0, len(units), 4))
