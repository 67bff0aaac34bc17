"""Tasks: whatever a server says about them, and whatever a host calls them, is read or is none."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
from hypothesis import strategies as st

from mcp_workbench.protocol.task_ids import TaskSeal
from mcp_workbench.protocol.task_messages import (
    RELATED,
    acknowledged_tasks,
    created_task,
    detailed_task,
    modern_created,
    noticed_task,
    optional_task,
    progress_of_task,
    related_task,
    requires_tasks,
    task_support,
    with_related,
)
from tests.fuzz.effort import fuzzed
from tests.fuzz.material import strict_json

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.floats(-1e9, 1e9)
names = st.sampled_from(
    [
        *(
            "task",
            "taskId",
            "taskIds",
            "notifications",
            "inputRequests",
            "status",
            "ttl",
            "ttlMs",
            "pollInterval",
            "resultType",
            "_meta",
        ),
        *("execution", "taskSupport", "createdAt", "data", "requiredCapabilities", "extensions"),
        RELATED,
    ]
)
words = st.sampled_from(["task", "required", "optional", "working", "completed"])
made: st.SearchStrategy[Any] = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=4),
    max_leaves=10,
)
messages = st.dictionaries(names, made, max_size=5)


@fuzzed(messages)
def test_any_message_is_a_task_or_none(message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    raw = msgspec.Raw(body)
    for task in (created_task(raw), modern_created(raw)):
        assert task is None or task.task_id in body.decode() or "\\" in body.decode()
    if (legacy := created_task(raw)) is not None:
        for members in (legacy.modern("id"), legacy.legacy("id")):
            assert strict_json(msgspec.json.encode(members))["taskId"] == "id"
    requires_tasks(raw)
    assert isinstance(noticed_task(raw), str)
    assert all(isinstance(id, str) for id in acknowledged_tasks(raw))
    with suppress(msgspec.DecodeError):
        progress_of_task(detailed_task(raw))
    assert task_support(optional_task(body)) != "required"


@fuzzed(messages)
def test_a_message_without_its_task_has_everything_else(message: dict[str, Any]) -> None:
    body = json.dumps(message).encode()
    meta = message.get("_meta")
    named = isinstance(meta, dict) and RELATED in meta

    left = strict_json(with_related(body))

    assert isinstance(related_task(body), str)
    if not named:
        assert left == message
        return
    rest = {key: value for key, value in (meta or {}).items() if key != RELATED}
    assert left == {**{k: v for k, v in message.items() if k != "_meta"}, **({"_meta": rest} if rest else {})}  # fmt: skip


@fuzzed(st.text(max_size=80), st.binary(max_size=80))
def test_no_text_that_we_did_not_sign_is_a_task(text: str, data: bytes) -> None:
    seal = TaskSeal(b"k" * 32)

    assert seal.open(text, "") is None
    assert seal.open(f"wbt1.{data.hex()}", "") is None
