"""Made-up JSON Schemas: everything that a signature has a notation for, and some that it has not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "path", "max_length", "x-y", "$ref_", "größe", "with space", "…"])
TEXTS = st.text(max_size=12)
NUMBERS = st.integers(-1000, 1000) | st.sampled_from([0.5, -2.25, 1e300])
SCALARS = TEXTS | NUMBERS | st.booleans() | st.none()


def optional(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=members)


def typed(kind: str, rules: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return rules.map(lambda more: {"type": kind, **more})


def under(
    key: str, values: st.SearchStrategy[Any], **more: Any
) -> st.SearchStrategy[dict[str, Any]]:
    def made(value: Any) -> dict[str, Any]:
        return {**more, key: value}

    return values.map(made)


def with_default(schema: dict[str, Any], value: Any) -> dict[str, Any]:
    return {**schema, "default": value}


def with_known(schema: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "$defs": {"known": known}}


PLAIN: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    typed("string", optional(minLength=st.integers(0, 3), format=st.just("uri"), title=TEXTS)),
    typed("integer", optional(minimum=NUMBERS, maximum=NUMBERS, multipleOf=st.integers(1, 5))),
    typed("number", optional(minimum=NUMBERS, exclusiveMaximum=NUMBERS)),
    typed("boolean", optional(description=TEXTS)),
    under("enum", st.lists(SCALARS, min_size=1, max_size=12)),
    under("const", SCALARS),
    st.just({"type": ["string", "null"]}),
    st.just({"$ref": "#/$defs/known"}),
    st.just({"$ref": "#"}),
    st.just({"$ref": "https://example.com/schema.json"}),
    st.just({"not": {"type": "string"}}),
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    def made(properties: dict[str, Any], needed: list[str], more: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "required": needed, **more}

    rules = optional(
        additionalProperties=st.booleans() | inner, minProperties=st.integers(0, 2), title=TEXTS
    )
    return st.builds(
        made,
        st.dictionaries(NAMES, inner, max_size=4),
        st.lists(NAMES, max_size=2, unique=True),
        rules,
    )


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    defaulted = st.builds(with_default, inner, SCALARS)
    return st.one_of(
        objects(inner | defaulted),
        typed(
            "array", optional(items=inner, minItems=st.integers(0, 2), uniqueItems=st.booleans())
        ),
        typed("object", optional(additionalProperties=inner)),
        under("anyOf", st.lists(inner, min_size=1, max_size=3)),
        under("allOf", st.lists(inner, min_size=1, max_size=2)),
        under("prefixItems", st.lists(inner, min_size=1, max_size=2), type="array"),
    )


SCHEMAS = st.builds(with_known, objects(st.recursive(PLAIN, nested, max_leaves=8)), PLAIN)
