"""A raw MCP server that answers with recorded bytes: the standard library only.

    python -m tests.fidelity.recorded NAME legacy|modern      on its stdin and stdout

`recorded_web.py` is the same over HTTP, in the test's own process. What is asked for says how it is written:
`case/place/form`, as a tool's argument `case`, a prompt's name or the end of a resource's URI.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, NamedTuple

from tests.fidelity.corpus import levels, read, results
from tests.fidelity.writing import PLACES, Way, sent

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
RESULTS = results()
ERRORS = read("errors")
TOOLS = read("tools")
RESOURCES = read("resources")
Message = dict[str, Any]
OWN = ("replay", "fail")


class Answer(NamedTuple):
    """The bytes of a result or of an error, and whether they go as events where that can be."""

    member: bytes
    value: bytes
    events: bool = False

    def frame(self, id: int) -> bytes:
        return b'{"jsonrpc":"2.0","id":%d,"%b":%b}' % (id, self.member, self.value)


class Recorded:
    """What it answers, on any transport."""

    def __init__(self, name: str, *, modern: bool) -> None:
        self.name = name
        self.modern = modern

    def answer(self, message: Message) -> Answer:  # noqa: C901 - a table
        method, params = message["method"], message.get("params", {})
        match method:
            case "server/discover" if self.modern:
                return self._said(supportedVersions=[MODERN], **self._opening())
            case "initialize" if not self.modern:
                return self._said(protocolVersion=LEGACY, **self._opening())
            case "tools/list":
                own = [b'{"name":"%b","inputSchema":{"type":"object"}}' % n.encode() for n in OWN]
                return self._listed(b"tools", [*own, *(case.sent for case in TOOLS.values())])
            case "prompts/list":
                return self._listed(b"prompts", [case.sent for case in TOOLS.values()])
            case "resources/templates/list":
                return self._listed(b"resourceTemplates", self.templates())
            case "resources/list":
                asked = [b'{"uri":"%b"}' % uri.encode() for uri in self.uris()]
                return self._listed(b"resources", [*self.resources(), *asked])
            case "completion/complete":
                return self._result(params["argument"]["value"], "call")
            case "tools/call" if params["name"] == "fail":
                return self._error(params["arguments"]["case"])
            case "tools/call":
                return self._result(params["arguments"]["case"], "call")
            case "prompts/get":
                return self._found(params["name"], "prompt")
            case "resources/read":
                return self._found(params["uri"].removeprefix(self.uri("")), "read")
            case _:
                return Answer(b"error", b'{"code":-32601,"message":"Method not found"}')

    def uri(self, wanted: str) -> str:
        return f"odd://{self.name}/{wanted}"

    def uris(self) -> list[str]:
        written = [f"{place}/{form}" for place in PLACES for form in FORMS]
        wanted = [f"{case}/{way}" for case in RESULTS for way in written]
        wanted += [f"error/{case}/{form}" for case in ERRORS for form in FORMS]
        return [self.uri(one) for one in [*wanted, "absent"]]

    def resources(self) -> list[bytes]:
        return [
            case.sent.replace(b"@URI@", self.uri(f"listed/{case.name}").encode())
            for case in RESOURCES.values()
        ]

    def templates(self) -> list[bytes]:
        """The same under the name that a template has for it."""
        return [re.sub(rb'ri"( ?:)', rb'riTemplate"\1', one, count=1) for one in self.resources()]

    def _opening(self) -> Message:
        offers: Message = {
            "tools": {},
            "prompts": {},
            "resources": {"listChanged": not self.modern},
        }
        return {"capabilities": offers, "serverInfo": {"name": self.name, "version": "1"}}

    def _said(self, **result: Any) -> Answer:
        if self.modern:
            result = {"resultType": "complete", "ttlMs": 600000, "cacheScope": "public", **result}
        return Answer(b"result", json.dumps(result).encode())

    def _listed(self, member: bytes, listed: list[bytes]) -> Answer:
        more = b',"resultType":"complete","ttlMs":0,"cacheScope":"public"' if self.modern else b""
        return Answer(b"result", b'{"%b":[%b]%b}' % (member, b",".join(listed), more))

    def _found(self, wanted: str, kind: str) -> Answer:
        if wanted.startswith("error/"):
            return self._error(wanted.removeprefix("error/"))
        if wanted == "absent":
            code = -32602 if self.modern else -32002
            told = b'{"x":1.0,"code":%d,"message":"gone","data":{ "n":1e400, "uri":"%b" }}'
            return Answer(b"error", told % (code, self.uri(wanted).encode()))
        return self._result(wanted, kind)

    def _result(self, wanted: str, kind: str) -> Answer:
        name, place, form = wanted.split("/")
        way = Way(False, self.modern, kind, place)
        case = levels(int(name[7:])) if name.startswith("levels ") else RESULTS[name]
        return Answer(b"result", sent(case, way), form == "events")

    def _error(self, wanted: str) -> Answer:
        name, form = wanted.split("/")
        return Answer(b"error", ERRORS[name].sent, form == "events")


FORMS = ("whole", "events")


def progress(message: Message) -> bytes:
    """A notice before the answer, where one is asked for."""
    token = message.get("params", {}).get("_meta", {}).get("progressToken")
    if token is None:
        return b""
    params = {"progressToken": token, "progress": 1}
    notice = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    return json.dumps(notice).encode() + b"\n"


def serve_pipe(recorded: Recorded) -> None:
    for line in sys.stdin.buffer:
        message: Message = json.loads(line)
        if "id" in message and "method" in message:
            sys.stdout.buffer.write(progress(message))
            sys.stdout.buffer.write(recorded.answer(message).frame(message["id"]) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve_pipe(Recorded(sys.argv[1], modern=sys.argv[2] == "modern"))
