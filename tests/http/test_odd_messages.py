"""Messages that two readers could read differently: refused, or what arrives is what was checked."""

import json
from typing import Any

import pytest

from tests.kit.http_host import port
from tests.kit.results import ENVELOPE, MODERN, use_tool

META = json.dumps(ENVELOPE)
ARGUMENTS = json.dumps(use_tool("fixture", "echo", {"text": "x"})["arguments"])
USE = f'"name":"use_tool","arguments":{ARGUMENTS},"_meta":{META}'


def body(members: str) -> bytes:
    return ("{" + members + "}").encode()


def call(params: str) -> bytes:
    return body(f'"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{params}}}')


# Each with the status that the headers of an ordinary `use_tool` lead to.
ODD: list[tuple[str, bytes, int]] = [
    ("ordinary", call(USE), 200),
    ("the method twice, the last counts", body(f'"id":1,"method":"x","method":"tools/call","params":{{{USE}}}'), 200),
    ("the method twice, hidden", body(f'"id":1,"method":"tools/call","method":"tools/list","params":{{{USE}}}'), 400),
    ("the name twice, the last counts", call(f'"name":"evil",{USE}'), 200),
    ("the name twice, hidden", call(f'{USE},"name":"open_toolbox"'), 400),
    ("params twice", body(f'"id":1,"method":"tools/call","params":{{{USE}}},"params":{{"name":"x"}}'), 400),
    ("the envelope twice", call(f'{USE},"_meta":{{}}'), 400),
    ("another case", body(f'"id":1,"Method":"tools/call","params":{{{USE}}}'), 400),
    ("an escape in a key", body(f'"id":1,"m\\u0065thod":"tools/call","params":{{{USE}}}'), 200),
    ("a long s in a key", body(f'"id":1,"method":"tools/call","param\u017f":{{{USE}}}'), 400),
    ("an escape in the name", call(USE.replace("use_tool", "use\\u005ftool")), 200),
    ("NaN", call(USE.replace('"x"', "NaN")), 400),
    ("infinity", call(USE.replace('"x"', "Infinity")), 400),
    ("a number beyond all", call(USE.replace('"x"', "1e400")), 200),
    ("a lone surrogate", call(USE.replace('"x"', '"\\ud800"')), 200),
    ("a NUL", call(USE.replace('"x"', '"\\u0000"')), 200),
    ("a raw NUL", call(USE.replace('"x"', '"\0"')), 400),
    ("bad UTF-8", call(USE).replace(b'"x"', b'"\xff"'), 400),
    ("an overlong form", call(USE).replace(b'"x"', b'"\xc0\xaf"'), 400),
    ("UTF-16", call(USE).decode().encode("utf-16"), 400),
    ("a byte order mark", b"\xef\xbb\xbf" + call(USE), 200),
    ("bytes behind the end", call(USE) + b"{}", 400),
    ("two messages", call(USE) + b"\n" + call(USE), 400),
    ("a comment", b"/**/" + call(USE), 400),
    ("single quotes", call(USE).replace(b'"', b"'"), 400),
    ("a comma too many", call(USE + ","), 400),
    ("a result beside the method", body(f'"id":1,"result":{{}},"method":"tools/call","params":{{{USE}}}'), 200),
    ("an object as id", call(USE).replace(b'"id":1', b'"id":{}'), 400),
    ("true as id", call(USE).replace(b'"id":1', b'"id":true'), 400),
    ("a fraction as id", call(USE).replace(b'"id":1', b'"id":1.0'), 400),
    ("an exponent as id", call(USE).replace(b'"id":1', b'"id":1e0'), 400),
    ("an id of twenty digits", call(USE).replace(b'"id":1', b'"id":12345678901234567890'), 200),
    ("a text with a line break as id", call(USE).replace(b'"id":1', b'"id":"a\\nb"'), 200),
    ("a very deep argument", call(USE.replace('"x"', "[" * 5000 + "]" * 5000)), 400),
    ("an empty body", b"", 400),
    ("null", b"null", 400),
    ("a list", b"[" + call(USE) + b"]", 400),
    ("a text", b'"tools/call"', 400),
]  # fmt: skip


@pytest.mark.parametrize(("data", "status"), [pytest.param(d, s, id=w) for w, d, s in ODD])
async def test_an_odd_message_is_refused_or_arrives_as_it_was_checked(
    data: bytes, status: int
) -> None:
    headers: dict[str, Any] = {
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": "use_tool",
    }
    async with port() as opened:
        answer = await opened.ask(data, headers)

        assert answer.status == status
        if status == 200:
            assert answer.json_text["name"] == "echo"
            assert set(answer.json_text["arguments"]) == {"text"}
        else:
            assert answer.error["code"] in (-32700, -32600, -32602, -32020)
        assert b"\n" not in answer.body.rstrip(b"\n")
