"""What a response without a message means, and waiting as long as a server asks for, within reason."""

from __future__ import annotations

import pytest

from mcp_workbench.transport.http.client_response import (
    ClientResponse,
    ExchangeFailed,
    ResponseTimeout,
    ResponseTooLarge,
)
from mcp_workbench.upstream.conversation import Failure
from mcp_workbench.upstream.http.requests import (
    ErrorContext,
    rate_limited,
    retry_after,
    without_time,
)
from mcp_workbench.upstream.http.responses import failure_for, failure_of, is_refusal

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


class Connection:
    """Brings nothing: what is told depends on status, headers and body alone."""

    def flow(self, *, going: bool) -> None: ...
    def part(self, *, complete: bool) -> None: ...


def response(status: int, **headers: str) -> ClientResponse:
    made = ClientResponse(Connection())
    made.status = status
    made.headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return made


LOGIN = "run `mcp-workbench login dev/s`"
BEARER = '"headers": {"Authorization": "Bearer ${TOKEN}"}'
BY_OTHERS = (
    "call it from a host that can show an address (URL elicitation), or have whoever runs the "
    "workbench run `mcp-workbench login dev/s --principal"
)
MORE = 'Bearer error="insufficient_scope"'


@pytest.mark.parametrize(
    ("status", "challenge", "context", "told"),
    [
        (
            401,
            "",
            ErrorContext(),
            (
                f"the server answered HTTP 401; {LOGIN}, or send a token from a variable with "
                f"{BEARER} in its entry"
            ),
        ),
        (
            403,
            "",
            ErrorContext(has_login=True, signed_in=True, principal="ann"),
            (
                "the server refused the credentials of its entry (HTTP 403); "
                "renew what 'headers' sends as Authorization"
            ),
        ),
        (
            401,
            MORE,
            ErrorContext(sign_in_ended="revoked", signed_in=True),
            f"the sign-in has ended (revoked); {LOGIN}",
        ),
        (
            403,
            MORE,
            ErrorContext(signed_in=True),
            f"the server wants more rights than this sign-in has; {LOGIN}",
        ),
        (
            403,
            "Bearer",
            ErrorContext(signed_in=True),
            f"the server refuses this account (HTTP 403); {LOGIN} with another",
        ),
        (
            401,
            "",
            ErrorContext(principal="ann", signed_in=True),
            f"ann is not signed in there; {BY_OTHERS} ann`",
        ),
        (
            401,
            "",
            ErrorContext(principal="a`b c\n", sign_in_ended="revoked"),
            f"a?b c? is not signed in there (revoked); {BY_OTHERS} 'a?b c?'`",
        ),
    ],
)
def test_who_has_to_sign_in_is_told_how(
    status: int, challenge: str, context: ErrorContext, told: str
) -> None:
    context.address = "dev/s"
    answer = response(status, www_authenticate=challenge)

    assert failure_for(answer, b"<h1>no</h1>", context) == Failure(
        "needs_login", f"needs login: {told}", may_have_run=False
    )


@pytest.mark.parametrize(
    ("answer", "body", "failure"),
    [
        (
            response(429),
            b"",
            Failure(
                "rate_limited",
                "the server takes no requests now (HTTP 429); try again later",
                may_have_run=False,
            ),
        ),
        (
            response(503, retry_after="0"),
            b"",
            Failure(
                "rate_limited",
                "the server takes no requests now (HTTP 503); try again in 1 s",
                may_have_run=False,
                retry_after=0.0,
            ),
        ),
        (
            response(503),
            b"",
            Failure(
                "protocol_error",
                "the server answered HTTP 503 with no content type instead of a message",
                may_have_run=True,
            ),
        ),
        (
            response(202, content_type="text/plain"),
            b"later",
            Failure(
                "protocol_error",
                "the server accepted the request and sends no response (HTTP 202)",
                may_have_run=True,
            ),
        ),
        (
            response(404, content_type="Text/HTML; charset=utf-8"),
            b" no \n\x1b[1m such\tpage ",
            Failure(
                "protocol_error",
                "the server answered HTTP 404 with text/html instead of a message: no  [1m such page",
                may_have_run=False,
            ),
        ),
        (
            response(200, content_type="text/plain"),
            b"x" * 300,
            Failure(
                "protocol_error",
                f"the server answered HTTP 200 with text/plain instead of a message: {'x' * 200}",
                may_have_run=True,
            ),
        ),
    ],
    ids=lambda value: str(value.status) if isinstance(value, ClientResponse) else "",
)
def test_what_came_instead_of_a_message_is_told(
    answer: ClientResponse, body: bytes, failure: Failure
) -> None:
    assert failure_for(answer, body, ErrorContext()) == failure


@pytest.mark.parametrize(
    ("answer", "refuses"),
    [
        (response(401), True),
        (response(403), True),
        (response(429), True),
        (response(503, retry_after="soon"), True),
        (response(503), False),
        (response(200, retry_after="1"), False),
        (response(404), False),
    ],
)
def test_which_answers_are_not_those_of_the_mcp_server(
    answer: ClientResponse, refuses: bool
) -> None:
    assert is_refusal(answer) is refuses


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (
            ResponseTooLarge("larger than 9 bytes", heard=True),
            Failure(
                "too_large",
                "a message of it is too large: larger than 9 bytes; the limit is 9 bytes "
                "(limits.messageBytes)",
            ),
        ),
        (
            ResponseTimeout("nothing for 60 s"),
            Failure("timeout", "the server is silent: nothing for 60 s"),
        ),
        (
            ExchangeFailed("no connection", sent=False),
            Failure("connect_failed", "no connection", may_have_run=False),
        ),
        (
            ExchangeFailed("the connection was reset"),
            Failure("server_exited", "the connection was reset", may_have_run=True),
        ),
    ],
    ids=["too large", "silent", "not sent", "reset"],
)
def test_an_exchange_that_broke_off_says_whether_the_call_may_have_run(
    error: ExchangeFailed, failure: Failure
) -> None:
    assert failure_of(error, ErrorContext(limit=9)) == failure


@pytest.mark.parametrize("seconds", [None, 0.0, 7.2])
def test_a_reason_that_is_shown_later_has_no_seconds(seconds: float | None) -> None:
    failure = rate_limited(seconds, "HTTP 429")
    later = "; try again later" if seconds is None else ""

    told = without_time(failure)

    assert told.reason == f"the server takes no requests now (HTTP 429){later}"
    assert told.retry_after == seconds
