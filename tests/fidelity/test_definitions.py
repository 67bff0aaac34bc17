"""Tools keep their definitions: in `open_toolbox`, and in the list under flat names."""

from __future__ import annotations

import json

import pytest

from tests.fidelity.corpus import Case
from tests.fidelity.recorded import TOOLS
from tests.fidelity.scenes import ROUTES, Bench, Route

on_every_route = pytest.mark.parametrize("route", ROUTES, ids=str)


def flat(case: Case, route: Route) -> bytes:
    older = not route.modern_host and route.modern_server
    told = case.told.get("legacy flat" if older else "flat") or case.told["flat"]
    name: str = json.loads(case.sent)["name"]
    origin = b'"source_server":"%b","toolbox_name":"dev","original_name":"%b"'
    server = route.server_name.encode()
    for word, text in {
        b"@FLAT@": f"dev__{route.server_name}__{name}".encode(),
        b"@BOX@": b"[dev/%b] " % server,
        b"@ORIGIN@": origin % (server, name.encode()),
        b"@SERVER@": server,
    }.items():
        told = told.replace(word, text)
    return told


@on_every_route
def test_open_toolbox_gives_each_definition_as_its_server_did(proxy: Bench, route: Route) -> None:
    call = {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}

    _, told = proxy.host(route).ask("tools/call", call)

    text: str = json.loads(told)["content"][0]["text"]
    owner = f',"toolbox_name":"dev","source_server":"{route.server_name}"}}'.encode()
    missing = {
        name: case.sent
        for name, case in TOOLS.items()
        if compact(case.sent)[:-1] + owner not in text.encode()
    }
    assert missing == {}


@on_every_route
def test_the_list_under_flat_names_changes_three_members(dynamic: Bench, route: Route) -> None:
    _, told = dynamic.host(route).ask("tools/list", {})

    missing = {
        name: flat(case, route)
        for name, case in TOOLS.items()
        if compact(flat(case, route)) not in told
    }
    assert missing == {}


def compact(json: bytes) -> bytes:
    """The only recorded definition with space between tokens has none in its texts."""
    return json.replace(b" ", b"") if json.startswith(b"{ ") else json
