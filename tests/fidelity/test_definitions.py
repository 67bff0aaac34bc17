"""Tools keep their definitions: in `open_toolbox`, and in the list under flat names."""

from __future__ import annotations

import json

import pytest

from tests.fidelity.corpus import Case
from tests.fidelity.recorded import TOOLS, Recorded
from tests.fidelity.scenes import ROUTES, Bench, Route

on_every_route = pytest.mark.parametrize("route", ROUTES, ids=str)


def flat(case: Case, route: Route, *, older: bool = False, hint: bool = False) -> bytes:
    told = case.told["flat"]
    if older and "legacy flat" in case.told:
        told = case.told["legacy flat"]
    name: str = json.loads(case.sent)["name"]
    origin = b'"source_server":"%b","toolbox_name":"dev","original_name":"%b"'
    server = route.server_name.encode()
    search_hint = b',"anthropic/searchHint":"dev %b"' % server if hint else b""
    for word, text in {
        b"@FLAT@": f"dev__{route.server_name}__{name}".encode(),
        b"@BOX@": b"[dev/%b] " % server,
        b"@ORIGIN@": origin % (server, name.encode()) + search_hint,
        b"@HINT@": search_hint,
        b"@SERVER@": server,
    }.items():
        told = told.replace(word, text)
    return told


@on_every_route
def test_open_toolbox_gives_each_definition_as_its_server_did(proxy: Bench, route: Route) -> None:
    call = {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}

    _, told = proxy.host(route).exact("tools/call", call)

    text: str = json.loads(told)["content"][0]["text"]
    owner = f',"toolbox_name":"dev","source_server":"{route.server_name}"}}'.encode()
    wanted = {name: compact(case.sent)[:-1] + owner for name, case in TOOLS.items()}
    for name, case in TOOLS.items():
        if "owned" in case.told:
            wanted[name] = case.told["owned"].replace(b"@SERVER@", route.server_name.encode())
    assert {name for name in wanted if wanted[name] not in text.encode()} == set()


@on_every_route
def test_the_list_under_flat_names_changes_three_members(dynamic: Bench, route: Route) -> None:
    _, told = dynamic.host(route).exact("tools/list", {})

    older = not route.modern_host and route.modern_server
    wanted = {name: flat(case, route, older=older, hint=True) for name, case in TOOLS.items()}
    assert {name for name in wanted if wanted[name] not in told} == set()


@on_every_route
def test_prompts_have_flat_names_too(proxy: Bench, route: Route) -> None:
    _, told = proxy.host(route).exact("prompts/list", {})

    wanted = {name: flat(case, route) for name, case in TOOLS.items()}
    assert {name for name in wanted if wanted[name] not in told} == set()


@on_every_route
@pytest.mark.parametrize("method", ["resources/list", "resources/templates/list"])
def test_resources_are_listed_as_they_are(proxy: Bench, route: Route, method: str) -> None:
    _, told = proxy.host(route).exact(method, {})

    server = Recorded(route.server_name, modern=route.modern_server)
    wanted = server.resources() if method == "resources/list" else server.templates()
    assert [one for one in wanted if compact(one) not in told] == []


def compact(json: bytes) -> bytes:
    """A recorded definition with space between tokens has none in its texts."""
    return json.replace(b" ", b"") if json.startswith(b"{ ") else json
