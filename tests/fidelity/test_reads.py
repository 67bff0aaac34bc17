"""What is particular to reading a resource: addresses, and for how long it may be kept."""

from __future__ import annotations

import pytest

from tests.fidelity.changes import expected
from tests.fidelity.recorded import RESULTS
from tests.fidelity.scenes import ROUTES, Bench, Route, asked_as, ways
from tests.fidelity.writing import Way

on_every_route = pytest.mark.parametrize("route", ROUTES, ids=str)
INTO_MODERN = [route for route in ROUTES if route.modern_host and route.modern_server]
ADDRESSED = RESULTS["contents to be addressed"]


@on_every_route
def test_contents_that_were_asked_for_by_address_are_named_by_address(
    proxy: Bench, route: Route
) -> None:
    address = f"mcp-workbench://dev/{route.server_name}/"
    for way in ways(route, "read", ADDRESSED, 0, all=True):
        uri = f"{address}odd://{route.server_name}/{asked_as(ADDRESSED, way)}"

        told = proxy.host(route).exact("resources/read", {"uri": uri})

        wanted = expected(ADDRESSED, way)
        assert wanted.count(b'ri":"note://a"') == 4
        there = b'ri":"' + address.encode() + b'note://a"'
        assert told == ("result", wanted.replace(b'ri":"note://a"', there))


@on_every_route
def test_contents_without_objects_stay_as_they_are(proxy: Bench, route: Route) -> None:
    for name in ("contents of which one is no object", "contents", "content an object"):
        [way] = ways(route, "read", RESULTS[name], 0)
        uri = f"odd://{route.server_name}/{asked_as(RESULTS[name], way)}"
        address = f"mcp-workbench://dev/{route.server_name}/{uri}"

        told = proxy.host(route).exact("resources/read", {"uri": address})

        assert told == ("result", expected(RESULTS[name], way))


@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("modern server forgets its kind", b'"ttlMs":0,"cacheScope":"private",'),
        ("half cached", b'"cacheScope":"private",'),
        ("cached call", b""),
    ],
)
@pytest.mark.parametrize("route", INTO_MODERN, ids=str)
def test_what_a_modern_server_does_not_say_may_not_be_kept(
    proxy: Bench, route: Route, name: str, added: bytes
) -> None:
    case = RESULTS[name]
    uri = f"odd://{route.server_name}/{case.name}/first/whole"

    told = proxy.host(route).exact("resources/read", {"uri": uri})

    whole = expected(case, Way(modern_host=True, modern_server=True))
    assert told == ("result", b"{" + added + whole[1:])
