"""What is sealed opens unchanged for its own host and call, in time; nothing else opens."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.protocol.signed_state import LIFETIME, MOST_SORTED, Seal, SignedState, digest_of

KEY = b"k" * 32


def sealed(**more: object) -> SignedState:
    whole: dict[str, object] = {
        "kind": "relay",
        "route": ServerAddress("dev", "a"),
        "digest": "d",
        "principal": "p",
        "born": 1000.0,
        **more,
    }
    return SignedState(**whole)  # pyright: ignore[reportArgumentType]


@given(st.text(), st.text(), st.floats(0, LIFETIME))
def test_what_is_sealed_opens_unchanged(state: str, digest: str, age: float) -> None:
    what = sealed(state=msgspec.Raw(msgspec.json.encode(state)), digest=digest)

    opened = Seal(KEY).open(Seal(KEY).close(what), "p", digest, 1000.0 + age)

    assert opened is not None
    assert (opened.kind, opened.route, opened.digest) == (what.kind, what.route, digest)
    assert bytes(opened.state) == bytes(what.state)


@given(st.data())
def test_one_changed_character_and_it_stays_shut(data: st.DataObject) -> None:
    token = Seal(KEY).close(sealed())
    at = data.draw(st.integers(4, len(token) - 2))
    other = data.draw(st.sampled_from("ABCxyz019-_").filter(lambda c: c != token[at]))

    assert Seal(KEY).open(token[:at] + other + token[at + 1 :], "p", "d", 1000.0) is None


@given(st.text())
def test_any_text_is_refused_without_an_error(text: str) -> None:
    assert Seal(KEY).open(text, "p", "d", 1000.0) is None
    assert Seal(KEY).open("wb1." + text, "p", "d", 1000.0) is None


def test_it_is_bound_to_key_principal_call_and_time() -> None:
    token = Seal(KEY).close(sealed())

    assert Seal(b"x" * 32).open(token, "p", "d", 1000.0) is None
    assert Seal(KEY).open(token, "q", "d", 1000.0) is None
    assert Seal(KEY).open(token, "p", "e", 1000.0) is None
    assert Seal(KEY).open(token, "p", "d", 1000.0 + LIFETIME + 1) is None
    assert Seal(KEY).open(token, "p", "d", 999.0) is None


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest_of("a/b/c", b'{"x":1,"y":[1.0,"z"]}') == digest_of(
        "a/b/c", b'{"y":[1.0,"z"],"x":1}'
    )
    assert digest_of("a/b/c", b'{"x":1}') != digest_of("a/b/c", b'{"x":2}')
    assert digest_of("a/b/c", b"{}") != digest_of("a/b/d", b"{}")
    assert digest_of("a/b/c", b'{"x":1e999}') != digest_of("a/b/c", b'{"x":1e998}')


@pytest.mark.parametrize("value", [b'"%b"' % (b"x" * MOST_SORTED), b"1" * 5000])
def test_arguments_that_can_not_be_sorted_have_a_digest_as_they_are(value: bytes) -> None:
    written = (b'{"a":1,"b":%b}', b'{"b":%b,"a":1}', b' { "b" : %b , "a" : 1 } ')
    first, other, spaced = (digest_of("t", text % value) for text in written)

    assert first != other == spaced
    assert digest_of("u", written[0] % value) != first
    assert len(first) == 64
