"""Arguments that are repeated in headers, held against the official SDK's own check."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp.shared.inbound import encode_header_value, validate_mcp_param_headers

from mcp_workbench.server.http.modern import MOST_HEADERS, MOST_READ, param_mismatch
from mcp_workbench.transport.http.messages import HttpRequest
from tests.kit.config import snapshot, spec
from tests.kit.http_host import port

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "count"},
        "deep": {"type": "object", "properties": {"on": {"type": "boolean", "x-mcp-header": "On"}}},
        "plain": {"type": "string"},
    },
}
TOOL = {"name": "t", "inputSchema": SCHEMA}
TOO_COMPLEX = "Mcp-Param-* (the tool's schema is too complex to explain)"

values: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=4)
    | st.just([])
    | st.builds(dict[str, Any])
)
arguments: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "region": values,
        "count": values,
        "deep": values | st.fixed_dictionaries({}, optional={"on": values}),
        "plain": values,
    },
)
texts = st.sampled_from(["", "true", "0", "-0", "00", "42", "42.0", "42.5", "a", "=?base64?YR==?="])
headers = st.dictionaries(
    st.sampled_from(["mcp-param-region", "mcp-param-count", "mcp-param-on", "mcp-param-x"]),
    texts | st.text(max_size=3).map(encode_header_value) | st.integers().map(str),
)


def ours(told: dict[str, str], given_arguments: Any) -> str:
    request = HttpRequest()
    for name, value in told.items():
        request.add_header(name.encode(), value.encode())
    definition = json.dumps(TOOL).encode()
    return param_mismatch(request, definition, msgspec.Raw(json.dumps(given_arguments).encode()))


@given(headers, arguments)
@example({"mcp-param-count": "42.0"}, {"count": 42})
@example({"mcp-param-count": "42"}, {"count": 10**30})
@example({"mcp-param-count": "-0"}, {"count": 0})
@example({"mcp-param-count": "-007.00"}, {"count": -7})
@example({"mcp-param-count": str(10**30)}, {"count": 10**30})
@example({"mcp-param-on": "true"}, {"deep": {"on": True}})
@example({"mcp-param-on": "True"}, {"deep": {"on": True}})
@example({}, {"region": None})
@example({"mcp-param-region": ""}, {"region": ""})
def test_we_refuse_what_the_sdk_refuses_and_nothing_else(
    told: dict[str, str], given_arguments: dict[str, Any]
) -> None:
    refused = validate_mcp_param_headers(SCHEMA, given_arguments, told) is not None

    assert bool(ours(told, given_arguments)) == refused


def test_a_header_that_came_twice_is_refused() -> None:
    request = HttpRequest()
    for _ in range(2):
        request.add_header(b"Mcp-Param-Region", b"a")

    assert param_mismatch(request, json.dumps(TOOL).encode(), msgspec.Raw(b'{"region":"a, a"}'))


def headed(count: int, **more: Any) -> bytes:
    """The definition of a tool so many of whose arguments have headers."""
    properties = {f"p{n}": {"type": "string", "x-mcp-header": f"P{n}"} for n in range(count)}
    return json.dumps({"name": "t", "inputSchema": {"properties": properties, **more}}).encode()


@pytest.mark.parametrize(
    ("definition", "wrong"),
    [
        (headed(MOST_HEADERS), ""),
        (headed(MOST_HEADERS + 1), TOO_COMPLEX),
        (headed(1, description="x" * MOST_READ), TOO_COMPLEX),
        (headed(0, description="x" * MOST_READ), ""),
        (b'{"name":"t","inputSchema":["x-mcp-header"]}', ""),
        (b'{"name":"t","inputSchema":{"properties":{"a":"x-mcp-header"}}}', ""),
        (b'{"name":"t","inputSchema":{"properties":["x-mcp-header"]}}', ""),
        (b'{"name":"t","inputSchema":{"properties":{"a":{"x-mcp-header":5}}}}', ""),
        (b'{"name":"t","inputSchema":{"x-mcp-header":"A"}}', ""),
    ],
)
def test_a_schema_of_another_form_asks_for_no_header_and_too_many_are_refused(
    definition: bytes, wrong: str
) -> None:
    assert param_mismatch(HttpRequest(), definition, msgspec.Raw(b"{}")) == wrong


def test_the_header_that_differs_is_named() -> None:
    told = {"mcp-param-region": "north", "mcp-param-count": "1"}

    assert ours(told, {"region": "north", "count": 1}) == ""
    assert ours(told, {"region": "south", "count": 1}) == "Mcp-Param-Region"
    assert ours(told, {"region": "north"}) == "Mcp-Param-count"
    assert ours(told, {"region": "north", "count": 1, "deep": {"on": True}}) == "Mcp-Param-On"


def test_a_part_that_is_no_schema_does_not_hide_the_others() -> None:
    properties = {"a": "x-mcp-header", "b": {"x-mcp-header": "B"}, "c": None}
    definition = json.dumps({"inputSchema": {"properties": properties}}).encode()

    assert param_mismatch(HttpRequest(), definition, msgspec.Raw(b'{"b":"x"}')) == "Mcp-Param-B"


async def test_a_flat_tool_with_annotations_is_checked_and_others_are_not(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([{**TOOL, "name": "echo"}]))
    configuration = snapshot(spec("fixture", f"tools={tools}"), mode="dynamic")
    async with port(configuration) as opened:
        await opened.ask_modern("tools/list")
        call = {"name": "dev__fixture__echo", "arguments": {"region": "north"}}
        missing = await opened.ask_modern("tools/call", call)
        wrong = await opened.ask_modern("tools/call", call, **{"mcp-param-region": "south"})
        right = await opened.ask_modern("tools/call", call, **{"mcp-param-region": "north"})

        assert (missing.status, missing.error["code"]) == (400, -32020)
        assert (wrong.status, wrong.error["code"]) == (400, -32020)
        assert right.json_text["arguments"] == {"region": "north"}
