"""Known secrets leave no text that we print."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.redact import redact

VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="[]"), min_size=8)


def test_a_secret_is_replaced_by_its_name() -> None:
    assert redact("token abcdefgh!", {"abcdefgh": "TOKEN"}) == "token [secret:TOKEN]!"


def test_a_short_value_stays_or_everything_would_be_blank() -> None:
    assert redact("none of it", {"none": "TOKEN"}) == "none of it"


def test_without_secrets_the_text_is_the_same() -> None:
    assert redact("as it is", {}) == "as it is"


def test_a_secret_that_begins_with_another_is_replaced_whole() -> None:
    secrets = {"abcdefgh": "A", "abcdefghijkl": "B"}

    assert redact("abcdefghijkl abcdefgh", secrets) == "[secret:B] [secret:A]"


@given(VALUES, st.text(max_size=9), st.text(max_size=9))
def test_no_form_of_a_secret_stays(value: str, before: str, after: str) -> None:
    data = value.encode()
    for form in (
        value,
        b64encode(data).decode(),
        b64encode(data).decode().rstrip("="),
        urlsafe_b64encode(data).decode(),
        quote(value, safe=""),
        quote_plus(value),
        msgspec.json.encode(value).decode()[1:-1],
    ):
        assert "[secret:X]" in redact(f"{before}{form}{after}", {value: "X"})
        assert redact(form, {value: "X"}) == "[secret:X]"


def test_a_value_with_odd_bytes_from_the_environment_is_replaced_too() -> None:
    assert redact("see abcdefgh\udcff", {"abcdefgh\udcff": "ODD"}) == "see [secret:ODD]"


@pytest.mark.parametrize(
    "printed",
    [
        r"p\u00e4ss\ud83d\ude00&'w/rd",  # Python's json
        r"päss😀&'w\/rd",  # PHP's without escapes
        r"p\u00e4ss\ud83d\ude00&'w\/rd",  # PHP's
        r"päss😀\u0026'w/rd",  # Go's
        "p%C3%A4ss%F0%9F%98%80%26'w%2Frd",  # encodeURIComponent
        "päss😀&'w/rd",
    ],
)
def test_a_secret_is_known_as_other_languages_spell_it(printed: str) -> None:
    assert redact(f"see {printed}!", {"päss😀&'w/rd": "TOKEN"}) == "see [secret:TOKEN]!"
