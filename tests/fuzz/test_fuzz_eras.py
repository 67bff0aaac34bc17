"""Between eras: whatever is inside, what leaves us is JSON with every member that may travel."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.spec import ServerAddress, ToolIdentifier
from mcp_workbench.protocol import handshake
from mcp_workbench.protocol.elicitation import asked_by, asking, read_input_required
from mcp_workbench.protocol.handshake import META, SERVER_INFO_KEY, STAMPS, read_capabilities
from mcp_workbench.protocol.signed_state import LIFETIME, Seal, SignedState, digest_of
from mcp_workbench.protocol.translation import (
    PAIRS,
    EraPair,
    Unanswerable,
    complete,
    params_for,
    result_for,
    with_token,
)
from tests.fuzz.effort import fuzzed
from tests.fuzz.material import keys, mutated, objects, strict_json, values
from tests.kit.results import raw

pairs = st.sampled_from(list(PAIRS.values()))
valid_texts = st.text(max_size=6)
valid: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | valid_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(valid_texts, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
results = st.dictionaries(
    st.sampled_from(["content", "structuredContent", "_meta", "isError", "ttlMs", "inputRequests", "requestState"])
    | valid_texts,
    valid | st.just([{"type": "text", "text": "x"}]),
    max_size=4,
)  # fmt: skip
kinds = st.sampled_from([None, "complete", "input_required", 5])
spaced = st.sampled_from([(",", ":"), (" , ", " : "), (",\t", ":\t")])


def spelled(value: Any, separators: tuple[str, str]) -> msgspec.Raw:
    return msgspec.Raw(f" {json.dumps(value, separators=separators)} ".encode())


@fuzzed(pairs, results | valid, kinds, spaced)
def test_a_result_keeps_what_its_host_can_read(
    pair: EraPair, result: Any, kind: Any, separators: tuple[str, str]
) -> None:
    if isinstance(result, dict) and kind is not None:
        result = {**result, "resultType": kind}
    sent = spelled(result, separators)
    sent = msgspec.json.decode(b"[%b]" % bytes(sent), type=list[msgspec.Raw])[0]
    try:
        found = strict_json(bytes(result_for(pair, sent, STAMPS)))
    except Unanswerable:
        assert pair.modern_server
        assert kind not in (None, "complete")
        return
    if not isinstance(result, dict) or not (pair.modern_host or pair.modern_server):
        assert found == result
        return
    ours = {"resultType", "_meta", "ttlMs", "cacheScope", "structuredContent", "content"}
    for name, value in result.items():
        assert name in ours or found[name] == value
    if pair.modern_host and not pair.modern_server:
        assert found["resultType"] == "complete"
        if isinstance(found["_meta"], dict):  # what is no object is left as it is
            assert SERVER_INFO_KEY in found["_meta"]
        else:
            assert found["_meta"] == result["_meta"]
    if not pair.modern_host:
        assert "resultType" not in found
        assert isinstance(found.get("structuredContent", {}), dict)


@fuzzed(pairs, objects, objects, objects, st.integers(1, 9))
def test_parameters_keep_what_is_not_of_the_hop(
    pair: EraPair, arguments: Any, meta: Any, more: Any, number: int
) -> None:
    arguments, meta, more = (clean(part) for part in (arguments, meta, more))
    params = {"arguments": raw(arguments)} | {
        key: raw(value) for key, value in more.items() if key not in ("name", "arguments", "_meta")
    }
    call = CallRequest(
        ToolIdentifier("a", "b", "c"),
        params,
        {k: raw(v) for k, v in meta.items()},
        pair.modern_host,
    )

    found = strict_json(params_for(pair, b'"c"', call, number, STAMPS))

    assert found["name"] == "c"
    assert found["arguments"] == arguments
    for key in params.keys() - {"arguments"}:
        assert found[key] == more[key]
    travelled = found.get("_meta", {})
    assert travelled.get("progressToken", number) == number
    for key, value in meta.items():
        if not key.startswith(META) and key != "progressToken":
            assert travelled[key] == value


def clean(value: Any) -> Any:
    """The same without halves of characters, which no message brings here."""
    text = json.dumps(value).encode()
    from mcp_workbench.transport.json_text import mend_surrogates

    return strict_json(mend_surrogates(text))


@fuzzed(objects, st.integers() | valid_texts)
def test_progress_gets_the_host_s_own_token(params: Any, token: Any) -> None:
    params = clean(params)

    found = strict_json(with_token(raw(params), raw(token)))

    assert found == {**params, "progressToken": token}


wanted = st.fixed_dictionaries(
    {},
    optional={
        "inputRequests": st.dictionaries(
            keys,
            st.fixed_dictionaries(
                {"method": st.sampled_from(["elicitation/create", "roots/list"]) | values},
                optional={"params": objects | values},
            )
            | values,
            max_size=2,
        )
        | values,
        "requestState": values,
    },
)


@fuzzed(wanted, values)
def test_a_question_can_be_put_or_has_no_usable_form(value: Any, params: Any) -> None:
    address = ServerAddress("dev", "a")
    try:
        found = read_input_required(address, raw(clean(value)))
    except msgspec.DecodeError:
        found = None
    for question in found.questions.values() if found else ():
        strict_json(question.params)
    try:
        question = asked_by(address, "elicitation/create", raw(clean(params)))
    except msgspec.DecodeError:
        assert not isinstance(params, dict)
        return
    assert strict_json(question.params)["message"].startswith("[dev/a]")


@fuzzed(
    objects | values,
    values,
    st.sampled_from(["server/discover", "initialize"]),
    st.sampled_from([0, -32022, -1]),
)
def test_meeting_a_server_ends_somewhere_whatever_it_answers(
    result: Any, capabilities: Any, method: str, code: int
) -> None:
    if isinstance(result, dict):
        result = {
            **result,
            "capabilities": capabilities,
            "protocolVersion": "2025-11-25",
            "supportedVersions": ["2026-07-28"],
        }
    answer = handshake.Answered(method, bytes(raw(clean(result))), code, "no")
    state, _ = handshake.first_step("auto")
    for _ in range(6):
        state, asks = handshake.step(state, answer)
        if not asks:
            break
        answer = handshake.Answered(asks[0].method, answer.result, code, "no")
    else:
        raise AssertionError("it never ends")
    read_capabilities(raw(clean(capabilities)))
    if isinstance(capabilities, dict):
        asking({key: raw(value) for key, value in clean(capabilities).items()})


SEAL = Seal(b"k" * 32)


@fuzzed(st.text(max_size=5), values, st.floats(0, LIFETIME), examples=30)
def test_what_was_sealed_opens_and_nothing_else(principal: str, state: Any, age: float) -> None:
    sealed = SignedState(
        "held", ServerAddress("a", "b"), "d", principal, 5.0, "h", raw(clean(state))
    )
    token = SEAL.close(sealed)

    opened = SEAL.open(token, principal, "d", 5.0 + age)

    assert opened is not None
    assert strict_json(bytes(opened.state)) == clean(state)
    assert SEAL.open(token, principal + "x", "d", 5.0) is None


tokens = mutated(
    st.just(SEAL.close(SignedState("relay", ServerAddress("a", "b"), "d", "p", 5.0)).encode())
)


@fuzzed(tokens, st.text(max_size=3))
def test_a_changed_seal_stays_shut(token: bytes, more: str) -> None:
    right = SEAL.close(SignedState("relay", ServerAddress("a", "b"), "d", "p", 5.0))

    for text in (token.decode("utf-8", "replace"), right + more, more + right):
        assert (SEAL.open(text, "p", "d", 6.0) is not None) == (text == right)


@fuzzed(objects, objects)
def test_a_digest_tells_calls_apart_and_not_the_order_of_keys(one: Any, other: Any) -> None:
    one, other = clean(one), clean(other)
    turned = dict(reversed(one.items()))

    assert digest_of("a/b/c", raw(one)) == digest_of("a/b/c", raw(turned))
    if json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True):
        assert digest_of("a/b/c", raw(one)) != digest_of("a/b/c", raw(other))


@fuzzed(results)
def test_a_stamped_result_is_complete(result: Any) -> None:
    found = strict_json(complete(raw(result), STAMPS))

    assert found["resultType"] == "complete"
    assert all(
        found[key] == value for key, value in result.items() if key not in ("_meta", "resultType")
    )
