"""Messages of a host that are unusual: what is missing, too long or of the wrong type is refused by name."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.raw_json import LARGE, LONGEST_NAME
from mcp_workbench.server import parse
from mcp_workbench.server.parse import (
    HugeMessage,
    Message,
    RequestError,
    UseToolRequest,
    cancelled_id,
    client_name_and_version,
    offered_revision,
    read_body,
    read_meta,
    read_uri,
)
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.jsonrpc import Envelope
from tests.kit.results import raw

TOO_LONG = "x" * (LONGEST_NAME + 1)
USE_TOOL = {"name": "use_tool", "arguments": {"tool": {"toolbox": "dev"}, "arguments": {"a": [1]}}}


def params_of(message: Message) -> Any:
    """The `params` of a message, in whatever form it was read."""
    if isinstance(message, UseToolRequest):
        message = message.whole()
    if isinstance(message, HugeMessage):
        return {
            name: json.loads(bytes(value)) for name, value in parse.read_params(message).items()
        }
    return json.loads(bytes(message.params))


@pytest.mark.parametrize(
    ("params", "uri"), [({"uri": "file:///a"}, "file:///a"), ({"uri": "x", "more": 1}, "x")]
)
def test_a_uri_is_read(params: dict[str, Any], uri: str) -> None:
    assert read_uri({name: raw(value) for name, value in params.items()}) == uri


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, "params.uri must be a string"),
        ({"uri": ""}, "params.uri must be a string"),
        ({"uri": None}, "params.uri must be a string"),
        ({"uri": {"a": "b"}}, "params.uri must be a string"),
        ({"uri": TOO_LONG}, "params.uri is longer than 64 KiB"),
    ],
)
def test_a_uri_of_another_type_is_refused(params: dict[str, Any], text: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_uri({name: raw(value) for name, value in params.items()})

    assert json.loads(caught.value.error) == {"code": jsonrpc.INVALID_PARAMS, "message": text}


@pytest.mark.parametrize(
    ("meta", "text"),
    [
        (b'"text"', "params._meta must be an object"),
        (b"[]", "params._meta must be an object"),
        (
            b'{"a":"%b"}' % (b"x" * parse.LONGEST_META),
            f"params._meta is longer than {parse.LONGEST_META >> 10} KiB",
        ),
    ],
)
def test_a_meta_of_another_type_is_refused(meta: bytes, text: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_meta(msgspec.Raw(meta))

    assert json.loads(caught.value.error) == {"code": jsonrpc.INVALID_PARAMS, "message": text}


@pytest.mark.parametrize("meta", [None, msgspec.Raw(b""), msgspec.Raw(b"null"), msgspec.Raw(b"{}")])
def test_a_meta_that_is_absent_is_empty(meta: msgspec.Raw | None) -> None:
    assert read_meta(meta) == {}


@pytest.mark.parametrize(
    ("params", "id"),
    [
        (b'{"requestId":7}', b"7"),
        (b'{"reason":"none","requestId":"seven"}', b'"seven"'),
        (b"{}", b""),
        (b"null", b""),
        (b"[7]", b""),
        (b'"7"', b""),
        (b'{"requestId":"%b"}' % (b"x" * jsonrpc.LONGEST_ID), b""),
    ],
)
def test_which_request_is_cancelled(params: bytes, id: bytes) -> None:
    assert cancelled_id(Envelope(params=msgspec.Raw(params))) == id


@pytest.mark.parametrize(
    ("info", "found"),
    [
        ({"name": "host", "version": "1.2"}, ("host", "1.2")),
        ({"name": "host"}, ("host", "")),
        ({"name": 5, "version": ["1"]}, ("", "")),
        ({"name": TOO_LONG, "version": "1"}, ("", "1")),
        ({"name": "x" * 2000}, ("x" * parse.LONGEST_HOST_NAME, "")),
        ("host 1.2", ("", "")),
        (None, ("", "")),
    ],
)
def test_the_name_of_a_host_is_what_can_be_read_of_it(info: Any, found: tuple[str, str]) -> None:
    assert client_name_and_version(raw(info)) == found


def test_a_host_without_a_name_has_none() -> None:
    assert client_name_and_version(msgspec.Raw(b"")) == ("", "")


@pytest.mark.parametrize(
    ("written", "revision"),
    [("2025-06-18", "2025-06-18"), (20250618, ""), (None, ""), (TOO_LONG, "")],
)
def test_the_revision_that_a_host_offers_is_a_text(written: Any, revision: str) -> None:
    assert offered_revision({"protocolVersion": raw(written)}) == revision


@pytest.mark.parametrize("size", [1, LARGE, 5 << 20])
@pytest.mark.parametrize(
    "message",
    [
        {"id": 1, "method": "tools/call", "params": USE_TOOL},
        {"id": "a", "method": "tools/call", "params": {**USE_TOOL, "other": {"a": 1}}},
        {"id": 2, "method": "prompts/get", "params": {"name": "p", "_meta": {"a": 1}}},
        {"method": "notifications/progress", "params": {"progress": 1}},
    ],
)
def test_a_body_of_many_lines_is_the_same_message_in_one(message: Any, size: int) -> None:
    params = {**message["params"], "_meta": {"text": "x" * size}}
    whole = {"jsonrpc": "2.0", **message, "params": params}

    read = read_body(json.dumps(whole, indent=1).replace("\n", "\r\n").encode())

    assert read.method == message["method"]
    assert bytes(read.id) == (json.dumps(message["id"]).encode() if "id" in message else b"")
    assert params_of(read) == params
    if not isinstance(read, HugeMessage):
        inside = read.whole() if isinstance(read, UseToolRequest) else read
        assert not {b"\r", b"\n"} & {bytes((byte,)) for byte in bytes(inside.params)}


@pytest.mark.parametrize("text", ["result", "error"])
def test_so_is_an_answer(text: str) -> None:
    answer = {"jsonrpc": "2.0", "id": 3, text: {"code": 1, "message": "m"}}

    read = read_body(json.dumps(answer, indent=2).encode())

    assert isinstance(read, Envelope)
    parts = {"result": bytes(read.result), "error": bytes(read.error)}
    assert b"\n" not in parts[text]
    assert json.loads(parts.pop(text)) == answer[text]
    assert list(parts.values()) == [b""]
    assert bytes(read.id) == b"3"
