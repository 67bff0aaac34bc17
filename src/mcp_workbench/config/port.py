"""What the configuration and the environment say about an open port, and whether it may be opened."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from mcp_workbench.config.expand import expand, remedy
from mcp_workbench.core.errors import ConfigError, Problem
from mcp_workbench.core.spec import HttpWish, NamedToken, Snapshot

VARIABLE = "MCP_WORKBENCH_HTTP_TOKEN"
SHORTEST = 16  # characters of a token, where other machines could try one after another

_TOKEN = re.compile(r"[\x21-\x7e]+")


def port_wish(snapshot: Snapshot, environ: Mapping[str, str], *, loopback: bool) -> HttpWish:
    """The wish with its tokens' values. Raises ConfigError where the port would stand open."""
    found = _TokenValues(environ, 1 if loopback else SHORTEST)
    wish = snapshot.http
    token = environ.get(VARIABLE) or ""
    token = found.usable(token, f"${VARIABLE}") if token else found.value(wish.token, "http.token")
    if found.problems and environ.get(VARIABLE):  # no place in the file is to blame
        (problem,) = found.problems
        raise ConfigError(problem.path, (msgspec.structs.replace(problem, path=""),))
    named = tuple(
        NamedToken(one.name, found.value(one.token, f"http.tokens.{one.name}"), one.toolboxes)
        for one in wish.tokens
    )
    problems = found.problems
    if not loopback and not problems:
        problems += _too_open(wish, has_token=bool(token or named))
    if problems:
        raise ConfigError(snapshot.origin, tuple(problems))
    return HttpWish(token, wish.allowed_hosts, wish.allowed_origins, named)


class _TokenValues:
    """The values of tokens, and what is wrong with them; no message repeats one."""

    def __init__(self, environ: Mapping[str, str], shortest: int) -> None:
        self.problems: list[Problem] = []
        self._environ = environ
        self._shortest = shortest
        self._places: dict[str, str] = {}

    def value(self, text: str, place: str) -> str:
        """What a text of the file stands for; empty where it can't be used."""
        if not text:
            return ""
        expanded = expand(text, self._environ)
        for name in expanded.missing:
            told = f"variable {name} is not set and has no default"
            self.problems.append(Problem(place, told, remedy(name), "WB-CONF-021"))
        return "" if expanded.missing else self.usable(expanded.text, place)

    def usable(self, token: str, place: str) -> str:
        other = self._places.setdefault(token, place)
        if not token:
            self._refuse(place, "the token is empty", "give it a value")
        elif not _TOKEN.fullmatch(token):
            told = "the token has a character that a header can't carry"
            self._refuse(place, told, "use letters and digits")
        elif len(token) < self._shortest:
            told = "other machines could reach this address, and guess a token as short as this"
            self._refuse(place, told, "use 32 or more random letters and digits")
        elif other != place:
            told = f"the same token as that of {other}"
            fix = "give each its own: they could not be told apart"
            self.problems.append(Problem(place, told, fix, "WB-CONF-042"))
        else:
            return token
        return ""

    def _refuse(self, place: str, told: str, fix: str) -> None:
        self.problems.append(Problem(place, told, fix, "WB-CONF-031"))


def _too_open(wish: HttpWish, *, has_token: bool) -> list[Problem]:
    """Other machines can reach an address that is not this machine's own."""
    problems: list[Problem] = []
    if not has_token:
        told = "other machines could reach this address, and there is no token"
        fix = f'set {VARIABLE}, or write "http": {{"token": "…"}}, or bind 127.0.0.1'
        problems.append(Problem("http.token", told, fix, "WB-CONF-030"))
    if not wish.allowed_hosts:
        told = "other machines could reach this address, and no host name is allowed"
        fix = 'write "http": {"allowedHosts": ["the-name-they-use"]}'
        problems.append(Problem("http.allowedHosts", told, fix, "WB-CONF-030"))
    return problems
