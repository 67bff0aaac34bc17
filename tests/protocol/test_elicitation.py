"""Questions of servers: whose they are is told, and malformed ones ask nothing."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.raw_json import Members
from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.protocol.elicitation import (
    ELICIT,
    MOST_OPEN,
    ROOTS,
    SAMPLE,
    InputRequired,
    Question,
    answered_action,
    answered_content,
    asked_by,
    asking,
    capability_names,
    for_legacy_host,
    input_required,
    may_ask,
    may_put,
    progress_of,
    read_input_required,
    read_needed,
    takes_forms,
    unanswered,
)
from tests.kit.results import Json, raw

HERE = ServerAddress("dev", "odd")
FORM = Question(HERE, ELICIT, b'{"message":"m"}')
URL = Question(HERE, ELICIT, b'{"mode":"url","url":"https://a"}')
ODD = Question(HERE, ELICIT, b'{"mode":5}')


def members(**values: object) -> Members:
    return {name: raw(value) for name, value in values.items()}


# What a host can be asked for


@pytest.mark.parametrize(
    ("capabilities", "names", "forms", "put"),
    [
        ({}, (), False, (False, False)),
        ({"elicitation": {}}, ("elicitation",), True, (True, False)),
        (
            {"elicitation": {"form": {}}},
            ("elicitation", "elicitation.form"),
            True,
            (True, False),
        ),
        (
            {"elicitation": {"url": {}}},
            ("elicitation", "elicitation.url"),
            False,
            (True, True),
        ),
        (
            {"elicitation": {"url": {}, "form": {}, "x": {}}, "sampling": {"tools": {}}},
            ("elicitation", "elicitation.form", "elicitation.url", "sampling", "sampling.tools"),
            True,
            (True, True),
        ),
        ({"elicitation": True, "roots": {}}, ("elicitation", "roots"), False, (True, False)),
    ],
)
def test_a_host_is_asked_for_what_it_declares(
    capabilities: Json, names: tuple[str, ...], forms: bool, put: tuple[bool, bool]
) -> None:
    declared = members(**capabilities)

    assert capability_names(declared) == names
    assert takes_forms(declared) is forms
    assert (may_put(FORM, declared), may_put(URL, declared)) == put
    assert may_put(ODD, declared) is put[0]


def test_each_method_needs_its_own_capability() -> None:
    declared = members(sampling={}, roots={}, tools={}, extensions={})

    assert asking(declared) == members(sampling={}, roots={})
    assert {method for method in (ELICIT, SAMPLE, ROOTS, "tools/call") if may_ask(method, declared)} == {
        SAMPLE, ROOTS,
    }  # fmt: skip


# Answers


@pytest.mark.parametrize(
    ("result", "action", "content"),
    [
        ({"action": "accept", "content": {"a": 1}}, "accept", {"a": 1}),
        ({"action": "accept"}, "accept", {}),
        ({"action": "accept", "content": [1]}, "accept", {}),
        ({"action": "decline", "content": {"a": 1}}, "decline", {}),
        ({"content": {"a": 1}}, "", {}),
        ({"action": 5, "content": {"a": 1}}, "", {}),
        ([], "", {}),
    ],
)
def test_only_an_accepted_form_has_fields(result: object, action: str, content: Json) -> None:
    answer = raw(result)

    assert answered_action(answer) == action
    assert {key: json.loads(bytes(value)) for key, value in answered_content(answer).items()} == (
        content
    )


@pytest.mark.parametrize(
    ("params", "progress"),
    [({"progress": 0.5}, 0.5), ({"progress": 3}, 3.0), ({"progress": "3"}, None), ({}, None)],
)
def test_a_notice_without_progress_has_none(params: object, progress: float | None) -> None:
    assert progress_of(raw(params)) == progress


def test_a_form_that_nobody_answers_is_cancelled_and_another_question_fails() -> None:
    assert unanswered(ELICIT) == b'{"action":"cancel"}'
    assert unanswered(SAMPLE) is unanswered(ROOTS) is None


# Who asks


def asked(method: str, params: object) -> Any:
    question = asked_by(HERE, method, raw(params))
    assert (question.address, question.method) == (HERE, method)
    return json.loads(question.params)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"message": "m", "n": 1}, {"message": "[dev/odd] m", "n": 1}),
        ({}, {"message": "[dev/odd] "}),
        ({"message": 5}, {"message": "[dev/odd] "}),
        ({"message": "m", "task": {"ttl": 1}}, {"message": "[dev/odd] m"}),
    ],
)
def test_a_form_says_whose_it_is(params: Json, told: Json) -> None:
    assert asked(ELICIT, params) == told


IMAGE = {"type": "image", "data": "AAAA"}
TEXT = {"type": "text", "text": "t", "n": 1}
MARKED = {**TEXT, "text": "[dev/odd] t"}


@pytest.mark.parametrize(
    ("params", "told"),
    [
        (
            {"messages": [{"role": "user", "content": TEXT}, {"content": TEXT}], "task": {}},
            {"messages": [{"role": "user", "content": MARKED}, {"content": TEXT}]},
        ),
        (
            {"messages": [{"content": [IMAGE, TEXT, TEXT]}], "systemPrompt": "s"},
            {"messages": [{"content": [IMAGE, MARKED, TEXT]}], "systemPrompt": "s"},
        ),
        ({"messages": [{"content": [TEXT]}]}, {"messages": [{"content": [MARKED]}]}),
        (
            {"messages": [{"content": IMAGE}, {"content": TEXT}]},
            {"messages": [{"content": IMAGE}, {"content": MARKED}]},
        ),
        (
            {"messages": [{"content": IMAGE}], "systemPrompt": "s"},
            {"messages": [{"content": IMAGE}], "systemPrompt": "[dev/odd] s"},
        ),
        (
            {"messages": [{}, 5, {"content": 5}, {"content": {"type": "text"}}]},
            {
                "messages": [{}, 5, {"content": 5}, {"content": {"type": "text"}}],
                "systemPrompt": "[dev/odd] ",
            },
        ),
        (
            {"messages": 5, "systemPrompt": 5},
            {"messages": 5, "systemPrompt": "[dev/odd] "},
        ),
    ],
)
def test_what_a_model_is_asked_says_who_asks(params: Json, told: Json) -> None:
    assert asked(SAMPLE, params) == told


def test_another_question_keeps_its_bytes() -> None:
    assert asked_by(HERE, ROOTS, b"") == Question(HERE, ROOTS, b"{}")
    assert asked_by(HERE, ROOTS, b'{"task": {}}') == Question(HERE, ROOTS, b'{"task": {}}')


# Between the eras


def test_a_legacy_host_gets_an_id_for_each_url_and_a_form_stays_as_it_is() -> None:
    told = for_legacy_host(URL, "i")
    own = msgspec.structs.replace(URL, params=told.params.replace(b'"i"', b'"own"'))

    assert json.loads(told.params) == {"mode": "url", "url": "https://a", "elicitationId": "i"}
    assert json.loads(for_legacy_host(own, "i").params)["elicitationId"] == "own"
    assert for_legacy_host(FORM, "i") is FORM
    assert for_legacy_host(ODD, "i") is ODD


def needing(*elicitations: object) -> msgspec.Raw:
    return raw({"code": -32042, "data": {"elicitations": elicitations}})


def test_a_legacy_server_s_urls_are_questions_without_its_ids() -> None:
    found = read_needed(
        HERE,
        needing({"message": "m", "url": "https://a", "elicitationId": "x"}, {"mode": "form"}),
    )

    assert {key: json.loads(one.params) for key, one in found.items()} == {
        "q1": {"message": "[dev/odd] m", "url": "https://a", "mode": "url"},
        "q2": {"message": "[dev/odd] ", "mode": "url"},
    }
    assert {(one.address, one.method) for one in found.values()} == {(HERE, ELICIT)}


@pytest.mark.parametrize(
    "error",
    [raw({}), raw({"data": {}}), needing(5), raw({"data": {"elicitations": {}}})],
)
def test_an_error_without_urls_asks_nothing(error: msgspec.Raw) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_needed(HERE, error)


def test_as_many_questions_as_are_allowed_are_asked_at_once() -> None:
    one = {"method": ROOTS}
    url: list[Json] = [{}]
    most = {str(number): one for number in range(MOST_OPEN)}

    assert len(read_needed(HERE, needing(*url * MOST_OPEN))) == MOST_OPEN
    assert len(read_input_required(HERE, raw({"inputRequests": most})).questions) == MOST_OPEN
    with pytest.raises(msgspec.DecodeError, match=r"^33 at once; 32 are allowed$"):
        read_needed(HERE, needing(*url * (MOST_OPEN + 1)))
    with pytest.raises(
        msgspec.DecodeError, match=r"^it asks 33 questions at once; 32 are allowed$"
    ):
        read_input_required(HERE, raw({"inputRequests": {**most, "more": one}}))


def test_a_result_that_asks_is_read_and_written() -> None:
    result = {
        "inputRequests": {"a": {"method": ELICIT, "params": {"message": "m"}}, "b": {"method": ROOTS}},
        "requestState": "s",
    }  # fmt: skip

    found = read_input_required(HERE, raw(result))

    assert found == InputRequired(
        {
            "a": Question(HERE, ELICIT, b'{"message":"[dev/odd] m"}'),
            "b": Question(HERE, ROOTS, b"{}"),
        },
        msgspec.Raw(b'"s"'),
    )
    assert read_input_required(HERE, raw({})) == InputRequired({}, None)
    written: Json = {
        "resultType": "input_required",
        "inputRequests": {
            "a": {"method": ELICIT, "params": {"message": "[dev/odd] m"}},
            "b": {"method": ROOTS, "params": {}},
        },
    }
    assert json.loads(input_required(found.questions, None)) == written
    assert json.loads(input_required(found.questions, "t")) == {**written, "requestState": "t"}


@pytest.mark.parametrize(
    "result", [[], {"inputRequests": []}, {"inputRequests": {"a": 5}}, {"inputRequests": {"a": {}}}]
)
def test_a_malformed_result_that_asks_is_refused(result: object) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_input_required(HERE, raw(result))
