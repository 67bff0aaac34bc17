"""The recorded results, errors and definitions: exact bytes, read from `corpus/` or made here."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "corpus"
DEPTH = 998  # levels that pass on every route, with `a` and what stands around a result


class Case(NamedTuple):
    """One odd thing: what the server sends, and what is read instead where a change is listed."""

    name: str
    sent: bytes
    told: dict[str, bytes]
    verbatim: bool = False  # a modern server adds nothing either

    @property
    def is_object(self) -> bool:
        return self.sent.startswith(b"{")

    @property
    def has_line_breaks(self) -> bool:
        return b"\n" in self.sent


def read(name: str) -> dict[str, Case]:
    """The cases of one file, in its order."""
    found: dict[str, Case] = {}
    last = ""
    for line in (FOLDER / f"{name}.txt").read_bytes().split(b"\n"):
        if not line.strip() or line.startswith(b"#"):
            continue
        key, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if line.startswith(b"  "):
            found[last].told[key.strip().decode()] = value
        else:
            last = key.decode().removeprefix("!")
            assert last not in found, last
            found[last] = Case(last, value, {}, verbatim=key.startswith(b"!"))
    return found


def results() -> dict[str, Case]:
    return {**read("results"), **{case.name: case for case in _made()}}


def levels(depth: int) -> Case:
    """Arrays in arrays."""
    return Case(f"levels {depth}", b'{"a":' + b"[" * depth + b"]" * depth + b"}", {})


def _made() -> list[Case]:
    """What can't stand on a line, or should not."""
    text = b'{"content":[{"type":"text","text":"%b"}],"x":1.0}'
    pretty = b'{\n  "content": [\r\n    {"type": "text",\r\t"text": "a\\nb"}\n  ],\n  "x": 1.0\n}'
    bad = b'{"a":"\xff\xc3","b":"\xed\xa0\x80","n":1.0}'
    good = bad.decode("utf-8", "replace").encode()
    return [
        levels(DEPTH),
        Case("deep objects", b'{"a":' + b'{"a":' * DEPTH + b"1.0" + b"}" * DEPTH + b"}", {}),
        Case("a megabyte of text", text % (b"0123456789abcdef" * 65536), {}),
        Case("many reads of escapes", text % (rb"\u00e9\ud83d\ude42\/ " * 13579), {}),
        Case("ten thousand members", b"{%b}" % b",".join(b'"k%d":%d.0' % (n, n) for n in range(10000)), {}),
        Case("ten thousand blocks", b'{"content":[%b]}' % b",".join([b'{"type":"x"}'] * 10000), {}),
        Case("raw odd characters", text % "\x7f\x80\x85\u2028\u2029\ufeff\ufffe\u202e".encode(), {}),
        Case("normal forms", text % "\u00e9 e\u0301 \u212b \u00c5 \ufb01".encode(), {}),
        Case("bad bytes in a text", bad, {"any": good}),
        Case("pretty-printed", pretty, {}),
        Case("carriage returns", b'{\r"content"\r:\r[]\r,\r"x":1.0}', {}),
    ]  # fmt: skip


_SPACES = bytes.maketrans(b"\r\n", b"  ")


def on_one_line(json: bytes, *, events: bool) -> bytes:
    """Line breaks between tokens become spaces. A stream of events knows one kind of them."""
    if events:
        json = json.replace(b"\r\n", b"\n")
    return json.translate(_SPACES)
