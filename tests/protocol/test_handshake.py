"""Meeting a server, step by step: the decisions, without any server."""

import json
from typing import Any

import pytest

from mcp_workbench.core.spec import Era
from mcp_workbench.protocol import handshake
from mcp_workbench.protocol.handshake import (
    LEGACY,
    MODERN,
    Agreed,
    Answered,
    Ask,
    Greeting,
    HandshakeEvent,
    HandshakeRefused,
    HandshakeState,
    HungUp,
    Probing,
    Silence,
    Startover,
    first_step,
    legacy_answer,
    step,
)

DISCOVER, INITIALIZE = "server/discover", "initialize"
INFO = {"name": "s", "version": "2"}


def discovered(*versions: str) -> Answered:
    meta = {"io.modelcontextprotocol/serverInfo": INFO}
    result = {"supportedVersions": list(versions), "_meta": meta}
    return Answered(DISCOVER, json.dumps(result).encode())


def greeted(revision: str) -> Answered:
    result = {"protocolVersion": revision, "serverInfo": INFO, "capabilities": {}}
    return Answered(INITIALIZE, json.dumps(result).encode())


def refused(method: str, code: int) -> Answered:
    return Answered(method, code=code, message="no")


def met(era: Era, *events: HandshakeEvent) -> tuple[HandshakeState, list[str]]:
    """Where these events lead, and what was asked on the way."""
    state, asks = first_step(era)
    asked = [ask.method for ask in asks]
    for event in events:
        state, asks = step(state, event)
        asked += [ask.method for ask in asks]
    return state, asked


def test_a_legacy_server_is_greeted_at_once() -> None:
    assert first_step("legacy") == (Greeting(), (Ask(INITIALIZE),))


def test_an_unknown_server_is_asked_the_modern_way_first() -> None:
    assert first_step("auto") == (Probing(fallback=True), (Ask(DISCOVER),))
    assert first_step("modern") == (Probing(fallback=False), (Ask(DISCOVER),))


def test_a_modern_server_is_agreed_with_after_one_question() -> None:
    assert met("auto", discovered("2027-01-01", MODERN)) == (Agreed(MODERN, "s", "2"), [DISCOVER])


@pytest.mark.parametrize("code", [-32601, -32602, -32600, -32000, 1, -1])
@pytest.mark.parametrize("revision", LEGACY)
def test_any_error_to_the_probe_leads_to_initialize(code: int, revision: str) -> None:
    state, asked = met("auto", refused(DISCOVER, code), greeted(revision))

    assert state == Agreed(revision, "s", "2")
    assert asked == [DISCOVER, INITIALIZE]


def test_a_server_that_names_its_versions_is_asked_once_more() -> None:
    refusal = refused(DISCOVER, -32022)

    assert met("auto", refusal, discovered(MODERN))[1] == [DISCOVER, DISCOVER]
    assert met("auto", refusal, refusal, greeted("2025-11-25"))[1] == [
        DISCOVER,
        DISCOVER,
        INITIALIZE,
    ]


@pytest.mark.parametrize(
    "odd", [discovered(), discovered("2031-01-01"), Answered(DISCOVER, b"5"), Answered(DISCOVER)]
)
def test_an_odd_answer_to_the_probe_leads_to_initialize(odd: Answered) -> None:
    assert met("auto", odd)[1] == [DISCOVER, INITIALIZE]


@pytest.mark.parametrize(
    ("capabilities", "listen"),
    [
        ({"tools": {"listChanged": True}}, True),
        ({"tools": {"listChanged": False}}, False),
        ({"tools": {}}, False),
        ({}, False),
        ({"tools": None}, False),
        ({"tools": True}, False),
        ({"tools": {"listChanged": "yes"}}, False),
        (None, False),
    ],
)
def test_what_a_modern_server_can_do_decides_on_listening_and_on_nothing_else(
    capabilities: Any, listen: bool
) -> None:
    result = {"supportedVersions": [MODERN], "capabilities": capabilities}

    state, _ = met("auto", Answered(DISCOVER, json.dumps(result).encode()))

    assert isinstance(state, Agreed)
    assert (state.revision, state.listen) == (MODERN, listen)


def test_silence_leads_to_both_questions_and_a_modern_answer_to_a_new_start() -> None:
    asked = [DISCOVER, INITIALIZE]
    agreed = Agreed(MODERN, "s", "2")

    assert met("auto", Silence(), greeted("2025-06-18")) == (Agreed("2025-06-18", "s", "2"), asked)
    assert met("auto", Silence(), discovered(MODERN)) == (Startover(agreed), asked)


def test_a_late_refusal_of_the_probe_is_no_answer_to_initialize() -> None:
    state, asked = met("auto", Silence(), refused(DISCOVER, -32601), greeted("2024-11-05"))

    assert state == Agreed("2024-11-05", "s", "2")
    assert asked == [DISCOVER, INITIALIZE]


def test_a_slow_modern_server_that_refuses_initialize_is_modern() -> None:
    state, asked = met("auto", Silence(), refused(INITIALIZE, -32022), discovered(MODERN))

    assert state == Agreed(MODERN, "s", "2")
    assert asked == [DISCOVER, INITIALIZE, DISCOVER]


def test_a_server_that_the_probe_ended_is_started_again() -> None:
    assert met("auto", HungUp()) == (Startover(), [DISCOVER])


def test_a_legacy_server_that_ends_is_not_started_again() -> None:
    assert isinstance(met("legacy", HungUp())[0], HandshakeRefused)
    assert isinstance(met("auto", refused(DISCOVER, -32601), HungUp())[0], HandshakeRefused)
    assert isinstance(met("modern", HungUp())[0], HandshakeRefused)


def test_a_server_that_must_be_modern_and_is_not_is_refused_with_the_reason() -> None:
    state, asked = met("modern", refused(DISCOVER, -32601))

    assert isinstance(state, HandshakeRefused)
    assert MODERN in state.reason
    assert asked == [DISCOVER]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (refused(INITIALIZE, -32603), "-32603"),
        (greeted("1999-01-01"), "1999-01-01"),
        (Answered(INITIALIZE, b'{"x":1}'), "malformed"),
        (Answered(INITIALIZE, b"[]"), "malformed"),
    ],
)
def test_a_greeting_that_can_not_be_used_is_refused_and_told(answer: Answered, told: str) -> None:
    state, _ = met("legacy", answer)

    assert isinstance(state, HandshakeRefused)
    assert told in state.reason


def test_a_server_without_a_name_is_welcome() -> None:
    state, _ = met("legacy", Answered(INITIALIZE, b'{"protocolVersion":"2025-03-26"}'))

    assert state == Agreed("2025-03-26")


@pytest.mark.parametrize("end", [Agreed(MODERN), Startover(), HandshakeRefused("x")])
@pytest.mark.parametrize("event", [Silence(), HungUp(), greeted("2025-11-25"), discovered(MODERN)])
def test_what_is_decided_stays_decided(end: HandshakeState, event: HandshakeEvent) -> None:
    assert step(end, event) == (end, ())


def test_our_openings_say_what_each_era_requires() -> None:
    implementation = {"name": "w", "version": "1"}

    legacy = json.loads(handshake.params_of(INITIALIZE, implementation, {}))
    modern = json.loads(handshake.params_of(DISCOVER, implementation, {}))

    assert legacy == {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": implementation,
    }
    assert modern["_meta"] == {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": implementation,
        "io.modelcontextprotocol/clientCapabilities": {},
    }


@pytest.mark.parametrize("offered", LEGACY)
def test_a_host_s_known_revision_is_taken(offered: str) -> None:
    assert legacy_answer(offered) == offered


@pytest.mark.parametrize("offered", ["", "1.0", "2099-01-01", MODERN])
def test_any_other_offer_is_answered_with_the_newest_legacy_revision(offered: str) -> None:
    assert legacy_answer(offered) == "2025-11-25"


# `initialize` comes first


def met_for_legacy_host(*events: HandshakeEvent) -> tuple[HandshakeState, list[str]]:
    state, asks = first_step("auto", initialize_first=True)
    asked = [ask.method for ask in asks]
    for event in events:
        state, asks = step(state, event)
        asked += [ask.method for ask in asks]
    return state, asked


def test_the_configured_era_counts_more_than_that_of_the_host() -> None:
    assert first_step("legacy", initialize_first=False) == first_step(
        "legacy", initialize_first=True
    )
    assert first_step("modern", initialize_first=True) == first_step(
        "modern", initialize_first=False
    )


def test_a_server_of_both_eras_is_agreed_with_in_that_of_the_host() -> None:
    assert met_for_legacy_host(greeted(LEGACY[-1])) == (Agreed(LEGACY[-1], "s", "2"), [INITIALIZE])


@pytest.mark.parametrize(
    "refusal", [refused(INITIALIZE, -32601), refused(INITIALIZE, -32022), greeted(MODERN)]
)
def test_a_modern_server_that_refuses_initialize_is_probed(refusal: HandshakeEvent) -> None:
    state, asked = met_for_legacy_host(refusal, discovered(MODERN))

    assert state == Agreed(MODERN, "s", "2")
    assert asked == [INITIALIZE, DISCOVER]


def test_a_server_that_refuses_both_is_reported_with_its_word_on_the_first() -> None:
    state, asked = met_for_legacy_host(refused(INITIALIZE, -32000), refused(DISCOVER, -32601))

    assert state == HandshakeRefused("it refused initialize: no (-32000)")
    assert asked == [INITIALIZE, DISCOVER]


@pytest.mark.parametrize(
    ("events", "agreed"),
    [
        ((greeted(LEGACY[0]),), LEGACY[0]),
        ((discovered(MODERN),), MODERN),
        ((refused(DISCOVER, -32601), greeted(LEGACY[0])), LEGACY[0]),
        ((refused(INITIALIZE, -32601), discovered(MODERN)), MODERN),
    ],
)
def test_a_silent_server_is_sent_both_and_the_first_agreement_wins(
    events: tuple[HandshakeEvent, ...], agreed: str
) -> None:
    state, asked = met_for_legacy_host(Silence(), Silence(), *events)

    assert state == Agreed(agreed, "s", "2")
    assert asked == [INITIALIZE, DISCOVER]


def test_a_silent_server_that_refuses_both_is_not_waited_for() -> None:
    state, _ = met_for_legacy_host(
        Silence(), refused(DISCOVER, -32601), refused(INITIALIZE, -32000)
    )

    assert state == HandshakeRefused("it refused initialize: no (-32000)")


def test_a_server_that_exits_on_initialize_is_not_started_for_the_other_era() -> None:
    assert met_for_legacy_host(HungUp())[0] == HandshakeRefused("exited during startup")
    assert met_for_legacy_host(Silence(), HungUp())[0] == Startover()
