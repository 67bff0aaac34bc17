"""Calls through the real command: ids, bytes, order, progress, cancelling, limits."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import json_text, texts

pytestmark = pytest.mark.usefixtures("forked_commands")


@pytest.fixture(scope="module", params=[False, True], ids=["legacy host", "modern host"])
def host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PipeHost]:
    servers = {"a": entry(), "b": entry("modern", era="modern"), "c": entry("crlf", "banner")}
    with PipeHost(
        config_file(tmp_path_factory.mktemp("calls"), servers), modern=request.param
    ) as h:
        h.handshake()
        yield h


@pytest.fixture(scope="module")
def long_lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeHost]:
    servers = {"a": entry(), **{f"s{index}": entry() for index in range(len(IDS))}}
    with PipeHost(config_file(tmp_path_factory.mktemp("legacy"), servers)) as host:
        host.initialize()
        yield host


@pytest.fixture
def legacy(long_lived: PipeHost) -> PipeHost:
    """The same for all tests; what others have passed over is gone."""
    long_lived.others.clear()
    return long_lived


BOTH = pytest.mark.parametrize("server", ["a", "b"])


# Ids


IDS = [
    b"0",
    b"-1",
    b"-0",
    b"12345678901234567890123456789012345678901234567890",
    b'""',
    b'"1"',
    b'"a b"',
    b'"\\u00e9\\"\\\\\\/\\n"',
    b'"\\ud83d\\ude00"',
    '"é🙂"'.encode(),
    b'"' + b"x" * 5000 + b'"',
]


@pytest.mark.parametrize("index", range(len(IDS)))
def test_any_id_comes_back_as_it_was_sent(legacy: PipeHost, index: int) -> None:
    id = IDS[index]
    wish = b'{"tool":{"toolbox":"dev","server":"s%d","tool":"echo"}}' % index
    params = b'{"name":"use_tool","arguments":' + wish + b"}"
    line = b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":%b}\n' % (id, params)

    for _ in range(2):  # once by the patient way, which starts the server, once by the quick one
        legacy.write(line)
        legacy.receive()
        assert legacy.lines[-1].startswith(b'{"jsonrpc":"2.0","id":%b,"result":' % id)


@pytest.mark.parametrize("id", [b"null", b"1.5", b"true", b"{}", b"[1]"])
def test_what_is_no_id_is_refused(legacy: PipeHost, id: bytes) -> None:
    legacy.write(b'{"jsonrpc":"2.0","id":%b,"method":"ping"}\n' % id)

    answer = legacy.receive()

    assert answer is not None
    assert answer["id"] is None
    assert answer["error"]["code"] == -32600


def test_an_id_in_use_is_refused_and_the_first_request_goes_on(legacy: PipeHost) -> None:
    legacy.use("a", "echo")  # calls that wait for their server to start may overtake each other
    first = legacy.begin_use("a", "hold", {"key": "k"})
    legacy.request("ping")  # order: the hold has been read
    legacy.ask("ping", id=first)

    assert legacy.answer(None)["error"]["code"] == -32600
    legacy.use("a", "release", {"key": "k"})
    assert "result" in legacy.answer(first)


# Bytes


def test_arguments_reach_the_server_byte_for_byte(legacy: PipeHost) -> None:
    odd = b'{"a":1.0,"b":1E+2,"n":12345678901234567890,"a":2,"t":"\\u00e9\\/","u":"\xc3\xa9", "z" : [ null ]}'
    wish = b'{"tool":{"toolbox":"dev","server":"a","tool":"echo"},"arguments":' + odd + b"}"
    params = b'{"name":"use_tool","arguments":' + wish + b',"x-extra":{"n":1.0}}'

    legacy.write(b'{"jsonrpc":"2.0","id":"x","method":"tools/call","params":' + params + b"}\n")
    legacy.answer("x")
    before, _ = json_text(legacy.use("a", "last_line"))

    assert odd in before.encode("latin-1")
    assert b'"x-extra":{"n":1.0}' in before.encode("latin-1")


def test_a_carriage_return_can_not_smuggle_a_second_message(legacy: PipeHost) -> None:
    """JSON may hold line breaks between tokens, and some readers end a line at each of them."""
    hidden = b'\r{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{"name":"die"}}\r'
    wish = b'{"tool":{"toolbox":"dev","server":"a","tool":"echo"},"arguments":{"x":[' + hidden
    start = (
        b'{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"use_tool","arguments":'
    )

    legacy.write(start + wish)
    legacy.wait_until_read()
    legacy.write(b"]}}}}\n")
    legacy.answer("x")
    before, _ = json_text(legacy.use("a", "last_line"))

    assert "\r" not in before


def test_a_lone_surrogate_and_bad_utf8_reach_the_host_as_valid_text(host: PipeHost) -> None:
    for hexed in (
        b'{"jsonrpc":"2.0","id":@ID@,"result":{"content":[],"t":"cut \\ud83d"}}'.hex(),
        b'{"jsonrpc":"2.0","id":@ID@,"result":{"content":[],"t":"cut \xff"}}'.hex(),
    ):
        assert host.use("a", "line", {"hex": hexed})["t"] == "cut \ufffd"


def test_a_batch_of_answers_from_a_server_is_taken_apart(host: PipeHost) -> None:
    line = b'[{"jsonrpc":"2.0","id":@ID@,"result":{"content":[],"ok":1}},5]'

    assert host.use("a", "line", {"hex": line.hex()})["ok"] == 1


def test_lines_that_are_no_messages_do_no_harm(host: PipeHost) -> None:
    assert json_text(host.use("c", "echo", {"a": 1}))["arguments"] == {"a": 1}


@pytest.mark.fault("F12")
def test_a_second_answer_to_one_call_is_dropped(host: PipeHost) -> None:
    line = b'{"jsonrpc":"2.0","id":@ID@,"result":{"n":1}}\n{"jsonrpc":"2.0","id":@ID@,"result":{"n":2}}'

    assert host.use("a", "line", {"hex": line.hex()})["n"] == 1
    assert json_text(host.use("a", "echo"))["name"] == "echo"
    assert host.others == []


UNREADABLE = [
    b'{"jsonrpc":"2.0","id":@ID@}',
    b'{"jsonrpc":"2.0","id":@ID@,"result":{},"error":{}}',
    b'{"jsonrpc":"2.0","id":@ID@,"result":{',
    b'{"jsonrpc":"2.0","id":@ID@,"result":' + b"[" * 5000 + b"]" * 5000 + b"}",
]


@pytest.mark.parametrize("line", UNREADABLE, ids=["neither", "both", "broken", "deep"])
def test_an_answer_that_can_not_be_read_fails_its_call_at_once(host: PipeHost, line: bytes) -> None:
    result = host.use("a", "line", {"hex": line.hex()})

    assert result["isError"] is True
    assert texts(result)[0].startswith("[dev/a/line] Error: ")
    assert json_text(host.use("a", "echo"))["name"] == "echo"  # the connection lives on


def test_several_megabytes_pass_untouched_both_ways(host: PipeHost) -> None:
    for server in ("a", "b"):
        assert json_text(host.use(server, "big", {"n": 2_500_000})) == "x" * 2_500_000
        sent = {"text": "é" * 350_000}  # six bytes each where they are escaped
        assert json_text(host.use(server, "echo", sent))["arguments"] == sent


# Order and progress


@BOTH
def test_calls_run_side_by_side_and_each_gets_its_own_answer(host: PipeHost, server: str) -> None:
    host.use(server, "echo")  # calls that wait for their server to start may overtake each other
    keys = [f"k{index}" for index in range(50)]
    held = {key: host.begin_use(server, "hold", {"key": key}) for key in keys}
    random.Random(7).shuffle(keys)

    for key in keys:
        host.use(server, "release", {"key": key})
    answers = {m["id"]: json_text(m["result"]) for m in host.others}
    host.others.clear()

    assert answers == {held[key]: f"released {key}" for key in keys}


@BOTH
@pytest.mark.parametrize("token", [0, "t", "é\n", 12345678901234567890])
def test_progress_comes_in_order_with_the_host_s_own_token(
    host: PipeHost, server: str, token: Any
) -> None:
    result = host.use(server, "progress", {"n": 20}, _meta={"progressToken": token})
    notices = [m["params"] for m in host.others if m["method"] == "notifications/progress"]
    host.others.clear()

    assert json_text(result) == 20
    assert [notice["progress"] for notice in notices] == list(range(20))
    assert all(notice["progressToken"] == token for notice in notices)
    assert notices[0]["x-extra"] == {"a": [None]}
    assert b'"total":1.0' in host.lines[-2].replace(b" ", b"")


@pytest.mark.fault("F33")
def test_equal_tokens_of_two_calls_do_not_meet(legacy: PipeHost) -> None:
    ids = [
        legacy.begin_use("a", "progress", {"n": n}, _meta={"progressToken": f"t{n}"})
        for n in (3, 5)
    ]
    for id in ids:
        legacy.answer(id)

    tokens = [m["params"]["progressToken"] for m in legacy.others if "method" in m]
    assert tokens == ["t3"] * 3 + ["t5"] * 5


# Cancelling


@BOTH
def test_a_cancelled_call_is_cancelled_at_the_server_and_never_answered(
    host: PipeHost, server: str
) -> None:
    host.use(server, "stats")
    id = host.begin_use(server, "hold", {"key": "gone"})
    host.notify("notifications/cancelled", {"requestId": id, "reason": "enough"})
    seen = json_text(host.use(server, "stats"))  # read by the server right behind the cancel
    host.use(server, "release", {"key": "gone"})  # a late answer
    json_text(host.use(server, "echo"))

    assert len(seen["cancelled"]) == 1
    assert host.others == []


def test_the_server_is_told_its_own_number(legacy: PipeHost) -> None:
    legacy.use("a", "echo")
    legacy.ask("tools/call", CALL_HANG, id="mine")
    legacy.notify("notifications/cancelled", {"requestId": "mine"})
    before, _ = json_text(legacy.use("a", "last_line"))

    told = json.loads(before)
    assert told["method"] == "notifications/cancelled"
    assert isinstance(told["params"]["requestId"], int)


CALL_HANG = {
    "name": "use_tool",
    "arguments": {"tool": {"toolbox": "dev", "server": "a", "tool": "hang"}},
}


def test_cancelling_what_is_unknown_or_over_does_nothing(legacy: PipeHost) -> None:
    id = legacy.begin_use("a", "echo")
    legacy.answer(id)
    before = json_text(legacy.use("a", "stats"))["cancelled"]
    for params in ({"requestId": id}, {"requestId": "nobody"}, {"requestId": None}, {}):
        legacy.notify("notifications/cancelled", params)

    assert json_text(legacy.use("a", "stats"))["cancelled"] == before


@pytest.mark.fault("F31")
def test_a_call_cancelled_while_its_server_starts_is_never_sent(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with PipeHost(config_file(tmp_path, {"a": entry(f"gate={gate}")})) as host:
        host.initialize()
        id = host.begin_use("a", "echo")
        host.notify("notifications/cancelled", {"requestId": id})
        host.request("ping")
        gate.open("w").close()

        assert json_text(host.use("a", "stats"))["methods"].count("tools/call") == 1
        assert host.others == []
