"""Waiting as long as a server asks for, within reason."""

import pytest

from mcp_workbench.upstream.http.requests import rate_limited, retry_after

NOW = 1_000_000_000.0  # Sun, 09 Sep 2001 01:46:40 GMT


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7", 7),
        (" 7 ", 7),
        ("0", 0),
        ("99999999999999999999", 3600),
        ("1²", None),
        ("Sun, 09 Sep 2001 01:47:40 GMT", 60),
        ("Sun, 09 Sep 2001 01:45:40 GMT", 0),
        ("Sun, 09 Sep 2099 01:45:40 GMT", 3600),
        ("soon", None),
        ("-1", None),
        ("", None),
    ],
)
def test_how_long_a_server_wants_us_to_wait(said: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": said}, NOW) == seconds


def test_a_server_that_does_not_say_how_long_is_not_put_words_into_its_mouth() -> None:
    assert rate_limited(None, "HTTP 429").reason.endswith("try again later")
    assert retry_after({}, NOW) is None
