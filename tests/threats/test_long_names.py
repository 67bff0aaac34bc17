"""Whatever a host names, however long the name is: to refuse it takes at most four times the message."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.raw_json import (
    LARGE,
    LONGEST_NAME,
    TooLong,
    may_have_long_key,
    read_members,
    read_names,
)
from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.gateway.interceptors import Rejected
from mcp_workbench.protocol.handshake import Agreed
from mcp_workbench.protocol.primitive_messages import check_uri, level_of
from mcp_workbench.protocol.translation import token_of
from mcp_workbench.server import parse
from mcp_workbench.server.session import HostSession
from mcp_workbench.server.session_tools import ToolView
from mcp_workbench.server.stdio_front import StdioFront
from mcp_workbench.transport import json_text, jsonrpc
from mcp_workbench.transport.jsonrpc import Envelope
from mcp_workbench.transport.tasks import task_scope
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.primitives import Primitives
from mcp_workbench.upstream.subscriptions import (
    ConnectionId,
    ServerNotification,
    SubscriptionRegistry,
)
from tests.kit.clock import PATIENCE, until
from tests.kit.config import snapshot, spec
from tests.kit.inside import InsideWorkbench
from tests.kit.memory_host import MemoryHost
from tests.threats import worst
from tests.threats.growth import cost, peak, ratio

MESSAGE = 8 << 20  # bytes
SPARE = 1 << 20
TIMES = 4
# A single letter of four bytes makes Python keep four bytes for each of the others.
ONE_EMOJI = "\N{GRINNING FACE}".encode()
USE = b'{"id":1,"method":"tools/call","params":{"name":"use_tool","arguments":{"tool":{'
OPEN = b'{"id":1,"method":"tools/call","params":{"name":"open_toolbox","arguments":{'

PLACES: dict[str, tuple[bytes, bytes]] = {
    "a toolbox": (USE + b'"toolbox":"', b'","server":"s","tool":"t"}}}}'),
    "a server": (USE + b'"toolbox":"dev","server":"', b'","tool":"t"}}}}'),
    "a tool": (USE + b'"toolbox":"dev","server":"fixture","tool":"', b'"}}}}'),
    "a part of a tool": (USE + b'"', b'":1}}}}'),
    "a tool of ours": (b'{"id":1,"method":"tools/call","params":{"name":"', b'"}}'),
    "a toolbox to open": (OPEN + b'"toolbox_name":"', b'"}}}'),
    "a detail": (OPEN + b'"toolbox_name":"dev","detail":"', b'"}}}'),
    "a prompt": (b'{"id":1,"method":"prompts/get","params":{"name":"', b'"}}'),
    "a resource": (b'{"id":1,"method":"resources/unsubscribe","params":{"uri":"', b'"}}'),
    "a level": (b'{"id":1,"method":"logging/setLevel","params":{"level":"', b'"}}'),
    "a state": (
        b'{"id":1,"method":"tools/call","params":{"name":"use_tool","requestState":"',
        b'","arguments":{"tool":{"toolbox":"dev","server":"fixture","tool":"echo"}}}}',
    ),
    "a key of params": (b'{"id":1,"method":"tools/call","params":{"', b'":1,"name":"use_tool"}}'),
    "a key of use_tool": (
        b'{"id":1,"method":"tools/call","params":{"name":"use_tool","arguments":{"',
        b'":1,"tool":{"toolbox":"dev","server":"fixture","tool":"echo"}}}}',
    ),
    "a key of _meta": (
        b'{"id":1,"method":"tools/call","params":{"name":"use_tool","_meta":{"',
        b'":1},"arguments":{"tool":{"toolbox":"dev","server":"fixture","tool":"echo"}}}}',
    ),
    "a capability": (b'{"id":1,"method":"initialize","params":{"capabilities":{"', b'":{}}}}'),
    "a revision": (b'{"id":1,"method":"initialize","params":{"protocolVersion":"', b'"}}'),
    "a host": (b'{"id":1,"method":"initialize","params":{"clientInfo":{"name":"', b'"}}}'),
    "a query": (
        b'{"id":1,"method":"tools/call","params":{"name":"search_tools","arguments":{"query":"',
        b'"}}}',
    ),
    "a resource to read": (b'{"id":1,"method":"resources/read","params":{"uri":"', b'"}}'),
    "a prompt to complete": (
        b'{"id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"',
        b'"}}}',
    ),
    "an id": (b'{"method":"ping","id":"', b'"}'),
}


async def peak_of_answer(line: bytes) -> int:
    """Bytes that it takes at most to read this line and to answer it, beside the line itself."""
    host = MemoryHost()
    async with (
        asyncio.timeout(PATIENCE),
        InsideWorkbench(snapshot(spec("fixture"))) as workbench,
        task_scope() as requests,
    ):
        session = HostSession(workbench.view, host, requests, ToolView(workbench.view, ()))
        session.era.revision = "2025-06-18"
        front = StdioFront(session, host, 2 * MESSAGE)
        tracemalloc.start()
        try:
            front.receive(line)
            await host.more.wait()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            session.close()


@pytest.mark.cost
@pytest.mark.parametrize("place", PLACES)
def test_a_name_as_long_as_a_message_takes_little_memory(place: str) -> None:
    start, end = PLACES[place]
    line = worst.filled(start + ONE_EMOJI, b"a", end + b"\n", MESSAGE)

    taken = asyncio.run(peak_of_answer(line))

    assert taken <= TIMES * MESSAGE + SPARE


def answer_to(line: bytes) -> Any:
    """What the session answers to this line."""
    host = MemoryHost()

    async def scene() -> None:
        async with (
            asyncio.timeout(PATIENCE),
            InsideWorkbench(snapshot(spec("fixture"))) as workbench,
            task_scope() as requests,
        ):
            session = HostSession(workbench.view, host, requests, ToolView(workbench.view, ()))
            session.era.revision = "2025-06-18"
            StdioFront(session, host, 2 * MESSAGE).receive(line)
            await host.more.wait()
            session.close()

    asyncio.run(scene())
    return host.messages[0]


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("a toolbox", "tool: longer than 64 KiB"),
        ("a tool of ours", "params.name is longer than 64 KiB"),
        ("a toolbox to open", "arguments: longer than 256 KiB"),
        ("a query", "arguments: longer than 256 KiB"),
        ("a resource", "params.uri is longer than 64 KiB"),
        ("a prompt", "params.name is longer than 64 KiB"),
        ("a level", "params.level: the log level must be one of"),
        ("a key of params", "a member whose name is longer than 64 KiB"),
        ("a key of use_tool", "a member whose name is longer than 64 KiB"),
        ("a key of _meta", "params._meta is"),
        ("an id", "id is longer than 65536 bytes"),
    ],
)
def test_a_long_name_is_refused_by_its_place(place: str, told: str) -> None:
    start, end = PLACES[place]
    answer = answer_to(worst.filled(start + ONE_EMOJI, b"a", end + b"\n", 1 << 20))

    assert told in str(answer)
    assert len(str(answer)) < 1000


# Keys of objects


@pytest.mark.parametrize("letter", ["a", "\\", '"', '\\"', "\xe9", "\n"])
def test_a_long_key_is_found_whatever_it_consists_of(letter: str) -> None:
    other = b'"' + b"x" * LARGE + b'"'
    for length in (LONGEST_NAME // 4, LONGEST_NAME, 3 * LONGEST_NAME):
        key = json.dumps("\N{GRINNING FACE}" + letter * length, ensure_ascii=False).encode()
        whole = b'{"a" : {%b:1} , %b : %b , "a":[1 ] }' % (key, key, other)
        if len(key) > LONGEST_NAME:
            with pytest.raises(TooLong, match="a member whose name is longer than 64 KiB"):
                read_members(whole)
        else:
            assert read_members(whole) == msgspec.json.decode(whole, type=dict[str, msgspec.Raw])


def test_a_long_key_further_down_is_no_matter() -> None:
    long = b'{"%b":"\\"1"}' % (b"k" * 2 * LONGEST_NAME)
    whole = b'{"a":%b, "b" : [1 ] \n, "b":%b}' % (long, long)

    assert may_have_long_key(whole)
    assert [bytes(value) for value in read_members(whole).values()] == [long, long]
    assert [bytes(value) for value in read_names(whole).values()] == [long, b"[1 ]", long]


@pytest.mark.parametrize("end", [b",}", b" x", b"}x", b'"b":1}', b',"b" 1}', b""])
def test_a_broken_object_with_a_long_key_inside_is_refused(end: bytes) -> None:
    broken = b'{"a":{"%b":1}%b' % (b"k" * 2 * LONGEST_NAME, end)

    with pytest.raises(msgspec.DecodeError, match=r"malformed|truncated"):
        read_members(broken)


# Servers


def conversation(heard: list[Envelope]) -> Conversation:
    return Conversation(2 * MESSAGE, heard.append, "dev/odd")


@pytest.mark.cost
@pytest.mark.parametrize(
    ("method", "member"),
    [
        ("notifications/progress", "progressToken"),
        ("notifications/resources/updated", "uri"),
        ("notifications/cancelled", "requestId"),
        ("notifications/elicitation/complete", "elicitationId"),
    ],
)
def test_a_notification_as_long_as_a_message_is_dropped_and_told_once(
    method: str, member: str, caplog: pytest.LogCaptureFixture
) -> None:
    start = b'{"method":"%b","params":{"%b":"' % (method.encode(), member.encode())
    line = worst.filled(start + ONE_EMOJI, b"a", b'"}}\n', MESSAGE)
    heard: list[Envelope] = []
    talk = conversation(heard)

    async def received() -> None:
        """It is delivered later, and what follows after it."""
        heard.clear()
        talk.receive(line + b'{"method":"notifications/x"}\n')
        await until(lambda: bool(heard))

    taken = peak(lambda: asyncio.run(received()))
    asyncio.run(received())

    assert [message.method for message in heard] == ["notifications/x"]
    assert taken <= TIMES * MESSAGE + SPARE
    assert caplog.messages == [f"dev/odd: a notification is too long, and is dropped: {method}"]


@pytest.mark.parametrize("size", [LONGEST_NAME + 1, LONGEST_NAME << 4, MESSAGE])
@pytest.mark.parametrize(
    ("method", "member"),
    [("notifications/message", b"level"), ("notifications/resources/updated", b"uri")],
)
def test_a_notification_with_a_long_name_in_it_is_dropped_and_told_once(
    method: str, member: bytes, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    value = worst.filled(b'"' + ONE_EMOJI, b"a", b'"', size)
    long = Envelope(method=method, params=msgspec.Raw(b'{"data":1,"%b":%b}' % (member, value)))
    short = Envelope(method=method, params=msgspec.Raw(b'{"%b":"info"}' % member))
    passed_on: list[ServerNotification] = []
    of_server = ConnectionId(ServerAddress("dev", "odd"))
    primitives = Primitives(of_server, SubscriptionRegistry(), passed_on.append)

    async def scene() -> None:
        agreed = Agreed("2025-11-25")
        primitives.received(long)  # in the handshake
        async with primitives.open(conversation([]), agreed, lambda: PATIENCE):
            for message in (long, short, long):
                primitives.received(message)

    asyncio.run(scene())

    assert [notification.params for notification in passed_on] == [short.params]
    assert caplog.messages == [f"dev/odd: a notification is too long, and is dropped: {method}"]


@pytest.mark.cost
def test_the_level_of_a_log_message_is_not_read_if_it_is_long() -> None:
    start = b'{"data":1,"level":"' + ONE_EMOJI
    params = msgspec.Raw(worst.filled(start, b"a", b'"}', MESSAGE))

    def read() -> None:
        with pytest.raises(TooLong):
            level_of(params)

    assert peak(read) <= SPARE
    assert level_of(msgspec.Raw(b'{"level":"info"}')) == "info"


def test_an_update_without_a_usable_uri_is_not_a_long_one() -> None:
    for params in (b"[]", b"{}", b'{"uri":1}', b'{"uri":"file:///a"}'):
        check_uri(msgspec.Raw(params))


def test_progress_has_a_number_of_ours_or_none() -> None:
    for token, number in {b"7": 7, b'"7"': 0, b"1" * 30: 0, b"1.5": 0, b"null": 0}.items():
        assert token_of(msgspec.Raw(b'{"progressToken":%b}' % token)) == number


@pytest.mark.cost
@pytest.mark.parametrize("member", [b'"data":[', b'"message":"a","data":['])
def test_a_large_error_is_read_once(member: bytes) -> None:
    error = worst.filled(b'{"code":-32602,' + member, b"1,", b"1]}", MESSAGE)
    once = cost(lambda: jsonrpc.read_error(msgspec.Raw(error)))
    rejected = Rejected(msgspec.Raw(error), about=jsonrpc.read_error(msgspec.Raw(error)))

    assert cost(rejected.read) <= once / 10
    assert rejected.read().code == jsonrpc.INVALID_PARAMS


# Messages that are read in few passes


@pytest.mark.cost
@pytest.mark.parametrize("size", [json_text.HUGE // 2, MESSAGE])
def test_a_body_with_line_breaks_costs_little_more_than_one_without(size: int) -> None:
    start = USE + b'"toolbox":"a","server":"b","tool":"c"},"arguments":{"a":['
    plain = worst.filled(start, b"1 ,", b"1]}}}}", size)
    broken = plain.replace(b" ", b"\n")

    message = parse.read_body(broken)

    form = parse.UseToolRequest if size <= json_text.HUGE else parse.HugeMessage
    assert isinstance(message, form)
    assert message == parse.read(plain)
    assert ratio(lambda: parse.read_body(broken), lambda: parse.read_body(plain), 2) <= 2


@pytest.mark.cost
@pytest.mark.parametrize("levels", [700, 990])
def test_a_message_of_very_many_lists_is_read_once(levels: int) -> None:
    start = USE + b'"toolbox":"a","server":"b","tool":"c"},"arguments":{"a":['
    deep = b"[" * levels + b"]" * levels + b","
    line = worst.filled(start, deep, b"1]}}}}", json_text.MOST_BRACKETS + (1 << 20))

    def refused() -> None:
        with pytest.raises(jsonrpc.Malformed, match=jsonrpc.TOO_DEEP) as caught:
            parse.read(line)
        assert caught.value.id == b"1"

    assert ratio(refused, lambda: msgspec.json.decode(line, type=msgspec.Raw), 2.5) <= 2.5
