"""Workbenches in front of four recorded servers, and every route through them."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.fidelity.corpus import Case
from tests.fidelity.recorded import Recorded
from tests.fidelity.recorded_web import serving_web
from tests.fidelity.writing import PLACES, Way
from tests.kit.blocking_http_host import HttpHost
from tests.kit.command import serving
from tests.kit.config import config_file
from tests.kit.forked import everywhere
from tests.kit.pipe_host import PipeHost
from tests.kit.results import open_toolbox

ROOT = Path(__file__).parents[2]
ERAS = ("legacy", "modern")
TRANSPORTS = ("pipe", "web")
LONG = 1 << 20  # bytes of a result
Host = PipeHost | HttpHost


class Route(NamedTuple):
    """Who asks whom."""

    host: str  # its transport
    modern_host: bool
    server: str  # its transport
    modern_server: bool

    @property
    def server_name(self) -> str:
        return f"{self.server}-{ERAS[self.modern_server]}"

    @property
    def host_name(self) -> str:
        return f"{self.host}-{ERAS[self.modern_host]}"

    def __str__(self) -> str:
        return f"{self.host_name} <- {self.server_name}"


ROUTES = [
    Route(host, modern_host, server, modern_server)
    for host in TRANSPORTS
    for modern_host in (False, True)
    for server in TRANSPORTS
    for modern_server in (False, True)
]


def ways(route: Route, kind: str, case: Case, number: int, *, all: bool = False) -> Iterator[Way]:
    """How this case is written on this route: in all ways, or in one that changes with the number."""
    places = list(PLACES) if route.modern_server and case.is_object else ["first"]
    if case.verbatim or "legacy<-modern" in case.told:
        places = ["first"]
    if len(case.sent) > LONG and "spaced" in places:
        places.remove("spaced")  # the space before a long result is as that before a short one
    forms = [False, True] if route.server == "web" else [False]
    found = [(place, events) for place in places for events in forms]
    for place, events in found if all else [found[number % len(found)]]:
        yield Way(route.modern_host, route.modern_server, kind, place, events)


def travels(case: Case, route: Route) -> bool:
    """A line break can't be sent on a pipe."""
    return route.server == "web" or not case.has_line_breaks


def asked_as(case: Case, way: Way) -> str:
    return f"{case.name}/{way.place}/{'events' if way.events else 'whole'}"


class Bench:
    """Hosts in front of one configuration."""

    def __init__(self, hosts: dict[str, Host]) -> None:
        self.hosts = hosts

    def host(self, route: Route) -> Host:
        return self.hosts[route.host_name]


@contextmanager
def bench(folder: Path, **settings: Any) -> Generator[Bench]:
    """Four servers in the toolbox `dev`, four hosts that have opened it."""
    with everywhere(), ExitStack() as stack:
        servers: dict[str, Any] = {}
        for modern in (False, True):
            era = ERAS[modern]
            name = f"pipe-{era}"
            args = ["-E", "-S", "-m", "tests.fidelity.recorded", name, era]
            servers[name] = {"command": sys.executable, "args": args, "cwd": str(ROOT), "era": era}
            name = f"web-{era}"
            url = stack.enter_context(serving_web(Recorded(name, modern=modern)))
            servers[name] = {"url": url, "era": era}
        config = config_file(folder, servers, **settings)
        command = stack.enter_context(serving(config))
        hosts: dict[str, Host] = {}
        for modern in (False, True):
            pipe = stack.enter_context(PipeHost(config, modern=modern)).handshake()
            web = HttpHost(command.url, modern=modern)
            stack.callback(web.close)
            hosts |= {
                f"pipe-{ERAS[modern]}": pipe,
                f"web-{ERAS[modern]}": web,
            }
        for host in hosts.values():
            kind, opened = host.exact("tools/call", open_toolbox())
            assert kind == "result", opened
            assert b"unavailable" not in opened, opened
        yield Bench(hosts)
