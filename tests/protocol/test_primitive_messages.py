"""What travels beside calls, between any two eras."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.raw_json import LONGEST_NAME, MOST_MEMBERS, TooLong
from mcp_workbench.core.spec import ToolIdentifier
from mcp_workbench.protocol.handshake import ServerCapabilities, read_capabilities, stamps
from mcp_workbench.protocol.primitive_messages import (
    LEVELS,
    LONG,
    check_uri,
    level_in,
    level_of,
    most_verbose,
    not_found_code,
    reaches,
    read_error_for,
    request_params,
    subscription_of,
    tagged,
    untagged,
    with_cache,
)
from mcp_workbench.protocol.translation import PAIRS
from tests.kit.results import raw

OWN = stamps({"name": "w", "version": "1"})
PREFIX = "io.modelcontextprotocol/"
LL, LM = PAIRS[False, False], PAIRS[False, True]
ML, MM = PAIRS[True, False], PAIRS[True, True]


def read(data: bytes | msgspec.Raw) -> Any:
    return msgspec.json.decode(data)


def asked(meta: dict[str, Any], *, modern_host: bool) -> CallRequest:
    tool = ToolIdentifier("a", "b", "prompts/get")
    capabilities = raw({"roots": {}})
    return CallRequest(tool, {}, {k: raw(v) for k, v in meta.items()}, modern_host, capabilities)


def test_parameters_get_the_envelope_of_our_hop() -> None:
    members = {"uri": raw(b'"x:y"')}
    host = {PREFIX + "protocolVersion": "2026-07-28", "progressToken": "t", "v": 1}

    assert request_params(LL, members, asked({}, modern_host=False), 7, OWN) == b'{"uri":"x:y"}'
    legacy = read(request_params(ML, members, asked(host, modern_host=True), 7, OWN))
    assert legacy == {"uri": "x:y", "_meta": {"progressToken": 7, "v": 1}}
    modern = read(request_params(LM, members, asked({}, modern_host=False), 7, OWN))
    assert modern["_meta"][PREFIX + "clientCapabilities"] == {"roots": {}}


def test_what_was_read_may_be_kept_only_as_its_server_says() -> None:
    said = b'{"contents":[],"ttlMs":5,"cacheScope":"public"}'

    assert with_cache(said) is said
    assert read(with_cache(b'{"contents":[1.0]}')) == {
        "contents": [1.0],
        "ttlMs": 0,
        "cacheScope": "private",
    }
    assert with_cache(b"[]") == b"[]"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"ttlMs": 5}, {"ttlMs": 5, "cacheScope": "private"}),
        ({"cacheScope": "public"}, {"cacheScope": "public", "ttlMs": 0}),
    ],
)
def test_the_half_of_what_a_server_says_of_caching_is_completed(said: Any, told: Any) -> None:
    assert read(with_cache(raw(said))) == told


MANY = {f"{number:05}": 0 for number in range(MOST_MEMBERS + 1)}


def test_what_has_too_many_members_to_be_changed_keeps_its_bytes() -> None:
    result = msgspec.json.encode(MANY)
    error = msgspec.json.encode({"code": -32002, "data": {"uri": "a:b", **MANY}})

    assert with_cache(result) is result
    assert read_error_for(ML, error, "a:b", "W") is error


@pytest.mark.parametrize(
    ("pair", "error", "told"),
    [
        (LL, {"code": -32002, "data": {"uri": "a:b"}}, {"code": -32002, "data": {"uri": "W"}}),
        (LL, {"code": -32602, "data": {"uri": "a:b"}}, {"code": -32602, "data": {"uri": "W"}}),
        (MM, {"code": -32002, "data": {"uri": "a:b"}}, {"code": -32002, "data": {"uri": "W"}}),
        (ML, {"code": -32002, "data": {"uri": "a:b", "x": 1}}, {"code": -32602, "data": {"uri": "W", "x": 1}}),
        (ML, {"code": -32002}, {"code": -32602, "data": {"uri": "W"}}),
        (LM, {"code": -32602, "data": {"uri": "a:b"}}, {"code": -32002, "data": {"uri": "W"}}),
        (LM, {"code": -32602, "data": {"uri": "c:d"}}, None),
        (LM, {"code": -32602}, None),
        (MM, {"code": -32602, "data": {"uri": "a:b"}}, {"code": -32602, "data": {"uri": "W"}}),
        (MM, {"code": -32000, "data": {"uri": "a:b"}}, None),
        (ML, {"code": -32603, "data": [1]}, None),
        (ML, {"code": "odd"}, None),
    ],
)  # fmt: skip
def test_a_missing_resource_has_each_era_s_code_and_the_host_s_uri(
    pair: Any, error: dict[str, Any], told: dict[str, Any] | None
) -> None:
    sent = {"message": "no", **error}

    found = read_error_for(pair, msgspec.json.encode(sent), "a:b", "W")

    assert read(found) == ({"message": "no", **told} if told else sent)


def test_each_era_has_its_code_for_a_resource_that_is_not_there() -> None:
    assert [not_found_code(modern_host=modern) for modern in (False, True)] == [-32002, -32602]


def test_an_error_without_need_of_change_keeps_its_bytes() -> None:
    error = b'{"code":-32002,"message":"no","data":{"uri":"a:b","n":1.0}}'

    assert read_error_for(LL, error, "a:b", "a:b") is error


# Logging


def test_levels_are_ordered_by_how_grave_they_are() -> None:
    assert [level for level in LEVELS if reaches(level, "error")] == [
        "error",
        "critical",
        "alert",
        "emergency",
    ]
    assert reaches("unheard-of", "emergency")
    assert most_verbose(["error", "info", "warning"]) == "info"
    assert most_verbose([]) == ""


@pytest.mark.parametrize("level", [b'"loud"', b"3", b"null", b'""'])
def test_an_unknown_level_is_said_to_be_one(level: bytes) -> None:
    with pytest.raises(ValueError, match="debug, info"):
        level_in({PREFIX + "logLevel": msgspec.Raw(level)})
    assert level_in({}) == ""
    assert level_in({PREFIX + "logLevel": msgspec.Raw(b'"info"')}) == "info"


def test_a_message_has_a_level_or_is_odd() -> None:
    assert level_of(raw({"level": "info", "data": 1})) == "info"
    assert level_of(raw({"data": 1})) == level_of(raw([])) == ""


# Listening


@pytest.mark.parametrize(
    ("params", "level"),
    [
        (b' { "level" : "error" , "data":"%b"}', "error"),
        (b'{"data":"%b","level":"error"}', "error"),
        (b'{"data":"%b","level":5}', ""),
        (b'["%b"]', ""),
    ],
)
@pytest.mark.parametrize("size", [1, LONG])
def test_the_level_of_a_long_message_is_found_wherever_it_stands(
    params: bytes, level: str, size: int
) -> None:
    assert level_of(raw(params % (b"a" * size))) == level


@pytest.mark.parametrize("check", [check_uri, level_of])
def test_a_level_or_a_uri_that_nobody_would_read_is_too_long(check: Any) -> None:
    value = "a" * (LONGEST_NAME - 2)

    check(raw({"uri": value, "level": value}))
    check(raw([value]))
    with pytest.raises(TooLong):
        check(raw({"uri": f"{value}a", "level": f"{value}a"}))


def test_a_frame_is_tagged_for_the_next_hop() -> None:
    theirs = raw({"uri": "a:b", "_meta": {PREFIX + "subscriptionId": 7, "v": 1}})

    assert subscription_of(theirs) == 7
    bare = msgspec.Raw(msgspec.json.encode(untagged(theirs)))
    assert read(bare) == {"uri": "a:b", "_meta": {"v": 1}}
    assert read(tagged(bare, b'"mine"'))["_meta"] == {PREFIX + "subscriptionId": "mine", "v": 1}
    assert untagged(raw({"_meta": {PREFIX + "subscriptionId": 7}})) == {}
    assert read(tagged(b'{"_meta":3}', b"1")) == {"_meta": {PREFIX + "subscriptionId": 1}}


@pytest.mark.parametrize("params", [{}, {"_meta": {}}, {"_meta": {PREFIX + "subscriptionId": "x"}}])
def test_a_frame_without_our_number_belongs_to_nothing(params: Any) -> None:
    assert subscription_of(raw(params)) == 0


# What servers declare


def test_capabilities_are_read_one_by_one() -> None:
    said = {
        "tools": {"listChanged": True},
        "prompts": {},
        "resources": {"subscribe": True},
        "logging": {},
    }

    assert read_capabilities(raw(said)) == ServerCapabilities(
        tools_changed=True, prompts=True, resources=True, subscribe=True, logging=True
    )
    assert read_capabilities(raw({"prompts": {"listChanged": True}})).announces
    assert read_capabilities(raw({"resources": {"listChanged": True}})).announces


@pytest.mark.parametrize("odd", [None, True, {"listChanged": "yes"}, []])
def test_an_odd_capability_is_as_good_as_a_plain_one(odd: Any) -> None:
    said = {"prompts": odd, "resources": {"listChanged": True}}

    assert read_capabilities(raw(said)) == ServerCapabilities(
        prompts=True, resources=True, resources_changed=True
    )
    assert (
        read_capabilities(raw(odd if odd != {"listChanged": "yes"} else 7)) == ServerCapabilities()
    )
