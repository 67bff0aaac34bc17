"""What is spliced together is JSON, and says what its parts said, whatever these were."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from mcp_workbench.core.catalogue import Definition, read_definitions, tool_info_json
from mcp_workbench.core.raw_json import changed, checked, each
from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.gateway.arguments import error_with_hint, result_with_hint
from mcp_workbench.gateway.result_budget import KeptResults, within_budget
from mcp_workbench.protocol.handshake import STAMPS
from mcp_workbench.protocol.primitive_messages import read_error_for, with_cache
from mcp_workbench.protocol.translation import (
    PAIRS,
    EraPair,
    Unanswerable,
    legacy_definition,
    legacy_result,
    result_for,
)
from mcp_workbench.server.flat_tools import flat_definition
from mcp_workbench.server.primitive_requests import _readdressed
from mcp_workbench.transport.jsonrpc import answer, refusal
from tests.fuzz.effort import fuzzed
from tests.fuzz.material import strict_json

AT = ServerAddress("dev", "a")
TEXTS = st.text(max_size=5)
ANY: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
NAMES = st.sampled_from(
    ["content", "contents", "structuredContent", "_meta", "isError", "resultType", "ttlMs", "cacheScope",
     "name", "description", "outputSchema", "inputSchema", "toolbox_name", "message", "code", "data", "uri"]
) | TEXTS  # fmt: skip
BLOCKS = st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=40)}) | ANY, max_size=3
)
PAIRS_OF = st.lists(st.tuples(NAMES, ANY | BLOCKS), max_size=5)
SPACES = st.sampled_from(["", " ", "\t", "  "])


def spelled(members: list[tuple[str, Any]], space: str) -> bytes:
    """An object as servers may write it: names may stand twice, and there is space anywhere."""
    parts = [
        f"{space}{json.dumps(name)}{space}:{space}{json.dumps(value, ensure_ascii=False)}{space}"
        for name, value in members
    ]
    return ("{" + ",".join(parts) + (space if not parts else "") + "}").encode()


@fuzzed(PAIRS_OF, SPACES, st.text(max_size=5))
def test_a_failed_result_with_a_lesson_is_json(members: Any, space: str, words: str) -> None:
    result = spelled(members, space)

    found = strict_json(result_with_hint(msgspec.Raw(result), words))

    said = strict_json(result)
    if isinstance(said.get("content"), list):
        assert found["content"][:-1] == said["content"]
        assert found["content"][-1] == {"type": "text", "text": words}
        said["content"] = found["content"]
    assert found == said


@fuzzed(PAIRS_OF, SPACES, st.text(max_size=5))
def test_an_error_with_a_lesson_is_json(members: Any, space: str, words: str) -> None:
    error = spelled(members, space)

    found = strict_json(bytes(error_with_hint(msgspec.Raw(error), "m", words)))

    assert found == {**strict_json(error), "message": f"m\n{words}"}


@fuzzed(PAIRS_OF, SPACES, st.sampled_from(list(PAIRS.values())))
def test_a_result_of_any_members_is_json_for_its_host(
    members: Any, space: str, pair: EraPair
) -> None:
    result = msgspec.Raw(spelled(members, space))
    try:
        translated = result_for(pair, result, STAMPS)
    except Unanswerable:
        return
    said, found = strict_json(bytes(result)), strict_json(bytes(translated))
    ours = {"resultType", "_meta", "ttlMs", "cacheScope", "structuredContent", "content"}
    assert {k: v for k, v in found.items() if k not in ours} == {
        k: v for k, v in said.items() if k not in ours
    }
    for kept in (within_budget(translated, 5, KeptResults(), None), with_cache(translated)):
        assert isinstance(strict_json(answer(b"1", kept))["result"], dict)


@fuzzed(PAIRS_OF, SPACES)
def test_what_is_read_from_a_resource_is_json(members: Any, space: str) -> None:
    result = msgspec.Raw(spelled(members, space))

    for requested in ("mcp-workbench://a/b/c", "ui://workbench/a/b/c"):
        readdressed = strict_json(bytes(_readdressed(result, AT, requested)))
        assert set(readdressed) == set(strict_json(bytes(result)))
    for pair in PAIRS.values():
        told = read_error_for(pair, bytes(result), "a:b", "c:d")
        assert strict_json(refusal(b"1", told))["id"] == 1


@fuzzed(PAIRS_OF, SPACES, st.text(min_size=1, max_size=4))
def test_a_definition_of_any_members_is_json_wherever_it_is_shown(
    members: Any, space: str, name: str
) -> None:
    page = [msgspec.Raw(spelled([*members, ("name", name)], space))]
    tools, _ = read_definitions(page)
    for tool in tools.values():
        assert strict_json(tool_info_json(tool, AT))["toolbox_name"] == "dev"
        assert strict_json(flat_definition(tool, AT))["_meta"]["source_server"] == "a"
        older = Definition(tool.name, legacy_definition(tool.raw))
        assert strict_json(older.raw)["name"] == tool.name


@fuzzed(PAIRS_OF, SPACES, st.dictionaries(NAMES, ANY | st.none(), max_size=3))
def test_changed_members_are_the_wanted_ones(members: Any, space: str, wanted: Any) -> None:
    json_ = spelled(members, space)
    parts = {k: None if v is None else msgspec.json.encode(v) for k, v in wanted.items()}

    made = changed(json_, parts)

    expected = {k: v for k, v in strict_json(json_).items() if k not in wanted}
    expected |= {k: v for k, v in wanted.items() if v is not None}
    assert strict_json(made) == expected
    assert checked(made, json_) is made
    assert checked(made[:-1], json_) == json_
    elements = b"[" + json_ + b"," + json_ + b"]"
    assert strict_json(each(elements, lambda one: changed(one, parts))) == [expected, expected]


@fuzzed(PAIRS_OF, SPACES)
def test_a_modern_result_for_a_legacy_host_is_json(members: Any, space: str) -> None:
    found = strict_json(bytes(legacy_result(msgspec.Raw(spelled(members, space)))))

    assert "resultType" not in found
    assert isinstance(found.get("structuredContent", {}), dict)
