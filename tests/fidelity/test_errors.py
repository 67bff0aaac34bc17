"""A server's error reaches its host byte for byte; under a flat name, in words for the model."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.fidelity.corpus import Case
from tests.fidelity.recorded import ERRORS
from tests.fidelity.scenes import ROUTES, Bench, Route

on_every_route = pytest.mark.parametrize("route", ROUTES, ids=str)
Ask = Callable[[str], tuple[str, bytes]]
VISIT = "code of a page to visit"
FOR_THE_HOST = ("code of a capability that is missing", VISIT)
# To a modern host that did not declare that it can be asked.
CANNOT_VISIT = (
    b'{"code":-32021,"message":"the server wants an address to be visited first",'
    b'"data":{"requiredCapabilities":{"elicitation":{"url":{}}}}}'
)


def differences(route: Route, ask: Ask) -> dict[str, str]:
    found: dict[str, str] = {}
    for wanted, case in _wanted(route):
        told = ask(wanted)
        if told != ("error", _expected(route, case)):
            found[wanted] = f"{told} instead of {_expected(route, case)!r}"
    return found


def _expected(route: Route, case: Case) -> bytes:
    if case.name == VISIT and route.modern_host:
        return CANNOT_VISIT
    return case.told.get("any", case.sent)


def _wanted(route: Route) -> list[tuple[str, Case]]:
    forms = ("whole", "events") if route.server == "web" else ("whole",)
    return [(f"{case.name}/{form}", case) for case in ERRORS.values() for form in forms]


@on_every_route
def test_use_tool(proxy: Bench, route: Route) -> None:
    tool = {"toolbox": "dev", "server": route.server_name, "tool": "fail"}

    def ask(wanted: str) -> tuple[str, bytes]:
        arguments = {"tool": tool, "arguments": {"case": wanted}}
        return proxy.host(route).exact("tools/call", {"name": "use_tool", "arguments": arguments})

    assert differences(route, ask) == {}


@on_every_route
def test_a_prompt(proxy: Bench, route: Route) -> None:
    def ask(wanted: str) -> tuple[str, bytes]:
        name = f"dev__{route.server_name}__error/{wanted}"
        return proxy.host(route).exact("prompts/get", {"name": name})

    assert differences(route, ask) == {}


@on_every_route
def test_a_resource(proxy: Bench, route: Route) -> None:
    def ask(wanted: str) -> tuple[str, bytes]:
        uri = f"odd://{route.server_name}/error/{wanted}"
        return proxy.host(route).exact("resources/read", {"uri": uri})

    assert differences(route, ask) == {}


@on_every_route
def test_under_a_flat_name_an_error_becomes_words(dynamic: Bench, route: Route) -> None:
    tool = f"dev/{route.server_name}/fail"
    name = tool.replace("/", "__")
    for wanted, case in _wanted(route):
        arguments = {"name": name, "arguments": {"case": wanted}}
        kind, told = dynamic.host(route).exact("tools/call", arguments)
        if case.name in FOR_THE_HOST:
            assert (kind, told) == ("error", _expected(route, case))
            continue
        words = case.told["flat"].decode().replace("@NEWLINE@", "\n")
        result = json.loads(told)
        assert kind == "result", wanted
        assert result["content"] == [{"type": "text", "text": f"[{tool}] Error: {words}"}], wanted
        assert result["isError"] is True


# A resource that is not there


def not_there(bench: Bench, route: Route, case: str, *, addressed: bool) -> tuple[str, bytes, str]:
    uri = f"odd://{route.server_name}/{case}"
    shown = f"mcp-workbench://dev/{route.server_name}/{uri}" if addressed else uri
    kind, told = bench.host(route).exact("resources/read", {"uri": shown})
    return kind, told, shown


@pytest.mark.parametrize("addressed", [False, True], ids=["plain", "addressed"])
@on_every_route
def test_a_resource_that_is_not_there_is_told_in_the_host_s_code(
    proxy: Bench, route: Route, *, addressed: bool
) -> None:
    kind, told, shown = not_there(proxy, route, "absent", addressed=addressed)

    code = -32602 if route.modern_host else -32002
    wanted = b'{"x":1.0,"code":%d,"message":"gone","data":{ "n":1e400, "uri":"%b" }}'
    assert (kind, told) == ("error", wanted % (code, shown.encode()))
