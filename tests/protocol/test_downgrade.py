"""What a modern server may say and a legacy host can't read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcp_workbench.protocol.translation import legacy_definition, legacy_result
from tests.kit.results import raw

TEXT = {"type": "text", "text": "words"}


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"content": [], "resultType": "complete", "ttlMs": 1, "cacheScope": "x"}, {"content": []}),
        ({"structuredContent": {"a": [1]}}, {"structuredContent": {"a": [1]}}),
        (
            {"content": [], "structuredContent": [1, 2]},
            {"content": [{"type": "text", "text": "[1,2]"}]},
        ),
        ({"structuredContent": 7}, {"content": [{"type": "text", "text": "7"}]}),
        ({"content": [TEXT], "structuredContent": [1]}, {"content": [TEXT]}),
        ({"content": 3, "structuredContent": [1]}, {"content": 3}),
        ({"content": [{"type": "odd"}], "structuredContent": None},
         {"content": [{"type": "odd"}, {"type": "text", "text": "null"}]}),
    ],
)  # fmt: skip
def test_structured_content_that_is_no_object_becomes_words(
    result: dict[str, Any], told: dict[str, Any]
) -> None:
    assert json.loads(bytes(legacy_result(raw(result)))) == told


@pytest.mark.parametrize("schema", [{"type": "array"}, {"anyOf": []}, True, {"type": ["object"]}])
def test_an_output_schema_that_describes_no_object_is_left_out(schema: Any) -> None:
    tool = json.dumps({"name": "t", "outputSchema": schema, "x": 1}).encode()

    assert json.loads(legacy_definition(tool)) == {"name": "t", "x": 1}


@pytest.mark.parametrize(
    "tool", [b'{"name":"t"}', b'{"name":"t", "outputSchema":{"type":"object"}}']
)
def test_other_definitions_keep_their_bytes(tool: bytes) -> None:
    assert legacy_definition(tool) is tool
