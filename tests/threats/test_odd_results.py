"""Whatever shape a server's result has, its host gets JSON-RPC, and the workbench goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.kit.config import write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.results import Message, use_tool

pytestmark = pytest.mark.usefixtures("forked_commands")

SERVER = Path(__file__).with_name("odd_server.py")
ERAS = ("legacy", "modern")
MODES = ("proxy", "dynamic")
BUDGET = 500  # characters of a result; longer ones are cut
LONG = "x" * (2 * BUDGET)

# What each result has, what a good part of it is, and by which member that is known.
MEMBERS = {
    "tools/call": ("content", '{"type":"text","text":"fine"}', "type"),
    "prompts/get": ("messages", '{"role":"user","content":{"type":"text","text":"fine"}}', "role"),
    "resources/read": ("contents", '{"uri":"odd:one","text":"fine"}', "uri"),
    "tools/list": ("tools", '{"name":"fine","inputSchema":{"type":"object"}}', "name"),
    "prompts/list": ("prompts", '{"name":"ask"}', "name"),
    "resources/list": ("resources", '{"uri":"odd:one","name":"one"}', "uri"),
    "resources/templates/list": ("resourceTemplates", '{"uriTemplate":"x:{y}"}', "uriTemplate"),
    "completion/complete": ("completion", '{"values":["fine"]}', "values"),
}
LISTS = {method for method in MEMBERS if method.endswith("/list")}  # read once for all who ask


def shapes(member: str, part: str, key: str) -> list[str]:
    """Results that have something odd: as a whole, in their list, in a part of it, or beside it."""
    values = ["null", "true", "5", '"boom"', "{}", "[null]", '["x"]', "[[]]", "[{}]"]
    values += [f"[{part},7,null]", f'[{{"{key}":5}}]', f'[{{"{key}":{{}}}}]', f'[{{"{key}":[1]}}]']
    values += [f'"{LONG}"', f'[{part},"{LONG}"]', f'{{"{key}":"{LONG}"}}']
    beside = [
        '"structuredContent":"boom"',
        '"structuredContent":[1]',
        '"structuredContent":null',
        f'"structuredContent":"{LONG}"',
        '"_meta":"boom"',
        '"_meta":[1]',
        '"_meta":null',
        '"isError":"yes"',
        '"nextCursor":5',
        '"nextCursor":{}',
        '"ttlMs":"soon","cacheScope":5',
        f'"{member}":5',
        '"resultType":5',
        '"resultType":{}',
    ]
    return [
        *("null", "true", "5", '"boom"', "[]", "[{}]", "{}"),
        *(f'{{"{member}":{value}}}' for value in values),
        *(f'{{"{member}":{value},"isError":true}}' for value in values),
        *(f'{{"{member}":[{part}],{one}}}' for one in beside),
        *(f'{{"resultType":"complete","{member}":{value}}}' for value in values),
        *(f'{{"structuredContent":[1],"{member}":{value}}}' for value in values),
        *(f'{{"resultType":"complete","{member}":[],{one}}}' for one in beside),
    ]


def entry(era: str, *first: str) -> Message:
    args = ["-E", "-S", str(SERVER), era, *first]
    return {"command": sys.executable, "args": args, "era": era}


def bench(folder: Path, mode: str, servers: Message) -> Path:
    box = {"mcpServers": servers, "resultBudget": BUDGET}
    return write_config(folder, {"toolMode": mode, "toolboxes": {"dev": box}})


class Odd:
    """A host, and the odd server behind the workbench."""

    def __init__(self, host: PipeHost, mode: str) -> None:
        self.host = host
        self.mode = mode
        self.prepared = 0

    def calling(self, tool: str, arguments: Message) -> Message:
        if self.mode == "proxy":
            return use_tool("odd", tool, arguments)
        return {"name": f"dev__odd__{tool}", "arguments": arguments}

    def prepare(self, method: str, *results: str) -> None:
        """The next results of this method are these; those of before were all asked for.

        The workbench goes on: this call works, and each request since the last one has reached
        the server, which is still the same process.
        """
        wanted = {"method": method, "results": results}
        told = self.host.result("tools/call", self.calling("next", wanted))
        assert (told["asked"], told["unasked"]) == (self.prepared, []), told
        self.prepared += len(results)

    def answers(
        self, method: str, params: Message, count: int, *, at_once: bool
    ) -> Iterator[Message]:
        """Answers to so many of the same request, all in flight at once or one by one."""
        if at_once:
            ids = [self.host.ask(method, params) for _ in range(count)]
            yield from map(self.host.answer, ids)
        else:
            yield from (self.host.request(method, params) for _ in range(count))

    def requests(self, method: str) -> list[tuple[str, Message]]:
        """How a host makes the workbench ask for this."""
        argument = {"name": "who", "value": "a"}
        of_prompt = {"type": "ref/prompt", "name": "dev__odd__ask"}
        of_resource = {"type": "ref/resource", "uri": "odd:one"}
        addressed = "mcp-workbench://dev/odd/odd:one"
        tools = [("tools/call", self.calling("odd", {"path": path})) for path in ("right", 5)]
        return {
            "tools/call": tools,
            "tools/list": [("tools/call", self.calling("unknown", {}))],
            "prompts/get": [(method, {"name": "dev__odd__ask"})],
            "resources/read": [(method, {"uri": "odd:one"}), (method, {"uri": addressed})],
            "completion/complete": [
                (method, {"ref": ref, "argument": argument}) for ref in (of_prompt, of_resource)
            ],
        }.get(method, [(method, {})])


def assert_answer(answer: Message) -> None:
    """`PipeHost` has seen that it is JSON, and has either a result or an error."""
    if "error" in answer:
        error: Any = answer["error"]
        assert isinstance(error["code"], int), answer
        assert isinstance(error["message"], str), answer


@pytest.fixture(scope="module", params=product(MODES, ERAS, ERAS), ids="-".join)
def odd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Odd]:
    mode, host_era, server_era = request.param
    config = bench(tmp_path_factory.mktemp("odd"), mode, {"odd": entry(server_era)})
    with PipeHost(config, modern=host_era == "modern") as host:
        host.handshake()
        host.open()
        yield Odd(host, mode)


@pytest.mark.parametrize("method", MEMBERS)
def test_an_odd_result_costs_its_own_request_at_most(odd: Odd, method: str) -> None:
    for asked, params in odd.requests(method):
        results = shapes(*MEMBERS[method])
        odd.prepare(method, *results)
        for answer in odd.answers(asked, params, len(results), at_once=method not in LISTS):
            assert_answer(answer)

    odd.prepare("tools/call", '{"content":[],"fine":true}')
    assert odd.host.result("tools/call", odd.calling("odd", {"path": "x"}))["fine"] is True
    assert "Traceback" not in odd.host.stderr


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("era", ERAS)
def test_an_odd_first_list_of_tools_costs_its_own_server_at_most(
    tmp_path: Path, mode: str, era: str
) -> None:
    odd = {f"s{n}": entry(era, one) for n, one in enumerate(shapes(*MEMBERS["tools/list"])[:23])}
    config = bench(tmp_path, mode, {**odd, "odd": entry(era)})
    with PipeHost(config) as host:
        host.handshake()
        host.open()
        assert_answer(host.request("tools/list"))
        Odd(host, mode).prepare("tools/call", '{"content":[]}')
