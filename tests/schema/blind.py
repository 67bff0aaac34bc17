# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
"""Arguments made from nothing but a shape: they test whether it says enough, not whether it makes sense."""

from __future__ import annotations

import json
import re
from typing import Any

from mcp_workbench.schema.signature import (
    Array,
    Base,
    Fields,
    Inline,
    Map,
    Shape,
    Union,
    Value,
    value_shape,
)

FORMATS = {
    "date-time": "2024-01-02T03:04:05Z",
    "date": "2024-01-02",
    "time": "03:04:05Z",
    "email": "a@example.com",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "hostname": "example.com",
}
PATTERN_TRIES = (
    "a", "A", "1", "abc", "a1", "2024-01-02", "2024-01", "2024", "12:30", "ABCDEF", "0x" + "a" * 40,
    "a@example.com", "https://example.com/", "+15550100", "12345", "1.0.0", "en", "en-US", "123456",
    "0" * 24, "a" * 32, "20240102", "#aabbcc", "/a", "a/b", "a.b", "PT1H", "1m", "1d", "AB", "ABC",
)  # fmt: skip


def blind_arguments(shape: Fields, *, optional: bool) -> dict[str, Any]:
    return _object(shape, optional)


def _object(shape: Fields, optional: bool) -> dict[str, Any]:
    wanted = [field for field in shape.fields if field.required or optional]
    made = {field.name: _value(field.shape, optional) for field in wanted}
    rules = _rules(shape.rules)
    for branch in rules.get("anyOf", rules.get("oneOf", []))[:1]:
        for name in branch.get("required", []):
            for field in shape.fields:
                if field.name == name:
                    made.setdefault(name, _value(field.shape, optional))
    for field in shape.fields:
        if len(made) < rules.get("minProperties", 0):
            made.setdefault(field.name, _value(field.shape, optional))
    return made


def _rules(text: str) -> dict[str, Any]:
    if text.startswith("@"):
        return json.loads(text[1:])
    if text:
        low, _, high = text.strip("()").partition("..")
        return {
            **({"minimum": json.loads(low), "minItems": json.loads(low)} if low else {}),
            **({"maximum": json.loads(high), "maxItems": json.loads(high)} if high else {}),
        }
    return {}


def _value(shape: Shape, optional: bool) -> Any:
    match shape:
        case Value():
            return json.loads(shape.json)
        case Fields():
            return _object(shape, optional)
        case Map():
            return {"a": _value(shape.of, optional)}
        case Array():
            rules = _rules(shape.rules)
            count = max(rules.get("minItems", 0), min(1, rules.get("maxItems", 1)))
            return [_value(shape.of, optional) for _ in range(count)]
        case Inline():
            return _of_schema(json.loads(shape.json), optional)
        case Union():
            return _value(shape.of[0], optional)
        case Base():
            return _base(shape.name, _rules(shape.rules))
        case _:
            return None


def _base(name: str, rules: dict[str, Any]) -> Any:
    if name == "string":
        return _string(rules)
    if name in ("int", "num"):
        return _number(rules)
    made: dict[str, Any] = {"bool": True, "null": None, "any": "x", "object": {}}
    return made[name]


def _number(rules: dict[str, Any]) -> Any:
    low = rules.get("minimum")
    if "exclusiveMinimum" in rules:
        low = rules["exclusiveMinimum"] + 1
    high = rules.get("maximum")
    if "exclusiveMaximum" in rules:
        high = rules["exclusiveMaximum"] - 1
    value = low if low is not None else high if high is not None else 1
    step = rules.get("multipleOf")
    return -(-value // step) * step if step and step >= 1 else value


def _string(rules: dict[str, Any]) -> str:
    text = FORMATS.get(rules.get("format", ""), "x")
    if "pattern" in rules:
        for one in (text, *PATTERN_TRIES):
            if re.search(rules["pattern"], one):
                text = one
                break
    text = text.ljust(rules.get("minLength", 0), "x")
    return text[: rules["maxLength"]] if "maxLength" in rules else text


def _of_schema(schema: Any, optional: bool) -> Any:
    """A schema that was written out is read as any other would be."""
    if not isinstance(schema, dict):
        return None
    whole: dict[str, Any] = schema
    if isinstance(whole.get("allOf"), list):
        parts = [_of_schema(part, optional) for part in whole["allOf"]]
        return {
            name: value for part in parts if isinstance(part, dict) for name, value in part.items()
        }
    for key in ("prefixItems", "items"):
        if isinstance(whole.get(key), list):
            return [_of_schema(one, optional) for one in whole[key]]
    if whole.get("enum"):
        return whole["enum"][0]
    shape = value_shape(whole)
    return None if isinstance(shape, Inline) else _value(shape, optional)
