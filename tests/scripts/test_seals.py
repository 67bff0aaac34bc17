"""Suspended scripts as hosts carry them: who can open one, and how often."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.script_texts import ScriptedCall
from mcp_workbench.gateway.script_messages import EngineState, UnsentCall
from mcp_workbench.gateway.suspended_scripts import (
    MARKED,
    PREFIX,
    AskedApproval,
    AskedInput,
    AskedQuestion,
    CannotMove,
    OpenCall,
    RunState,
    ScriptSeals,
    SuspendedScript,
)

OWNER, DIGEST = '["ann",""]', "d1"
SECRET = "the value of a variable"


def suspended() -> SuspendedScript:
    unsent = [UnsentCall(3, "dev/a/b", b"{}", 0, 9)]
    engine = EngineState("1.4.0", SECRET.encode(), "printed", 3, unsent, [0, 1])
    approval = AskedApproval("q1", b"digest", b"tool")
    question = AskedQuestion("q2", "elicitation/create", b"{}")
    asked = AskedInput({"a": question}, {"b": b"{}"}, b'"state"', 2, b"digest")
    run = RunState(
        "script-1", 250.0, 1, [ScriptedCall("dev/a/b", 1, "ok")], {"content-1": b"{}"}, []
    )
    opened = [
        OpenCall(n, "dev/a/b", b"{}", n, b"g", one) for n, one in enumerate((approval, asked))
    ]
    return SuspendedScript(os.urandom(16), 1000.0, 1300.0, engine, run, opened, [1000])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def seals(home: Path) -> ScriptSeals:
    return ScriptSeals({"MCP_WORKBENCH_HOME": str(home)})


def test_any_process_of_the_folder_opens_it_and_nothing_of_it_can_be_read(
    home: Path, seals: ScriptSeals
) -> None:
    script = suspended()
    sealed = seals.seal(script, OWNER, DIGEST)
    other = ScriptSeals({"MCP_WORKBENCH_HOME": str(home)})

    assert other.open(sealed, OWNER, DIGEST) == script
    assert sealed != seals.seal(script, OWNER, DIGEST), "each seal has a nonce of its own"
    assert other.open(sealed, '["bob",""]', DIGEST) is None
    assert other.open(sealed, OWNER, "d2") is None
    assert SECRET not in sealed


def test_a_script_without_its_key_is_none(home: Path, seals: ScriptSeals) -> None:
    sealed = seals.seal(suspended(), OWNER, DIGEST)
    (home / "scripts" / "key").unlink()

    assert seals.open(sealed, OWNER, DIGEST) is None


@given(st.data())
def test_no_damage_goes_unnoticed(data: st.DataObject) -> None:
    seals, sealed = _sealed()
    place = data.draw(
        st.integers(len(PREFIX), len(sealed) - 2)
    )  # the last character has spare bits
    letter = data.draw(st.sampled_from("ABab01-_").filter(lambda one: one != sealed[place]))
    cut = data.draw(st.integers(0, len(sealed) - 2))

    assert seals.open(f"{sealed[:place]}{letter}{sealed[place + 1 :]}", OWNER, DIGEST) is None
    assert seals.open(sealed[:cut], OWNER, DIGEST) is None


@given(st.text(max_size=300))
def test_no_text_is_too_strange(text: str) -> None:
    seals, _ = _sealed()

    assert seals.open(text, OWNER, DIGEST) is None
    assert seals.open(PREFIX + text, OWNER, DIGEST) is None


_known: dict[str, tuple[ScriptSeals, str]] = {}


def _sealed() -> tuple[ScriptSeals, str]:
    """One for all examples."""
    home = os.environ["MCP_WORKBENCH_HOME"]
    if home not in _known:
        seals = ScriptSeals({"MCP_WORKBENCH_HOME": home})
        _known[home] = seals, seals.seal(suspended(), OWNER, DIGEST)
    return _known[home]


def test_it_is_claimed_once_by_all_processes(home: Path, seals: ScriptSeals) -> None:
    script, other = suspended(), suspended()
    others = ScriptSeals({"MCP_WORKBENCH_HOME": str(home)})

    assert seals.claim(script)
    assert not seals.claim(script)
    assert not others.claim(script)
    assert others.claim(other)


def test_marks_are_removed_once_their_scripts_have_long_expired(
    home: Path, seals: ScriptSeals
) -> None:
    old, new = suspended(), suspended()
    seals.claim(old)
    seals.claim(new)
    used = home / "scripts" / "used"
    past = time.time() - MARKED - 1
    os.utime(used / old.id.hex(), (past, past))
    seals.seal(suspended(), OWNER, DIGEST)

    assert [mark.name for mark in used.iterdir()] == [new.id.hex()]


def test_too_many_marks_keep_scripts_where_they_are(
    seals: ScriptSeals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_workbench.gateway.suspended_scripts.MOST_MARKS", 2)
    seals.claim(suspended())
    seals.claim(suspended())

    with pytest.raises(CannotMove, match="too many scripts"):
        seals.seal(suspended(), OWNER, DIGEST)


def test_a_folder_that_cannot_be_used_keeps_scripts_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "file", tmp_path / "nothing" / "here"):
        with pytest.raises(CannotMove, match="the state folder can't be used"):
            ScriptSeals({"MCP_WORKBENCH_HOME": str(home)}).seal(suspended(), OWNER, DIGEST)


def test_a_damaged_key_is_said_to_be(home: Path, seals: ScriptSeals) -> None:
    sealed = seals.seal(suspended(), OWNER, DIGEST)
    (home / "scripts" / "key").write_bytes(b"short")

    assert seals.open(sealed, OWNER, DIGEST) is None
    with pytest.raises(CannotMove, match="key is damaged"):
        seals.seal(suspended(), OWNER, DIGEST)


def test_without_cryptography_scripts_stay_where_they_are(
    seals: ScriptSeals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)

    with pytest.raises(CannotMove, match="cryptography is not installed"):
        seals.seal(suspended(), OWNER, DIGEST)
