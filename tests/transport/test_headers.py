"""The codec of header values, held against the official SDK's."""

import base64

from hypothesis import example, given
from hypothesis import strategies as st
from mcp.shared.inbound import decode_header_value, encode_header_value

from mcp_workbench.transport.http.messages import decode_value, encode_value

TRICKY = st.text(st.sampled_from("=?base64 YQ==\t\u00e9\n~"), max_size=24)
WRAPPED = st.one_of(st.binary(max_size=12).map(base64.b64encode), st.binary(max_size=12)).map(
    lambda payload: b"=?base64?" + payload + b"?="
)


@given(st.text() | TRICKY)
@example("=?base64?YQ==?=")
@example(" a")
@example("")
def test_what_is_encoded_is_what_the_sdk_sends_and_comes_back(text: str) -> None:
    encoded = encode_value(text)

    assert encoded == encode_header_value(text)
    assert encoded.isascii()
    assert "\n" not in encoded
    assert decode_value(encoded.encode()) == text


@given(st.binary(max_size=30) | WRAPPED)
@example(b"=?base64?YR==?=")
@example(b"=?base64?YQ?=")
@example(b"=?base64?/w==?=")
@example(b"=?BASE64?YQ==?=")
def test_what_is_received_is_read_as_the_sdk_reads_it(value: bytes) -> None:
    try:
        expected = decode_header_value(value.decode("latin-1").strip())
    except ValueError:  # it stumbles over what is not ASCII inside the wrapping
        expected = None

    assert decode_value(value) == expected
