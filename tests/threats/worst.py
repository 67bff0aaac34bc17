"""The worst that a host or a server can send, at any size: what each asks our readers to compute."""

from __future__ import annotations

import json
from typing import Any

SMALL = 4  # bytes that the smallest part of anything takes


def filled(start: bytes, part: bytes, end: bytes, size: int) -> bytes:
    """About so many bytes of the same part."""
    return start + part * ((size - len(start) - len(end)) // len(part)) + end


# Schemas, whose size is that of their JSON


def doubling(size: int) -> Any:
    """Each definition asks twice for the one below: the work doubles with every sixty bytes."""
    levels = max(size // 60, 2)
    choice = {f"l{n}": {"anyOf": [{"$ref": f"#/$defs/l{n - 1}"}] * 2} for n in range(1, levels)}
    none = {"type": "string", "minLength": 3}
    top = {"$ref": f"#/$defs/l{levels - 1}"}
    return {"properties": {"a": top}, "$defs": {"l0": none, **choice}}


def doubling_fields(size: int) -> Any:
    """The same through properties, which a signature shows."""
    levels = max(size // 80, 2)
    two = {
        f"l{n}": {"properties": {"a": {"$ref": f"#/$defs/l{n - 1}"}, "b": {"$ref": f"#/$defs/l{n - 1}"}}}
        for n in range(1, levels)
    }  # fmt: skip
    return {"properties": {"a": {"$ref": f"#/$defs/l{levels - 1}"}}, "$defs": {"l0": {}, **two}}


def chain(size: int) -> Any:
    """References to references, each with something beside it."""
    count = size // 50
    links = {f"l{n}": {"$ref": f"#/$defs/l{n + 1}", "title": ""} for n in range(count)}
    first = {"$ref": "#/$defs/l0"}
    return {"properties": {"a": first}, "$defs": {**links, f"l{count}": {"type": "string"}}}


def branches(size: int) -> Any:
    """Very many references to one large choice of large values."""
    values = [[n] * 20 for n in range(size // 120)]
    refs = [{"$ref": "#/$defs/x"}] * (size // 60)
    return {"properties": {"a": {"anyOf": refs}}, "$defs": {"x": {"enum": values}}}


def equal_parts(size: int) -> Any:
    """Branches that have to be compared with what holds for all of them."""
    items = {"enum": list(range(size // 20))}
    refs = [{"$ref": "#/$defs/x"}] * (size // 60)
    return {"properties": {"a": {"items": items, "anyOf": refs}}, "$defs": {"x": {"items": items}}}


def long_names(size: int) -> Any:
    """One long name that is shown at very many places."""
    inner = {"properties": {"n" * (size // 2): {"type": "string"}}}
    refs = {f"a{n}": {"$ref": "#/$defs/x"} for n in range(size // 60)}
    return {"properties": refs, "$defs": {"x": inner}}


def defaults(size: int) -> Any:
    """One long default of very many parameters."""
    refs = {f"a{n}": {"$ref": "#/$defs/x"} for n in range(size // 60)}
    return {
        "properties": refs,
        "$defs": {"x": {"type": "string", "default": "\u200b" * (size // 8)}},
    }


def kinds(size: int) -> Any:
    """Very many kinds, each of which is to be tried with very many values."""
    return {
        "properties": {"a": {"type": ["string"] * (size // 20), "enum": list(range(size // 10))}}
    }


def required(size: int) -> Any:
    return {"required": [f"some_parameter_{n}" for n in range(size // 25)]}


def closed(size: int) -> Any:
    known = {f"some_parameter_{n}": True for n in range(size // 25)}
    return {"properties": known, "additionalProperties": False}


SCHEMAS = [
    doubling, doubling_fields, chain, branches, equal_parts, long_names, defaults, kinds, required, closed,
]  # fmt: skip


def definition(schema: Any) -> bytes:
    return json.dumps({"name": "edit", "inputSchema": schema}).encode()


def arguments(size: int) -> list[Any]:
    """Each is wrong for one of the schemas, as far as it can be."""
    strange = {f"some_parmeter_{n}": n for n in range(size // 25)}
    return [{"a": 5}, {"a": [size // 120] * 20}, {"a": list(range(size // 10))}, strange]


# Messages


def messages(size: int) -> dict[str, bytes]:
    """Lines that are no message, or one with very many parts."""
    return {
        "escapes, broken at the end": filled(b'{"method":"', rb"\n", b'"', size),
        "escapes of half a character": filled(b'{"method":"', rb"\ud800", b'"}', size),
        "escapes of emoji and one half": filled(
            rb'{"method":"\ud800', rb"\ud83d\ude00", b'"}', size
        ),
        "words that look like an escape": filled(b'{"method":"', rb"\\ud800", b'"', size),
        "backslashes": filled(b'{"method":"', b"\\", rb'ud800"', size),
        "strings and an id at the end": filled(b"[", b'"",', b',"id":3}', size),
        "quotes and an id at the end": filled(b"", b'"', b',"id":3}', size),
        "spaces": filled(b"{", b" ", b',"id":3}', size),
        "opening braces": filled(b"", b'{"a":', b',"id":3}', size),
        "letters of four bytes": filled(b'{"params":"', "\N{GRINNING FACE}".encode(), b'"', size),
        "a method of letters of four bytes": filled(
            b'{"id":1,"method":"', "\N{GRINNING FACE}".encode(), b'"}', size
        ),
        "brackets": filled(b'{"id":1,"method":"m","params":[', b"[],", b"[]]}", size),
        "objects and lists": filled(
            b'{"id":1,"method":"m","params":[', b'{"a":[{}]},', b"[]]}", size
        ),
        "brackets in strings": filled(b'{"id":1,"method":"m","params":[', b'"[",', b"[]]}", size),
        "brackets and escaped quotes": filled(
            b'{"id":1,"method":"m","params":[[],"' + b"[" * 2000, rb"[[\"", b'"]}', size
        ),
        "brackets near the limit": filled(
            b'{"id":1,"method":"m","params":' + b"[" * 990, b"[],", b"[]" + b"]" * 990 + b"}", size
        ),
        "escapes and half a character": filled(
            b'{"id":1,"method":"m","params":{"a":"', rb"\n", rb'\ud800"}}', size
        ),
        "members": filled(b'{"id":1,"method":"m","params":{', b'"":0,', b'"a":1}}', size),
    }


def objects(size: int) -> list[bytes]:
    """Objects with as many members as possible: different ones, and the same again and again."""
    different = b"{" + b",".join(b'"%x":0' % n for n in range(size // 9)) + b"}"
    return [different, filled(b"{", b'"":0,', b'"a":1}', size)]


def lists(size: int) -> list[bytes]:
    return [
        filled(b"[", b"{},", b"{}]", size),
        filled(b"[", b"1,", b"1]", size),
        filled(b"[", b"[],", b"[]]", size),
        filled(b"[", b'{"a":1,"b":[2]},', b"{}]", size),
    ]
