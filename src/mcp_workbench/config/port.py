"""What the configuration and the environment say about an open port, and whether it may be opened."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mcp_workbench.config.expand import expand, remedy
from mcp_workbench.core.errors import ConfigError, Problem
from mcp_workbench.core.spec import HttpWish, Snapshot

VARIABLE = "MCP_WORKBENCH_HTTP_TOKEN"

_TOKEN = re.compile(r"[\x21-\x7e]+")


def port_wish(snapshot: Snapshot, environ: Mapping[str, str], *, loopback: bool) -> HttpWish:
    """The wish with its token's value. Raises ConfigError where the port would stand open."""
    problems: list[Problem] = []
    token = environ.get(VARIABLE) or _token(snapshot.http.token, environ, problems)
    if token and not _TOKEN.fullmatch(token):
        told = "the token has a character that a header can't carry"
        problems.append(Problem("http.token", told, "use letters and digits", "WB-CONF-031"))
    if not loopback and not problems:
        problems += _too_open(snapshot.http, token)
    if problems:
        raise ConfigError(snapshot.origin, tuple(problems))
    return HttpWish(token, snapshot.http.allowed_hosts, snapshot.http.allowed_origins)


def _token(text: str, environ: Mapping[str, str], problems: list[Problem]) -> str:
    expanded = expand(text, environ)
    for name in expanded.missing:
        told = f"variable {name} is not set and has no default"
        problems.append(Problem("http.token", told, remedy(name), "WB-CONF-021"))
    if text and not expanded.text and not expanded.missing:
        told = "the token is empty"
        problems.append(Problem("http.token", told, "give it a value", "WB-CONF-031"))
    return expanded.text


def _too_open(wish: HttpWish, token: str) -> list[Problem]:
    """Other machines can reach an address that is not this machine's own."""
    problems: list[Problem] = []
    if not token:
        told = "other machines could reach this address, and there is no token"
        fix = f'set {VARIABLE}, or write "http": {{"token": "…"}}, or bind 127.0.0.1'
        problems.append(Problem("http.token", told, fix, "WB-CONF-030"))
    if not wish.allowed_hosts:
        told = "other machines could reach this address, and no host name is allowed"
        fix = 'write "http": {"allowedHosts": ["the-name-they-use"]}'
        problems.append(Problem("http.allowedHosts", told, fix, "WB-CONF-030"))
    return problems
