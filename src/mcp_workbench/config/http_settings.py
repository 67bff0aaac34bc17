"""The `http` section: tokens as the file has them, and with their values when the port opens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from mcp_workbench.config.expand import Path, expand, references, remedy
from mcp_workbench.config.findings import Finding, Findings, Object
from mcp_workbench.config.schema import HTTP, NAME, PRINCIPAL_LIMITS, TOKEN
from mcp_workbench.core.errors import ConfigError, Problem, did_you_mean
from mcp_workbench.core.spec import (
    HttpSettings,
    IssuerSettings,
    NamedToken,
    PrincipalLimits,
    Snapshot,
)

TOKEN_VARIABLE = "MCP_WORKBENCH_HTTP_TOKEN"  # noqa: S105 - a name
SHORTEST_TOKEN = 16  # characters, where other machines could try one after another
TOKEN_NAME_RULE = "a token's name is made of letters, digits, hyphens and underscores"  # noqa: S105

_SHAPE = 'write {"token": "${NAME}", "toolboxes": ["…"]}'
_TOKEN = re.compile(r"[\x21-\x7e]+")


class HttpReader:
    """Reads `http` of one file. Its strings stay as written; no finding quotes one."""

    def __init__(
        self,
        findings: Findings,
        environ: Mapping[str, str],
        boxes: list[str],
        secrets: frozenset[str] = frozenset(),
    ) -> None:
        self.findings = findings
        self.environ = environ
        self.secrets = secrets  # variables that are read when the port opens
        self.boxes = boxes
        self.texts: dict[str, str] = {}  # tokens so far, with their names

    def http(self, value: Object) -> HttpSettings:
        valid = self.findings.members(value, HTTP, ("http",))
        token: str = valid.get("token", "")
        if token:
            self.check_token(token, ("http", "token"), "http.token")
        metrics_token: str = valid.get("metricsToken", "")
        if metrics_token:
            self.check_token(metrics_token, ("http", "metricsToken"), "http.metricsToken")
        named = [
            entry
            for name, item in valid.get("tokens", {}).items()
            if (entry := self.named(name, item, ("http", "tokens", name))) is not None
        ]
        return HttpSettings(
            token,
            tuple(valid.get("allowedHosts", ())),
            tuple(valid.get("allowedOrigins", ())),
            tuple(named),
            self.auth(valid["auth"]) if "auth" in valid else None,
            valid.get("metrics", False),
            metrics_token,
        )

    def auth(self, value: Object) -> IssuerSettings | None:
        from mcp_workbench.config.http_auth import AuthReader  # most files have none

        reader = AuthReader(self.findings, self.environ, self.check_boxes, self.secrets)
        settings, valid = reader.auth(value)
        limits = read_limits(self.findings, valid, reader.path)
        return msgspec.structs.replace(settings, limits=limits)

    def named(self, name: str, value: Any, path: Path) -> NamedToken | None:
        if not re.fullmatch(NAME, name):
            self.findings.error(path, "WB-CONF-013", TOKEN_NAME_RULE, "give it another name")
        if not self.findings.is_object(value, path, _SHAPE):
            return None
        valid = self.findings.members(value, TOKEN, path)
        if "token" not in value:
            fix = 'add "token": "${NAME}", with the variable that holds it'
            self.findings.error(path, "WB-CONF-040", "there is no 'token' in it", fix)
        if "token" not in valid or ("toolboxes" in value and "toolboxes" not in valid):
            return None  # an unreadable list must not become no list, which opens every toolbox
        self.check_token(valid["token"], (*path, "token"), name)
        limits = read_limits(self.findings, valid, path)
        if "toolboxes" not in valid:
            return NamedToken(name, valid["token"], limits=limits)
        self.check_boxes(valid["toolboxes"], (*path, "toolboxes"))
        return NamedToken(name, valid["token"], tuple(valid["toolboxes"]), limits)

    def check_boxes(self, boxes: list[str], path: Path, star: str = "") -> None:
        """Report names of no toolbox; `star` stands for all of them."""
        for index, box in enumerate(boxes):
            if box not in self.boxes and box != star:
                fix = did_you_mean(box, self.boxes) or "name one of 'toolboxes'"
                message = "there is no toolbox of this name"
                self.findings.error((*path, index), "WB-CONF-041", message, fix)
        if not boxes:
            fix = "name one; without the key it opens all of them"
            self.findings.warning(path, "WB-CONF-017", "this token opens no toolbox", fix)

    def check_token(self, text: str, path: Path, name: str) -> None:
        other = self.texts.setdefault(text, name)
        if other != name:
            message = f"the same token as that of '{other}'"
            fix = "give each its own: they can't be told apart"
            self.findings.error(path, "WB-CONF-042", message, fix)
        for variable in expand(text, self.environ).missing:
            if variable in self.secrets:
                continue
            message = f"variable {variable} is not set and has no default; `serve --http` needs it"
            inside = f"${{{variable}"
            self.findings.add(
                Finding(path, "WB-CONF-021", message, remedy(variable), "warning", inside)
            )
        known = expand(text, {})
        if known.text and not known.missing:
            fix = "write ${NAME}, and set the variable where this program is started"
            message = "the token stands in the file itself, for all who can read that"
            self.findings.warning(path, "WB-CONF-043", message, fix)


def read_limits(findings: Findings, valid: Object, path: Path) -> PrincipalLimits | None:
    """Returns the `limits` of a principal."""
    if "limits" not in valid:
        return None
    limits = findings.members(valid["limits"], PRINCIPAL_LIMITS, (*path, "limits"))
    keys = ("callsPerMinute", "concurrentCalls", "sessions")
    return PrincipalLimits(*(int(limits[key]) if key in limits else None for key in keys))


# Values, when the port opens


def resolve_http(snapshot: Snapshot, environ: Mapping[str, str], *, loopback: bool) -> HttpSettings:
    """Returns the settings with the tokens' values. Raises ConfigError if the port would be too open."""
    environ = with_http_secrets(snapshot, environ)
    values = _TokenValues(environ, 1 if loopback else SHORTEST_TOKEN)
    settings = snapshot.http
    token = environ.get(TOKEN_VARIABLE) or ""
    token = (
        values.usable(token, f"${TOKEN_VARIABLE}")
        if token
        else values.value(settings.token, "http.token")
    )
    if values.problems and environ.get(TOKEN_VARIABLE):  # the fault is not in the file
        (problem,) = values.problems
        raise ConfigError(problem.path, (msgspec.structs.replace(problem, path=""),))
    named = tuple(
        msgspec.structs.replace(entry, token=values.value(entry.token, f"http.tokens.{entry.name}"))
        for entry in settings.tokens
    )
    metrics_token = values.value(settings.metrics_token, "http.metricsToken")
    problems = values.problems
    auth = _resolved_auth(settings, environ, problems)
    if not loopback and not problems:
        problems += _too_open(settings, has_token=bool(token or named or auth))
    closed = not loopback or bool(token or named or auth)
    if closed and settings.metrics and not metrics_token and not problems:
        problems.append(_open_metrics())
    if problems:
        raise ConfigError(snapshot.origin, tuple(problems))
    return msgspec.structs.replace(
        settings, token=token, tokens=named, auth=auth, metrics_token=metrics_token
    )


def with_http_secrets(snapshot: Snapshot, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the environment with the secrets that `http` refers to. Raises ConfigError."""
    return with_secrets(snapshot, environ, http_variables(snapshot.http), "http")


def with_secrets(
    snapshot: Snapshot, environ: Mapping[str, str], variables: tuple[str, ...], place: str
) -> Mapping[str, str]:
    """Returns the environment with those of these variables that are secrets. Raises ConfigError."""
    wanted = {name: source for name, source in snapshot.secrets if name in variables}
    if not wanted:
        return environ
    from mcp_workbench.config.secret_sources import read_secrets  # few have secrets

    outcomes = read_secrets(wanted, environ)
    failures = [value for value in outcomes.values() if not isinstance(value, str)]
    if failures:
        problems = [Problem(place, e.message, e.hint, e.code) for e in failures]
        raise ConfigError(snapshot.origin, tuple(problems))
    values = {name: value for name, value in outcomes.items() if isinstance(value, str)}
    return {**environ, **values}


def http_variables(settings: HttpSettings) -> tuple[str, ...]:
    """Returns the variables that the section refers to."""
    texts = [settings.token, settings.metrics_token, *(entry.token for entry in settings.tokens)]
    if settings.auth is not None:
        from mcp_workbench.config.http_auth import texts_of  # few have an issuer

        texts += texts_of(settings.auth)
    return tuple(dict.fromkeys(name for text in texts for name in references(text)))


def _resolved_auth(
    settings: HttpSettings, environ: Mapping[str, str], problems: list[Problem]
) -> IssuerSettings | None:
    if settings.auth is None:
        return None
    from mcp_workbench.config.http_auth import resolve_auth  # few have an issuer

    return resolve_auth(settings.auth, environ, problems)


class _TokenValues:
    """The values of tokens, and what is wrong with them; no message quotes one."""

    def __init__(self, environ: Mapping[str, str], shortest: int) -> None:
        self.problems: list[Problem] = []
        self._environ = environ
        self._shortest = shortest
        self._places: dict[str, str] = {}

    def value(self, text: str, place: str) -> str:
        """Returns the expanded token; empty if it can't be used."""
        if not text:
            return ""
        expanded = expand(text, self._environ)
        for name in expanded.missing:
            message = f"variable {name} is not set and has no default"
            self.problems.append(Problem(place, message, remedy(name), "WB-CONF-021"))
        return "" if expanded.missing else self.usable(expanded.text, place)

    def usable(self, token: str, place: str) -> str:
        other = self._places.setdefault(token, place)
        if not token:
            self._refuse(place, "the token is empty", "give it a value")
        elif not _TOKEN.fullmatch(token):
            message = "the token has a character that a header can't carry"
            self._refuse(place, message, "use letters and digits")
        elif len(token) < self._shortest:
            message = "other machines could reach this address, and guess a token as short as this"
            self._refuse(place, message, "use 32 or more random letters and digits")
        elif other != place:
            message = f"the same token as that of {other}"
            fix = "give each its own: they can't be told apart"
            self.problems.append(Problem(place, message, fix, "WB-CONF-042"))
        else:
            return token
        return ""

    def _refuse(self, place: str, message: str, fix: str) -> None:
        self.problems.append(Problem(place, message, fix, "WB-CONF-031"))


def _too_open(settings: HttpSettings, *, has_token: bool) -> list[Problem]:
    """Returns what is missing for an address that other machines can reach."""
    problems: list[Problem] = []
    if not has_token:
        message = "other machines could reach this address, and there is no token"
        fix = f'set {TOKEN_VARIABLE}, or write "http": {{"token": "…"}}, or bind 127.0.0.1'
        problems.append(Problem("http.token", message, fix, "WB-CONF-030"))
    if not settings.allowed_hosts:
        message = "other machines could reach this address, and no host name is allowed"
        fix = 'write "http": {"allowedHosts": ["the-name-they-use"]}'
        problems.append(Problem("http.allowedHosts", message, fix, "WB-CONF-030"))
    return problems


def _open_metrics() -> Problem:
    """Returns what is missing for `/metrics` of a port that is not open to all."""
    message = "not everybody may call here, and everybody could read /metrics"
    fix = 'write "http": {"metricsToken": "${NAME}"}: the tokens of hosts do not open it'
    return Problem("http.metricsToken", message, fix, "WB-CONF-065")
