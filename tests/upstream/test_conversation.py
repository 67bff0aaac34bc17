"""What a server says, read without any server: whoever asked is told once, and nothing raises."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.transport.json_text import DEPTH
from mcp_workbench.transport.jsonrpc import Envelope, Malformed, Outcome
from mcp_workbench.upstream.conversation import (
    LONGEST_NOTICE,
    NEVER,
    Conversation,
    Failure,
    ResponseHandler,
)

ids = st.integers(-1, 6) | st.sampled_from(["1", "", None, 1.0, True, 2**70])
BODIES: list[dict[str, Any]] = [
    {},
    {"result": {}},
    {"result": None},
    {"error": {"code": 1, "message": "m"}},
    {"error": None},
    {"result": {}, "error": {}},
    {"method": "notifications/progress", "params": {"progressToken": 1}},
    {"method": "notifications/progress", "params": {"progressToken": [1]}},
    {"method": "notifications/progress"},
    {"method": "notifications/tools/list_changed"},
    {"method": "ping"},
    {"method": 5},
    {"result": {}, "jsonrpc": "1.0", "extra": [1]},
]
bodies = st.sampled_from(BODIES)


def message(id: Any, body: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, **body}).encode() + b"\n"


lines = st.builds(message, ids, bodies)
batches = st.lists(lines, max_size=3).map(
    lambda many: b"[" + b",".join(many).replace(b"\n", b"") + b"]\n"
)
incoming = st.lists(lines | batches | st.binary(max_size=20), max_size=12)


class Waiting(ResponseHandler):
    """Counts what it is told."""

    def __init__(self) -> None:
        self.answers: list[Outcome] = []
        self.losses: list[Failure] = []
        self.notices: list[msgspec.Raw] = []

    def settled(self, answer: Outcome) -> None:
        self.answers.append(answer)

    def lost(self, failure: Failure) -> None:
        self.losses.append(failure)

    def progressed(self, params: msgspec.Raw) -> None:
        self.notices.append(params)


class Pipe:
    backlog = 0

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, frame: bytes, about: bytes = b"") -> None:
        self.sent.append(json.loads(frame))


def talk(limit: int = 1000) -> tuple[Conversation, Pipe, list[Envelope]]:
    heard: list[Envelope] = []
    conversation = Conversation(limit, heard.append)
    conversation.channel = pipe = Pipe()
    return conversation, pipe, heard


@given(incoming)
def test_everyone_is_told_exactly_once_whatever_the_server_says(data: list[bytes]) -> None:
    conversation, _, _ = talk()
    waiting = [Waiting() for _ in range(5)]
    for one in waiting:
        conversation.pending.add(one, NEVER)

    for chunk in data:
        conversation.receive(chunk)
    conversation.fail_all(Failure("server_exited", "gone"))

    assert [len(one.answers) + len(one.losses) for one in waiting] == [1] * 5


def answered(line: bytes) -> tuple[Waiting, Conversation]:
    conversation, _, _ = talk(max(len(line), 1000))
    one = Waiting()
    conversation.pending.add(one, NEVER)
    conversation.receive(line)
    return one, conversation


def test_an_answer_finds_who_asked() -> None:
    one, conversation = answered(b'{"jsonrpc":"2.0","id":1,"result":{"n":1.0}}\n')

    assert [bytes(answer.result) for answer in one.answers] == [b'{"n":1.0}']
    assert conversation.pending.count == 0


def test_a_mark_at_the_start_does_not_matter_even_where_bytes_are_bad() -> None:
    one, conversation = answered(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"result":{"t":"\xff"}}\n')

    assert [bytes(answer.result) for answer in one.answers] == ['{"t":"\ufffd"}'.encode()]
    assert conversation.skipped == 0


def test_a_log_line_in_json_is_no_answer_whatever_its_id() -> None:
    one, conversation = answered(b'{"level":30,"id":1,"msg":"listening"}\n')

    assert one.losses == []
    assert conversation.skipped == 1


def test_an_answer_nested_just_too_deeply_is_the_server_s_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for levels, settled in ((DEPTH - 1, True), (DEPTH, False), (DEPTH + 400, False)):
        one, _ = answered(b'{"id":1,"result":' + b"[" * levels + b"]" * levels + b"}\n")

        assert bool(one.answers) is settled
        assert [failure.code for failure in one.losses] == ([] if settled else ["protocol_error"])
    assert caplog.text == ""


@pytest.mark.parametrize(
    "id", [b"2", b"0", b'"1"', b"null", b"1.0", b"-1", b"true", b"1e0", b"9" * 40]
)
def test_an_answer_with_another_id_is_nobody_s(id: bytes) -> None:
    one, conversation = answered(b'{"jsonrpc":"2.0","id":%b,"result":{}}\n' % id)

    assert one.answers == one.losses == []
    assert conversation.pending.count == 1


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"result":{\n',
        b'{"jsonrpc":"2.0","id":1}\n',
        b'{"jsonrpc":"2.0","id":1,"result":1,"error":{}}\n',
        b'{"jsonrpc":"2.0","id":1,"method":5}\n',
    ],
)
def test_an_answer_that_can_not_be_read_is_a_loss_at_once(line: bytes) -> None:
    one, _ = answered(line)

    assert [failure.code for failure in one.losses] == ["protocol_error"]


def test_lines_that_are_no_messages_are_counted_and_the_last_one_kept() -> None:
    conversation, _, heard = talk()

    conversation.receive(b"Starting server on port 80\n\xff\xfe oops\n{broken\n")

    assert conversation.skipped == 3
    assert conversation.last_skipped == "{broken"
    assert heard == []


def test_a_batch_that_is_broken_or_nested_does_no_harm() -> None:
    one, conversation = answered(
        b'[{"jsonrpc":"2.0","id":1,\n[[{"jsonrpc":"2.0","id":1,"result":{}}]]\n[]\n'
    )

    assert one.answers == one.losses == []
    assert conversation.skipped >= 1


def test_a_byte_order_mark_at_the_start_is_tolerated() -> None:
    one, _ = answered(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"result":{}}\r\n')

    assert len(one.answers) == 1


def test_bad_bytes_inside_a_message_are_replaced() -> None:
    one, _ = answered(b'{"jsonrpc":"2.0","id":1,"result":{"t":"\xff"}}\n')

    assert bytes(one.answers[0].result) == '{"t":"\ufffd"}'.encode()


def test_progress_reaches_whoever_is_still_waiting() -> None:
    conversation, _, _ = talk()
    one, other = Waiting(), Waiting()
    for waiter in (one, other):
        conversation.pending.add(waiter, NEVER)
    notice = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2}}\n'

    conversation.receive(notice)
    conversation.receive(b'{"jsonrpc":"2.0","id":2,"result":{}}\n' + notice)

    assert (len(one.notices), len(other.notices)) == (0, 1)


def test_a_request_that_is_taken_back_is_told_to_the_server_and_forgotten() -> None:
    conversation, pipe, _ = talk()
    one = Waiting()
    number = conversation.begin("tools/call", b"{}", one)

    conversation.cancel(number, "enough")
    conversation.cancel(number, "again")
    conversation.receive(b'{"jsonrpc":"2.0","id":%d,"result":{}}\n' % number)

    assert [sent["method"] for sent in pipe.sent] == ["tools/call", "notifications/cancelled"]
    assert pipe.sent[1]["params"] == {"requestId": number, "reason": "enough"}
    assert one.answers == one.losses == []


def test_a_message_beyond_the_cap_ends_the_conversation() -> None:
    conversation, _, heard = talk(limit=100)
    one = Waiting()
    conversation.pending.add(one, NEVER)

    conversation.receive(b"x" * 101)

    assert [failure.code for failure in one.losses] == ["too_large"]
    assert "100 bytes (limits.messageBytes)" in one.losses[0].reason
    assert conversation.failure == one.losses[0]
    assert len(heard) == 1  # its owner was woken


def test_a_message_beyond_the_cap_fails_all_requests_but_those_that_never_left() -> None:
    conversation = Conversation(100, lambda _: conversation.end((unsent,), "closed"))
    one, other, queued = Waiting(), Waiting(), Waiting()
    for waiting in (one, other):
        conversation.pending.add(waiting, NEVER)
    unsent = b'{"jsonrpc":"2.0","id":%d,"method":"x"}\n' % conversation.pending.add(queued, NEVER)

    conversation.receive(b"x" * 101)

    assert [failure.code for failure in one.losses] == ["too_large"]
    assert [failure.code for failure in other.losses] == ["too_large"]
    [never_left] = queued.losses
    assert (never_left.code, never_left.may_have_run) == ("server_exited", False)


def test_the_connection_closes_before_anybody_hears_of_a_message_beyond_the_cap() -> None:
    conversation, _, heard = talk(limit=100)

    class Next(Waiting):
        """Whoever is told may call again at once."""

        def lost(self, failure: Failure) -> None:
            super().lost(failure)
            closed.append(len(heard))

    closed: list[int] = []
    for _ in range(2):
        conversation.pending.add(Next(), NEVER)
    conversation.receive(b"x" * 101)

    assert closed == [1, 1]


def test_a_request_after_the_end_is_lost_at_once() -> None:
    conversation, _, _ = talk()
    conversation.fail_all(Failure("server_exited", "gone"))
    late = Waiting()

    conversation.begin("tools/list", b"{}", late)

    assert [failure.reason for failure in late.losses] == ["gone"]


def test_a_fault_of_ours_while_handing_on_is_told_to_who_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Faulty(Waiting):
        def settled(self, answer: Outcome) -> None:
            raise RuntimeError("ours")

    conversation, _, _ = talk()
    one, other = Faulty(), Waiting()
    for waiter in (one, other):
        conversation.pending.add(waiter, NEVER)

    conversation.receive(message(1, {"result": {}}) + message(2, {"result": {}}))

    assert [failure.code for failure in one.losses] == ["internal"]
    assert len(other.answers) == 1
    assert "ours" in caplog.text


@pytest.mark.parametrize(
    ("line", "is_taken"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"n":1}}', True),
        ('{"id":1,"result":{"t":"é"}}'.encode(), True),
        (b'{"id":1,"result":{"t":"\xff"}}', False),
        (b'{"id":2,"result":{}}', False),
        (b'{"id":1,"error":{"code":1,"message":"no"}}', False),
        (b'{"id":1,"result":{},"method":"ping"}', False),
        (b"<html>", False),
        (b'{"id":1,"result":' + b"[" * DEPTH + b"]" * DEPTH + b"}", False),
    ],
)
def test_only_the_plain_result_of_a_request_is_taken_at_once(line: bytes, is_taken: bool) -> None:
    conversation, _, _ = talk()
    one = Waiting()
    number = conversation.pending.add(one, NEVER)

    assert conversation.receive_result(number, line) is is_taken
    assert len(one.answers) == is_taken
    assert conversation.pending.count == (not is_taken)
    assert not conversation.receive_result(
        number, line
    )  # nobody waits for it any more, or still not


def test_a_fault_of_ours_with_a_plain_result_is_told_to_who_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Faulty(Waiting):
        def settled(self, answer: Outcome) -> None:
            raise RuntimeError("ours")

    for way in ("at once", "decoded"):
        conversation, _, _ = talk()
        one = Faulty()
        number = conversation.pending.add(one, NEVER)
        if way == "at once":
            assert conversation.receive_result(number, b'{"id":1,"result":{}}')
        else:
            conversation.receive_decoded(Envelope(msgspec.Raw(b"{}"), id=msgspec.Raw(b"1")), 1)

        assert [failure.reason for failure in one.losses] == [
            "the workbench failed to deliver the response"
        ]
        assert conversation.response_to == 0
    assert caplog.messages == ["a server's message failed"] * 2


def test_a_fault_of_ours_with_what_can_not_be_read_costs_that_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Faulty(Waiting):
        def lost(self, failure: Failure) -> None:
            raise RuntimeError("ours")

    conversation, _, _ = talk()
    conversation.pending.add(Faulty(), NEVER)
    conversation.receive_malformed(b"{", Malformed(-32700, "not JSON", b"1"), 1)

    assert "ours" in caplog.text
    assert conversation.response_to == 0
    assert conversation.pending.count == 0


@pytest.mark.parametrize(
    ("method", "passes"),
    [
        ("notifications/tools/list_changed", False),
        ("notifications/progress", False),
        ("notifications/message", True),
        ("notifications/tasks", True),
    ],
)
def test_a_notification_without_end_is_dropped_where_its_kind_is_short(
    method: str, passes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    conversation, _, heard = talk()
    params = msgspec.Raw(b'{"progressToken":1,"x":"%b"}' % (b"x" * LONGEST_NOTICE))
    for _ in range(2):
        conversation.receive_decoded(Envelope(method=method, params=params))

    assert [message.method for message in heard] == [method] * 2 * passes
    assert caplog.messages == [
        f"a server: a notification is too long, and is dropped: {method}",
    ] * (not passes)


class Long:
    """A request that stays open, and notes how it ended."""

    def __init__(self) -> None:
        self.ends: list[bytes] = []

    def ended(self, error: msgspec.Raw | bytes) -> None:
        self.ends.append(bytes(error))

    def interrupted(self) -> None: ...


@pytest.mark.parametrize(
    ("line", "ends", "is_heard"),
    [
        (b'{"method":"notifications/cancelled","params":{"requestId":7}}', [b""], False),
        (b'{"id":7,"result":{}}', [b""], False),
        (b'{"id":7,"error":{"code":1}}', [b'{"code":1}'], False),
        (b'{"method":"notifications/cancelled","params":{"requestId":8}}', [], True),
        (b'{"method":"notifications/cancelled","params":{"requestId":"7"}}', [], True),
        (b'{"method":"notifications/cancelled","params":7}', [], True),
        (b'{"method":"notifications/cancelled"}', [], True),
    ],
)
def test_a_server_ends_a_long_request_with_its_response_or_by_cancelling_it(
    line: bytes, ends: list[bytes], is_heard: bool
) -> None:
    conversation, _, heard = talk()
    conversation.long_requests[7] = request = Long()  # pyright: ignore[reportArgumentType]
    conversation.receive(line + b"\n")

    assert request.ends == ends
    assert (7 in conversation.long_requests) is not bool(ends)
    assert bool(heard) is is_heard
