"""Whatever a host or a server sends, no reader computes more than in proportion to it, nor without end."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench.cli.terminal import plain
from mcp_workbench.config.findings import MOST as MOST_FINDINGS
from mcp_workbench.config.load import load_config
from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.core.catalogue import Definition, read_definitions
from mcp_workbench.core.errors import InvalidCall, did_you_mean
from mcp_workbench.core.primitive_names import (
    Primitive,
    ServerPrimitives,
    owner_by_template,
    read_primitives,
)
from mcp_workbench.core.projection import read_projection
from mcp_workbench.core.raw_json import (
    TOO_COMPLEX,
    TooManyParts,
    changed,
    each,
    read_any,
    read_elements,
    read_members,
)
from mcp_workbench.core.script_values import parsed_text
from mcp_workbench.core.spec import ServerAddress, ToolIdentifier
from mcp_workbench.gateway.arguments import hint_for, result_with_hint
from mcp_workbench.gateway.result_budget import KeptResults, within_budget
from mcp_workbench.protocol.elicitation import read_input_required, read_needed
from mcp_workbench.protocol.handshake import STAMPS
from mcp_workbench.protocol.signed_state import digest_of
from mcp_workbench.protocol.translation import PAIRS, Unanswerable, legacy_result, result_for
from mcp_workbench.schema.document import json_text as schema_text
from mcp_workbench.schema.form_fields import form_fields
from mcp_workbench.schema.signature import (
    arguments_shape,
    first_sentence,
    one_line,
    short_signature,
    whole_signature,
)
from mcp_workbench.search.queries import ServerDescription, Words, server_counts, tool_counts
from mcp_workbench.server import parse
from mcp_workbench.server.http.modern import param_mismatch
from mcp_workbench.server.own_tools import full_text, signature_line
from mcp_workbench.server.tool_requests import read_open_toolbox, read_use_tool
from mcp_workbench.transport import json_text, jsonrpc
from mcp_workbench.transport.http.messages import HttpRequest
from mcp_workbench.upstream.http.requests import modern_headers
from mcp_workbench.upstream.http.tool_headers import screen_tools
from tests.kit.config import write_config
from tests.kit.results import raw
from tests.kit.turns import done
from tests.threats import worst
from tests.threats.growth import NOISE, assert_linear, cost, peak

pytestmark = pytest.mark.cost

SCHEMA = 100 << 10  # bytes
MESSAGE = 1 << 20  # bytes; a quarter of it is enough to be measured
SPARE = 4 << 20  # bytes that may be taken for a small message; few parts of one take many
MESSAGES = list(worst.messages(100))
AT = ServerAddress("dev", "a")


def call(arguments: Any) -> CallRequest:
    return CallRequest(ToolIdentifier("dev", "a", "edit"), {"arguments": raw(arguments)})


# Schemas


@pytest.mark.parametrize("schema", worst.SCHEMAS)
def test_what_is_wrong_with_a_call_is_told_in_proportion(schema: Callable[[int], Any]) -> None:
    def made(size: int) -> Any:
        tool = Definition("edit", worst.definition(schema(size)))
        return tool, [call(one) for one in worst.arguments(size)]

    def work(fed: Any) -> None:
        tool, calls = fed
        for one in calls:
            hint_for(tool, one)

    assert_linear(work, made, SCHEMA)


@pytest.mark.parametrize("schema", worst.SCHEMAS)
def test_a_schema_is_put_in_words_in_proportion(schema: Callable[[int], Any]) -> None:
    def work(fed: Any) -> None:
        shape = arguments_shape(fed)
        short_signature("edit", shape)
        whole_signature("edit", shape)

    assert_linear(work, schema, SCHEMA)


@pytest.mark.parametrize("schema", worst.SCHEMAS)
def test_a_tool_is_listed_and_searched_in_proportion(schema: Callable[[int], Any]) -> None:
    def work(tool: Definition) -> None:
        signature_line.__wrapped__(tool)  # without its memory
        full_text(tool)
        tool_counts(tool, Words())

    assert_linear(work, lambda size: Definition("edit", worst.definition(schema(size))), SCHEMA)


def test_a_definition_beyond_reading_is_said_to_be_so() -> None:
    tool = Definition("edit", worst.definition(worst.chain(2 << 20)))

    assert TOO_COMPLEX in hint_for(tool, call({"a": 5}))
    assert TOO_COMPLEX in signature_line(tool).text
    assert TOO_COMPLEX in full_text(tool).text
    assert list(tool_counts(tool, Words()).counts) == ["edit"]


def test_arguments_beyond_reading_are_said_to_be_so() -> None:
    tool = Definition("edit", worst.definition({"properties": {"a": {"type": "string"}}}))

    assert "Expected string" in hint_for(tool, call({"a": 5}))
    assert TOO_COMPLEX in hint_for(tool, call({"a": [5] * 400_000}))


# Names


def test_a_mistyped_name_is_looked_for_in_proportion() -> None:
    known = [f"some_tool_{n}" for n in range(50)]
    assert_linear(
        lambda wrong: did_you_mean(wrong, known), lambda size: "ab" * (size // 2), MESSAGE
    )
    assert_linear(
        lambda names: did_you_mean("some_tol_name", names),
        lambda size: [f"some_tool_named_{n}" for n in range(size)],
        100_000,
    )


def test_a_name_as_long_as_a_message_is_not_taken_apart() -> None:
    name = "ab" * (MESSAGE // 2)

    known = ["some_tool", name[2:]]

    assert peak(lambda: did_you_mean(name, known)) <= MESSAGE


def test_a_long_chain_of_references_is_followed_in_proportion() -> None:
    assert_linear(arguments_shape, worst.chain, 4 * SCHEMA)


def test_the_nearest_of_very_many_names_is_found() -> None:
    names = [f"get_{word}_{n}" for n in range(900) for word in ("user", "order", "price")]

    assert did_you_mean("get_odrer_407", names) == "Did you mean 'get_order_407'?"


TEMPLATES: list[Callable[[int], list[str]]] = [
    lambda size: ["{x}" * (size // 3)],
    lambda size: ["{+x}" * (size // 4)],
    lambda size: ["{+x}a" * (size // 5)],
    lambda size: [f"a{{x}}{n}" for n in range(size // 8)],
    lambda size: ["{" * 50 + str(n) for n in range(size // 54)],
]


@pytest.mark.parametrize("made", TEMPLATES)
def test_a_uri_is_compared_with_templates_in_proportion(made: Callable[[int], list[str]]) -> None:
    def shelf(size: int) -> Any:
        offers = {key: Primitive(key, b"{}") for key in made(size)}
        return "a" * size, [ServerPrimitives(AT, offers)]

    assert_linear(lambda fed: owner_by_template(*fed), shelf, 400_000)


# Messages


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_read_or_refused_in_proportion(name: str) -> None:
    def work(line: bytes) -> None:
        with suppress(jsonrpc.Malformed):
            jsonrpc.decode_text(line)
        with suppress(jsonrpc.Malformed):
            jsonrpc.decode(json_text.mend_text(line + b"\xff"))

    assert_linear(work, lambda size: worst.messages(size)[name], MESSAGE)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_takes_four_times_its_size_at_most(name: str) -> None:
    line = worst.messages(MESSAGE)[name]

    def work() -> None:
        with suppress(jsonrpc.Malformed):
            parse.read_body(line)

    assert peak(work) <= 4 * len(line) + SPARE


def test_bytes_that_are_no_text_are_mended_in_proportion() -> None:
    assert_linear(json_text.mend_text, lambda size: b"\xff" * size, MESSAGE)
    line = b"\xff" * MESSAGE
    assert json_text.is_utf8(json_text.mend_text(line))
    assert peak(lambda: json_text.mend_text(line)) <= 4 * len(line) + SPARE


@pytest.mark.parametrize("at", [0, 1])
def test_members_are_read_and_changed_in_proportion(at: int) -> None:
    def work(json: bytes) -> None:
        acts: list[Callable[[bytes], Any]] = [
            read_members,
            lambda one: changed(one, {"content": b"[]", "": None}),
            lambda one: result_with_hint(b'{"content":[],' + one[1:], "words"),
            lambda one: each(b"[" + one + b"]", lambda part: changed(part, {"uri": b"1"})),
            lambda one: read_primitives("prompts", [msgspec.Raw(b'{"name":"x",' + one[1:])]),
            lambda one: read_definitions([msgspec.Raw(b'{"name":"x",' + one[1:])]),
        ]
        for act in acts:
            with suppress(msgspec.DecodeError):
                act(json)

    assert_linear(work, lambda size: worst.objects(size)[at], MESSAGE)
    json = worst.objects(MESSAGE)[at]
    assert peak(lambda: work(json)) <= 4 * len(json) + SPARE


@pytest.mark.parametrize("pair", PAIRS.values())
@pytest.mark.parametrize("at", [0, 1])
def test_results_are_translated_in_proportion(pair: Any, at: int) -> None:
    def work(result: msgspec.Raw) -> None:
        with suppress(Unanswerable):
            result_for(pair, result, STAMPS)

    def made(size: int) -> msgspec.Raw:
        return msgspec.Raw(
            b'{"resultType":"complete","ttlMs":1,"_meta":{},' + worst.objects(size)[at][1:]
        )

    assert_linear(work, made, MESSAGE)


@pytest.mark.parametrize("at", range(4))
def test_elements_are_read_in_proportion(at: int) -> None:
    def work(json: bytes) -> None:
        acts: list[Callable[[bytes], Any]] = [
            read_elements,
            jsonrpc.read_batch,
            lambda one: each(one, lambda part: part),
            lambda one: within_budget(b'{"content":%b}' % one, 10, KeptResults(), None),
            lambda one: legacy_result(msgspec.Raw(b'{"content":%b,"structuredContent":[]}' % one)),
        ]
        for act in acts:
            with suppress(msgspec.DecodeError, jsonrpc.Malformed):
                act(json)

    assert_linear(work, lambda size: worst.lists(size)[at], MESSAGE)
    json = worst.lists(MESSAGE)[at]
    assert peak(lambda: work(json)) <= 4 * len(json) + SPARE


@pytest.mark.parametrize("text", [worst.objects, worst.lists])
def test_the_shape_of_a_long_result_is_told_in_proportion(
    text: Callable[[int], list[bytes]],
) -> None:
    def made(size: int) -> list[bytes]:
        texts = [one.decode() for one in text(size)]
        return [raw({"content": [{"type": "text", "text": one}], "structuredContent": one}) for one in texts]  # fmt: skip

    def work(results: list[bytes]) -> None:
        for result in results:
            assert within_budget(result, 1000, KeptResults(), None) is not result

    assert_linear(work, made, MESSAGE)


@pytest.mark.parametrize("at", [0, 1])
def test_our_own_tools_refuse_unknown_keys_in_proportion(at: int) -> None:
    def work(arguments: bytes) -> None:
        for read in (read_use_tool, read_open_toolbox):
            with pytest.raises(InvalidCall) as refused:
                read(arguments)
            assert len(str(refused.value)) < 200_000

    assert_linear(work, lambda size: worst.objects(size)[at], MESSAGE)
    assert_linear(work, lambda size: worst.objects(size)[at], 90_000)  # all of them can be read


def test_questions_are_read_in_proportion() -> None:
    def work(size: int) -> None:
        wanted = b",".join(b'"%x":{"method":"m"}' % n for n in range(size // 25))
        with suppress(msgspec.DecodeError):
            read_input_required(AT, msgspec.Raw(b'{"inputRequests":{%b}}' % wanted))
        error = worst.filled(b'{"data":{"elicitations":[', b"{},", b"{}]}}", size)
        with suppress(msgspec.DecodeError):
            read_needed(AT, msgspec.Raw(error))

    assert_linear(work, lambda size: size, MESSAGE)


def test_a_call_s_digest_is_made_in_proportion() -> None:
    def made(size: int) -> bytes:
        return worst.filled(b'{"a":[', b"[],", b"[]]}", size)

    assert_linear(lambda arguments: digest_of("a", arguments), made, MESSAGE)
    assert peak(lambda: digest_of("a", made(MESSAGE))) <= 4 * MESSAGE + SPARE


def deep_and_wide(size: int, leaf: bytes) -> bytes:
    """A tool with very many arguments, far inside of others, one of which asks for a header."""
    depth = 450
    wide = b",".join(b'"%x":%b' % (n, leaf) for n in range(size // (len(leaf) + 8)))
    schema = b'{"properties":{"p":' * depth + b'{"properties":{%b}}' % wide + b"}}" * depth
    asks = b'{"type":"string","x-mcp-header":"H"}'
    return b'{"name":"t","inputSchema":{"properties":{"h":%b,"q":%b}}}' % (asks, schema)


@pytest.mark.parametrize("leaf", [b"{}", b'{"type":"string","x-mcp-header":"H"}'])
def test_headers_of_arguments_far_inside_of_others_take_little_memory(leaf: bytes) -> None:
    request = HttpRequest()
    definition = deep_and_wide(400_000, leaf)
    page = b'{"tools":[%b]}' % definition
    reading = peak(lambda: json.loads(definition))

    assert peak(lambda: screen_tools(page)) <= 3 * reading
    assert peak(lambda: param_mismatch(request, definition, msgspec.Raw(b"{}"))) <= 3 * reading


def test_headers_that_tools_ask_for_are_read_in_proportion() -> None:
    def page(size: int) -> bytes:
        asked = {f"a{n}": {"type": "string", "x-mcp-header": f"h{n}"} for n in range(size // 60)}
        return json.dumps({"tools": [{"name": "t", "inputSchema": {"properties": asked}}]}).encode()

    assert_linear(screen_tools, page, MESSAGE)
    kept, wanted, complaints = screen_tools(page(MESSAGE))
    assert (json.loads(kept)["tools"], wanted, len(complaints)) == ([], {}, 1)

    arguments = worst.filled(b'{"name":"t","arguments":{"b":[', b"[],", b"[]]}}", MESSAGE)
    headers = {"t": {(f"a{n}",): f"h{n}" for n in range(100)}}
    assert (
        peak(lambda: modern_headers("tools/call", msgspec.Raw(arguments), headers))
        <= 4 * MESSAGE + SPARE
    )


@pytest.mark.parametrize(
    "number", ["1e-320", "1.5e300", "5.123456789e300", "1.2345678901234567e-300"]
)
def test_numbers_at_the_ends_of_the_range_are_read_as_quickly_as_others(number: str) -> None:
    def values(one: str) -> str:
        return "[" + ",".join([one] * 10_000) + "]"

    def selected(text: str) -> None:
        projection = read_projection("length(@)", "", 0)
        assert projection is not None
        done(projection.of(text, text))

    readers: list[Callable[[str], Any]] = [
        read_any,
        json_text.read_json,
        parsed_text,
        selected,
        lambda text: within_budget(
            raw({"content": [{"type": "text", "text": text}], "structuredContent": {"a": text}}),
            10,
            KeptResults(),
            None,
        ),
    ]
    for read in readers:
        usual, extreme = values("1234567.25"), values(number)
        assert cost(partial(read, extreme)) <= 4 * max(cost(partial(read, usual)), NOISE)


# Texts


def test_texts_are_made_visible_in_proportion() -> None:
    def work(text: str) -> None:
        schema_text(text)
        one_line(text)
        plain(text)
        first_sentence(text)
        server_counts(ServerDescription("a", text=text), Words())

    for sign in ("\x1b", "\u202e", "\n"):
        assert_linear(work, lambda size, sign=sign: sign * size, 64 << 10)
    assert_linear(work, lambda size: "".join(map(chr, range(0xE000, 0xE000 + size % 6000))), 24_000)


# Files and forms


@pytest.mark.parametrize("where", ["top", "entry", "env"])
def test_a_file_with_very_many_mistakes_is_told_of_in_proportion(
    where: str, tmp_path: Path
) -> None:
    def made(size: int) -> Path:
        keys: dict[str, Any] = {f"unknown_key_{n}": [n] for n in range(size)}
        entry = {"command": "x", **(keys if where == "entry" else {})}
        entry |= {"env": keys} if where == "env" else {}
        return write_config(
            tmp_path, {"mcpServers": {"a": entry}, **(keys if where == "top" else {})}
        )

    def work(path: Path) -> None:
        with suppress(Exception):
            load_config(path)

    assert_linear(work, made, 8000)
    if where == "env":
        return
    warnings = load_config(made(MOST_FINDINGS + 7000)).warnings
    assert len(warnings) == MOST_FINDINGS + 1
    assert any(one.message == "7000 more warnings, which are not listed" for one in warnings)


def test_a_form_is_read_in_proportion() -> None:
    def made(size: int) -> Any:
        names = [f"a{n}" for n in range(size)]
        return {"properties": {name: {"enum": ["x"]} for name in names}, "required": names}

    assert_linear(form_fields, made, 20_000)


# What is refused is refused plainly


def test_too_many_parts_are_told_as_such() -> None:
    with pytest.raises(TooManyParts, match="more than 20000 members"):
        read_members(worst.objects(1 << 20)[0])
    with pytest.raises(TooManyParts, match="more elements"):
        read_elements(worst.lists(1 << 20)[0])
    result = msgspec.Raw(b'{"resultType":"complete","ttlMs":1,' + worst.objects(1 << 20)[0][1:])
    with pytest.raises(Unanswerable, match="an object with more than 20000 members"):
        result_for(PAIRS[False, True], result, STAMPS)
