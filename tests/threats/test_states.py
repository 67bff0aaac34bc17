"""A state fits the call that it was made for and no other, whatever numbers that call has."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.call_request import CallRequest
from mcp_workbench.protocol.signed_state import digest_of
from mcp_workbench.server.suspended_calls import RequestStates
from tests.kit.config import config_file, tool
from tests.kit.pipe_host import PipeHost
from tests.kit.results import META, enveloped, use_tool
from tests.threats import worst
from tests.threats.growth import cost

pytestmark = pytest.mark.usefixtures("forked_commands")

MANY_DIGITS = b"9" * 5000  # Python reads no integer of so many
CAN: dict[str, Any] = {META + "clientCapabilities": {"elicitation": {}}}
# It asks a question at every call, and reads none of its arguments.
ASKS = r"""
import json, re, sys
for line in sys.stdin.buffer:
    match = re.match(rb'\{"jsonrpc":"2.0","id":(\d+),"method":"([^"]*)"', line)
    answers = {
        b"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "asks", "version": "1"}},
        b"tools/list": {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]},
    }
    if match and match[2] == b"tools/call":
        question = {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}
        message = {"id": "q", "method": "elicitation/create", "params": question}
    elif match and match[2] in answers:
        message = {"id": int(match[1]), "result": answers[match[2]]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
"""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1.5}', b'{"a":"1.5"}'),
        (b'{"a":1e2}', b'{"a":"1e2"}'),
        (b'{"a":1.0}', b'{"a":1}'),
        (b'{"a":%b}' % MANY_DIGITS, b'{"a":"%b"}' % MANY_DIGITS),
        (b'{"a":%b}' % MANY_DIGITS, b'{"a":%b9}' % MANY_DIGITS),
    ],
)
def test_a_number_is_not_the_text_of_its_digits(one: bytes, other: bytes) -> None:
    assert digest_of("tool", one) != digest_of("tool", other)


def test_the_order_of_keys_makes_no_difference() -> None:
    assert digest_of("tool", b'{"a":1.50, "b":{"c":2,"d":[3]}}') == digest_of(
        "tool", b'{"b":{"d":[3],"c":2},"a":1.50}'
    )


@pytest.mark.cost
def test_a_forged_state_is_refused_before_the_arguments_are_read() -> None:
    arguments = msgspec.Raw(worst.filled(b'{"a":[', b"1,", b"1]}", 8 << 20))
    request = CallRequest(tool("fixture", "echo"), {"arguments": arguments})
    states = RequestStates("boss")
    forged = RequestStates("boss").sign(request, "again")

    assert states.read(states.sign(request, "again"), request) is not None
    assert states.read(forged, request) is None
    assert 10 * cost(lambda: states.read(forged, request)) < cost(
        lambda: digest_of("tool", arguments)
    )


@pytest.mark.parametrize("number", [b"9", MANY_DIGITS], ids=["short", "long"])
def test_a_call_with_a_long_number_can_be_asked_about(tmp_path: Path, number: bytes) -> None:
    script = tmp_path / "asks.py"
    script.write_text(ASKS)
    servers = {"asks": {"command": sys.executable, "args": [str(script)], "era": "legacy"}}
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}

    with PipeHost(config_file(tmp_path, servers), modern=True) as host:
        params = enveloped(use_tool("asks", "ask", {"n": 0}, _meta=CAN))
        line = json.dumps({**call, "params": params}).encode()
        host.write(line.replace(b'{"n": 0}', b'{"n": %b}' % number) + b"\n")
        result = host.answer(7)["result"]

    assert result["resultType"] == "input_required"
