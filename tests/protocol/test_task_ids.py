"""An id of a task opens for its own principal, unchanged, with the same key; nothing else opens."""

from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.protocol.task_ids import LONGEST, PREFIX, TaskRef, TaskSeal

KEY = b"k" * 32
texts = st.text(max_size=20)


def ref(id: str = "t", principal: str = "p") -> TaskRef:
    return TaskRef(ServerAddress("dev", "a"), id, principal, "run", False, "now")


@given(texts, texts)
def test_an_id_opens_unchanged_and_is_safe_in_a_header(id: str, principal: str) -> None:
    token = TaskSeal(KEY).close(ref(id, principal))

    assert TaskSeal(KEY).open(token, principal) == ref(id, principal)
    assert token.isascii()
    assert token.isprintable()
    assert " " not in token


@given(st.data())
def test_one_changed_character_and_it_is_unknown(data: st.DataObject) -> None:
    token = TaskSeal(KEY).close(ref())
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("ABCxyz019-_.").filter(lambda c: c != token[at]))

    assert TaskSeal(KEY).open(token[:at] + other + token[at + 1 :], "p") is None


@given(st.text())
def test_any_text_is_unknown_without_an_error(text: str) -> None:
    assert TaskSeal(KEY).open(text, "p") is None
    assert TaskSeal(KEY).open(PREFIX + text, "p") is None


def test_it_is_bound_to_key_and_principal() -> None:
    token = TaskSeal(KEY).close(ref())

    assert TaskSeal(b"x" * 32).open(token, "p") is None
    assert TaskSeal(KEY).open(token, "q") is None
    assert TaskSeal(KEY).open(token, "") is None


def test_a_very_long_id_is_not_read() -> None:
    assert TaskSeal(KEY).open(TaskSeal(KEY).close(ref("x" * LONGEST)), "p") is None
