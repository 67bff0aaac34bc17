"""Schemas of tools: arguments are explained and signatures written for any of them, in few steps."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import json
from typing import Any

import jsonschema
from hypothesis import strategies as st

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.catalogue import Definition
from mcp_workbench.core.spec import ToolIdentifier
from mcp_workbench.gateway.arguments import hint_for
from mcp_workbench.schema.form_fields import form_fields
from mcp_workbench.schema.mismatches import MOST, explain
from mcp_workbench.schema.signature import arguments_shape, short_signature, whole_signature
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import objects, values
from tests.kit.results import raw
from tests.schema.strategies import NAMES, SCALARS, SCHEMAS

ARGUMENTS = st.dictionaries(
    NAMES, st.recursive(SCALARS, lambda one: st.lists(one, max_size=3)), max_size=4
)
# References of all kinds: to each other, to themselves, to nothing.
TARGETS = st.sampled_from(
    ["#/$defs/a", "#/$defs/b", "#/$defs/c", "#/$defs/a/anyOf/0", "#", "#/$defs", "#/properties/a", "#/nowhere",
     "#/$defs/%61", "#/$defs/a~1b", "#b", "other.json"]
)  # fmt: skip
LINKED = st.recursive(
    TARGETS.map(lambda target: {"$ref": target}) | st.just({"type": "string"}),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda all: {"anyOf": all}),
        st.lists(inner, min_size=1, max_size=2).map(lambda all: {"allOf": all}),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda all: {"properties": all, "required": list(all)[:1]}
        ),
        inner.map(lambda one: {"items": one}),
        st.tuples(inner, TARGETS).map(lambda two: {**two[0], "$ref": two[1]}),
    ),
    max_leaves=size(10),
)
CHAINS = st.fixed_dictionaries(
    {"properties": st.fixed_dictionaries({"a": LINKED}), "$defs": st.fixed_dictionaries(dict.fromkeys("abc", LINKED))}
)  # fmt: skip


def said(schema: Any, arguments: Any) -> str:
    """What a host is told of a call that has failed."""
    definition = Definition("edit", json.dumps({"name": "edit", "inputSchema": schema}).encode())
    tool = ToolIdentifier("dev", "a", "edit")
    return hint_for(
        definition, CallRequest(tool, {"arguments": raw(json.dumps(arguments).encode())})
    )


def accepted(arguments: Any, schema: Any) -> bool:
    try:
        jsonschema.validate(arguments, schema, jsonschema.Draft202012Validator)
    except (jsonschema.ValidationError, RecursionError):
        return False
    return True


@fuzzed(SCHEMAS, ARGUMENTS)
def test_only_what_is_wrong_is_explained(schema: Any, arguments: Any) -> None:
    here = json.loads(json.dumps(schema).replace("https://example.com/schema.json", "#"))

    told = explain(here, arguments)

    assert len(told) <= MOST
    assert not told or not accepted(arguments, here)


@fuzzed(CHAINS, st.fixed_dictionaries({"a": values}))
def test_references_in_circles_are_followed_to_an_end(schema: Any, arguments: Any) -> None:
    assert len(said(schema, arguments)) < 20_000
    shape = arguments_shape(schema)
    assert len(short_signature("edit", shape).text) < 20_000
    assert whole_signature("edit", shape).text.startswith("edit(")


@fuzzed(values, objects)
def test_anything_can_stand_where_a_schema_does(schema: Any, arguments: Any) -> None:
    assert isinstance(said(schema, arguments), str)
    assert whole_signature("edit", arguments_shape(schema)).text.startswith("edit(")
    assert isinstance(form_fields(schema), (list, tuple, dict, type(None)))
