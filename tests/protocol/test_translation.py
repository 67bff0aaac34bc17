"""Calls and results between the eras: what changes, and that nothing else does."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.raw_json import MOST_MEMBERS, Members
from mcp_workbench.core.spec import ToolIdentifier
from mcp_workbench.protocol.extensions import OURS_ENCODED
from mcp_workbench.protocol.handshake import stamps
from mcp_workbench.protocol.translation import (
    EraPair,
    Unanswerable,
    UnknownResultType,
    asks_for_input,
    complete,
    legacy_definition,
    params_for,
    result_for,
    token_of,
    with_token,
)
from tests.kit.results import raw

OURS = stamps({"name": "w", "version": "1"})
PREFIX = "io.modelcontextprotocol/"
LL, LM, ML, MM = (
    EraPair(False, False),
    EraPair(False, True),
    EraPair(True, False),
    EraPair(True, True),
)
PAIRS = [LL, LM, ML, MM]
ODD = (
    b'{"content":[{"type":"new","n":1.0}],"x":1E+2,"y":12345678901234567890,"z":null,"s":"\\u00e9"}'
)

members = st.dictionaries(
    st.text().filter(lambda key: key not in ("_meta", "resultType", "ttlMs", "cacheScope")),
    st.none() | st.integers() | st.text() | st.lists(st.booleans()),
)


def sent(pair: EraPair, params: Members, meta: Members | None = None) -> bytes:
    """The parameters of a call of `echo`, our seventh request."""
    call = CallRequest(ToolIdentifier("a", "b", "echo"), params, meta or {}, pair.modern_host)
    return params_for(pair, b'"echo"', call, 7, OURS)


def called(pair: EraPair, meta: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
    params.setdefault("arguments", {})
    given_members = {key: raw(value) for key, value in params.items()}
    return json.loads(sent(pair, given_members, {k: raw(v) for k, v in (meta or {}).items()}))


# Requests


@pytest.mark.parametrize("pair", PAIRS)
def test_arguments_travel_byte_for_byte(pair: EraPair) -> None:
    arguments = b'{ "a":1.0,"a":2, "big":12345678901234567890,"e":"\\u00e9" }'

    assert arguments in sent(pair, {"arguments": msgspec.Raw(arguments)})


@pytest.mark.parametrize("pair", PAIRS)
def test_members_that_we_do_not_know_travel_too(pair: EraPair) -> None:
    assert called(pair, other={"ttl": 5})["other"] == {"ttl": 5}


@pytest.mark.parametrize("pair", PAIRS)
def test_no_server_is_asked_for_a_task(pair: EraPair) -> None:
    assert "task" not in called(pair, task={"ttl": 5})


def test_between_legacy_ends_nothing_is_added() -> None:
    assert sent(LL, {"arguments": raw({})}) == b'{"name":"echo","arguments":{}}'


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("token", [0, "t", 12345678901234567890, "é\n"])
def test_the_host_s_progress_token_stays_here(pair: EraPair, token: Any) -> None:
    meta = called(pair, {"progressToken": token, "vendor/x": 1})["_meta"]

    assert meta["progressToken"] == 7
    assert meta["vendor/x"] == 1


@pytest.mark.parametrize("pair", PAIRS)
def test_no_progress_is_asked_for_where_the_host_did_not(pair: EraPair) -> None:
    assert "progressToken" not in called(pair).get("_meta", {})


@pytest.mark.parametrize("pair", PAIRS)
def test_vendor_keys_and_traces_pass(pair: EraPair) -> None:
    vendor = {"traceparent": "00-1-2-01", "com.example/x": [1, None]}

    meta = called(pair, vendor)["_meta"]

    assert {key: meta[key] for key in vendor} == vendor


HOST_STAMP: dict[str, Any] = {
    PREFIX + "protocolVersion": "2026-07-28",
    PREFIX + "clientInfo": {"name": "host"},
    PREFIX + "clientCapabilities": {"elicitation": {}},
    PREFIX + "logLevel": "debug",
}


def test_a_legacy_server_sees_nothing_of_the_modern_envelope() -> None:
    assert called(ML, HOST_STAMP).get("_meta", {}) == {}
    assert called(ML, {**HOST_STAMP, PREFIX + "new": 1, "v": 1})["_meta"] == {"v": 1}


@pytest.mark.parametrize("pair", [LM, MM])
def test_a_modern_server_sees_our_own_envelope(pair: EraPair) -> None:
    meta = called(pair, HOST_STAMP if pair.modern_host else {PREFIX + "logLevel": "debug"})["_meta"]

    assert meta == {
        PREFIX + "protocolVersion": "2026-07-28",
        PREFIX + "clientInfo": {"name": "w", "version": "1"},
        PREFIX + "clientCapabilities": json.loads(bytes(OURS_ENCODED)),
        PREFIX + "logLevel": "debug",
    }


def test_a_legacy_host_s_log_level_is_a_modern_server_s_business_alone() -> None:
    assert called(LL, {PREFIX + "logLevel": "debug", "x": 1})["_meta"] == {"x": 1}


def test_between_legacy_ends_meta_stays_as_it_is() -> None:
    meta = {PREFIX + "related-task": {"taskId": "a"}, "x": 1}

    assert called(LL, meta)["_meta"] == meta


# Results


@given(st.binary())
def test_between_legacy_ends_a_result_is_the_very_same_bytes(data: bytes) -> None:
    assert result_for(LL, msgspec.Raw(data), OURS) == msgspec.Raw(data)


@given(members)
def test_a_modern_host_gets_a_stamped_result_and_all_that_was_in_it(value: dict[str, Any]) -> None:
    stamped = json.loads(result_for(ML, raw(value), OURS))

    assert stamped.pop("resultType") == "complete"
    assert stamped.pop("_meta") == {PREFIX + "serverInfo": {"name": "w", "version": "1"}}
    assert stamped == value


@pytest.mark.parametrize("text", [b"{}", b" { } ", b'{"a":1}', b'{ "a":1 }', ODD])
def test_stamping_splices_and_keeps_every_byte(text: bytes) -> None:
    stamped = complete(msgspec.Raw(text), OURS)

    assert text.strip()[1:] in bytes(stamped)
    assert json.loads(stamped)["resultType"] == "complete"


def test_a_result_s_own_meta_is_kept_beside_our_stamp() -> None:
    result = raw({"content": [], "_meta": {"x": 1.0, PREFIX + "serverInfo": {"name": "theirs"}}})

    meta = json.loads(result_for(ML, result, OURS))["_meta"]

    assert meta == {"x": 1.0, PREFIX + "serverInfo": {"name": "theirs"}}


@pytest.mark.parametrize("meta", [b"null", b"[]", b"5", b'"x"'])
def test_a_meta_of_the_wrong_shape_does_not_cost_the_answer(meta: bytes) -> None:
    result = msgspec.Raw(b'{"content":[],"_meta":' + meta + b"}")

    stamped = json.loads(result_for(ML, result, OURS))

    assert stamped["resultType"] == "complete"
    assert stamped["content"] == []


@given(members)
def test_a_legacy_host_sees_nothing_of_the_modern_result(value: dict[str, Any]) -> None:
    value.pop("structuredContent", None)  # has a rule of its own
    modern = {"resultType": "complete", **value, "ttlMs": 5, "cacheScope": "public"}

    assert json.loads(bytes(result_for(LM, raw(modern), OURS))) == value


def test_between_modern_ends_a_complete_result_is_the_very_same_bytes() -> None:
    result = msgspec.Raw(b'{"resultType":"complete", "x":1.0}')

    assert bytes(result_for(MM, result, OURS)) == b'{"resultType":"complete", "x":1.0}'


def test_a_modern_server_that_forgets_to_say_complete_is_completed() -> None:
    assert json.loads(result_for(MM, raw({"content": []}), OURS))["resultType"] == "complete"


@pytest.mark.parametrize("pair", [LM, MM])
@pytest.mark.parametrize("kind", ["input_required", "task", "new"])
def test_a_result_that_is_not_complete_is_not_passed_off_as_one(pair: EraPair, kind: str) -> None:
    with pytest.raises(Unanswerable, match=kind):
        result_for(pair, raw({"resultType": kind}), OURS)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("odd", [b"5", b"null", b"[1]", b'"text"'])
def test_a_result_of_the_wrong_shape_is_the_host_s_to_judge(pair: EraPair, odd: bytes) -> None:
    assert bytes(result_for(pair, msgspec.Raw(odd), OURS)) == odd


@pytest.mark.parametrize(
    ("result", "asks"),
    [
        (b'{"resultType":"input_required"}', True),
        (b'{"resultType":"complete"}', False),
        (b'{"inputRequests":{}}', False),
        (b'["input_required"]', False),
        (b"5", False),
    ],
)
def test_only_a_result_that_says_so_asks_for_input(result: bytes, asks: bool) -> None:
    assert asks_for_input(msgspec.Raw(result)) is asks


@pytest.mark.parametrize("pair", [LM, MM])
@pytest.mark.parametrize("kind", [b"1" * 5000, b"1e400", b"null", b'["complete"]'])
def test_a_kind_that_is_no_name_is_said_not_to_be_supported(pair: EraPair, kind: bytes) -> None:
    with pytest.raises(UnknownResultType) as failure:
        result_for(pair, msgspec.Raw(b'{"resultType":%b}' % kind), OURS)

    assert str(failure.value) == f"the server's result is {kind.decode()}, which is not supported"


def test_complete_may_be_spelled_with_escapes() -> None:
    spelled = msgspec.Raw(b'{"resultType":"\\u0063omplete","a":1.0}')

    assert result_for(MM, spelled, OURS) is spelled
    assert result_for(LM, spelled, OURS) == b'{"a":1.0}'


def test_a_result_of_too_many_members_is_not_answered_but_told() -> None:
    many = msgspec.json.encode({f"{number:05}": 0 for number in range(MOST_MEMBERS + 1)})

    with pytest.raises(Unanswerable) as failure:
        result_for(ML, msgspec.Raw(b'{"_meta":%b}' % many), OURS)

    assert str(failure.value) == "the server's result has an object with more than 20000 members"


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        (b'{"type":"object","x":1.0}', True),
        (b'{"type":"array"}', False),
        (b'{"type":["object"]}', False),
        (b"true", False),
        (b"{}", False),
    ],
)
def test_a_legacy_host_sees_an_output_schema_of_an_object_alone(schema: bytes, kept: bool) -> None:
    definition = b'{"name":"a","outputSchema":%b}' % schema

    assert legacy_definition(definition) == (definition if kept else b'{"name":"a"}')
    assert legacy_definition(b'{"name":"a"}') == b'{"name":"a"}'


# Progress


def test_a_notice_gets_the_host_s_token_and_keeps_the_rest() -> None:
    notice = msgspec.Raw(b'{"progressToken":7,"progress":1.0,"total":1E+2,"x":[null]}')

    told = with_token(notice, msgspec.Raw(b'"h\\u00e9"'))

    assert told == b'{"progressToken":"h\\u00e9","progress":1.0,"total":1E+2,"x":[null]}'
    assert token_of(notice) == 7


@pytest.mark.parametrize("token", [b'"7"', b"-7", b"7.0", b"1234567890123456789", b"null", b"[7]"])
def test_a_token_that_is_none_of_ours_is_no_number(token: bytes) -> None:
    assert token_of(msgspec.Raw(b'{"progressToken":%b}' % token)) == 0
    assert token_of(msgspec.Raw(b'{"progressToken":123456789012345678}')) == 123456789012345678
