"""What tools, hosts and servers say about tasks, in both eras; malformed messages are no tasks."""

import json

import msgspec
import pytest

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.spec import ToolIdentifier
from mcp_workbench.protocol.extensions import TASKS
from mcp_workbench.protocol.handshake import read_capabilities
from mcp_workbench.protocol.task_messages import (
    RELATED,
    Task,
    TaskSupport,
    about_task,
    acknowledged_tasks,
    created_task,
    declares_tasks,
    detailed_task,
    inlined_result,
    modern_created,
    noticed_task,
    optional_task,
    related_task,
    requires_tasks,
    task_support,
    task_wish,
    with_related,
    with_tasks,
)
from tests.kit.results import Json, raw


def definition(support: object) -> bytes:
    return json.dumps({"name": "t", "execution": {"taskSupport": support, "x": 1.5}}).encode()


@pytest.mark.parametrize(
    ("raw_definition", "support"),
    [
        (definition("required"), "required"),
        (definition("optional"), "optional"),
        (definition("forbidden"), "forbidden"),
        (definition("other"), "forbidden"),
        (definition(5), "forbidden"),
        (b'{"name":"t"}', "forbidden"),
        (b'{"execution":"taskSupport"}', "forbidden"),
    ],
)
def test_the_definition_of_a_tool_says_whether_it_runs_as_a_task(
    raw_definition: bytes, support: str
) -> None:
    assert task_support(raw_definition) == support


def test_a_required_task_is_shown_as_optional_and_nothing_else_changes() -> None:
    shown = optional_task(definition("required"))

    assert json.loads(shown)["execution"] == {"taskSupport": "optional", "x": 1.5}
    assert optional_task(definition("forbidden")) == definition("forbidden")


@pytest.mark.parametrize(
    ("support", "modern", "takes", "task", "relayed"),
    [
        ("forbidden", True, True, True, None),
        ("optional", True, True, False, True),
        ("required", True, True, False, True),
        ("optional", True, False, True, None),
        ("required", True, False, True, False),
        ("optional", False, True, False, None),
        ("optional", False, True, True, True),
        ("required", False, True, False, False),
        ("optional", False, False, True, None),
        ("required", False, False, True, False),
    ],
)
def test_who_gets_the_handle(
    support: TaskSupport, *, modern: bool, takes: bool, task: bool, relayed: bool | None
) -> None:
    params = {"arguments": raw({})} | ({"task": raw({"ttl": 5})} if task else {})
    request = CallRequest(ToolIdentifier("b", "s", "t"), params, modern_host=modern)

    wish = task_wish(support, request, takes_tasks=takes)

    assert (None if wish is None else wish.is_relayed) is relayed
    if wish is not None:
        own = relayed and not modern
        assert json.loads(bytes(wish.task)) == ({"ttl": 5} if own else {})


@pytest.mark.parametrize(
    ("capabilities", "declared"),
    [
        ({"extensions": {TASKS: {}}}, True),
        ({"extensions": {"x": TASKS}}, False),
        ({"experimental": {TASKS: {}}}, False),
        ({}, False),
    ],
)
def test_a_host_declares_the_extension(capabilities: Json, declared: bool) -> None:
    assert declares_tasks(raw(capabilities)) is declared
    assert declares_tasks(with_tasks(raw(capabilities)))


def test_capabilities_of_no_form_declare_nothing() -> None:
    assert not declares_tasks(json.dumps([TASKS]).encode())


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"requiredCapabilities": {"extensions": {TASKS: {}}}}, True),
        ({"requiredCapabilities": {"sampling": {}}}, False),
        ({"requiredCapabilities": 1}, False),
        ({}, False),
    ],
)
def test_an_error_names_the_extension(data: Json, named: bool) -> None:
    assert requires_tasks(raw({"code": -32021, "message": "m", "data": data})) is named


def test_a_legacy_task_in_the_words_of_both_eras() -> None:
    told = {"taskId": "t1", "status": "working", "createdAt": "a", "lastUpdatedAt": "b"}
    task = created_task(raw({"task": {**told, "ttl": 1.0, "pollInterval": 0.5}}))

    assert task is not None
    assert _read(task.modern("id")) == {**told, "taskId": "id", "ttlMs": 1, "pollIntervalMs": 1}
    assert _read(task.legacy("id")) == {**told, "taskId": "id", "ttl": 1, "pollInterval": 1}
    bare = _read(Task("t", "failed", "why").modern("id"))
    assert (bare["ttlMs"], bare["statusMessage"]) == (None, "why")
    assert "pollIntervalMs" not in bare


def _read(members: dict[str, msgspec.Raw]) -> Json:
    return {key: json.loads(bytes(value)) for key, value in members.items()}


@pytest.mark.parametrize(
    "result", [{"content": []}, {"task": 1}, {"task": {"status": "working"}}, {"x": {"task": {}}}]
)
def test_other_results_are_no_tasks(result: Json) -> None:
    assert created_task(raw(result)) is None
    assert modern_created(raw(result)) is None


def test_a_modern_task_has_an_id_and_says_what_it_is() -> None:
    assert modern_created(raw({"resultType": "task", "taskId": "t"})) is not None
    assert modern_created(raw({"resultType": "task"})) is None
    assert modern_created(raw({"resultType": "complete", "taskId": "t"})) is None
    assert modern_created(raw({"resultType": 1})) is None


def test_messages_name_their_task() -> None:
    params = about_task(b'{"message":"?","_meta":{"x":1.50}}', "t1")

    assert related_task(params) == "t1"
    assert json.loads(with_related(params, "t2"))["_meta"][RELATED] == {"taskId": "t2"}
    assert with_related(params) == b'{"message":"?","_meta":{"x":1.50}}'
    assert with_related(about_task(b"{}", "t")) == b"{}"
    assert related_task(b"{}") == ""


@pytest.mark.parametrize("odd", [RELATED, {"_meta": RELATED}, {"_meta": {"x": RELATED}}])
def test_messages_that_only_mention_it_name_no_task(odd: object) -> None:
    message = json.dumps(odd).encode()

    assert related_task(message) == ""
    assert with_related(message, "t") == message


def test_a_result_inside_a_task_is_a_modern_one() -> None:
    inside = json.loads(inlined_result(about_task(b'{"content":[]}', "t")))

    assert inside["resultType"] == "complete"
    assert RELATED not in inside["_meta"]


@pytest.mark.parametrize(
    ("tasks", "runs", "cancels"),
    [
        ({"requests": {"tools": {"call": {}}}, "cancel": {}}, True, True),
        ({"requests": {"tools": {"call": {}}}}, True, False),
        ({"cancel": {}}, False, True),
        ({"requests": 1}, False, False),
        (None, False, False),
    ],
)
def test_a_legacy_server_declares_tasks(tasks: object, *, runs: bool, cancels: bool) -> None:
    declared = read_capabilities(raw({"tasks": tasks}))

    assert (declared.tasks, declared.tasks_cancel) == (runs, cancels)


@pytest.mark.parametrize(
    ("error", "requires"),
    [
        ({"data": {"requiredCapabilities": {"extensions": {TASKS: {}, "a/b": 1}}}}, True),
        ({"data": {"requiredCapabilities": {"extensions": {"a/b": {}}}}}, False),
        ({"data": {"requiredCapabilities": {"extensions": [TASKS]}}}, False),
        ({"data": {"requiredCapabilities": {"extensions": {TASKS: "a" * 100_000}}}}, False),
        ({"data": 5}, False),
        ([], False),
    ],
    ids=["it", "another", "a list", "very long", "odd data", "odd"],
)
def test_only_an_error_that_names_the_extension_requires_it(error: object, requires: bool) -> None:
    assert requires_tasks(raw(error)) is requires


@pytest.mark.parametrize(
    ("params", "task", "agreed"),
    [
        ({"taskId": "t"}, "t", set[str]()),
        ({"taskId": 5, "notifications": {"taskIds": "ab"}}, "", set[str]()),
        ({"notifications": {"taskIds": ["a", "b", "a"]}}, "", {"a", "b"}),
        ({"taskId": "t", "notifications": {"taskIds": ["a", 5]}}, "t", set[str]()),
        ([], "", set[str]()),
    ],
)
def test_an_odd_notice_is_about_no_task(params: object, task: str, agreed: set[str]) -> None:
    assert noticed_task(raw(params)) == task
    assert acknowledged_tasks(raw(params)) == agreed


def test_a_very_long_acknowledgement_agrees_to_nothing() -> None:
    ids = [f"{number:06}" for number in range(1_000_000)]

    assert acknowledged_tasks(raw({"notifications": {"taskIds": ids}})) == frozenset()


def test_the_state_of_a_task_is_announced_without_what_belongs_to_the_answer() -> None:
    state = {"taskId": "t", "status": "working", "resultType": "complete", "_meta": {"a": 1}}

    assert _read(detailed_task(raw(state))) == {"taskId": "t", "status": "working"}
