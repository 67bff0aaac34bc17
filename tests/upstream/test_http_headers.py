"""Headers of our requests: held against the official SDK's reading of the same rules."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import (
    decode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)

from mcp_workbench.upstream.http.requests import BadHeader, entry_headers, modern_headers
from mcp_workbench.upstream.http.tool_headers import (
    MOST_HEADERS,
    MOST_READ,
    BadAnnotation,
    annotated_headers,
    screen_tools,
)

names = st.sampled_from(["Region", "region", "X-1", "a b", "", "ü", 5, None])
kinds = st.sampled_from(["string", "integer", "boolean", "number", "array", "object", None])


def annotated(kind: Any, name: Any, *, marked: bool) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name} if marked else {"type": kind}


leaves = st.builds(annotated, kinds, names, marked=st.booleans())
schemas = st.recursive(
    leaves,
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, max_size=2).map(
            lambda found: {"type": "object", "properties": found}
        )
        | inner.map(lambda one: {"type": "array", "items": one})
        | st.lists(inner, max_size=2).map(lambda some: {"anyOf": some})
        | inner.map(lambda one: {"$defs": {"x": one}})
        | inner.map(lambda one: {"default": one})
    ),
    max_leaves=6,
)
values = st.dictionaries(
    st.sampled_from("abc"),
    st.text(max_size=6) | st.integers(-(2**62), 2**62) | st.booleans() | st.none(),
    max_size=3,
)


@given(schemas)
def test_an_annotation_is_valid_here_where_it_is_valid_there(schema: Any) -> None:
    try:
        wanted = annotated_headers(schema)
    except BadAnnotation:
        assert find_invalid_x_mcp_header(schema) is not None
    else:
        assert find_invalid_x_mcp_header(schema) is None
        assert wanted == dict(x_mcp_header_map(schema))


@given(st.text(max_size=10), values)
def test_a_request_says_in_headers_what_it_says_in_its_body(name: str, arguments: Any) -> None:
    properties = {key: {"type": "string", "x-mcp-header": f"H-{key}"} for key in "abc"}
    schema = {"type": "object", "properties": properties}
    params = msgspec.Raw(msgspec.json.encode({"name": name, "arguments": arguments}))

    lines = modern_headers("tools/call", params, {name: annotated_headers(schema)})

    said = dict(line.split(": ", 1) for line in lines.decode().split("\r\n") if line)
    assert said.pop("Mcp-Method") == "tools/call"
    assert decode_header_value(said.pop("Mcp-Name")) == name
    theirs = mcp_param_headers(x_mcp_header_map(schema), arguments)
    assert {key.lower(): value for key, value in said.items()} == {
        key.lower(): value for key, value in theirs.items()
    }


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("resources/read", b'{"uri":"file:///x"}', b"file:///x"),
        ("prompts/get", b'{"name":"p"}', b"p"),
    ],
)
def test_what_is_named_is_repeated(method: str, params: bytes, name: bytes) -> None:
    assert b"Mcp-Name: %b\r\n" % name in modern_headers(method, msgspec.Raw(params), {})


def test_what_is_not_named_is_not() -> None:
    assert modern_headers("tools/list", msgspec.Raw(b"{}"), {}) == b"Mcp-Method: tools/list\r\n"


def test_a_page_keeps_its_good_tools_byte_for_byte() -> None:
    good = b'{"name":"a","x":1.0,"inputSchema":{"properties":{"p":{"type":"string","x-mcp-header":"P"}}}}'
    bad = b'{"name":"b","inputSchema":{"x-mcp-header":"P"}}'
    odd = b'{"name":7,"x-mcp-header":1}'

    page, wanted, complaints = screen_tools(b'{"tools":[%b,%b,%b],"ttlMs":5}' % (good, bad, odd))

    assert page == b'{"tools":[%b,%b],"ttlMs":5}' % (good, odd)
    assert wanted["a"] == {("p",): "P"}
    assert complaints == ["the tool 'b' was left out: x-mcp-header where no argument is named"]


def marked(*headers: Any, kind: str = "string") -> dict[str, Any]:
    """A schema with one argument for each of these headers."""
    named = {f"a{n}": {"type": kind, "x-mcp-header": header} for n, header in enumerate(headers)}
    return {"type": "object", "properties": named}


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (marked("Region", "region"), "x-mcp-header 'Region' is used twice"),
        (
            marked(*(f"H{n}" for n in range(MOST_HEADERS + 1))),
            "x-mcp-header is used more than 100 times",
        ),
        (marked("a b"), "x-mcp-header of 'a0' is not a header name"),
        (marked(5), "x-mcp-header of 'a0' is not a header name"),
        (
            marked("H", kind="number"),
            "x-mcp-header of 'a0', which is not a string, integer or boolean",
        ),
    ],
    ids=["twice", "too many", "no name", "no text", "no plain value"],
)
def test_an_annotation_that_is_not_allowed_says_why(schema: Any, complaint: str) -> None:
    with pytest.raises(BadAnnotation) as caught:
        annotated_headers(schema)

    assert str(caught.value) == complaint


def test_as_many_headers_as_are_allowed_are_learned() -> None:
    names = [f"H{n}" for n in range(MOST_HEADERS)]

    assert sorted(annotated_headers(marked(*names)).values()) == sorted(names)


def test_a_page_of_annotations_without_end_is_read_in_part() -> None:
    schema = msgspec.json.encode({**marked("H"), "title": "x" * MOST_READ})
    big = b'{"name":"big","inputSchema":%b}' % schema
    plain = b'{"name":"plain"}'

    page, wanted, complaints = screen_tools(b'{"tools":[%b,%b]}' % (big, plain))

    assert page == b'{"tools":[%b]}' % plain
    assert wanted == {}
    assert complaints == ["the tool 'big' was left out: its schema is too complex to explain"]


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (b"true", b"Mcp-Param-H: true\r\n"),
        (b"false", b"Mcp-Param-H: false\r\n"),
        (b"-7", b"Mcp-Param-H: -7\r\n"),
        (b'"x"', b"Mcp-Param-H: x\r\n"),
        (b"1e999", b""),
        (b"1.5", b""),
        (b"null", b""),
        (b"[1]", b""),
    ],
)
def test_only_plain_values_are_repeated(value: bytes, line: bytes) -> None:
    params = msgspec.Raw(b'{"name":"t","arguments":{"a0":%b}}' % value)

    lines = modern_headers("tools/call", params, {"t": annotated_headers(marked("H"))})

    assert lines == b"Mcp-Method: tools/call\r\nMcp-Name: t\r\n" + line


def test_a_user_agent_and_encodings_of_the_entry_replace_ours() -> None:
    pairs = (("user-agent", "me"), ("Accept-Encoding", "identity"))

    assert entry_headers(pairs) == b"user-agent: me\r\nAccept-Encoding: identity\r\n"
    assert entry_headers(()).endswith(b"\r\nAccept-Encoding: gzip, deflate\r\n")


def test_headers_of_the_entry_are_sent_except_those_that_are_ours() -> None:
    pairs = (("X-A", " 1 "), ("content-length", "5"), ("Mcp-Session-Id", "x"), ("Host", "evil"))

    lines = entry_headers(pairs, "me:secret").split(b"\r\n")

    assert b"X-A: 1" in lines
    assert b"Authorization: Basic bWU6c2VjcmV0" in lines
    assert not [line for line in lines if line.lower().startswith((b"content-l", b"host", b"mcp"))]


def test_an_authorization_of_the_entry_wins_over_that_of_the_url() -> None:
    lines = entry_headers((("authorization", "Bearer t"),), "me:secret")

    assert b"Bearer t" in lines
    assert b"Basic" not in lines


@pytest.mark.parametrize("pair", [("a b", "1"), ("", "1"), ("X-A", "→")])
def test_a_header_that_can_not_be_sent_is_told(pair: tuple[str, str]) -> None:
    with pytest.raises(BadHeader):
        entry_headers((pair,))
