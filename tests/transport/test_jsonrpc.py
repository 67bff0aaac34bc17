"""The outside of a message is read and written anew; the inside stays as it came."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.json_text import (
    DEPTH,
    MOST_BACKSLASHES,
    MOST_BAD,
    MOST_HALVES,
    DepthScan,
    ScannedText,
    mend_surrogates,
    mend_text,
    too_deep,
)
from mcp_workbench.transport.jsonrpc import Malformed, decode, usable_id

ids = st.integers() | st.text()
values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def test_the_inside_is_kept_byte_for_byte() -> None:
    odd = b'{"a":1.0,"b":1E+2,"c":12345678901234567890123,"d":[1, 2],"a":2,"e":"\\u00e9\\/"}'

    message = decode(b'{"jsonrpc":"2.0","id":1,"result":' + odd + b"}")

    assert bytes(message.result) == odd
    assert (
        jsonrpc.answer(b"7", message.result) == b'{"jsonrpc":"2.0","id":7,"result":' + odd + b"}\n"
    )


@given(ids, values)
def test_an_answer_is_one_line_with_the_id_as_sent(id: Any, value: Any) -> None:
    raw_id, result = json.dumps(id).encode(), json.dumps(value).encode()

    frame = jsonrpc.answer(raw_id, msgspec.Raw(result))

    assert frame.count(b"\n") == 1
    assert json.loads(frame) == {"jsonrpc": "2.0", "id": id, "result": value}


@given(ids)
def test_ids_are_read_as_they_were_written(id: Any) -> None:
    for written in (json.dumps(id), json.dumps(id, ensure_ascii=False)):
        try:
            line = b'{"jsonrpc":"2.0","id":%b,"method":"ping"}' % written.encode()
        except UnicodeEncodeError:
            continue
        if b"\\ud" in line:
            continue  # mended, see below
        assert bytes(decode(line).id) == written.encode()
        assert usable_id(written.encode())


@pytest.mark.parametrize("id", [b"null", b"1.0", b"1.5", b"true", b"[]", b"{}", b"1e3", b""])
def test_nothing_else_is_an_id(id: bytes) -> None:
    assert not usable_id(id)


def test_kinds_of_messages_are_told_by_their_members() -> None:
    request = decode(b'{"id":0,"method":"m","params":{}}')
    notice = decode(b'{"method":"m"}')
    answer = decode(b'{"id":"a","result":null}')
    refusal = decode(b'{"id":1,"error":{"code":1,"message":"x"}}')

    assert request.id
    assert request.method == "m"
    assert not notice.id
    assert bytes(answer.result) == b"null"
    assert not refusal.result
    assert jsonrpc.read_error(refusal.error).message == "x"


@pytest.mark.parametrize(
    ("line", "code", "id"),
    [
        (b"hello", jsonrpc.PARSE_ERROR, b""),
        (b"{", jsonrpc.PARSE_ERROR, b""),
        (b'{"jsonrpc":"2.0","id":12,"result":{', jsonrpc.PARSE_ERROR, b"12"),
        (b'{"jsonrpc":"2.0","id":"a\\"b","result":{', jsonrpc.PARSE_ERROR, b'"a\\"b"'),
        (b'{"result":{,},"jsonrpc":"2.0","id":-3}', jsonrpc.PARSE_ERROR, b"-3"),
        (b'{"result":{"t":"}","id":3,},"jsonrpc":"2.0","id":4}', jsonrpc.PARSE_ERROR, b"4"),
        (b'{"result":{"a":1,"id":3}', jsonrpc.PARSE_ERROR, b""),  # broken off: another one's id
        (b'{"id":1', jsonrpc.PARSE_ERROR, b""),  # of 12, maybe
        (b'{"id":1.5,"result":{', jsonrpc.PARSE_ERROR, b""),
        (b'{"id":007,"result":{', jsonrpc.PARSE_ERROR, b""),
        (b'{"id":"\\q","result":{', jsonrpc.PARSE_ERROR, b""),  # would be no JSON in our answer
        (b'{"id":"\xff","result":{', jsonrpc.PARSE_ERROR, b""),
        (b'{"id":"a\tb","result":{', jsonrpc.PARSE_ERROR, b""),
        (b'{"result":{"id":3},}', jsonrpc.PARSE_ERROR, b""),
        (b"[]", jsonrpc.INVALID_REQUEST, b""),
        (b"5", jsonrpc.INVALID_REQUEST, b""),
        (b'{"id":5,"method":7}', jsonrpc.INVALID_REQUEST, b"5"),
        (b'{"id":5,"result":{},"error":{}}', jsonrpc.INVALID_REQUEST, b"5"),
        (b'{"jsonrpc":"2.0","id":{"a":1}}', jsonrpc.INVALID_REQUEST, b""),
        (b'{"jsonrpc":"2.0","id":1.5,"method":""}', jsonrpc.INVALID_REQUEST, b""),
        (b'{"level":"info","id":5,"msg":"a log line"}', jsonrpc.INVALID_REQUEST, b""),
    ],
)
def test_what_is_no_message_says_why_and_saves_its_id(line: bytes, code: int, id: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        decode(line)

    assert (caught.value.code, caught.value.id) == (code, id)


def test_an_answer_without_result_and_error_is_no_message() -> None:
    with pytest.raises(Malformed) as caught:
        decode(b'{"jsonrpc":"2.0","id":5}')

    assert caught.value.id == b"5"


def test_deep_nesting_is_refused_with_its_id() -> None:
    line = b'{"jsonrpc":"2.0","id":9,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

    with pytest.raises(Malformed, match="nested too deeply") as caught:
        decode(line)

    assert caught.value.id == b"9"


@pytest.mark.parametrize("level", [b"[%b]", b'{"]\\"}":%b}'], ids=["arrays", "objects"])
def test_the_last_level_is_the_same_on_every_python(level: bytes) -> None:
    left, _, right = level.partition(b"%b")

    def answer(levels: int) -> bytes:
        inner = left * (levels - 1) + b'{"text":"[[["}' + right * (levels - 1)
        return b'{"id":1,"note":"' + b"[" * DEPTH + b'","result":' + inner + b"}"

    for levels in (400, 900, DEPTH - 2, DEPTH - 1):
        assert decode(answer(levels)).result
    for levels in (DEPTH, DEPTH + 1, DEPTH + 400, 5 * DEPTH):
        with pytest.raises(Malformed, match="nested too deeply") as caught:
            decode(answer(levels))
        assert caught.value.id == b"1"


def test_width_is_no_depth() -> None:
    wide = b"[" + b",".join([b'[{"a":"[\\"["}]'] * DEPTH) + b"]"

    assert bytes(decode(b'{"id":1,"result":' + wide + b"}").result) == wide


@given(values)
def test_depth_is_counted_outside_of_strings(value: Any) -> None:
    def depth(of: Any) -> int:
        inner = list(of.values()) if isinstance(of, dict) else of  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return 1 + max(map(depth, inner), default=0) if isinstance(inner, list) else 0  # pyright: ignore[reportUnknownArgumentType]

    around = DEPTH - depth(value)
    for levels, deep in ((around, False), (around + 1, True)):
        assert too_deep(b"[" * levels + msgspec.json.encode(value) + b"]" * levels) is deep


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        (rb"cut \ud83d", rb"cut \ufffd"),
        (rb"\ud83d\ude00", rb"\ud83d\ude00"),
        (rb"\ude00\ud83d", rb"\ufffd\ufffd"),
        (rb"\ud83d\ud83d\ude00", rb"\ufffd\ud83d\ude00"),
        (rb"\\ud83d", rb"\\ud83d"),
        (rb"\\\ud83d", rb"\\\ufffd"),
        (rb"\uD83D\uDE00\uDBFF", rb"\uD83D\uDE00\ufffd"),
        (rb"\u0041\n\ud7ff\ue000", rb"\u0041\n\ud7ff\ue000"),
    ],
)
def test_half_characters_are_mended_and_whole_ones_left(text: bytes, mended: bytes) -> None:
    assert mend_surrogates(b'"' + text + b'"') == b'"' + mended + b'"'


@given(st.text(alphabet=st.characters() | st.characters(categories=["Cs"])))
def test_any_text_of_python_can_be_read_after_mending(text: str) -> None:
    line = b'{"id":1,"result":%b}' % json.dumps({"t": text}).encode()

    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    found = msgspec.json.decode(decode(line).result)["t"]
    assert found.replace("\ufffd", "") == expected.replace("\ufffd", "")


@given(st.binary())
def test_mended_text_is_valid_and_valid_text_is_not_touched(data: bytes) -> None:
    mended = mend_text(data)

    mended.decode()
    assert mend_text(mended) == mended


def test_a_batch_is_taken_apart() -> None:
    assert jsonrpc.is_batch(b' [{"id":1},2]')
    assert jsonrpc.read_batch(b'[{"id":1}, 2.0]') == [b'{"id":1}', b"2.0"]
    assert not jsonrpc.is_batch(b"{}")
    with pytest.raises(Malformed):
        jsonrpc.read_batch(b"[1,")


def test_what_we_build_is_one_json_line() -> None:
    frames = [
        jsonrpc.request(3, "tools/call", b'{"a":1.0}'),
        jsonrpc.notification("n"),
        jsonrpc.notification("n", b'{"x":[]}'),
        jsonrpc.refusal(b"", jsonrpc.error_object(-32600, "no", {"a": 1})),
        jsonrpc.refusal(b'"x"', jsonrpc.error_object(-32600, "no")),
    ]

    read = [json.loads(frame) for frame in frames]

    assert all(frame.endswith(b"}\n") and frame.count(b"\n") == 1 for frame in frames)
    assert [message["jsonrpc"] for message in read] == ["2.0"] * 5
    assert read[0] == {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"a": 1.0}}
    assert "params" not in read[1]
    assert read[3]["id"] is None
    assert read[3]["error"] == {"code": -32600, "message": "no", "data": {"a": 1}}
    assert "data" not in read[4]["error"]


def test_an_error_of_the_wrong_shape_still_has_words() -> None:
    assert jsonrpc.read_error(msgspec.Raw(b'"boom"')).message != ""
    assert jsonrpc.read_error(msgspec.Raw(b'{"code":"x"}')).code == jsonrpc.INTERNAL_ERROR


def kept(size: int) -> str:
    return "x" * size


@pytest.mark.parametrize(
    ("error", "read"),
    [
        ({"code": 5, "message": "no"}, (5, "no")),
        ({"code": "E5", "message": "no"}, (-32603, "no")),
        ({"code": 5.5, "message": "no"}, (-32603, "no")),
        ({"code": 5}, (5, "")),
        ([], (-32603, "the server's error has no usable form")),
        (
            {"code": "E5", "message": kept(jsonrpc.LONGEST_MESSAGE)},
            (-32603, "the server's error has no usable form"),
        ),
        ({"code": 5, "message": kept(jsonrpc.LARGE)}, (5, kept(jsonrpc.LARGE))),
        ({"message": kept(jsonrpc.LARGE)}, (-32603, kept(jsonrpc.LARGE))),
        ({"code": 5, "data": kept(jsonrpc.LARGE)}, (5, "")),
        (
            {"code": 5, "message": kept(jsonrpc.LONGEST_MESSAGE)},
            (5, "the message of the server's error is too long"),
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_an_error_says_is_read_whatever_its_form_and_length(
    error: Any, read: tuple[int, str]
) -> None:
    found = jsonrpc.read_error(msgspec.Raw(msgspec.json.encode(error)))

    assert (found.code, found.message) == read


@pytest.mark.parametrize("size", [jsonrpc.LONGEST_METHOD - 2, jsonrpc.LONGEST_METHOD - 1])
def test_a_method_without_end_is_no_method(size: int) -> None:
    raw = msgspec.Raw(msgspec.json.encode(kept(size)))

    if size + 2 <= jsonrpc.LONGEST_METHOD:
        assert jsonrpc.read_method(raw) == kept(size)
    else:
        with pytest.raises(msgspec.ValidationError, match="the name of its method is too long"):
            jsonrpc.read_method(raw)
    assert jsonrpc.read_method(msgspec.Raw(b"")) == ""


@pytest.mark.parametrize("is_too_deep", [False, True])
def test_a_text_that_was_scanned_is_mended_without_counting_again(is_too_deep: bool) -> None:
    line = ScannedText(rb'{"id":1,"result":{"t":"\ud83d"}}')
    line.is_too_deep = is_too_deep

    if is_too_deep:
        with pytest.raises(Malformed) as caught:
            decode(line)
        assert (caught.value.code, caught.value.id) == (jsonrpc.PARSE_ERROR, b"1")
    else:
        assert bytes(decode(line).result) == rb'{"t":"\ufffd"}'
    again = line.with_same_depth(b"x")
    assert (again, again.is_too_deep) == (b"x", is_too_deep)


def test_a_text_with_thousands_of_half_characters_or_backslashes_stays_as_it_is() -> None:
    many = b'"' + rb"\ud83d" * MOST_HALVES + b'"'
    slashes = b'"' + b"\\" * MOST_BACKSLASHES + rb"\ud83d" + b'"'

    assert mend_surrogates(many) is many
    assert mend_surrogates(slashes) is slashes
    assert mend_surrogates(many[:-7] + b'"') == b'"' + rb"\ufffd" * (MOST_HALVES - 1) + b'"'


def test_in_what_is_no_text_at_all_the_rest_is_question_marks() -> None:
    piece, rest = b"\xff" * (64 << 10), b"a\xffb\xc3\xa9"

    mended = mend_text(piece + rest)

    assert mended == "\ufffd".encode() * len(piece) + b"a?b??"
    assert mend_text(b"\xff" * MOST_BAD + rest).decode() == "\ufffd" * MOST_BAD + "a\ufffdbé"


@pytest.mark.parametrize(("levels", "deep"), [(DEPTH, False), (DEPTH + 1, True)])
def test_depth_is_counted_across_pieces(levels: int, deep: bool) -> None:
    line = b'{"a]":' + b"[" * (levels - 1) + b'"]["' + b"]" * (levels - 1) + b"}"
    for size in (1, 7, 64, len(line)):
        scan = DepthScan()
        for start in range(0, len(line), size):
            scan.feed(line[start : start + size])

        assert scan.is_too_deep is deep
