"""A server's result reaches its host byte for byte, on every route."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fidelity.changes import expected
from tests.fidelity.corpus import Case
from tests.fidelity.recorded import RESULTS
from tests.fidelity.scenes import ROUTES, Bench, Host, Route, asked_as, travels, ways
from tests.fidelity.writing import Way
from tests.kit.blocking_http_host import HttpHost

Ask = Callable[[Case, Way], tuple[str, bytes]]
EXCERPT = 400  # bytes of a difference that are shown

on_every_route = pytest.mark.parametrize("route", ROUTES, ids=str)


def differences(route: Route, kind: str, ask: Ask, *, all: bool = False) -> dict[str, str]:
    """What was read and what should have been, of every case that is not as it should be."""
    found: dict[str, str] = {}
    count = 0
    for number, case in enumerate(RESULTS.values()):
        if not travels(case, route) or (case.verbatim and kind != "call"):
            continue
        for way in ways(route, kind, case, number, all=all):
            count += 1
            told = ask(case, way)
            wanted = ("result", expected(case, way))
            if told != wanted:
                found[asked_as(case, way)] = f"{shown(told)} instead of {shown(wanted)}"
    assert count > 90  # otherwise this proves nothing
    return found


def shown(told: tuple[str, bytes]) -> str:
    return f"{told[0]} {told[1][:EXCERPT]!r}"


def using(host: Host, route: Route) -> Ask:
    tool = {"toolbox": "dev", "server": route.server_name, "tool": "replay"}

    def ask(case: Case, way: Way) -> tuple[str, bytes]:
        arguments = {"tool": tool, "arguments": {"case": asked_as(case, way)}}
        return host.exact("tools/call", {"name": "use_tool", "arguments": arguments})

    return ask


@on_every_route
def test_use_tool(proxy: Bench, route: Route) -> None:
    assert differences(route, "call", using(proxy.host(route), route), all=True) == {}


@on_every_route
def test_a_call_by_flat_name(dynamic: Bench, route: Route) -> None:
    name = f"dev__{route.server_name}__replay"
    host = dynamic.host(route)

    def ask(case: Case, way: Way) -> tuple[str, bytes]:
        return host.exact("tools/call", {"name": name, "arguments": {"case": asked_as(case, way)}})

    assert differences(route, "call", ask) == {}


@on_every_route
def test_a_prompt(proxy: Bench, route: Route) -> None:
    host = proxy.host(route)

    def ask(case: Case, way: Way) -> tuple[str, bytes]:
        name = f"dev__{route.server_name}__{asked_as(case, way)}"
        return host.exact("prompts/get", {"name": name})

    assert differences(route, "prompt", ask) == {}


@on_every_route
def test_a_resource(proxy: Bench, route: Route) -> None:
    host = proxy.host(route)

    def ask(case: Case, way: Way) -> tuple[str, bytes]:
        uri = f"odd://{route.server_name}/{asked_as(case, way)}"
        return host.exact("resources/read", {"uri": uri})

    assert differences(route, "read", ask) == {}


@on_every_route
def test_a_completion(proxy: Bench, route: Route) -> None:
    host = proxy.host(route)
    prompt = {"type": "ref/prompt", "name": f"dev__{route.server_name}__a"}

    def ask(case: Case, way: Way) -> tuple[str, bytes]:
        argument = {"name": "a", "value": asked_as(case, way)}
        return host.exact("completion/complete", {"ref": prompt, "argument": argument})

    assert differences(route, "call", ask) == {}


IN_A_STREAM = [route for route in ROUTES if (route.host, route.server) == ("web", "pipe")]


@pytest.mark.parametrize("route", IN_A_STREAM, ids=str)
def test_an_answer_that_comes_in_a_stream(proxy: Bench, route: Route) -> None:
    host = proxy.host(route)
    assert isinstance(host, HttpHost)
    before = host.streamed
    tool = {"toolbox": "dev", "server": route.server_name, "tool": "replay"}

    def ask(case: Case, way: Way) -> tuple[str, bytes]:
        arguments = {"tool": tool, "arguments": {"case": asked_as(case, way)}}
        params = {"name": "use_tool", "arguments": arguments, "_meta": {"progressToken": "t"}}
        return host.exact("tools/call", params)

    assert differences(route, "call", ask) == {}
    assert host.streamed - before > 90
