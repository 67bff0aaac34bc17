"""What a server says: whoever asked is told once, and only what was said to it."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec
from hypothesis import strategies as st

from mcp_workbench.transport import json_text
from mcp_workbench.transport.jsonrpc import NEVER, Envelope, NumberedResponse, Outcome
from mcp_workbench.upstream.conversation import Conversation, Failure, ResponseHandler
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import cuts, ids, in_chunks, mutated, objects, strict_json, values, writers

WAITING = 5
LIMIT = 12_000

Told = tuple[str, int, bytes]  # what, to whom, and which bytes

outcomes = st.sampled_from(["result", "error", "params", "method"])
answers = st.builds(
    lambda id, outcome, value: {"jsonrpc": "2.0", "id": id, outcome: value},
    st.integers(1, WAITING) | ids,
    outcomes,
    objects | values,
)
notices = st.builds(
    lambda method, params: {"jsonrpc": "2.0", "method": method, "params": params},
    st.sampled_from(["notifications/progress", "notifications/message", "ping"]) | values,
    st.builds(lambda token: {"progressToken": token, "progress": 1}, ids) | values,
)
said = st.builds(lambda write, value: write(value), writers, answers | notices)
batches = st.lists(said, max_size=3).map(lambda many: b"[" + b",".join(many) + b"]")
hurt = said.map(lambda line: line.replace(b'"jsonrpc"', b'"\xff": 1, "jsonrpc"'))
marked = (said | hurt).map(json_text.BOM.__add__)  # as some tools of Windows write it
noise = st.sampled_from([b"Starting ...", b'{"level":"info","id":2}', b"\xef\xbb\xbf", b""])
spoken = st.lists(
    mutated(said | batches | marked, 2) | said | marked | noise, max_size=size(8)
).map(lambda lines: b"".join(line + b"\n" for line in lines))


class Waiting(ResponseHandler):
    """Writes down what it is told."""

    def __init__(self, number: int, told: list[Told]) -> None:
        self.number = number
        self.told = told

    def settled(self, answer: Outcome) -> None:
        outcome = answer.result or answer.error
        assert numbered(answer) == self.number
        self.told.append(("settled", self.number, bytes(outcome)))

    def lost(self, loss: Failure) -> None:
        self.told.append((loss.code, self.number, b""))

    def progressed(self, params: msgspec.Raw) -> None:
        self.told.append(("progressed", self.number, bytes(params)))


def numbered(answer: Outcome) -> int:
    if isinstance(answer, NumberedResponse):
        return answer.id
    assert isinstance(answer, Envelope)
    return int(bytes(answer.id))


class Trouble(logging.Handler):
    """Whatever the workbench logs as a fault of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        raise AssertionError(self.format(record))


@contextmanager
def no_fault_of_ours() -> Generator[None]:
    log, trouble = logging.getLogger("mcp_workbench"), Trouble(logging.ERROR)
    log.addHandler(trouble)
    try:
        yield
    finally:
        log.removeHandler(trouble)


def hear(chunks: list[bytes]) -> tuple[list[Told], Conversation]:
    told: list[Told] = []
    talk = Conversation(LIMIT, lambda message: told.append(("heard", 0, message.method.encode())))
    for number in range(1, WAITING + 1):
        assert talk.pending.add(Waiting(number, told), NEVER) == number
    with no_fault_of_ours():
        for chunk in chunks:
            talk.receive(chunk)
    return told, talk


def messages_in(line: bytes) -> list[Any]:
    """What an independent reader finds in a line: its messages, or nothing that can be relied on."""
    text = json_text.mend_surrogates(line.decode("utf-8", "replace").encode())
    try:
        value = strict_json(text.decode().removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else [value]


def expected(data: bytes) -> dict[int, Any]:
    """Who has an answer, and which: the first that is one."""
    found: dict[int, Any] = {}
    for line in data.replace(b"\r", b" ").split(b"\n")[:-1]:
        for message in messages_in(line) if len(line) <= LIMIT else []:
            if not isinstance(message, dict):
                continue
            id: Any = message.get("id")
            one = ("result" in message) != ("error" in message)
            if type(id) is int and one and message.get("method", "") == "":
                found.setdefault(id, message.get("result", message.get("error")))
    return found


@fuzzed(spoken)
def test_an_answer_reaches_who_asked_once_and_nobody_else(data: bytes) -> None:
    told, talk = hear([data])
    right = expected(data)

    outcomes = {
        number: (what, body) for what, number, body in told if what in ("settled", "protocol_error")
    }
    ended = [number for what, number, _ in told if what not in ("heard", "progressed")]
    assert len(ended) == len(set(ended))
    assert talk.pending.count == WAITING - len(ended)
    if talk.failure is not None:  # a line was too long: what follows is nobody's
        return
    for number in range(1, WAITING + 1):
        what, body = outcomes.get(number, ("", b""))
        if what == "settled":
            assert strict_json(body) == right[number]
        elif what == "":
            assert number not in right
        else:
            assert b"%d" % number in data


@fuzzed(spoken, cuts, examples=30)
def test_what_is_told_does_not_depend_on_the_chunks(data: bytes, at: list[int]) -> None:
    whole, one = hear([data])
    parts, other = hear(in_chunks(data, at))

    if one.failure is None:
        assert parts == whole
        assert (other.skipped, other.last_skipped) == (one.skipped, one.last_skipped)
    assert (one.failure is None) == (other.failure is None)


@fuzzed(st.integers(1, 1100), st.sampled_from([b"[%b]", b'{"a":%b}']), st.sampled_from([
    b'{"id":1,"result":{"x":%b}}', b'{"method":"notifications/progress","params":{"x":%b,"progressToken":1}}',
    b'{"id":1,"error":%b}', b'[{"id":1,"result":%b}]']))  # fmt: skip
def test_depth_costs_one_message_at_most(depth: int, level: bytes, frame: bytes) -> None:
    left, _, right = level.partition(b"%b")
    told, talk = hear(
        [frame % (left * depth + b"1" + right * depth) + b"\n", b'{"id":2,"result":{}}\n']
    )

    assert ("settled", 2, b"{}") in told
    assert talk.pending.count <= WAITING - 1
