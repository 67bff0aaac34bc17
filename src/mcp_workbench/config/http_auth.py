"""`http.auth`: the issuer whose access tokens hosts bring, as the file has it and with values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Protocol

import msgspec

from mcp_workbench.config.expand import Path, expand, remedy
from mcp_workbench.config.findings import Finding, Findings, Object
from mcp_workbench.config.schema import HTTP_AUTH, INTROSPECTION
from mcp_workbench.core.errors import Problem
from mcp_workbench.core.spec import ALL_TOOLBOXES, ClaimGrant, Introspection, IssuerSettings
from mcp_workbench.transport.http.urls import BadUrl, is_loopback, parse_url

PLACE = "http.auth"
ENDPOINT = "/mcp"  # the path that every URL of ours ends with
# What checks signatures. Whoever has no issuer need not have it.
MODULES = ("jwt", "cryptography")
INSTALL = "pip install 'mcp-workbench-gateway[auth]'"

_GRANTS = ("toolboxes", "scopes", "claims")


class BoxCheck(Protocol):
    """Reports names of no toolbox."""

    def __call__(self, boxes: list[str], path: Path, star: str = "") -> None: ...


class AuthReader:
    """Reads `http.auth` of one file. Its strings stay as written."""

    def __init__(
        self,
        findings: Findings,
        environ: Mapping[str, str],
        check_boxes: BoxCheck,
        secrets: frozenset[str],
    ) -> None:
        self.findings = findings
        self.environ = environ
        self.check_boxes = check_boxes
        self.secrets = secrets  # variables that are read when the port opens
        self.path: Path = ("http", "auth")

    def auth(self, value: Object) -> tuple[IssuerSettings, Object]:
        """Returns the settings, without `limits`, and the members that are valid."""
        valid = self.findings.members(value, HTTP_AUTH, self.path)
        for key in ("issuer", "audience"):
            if key not in value:
                fix = f'add "{key}": "{HTTP_AUTH[key].example}", with your own'
                self.findings.error(self.path, "WB-CONF-044", f"there is no '{key}' in it", fix)
        self.grants(valid)
        # With none of these keys every token opens all; one that is unreadable must not do the same.
        everyone = (
            tuple(valid.get("toolboxes", ()))
            if any(key in value for key in _GRANTS)
            else (ALL_TOOLBOXES,)
        )
        settings = IssuerSettings(
            valid.get("issuer", ""),
            valid.get("audience", ""),
            valid.get("resource", ""),
            valid.get("jwksUri", ""),
            self.introspection(valid.get("introspection")),
            everyone,
            tuple((scope, tuple(boxes)) for scope, boxes in valid.get("scopes", {}).items()),
            tuple(_claim_grants(valid.get("claims", {}))),
        )
        if settings.issuer and settings.audience:
            self.check_values(settings)
        return settings, valid

    def grants(self, valid: Object) -> None:
        """Report toolboxes that do not exist, and grants that open nothing."""
        lists: list[tuple[Path, list[str]]] = []
        if "toolboxes" in valid:
            lists.append((("toolboxes",), valid["toolboxes"]))
        lists += [(("scopes", name), boxes) for name, boxes in valid.get("scopes", {}).items()]
        for claim, values in valid.get("claims", {}).items():
            lists += [(("claims", claim, name), boxes) for name, boxes in values.items()]
        for path, boxes in lists:
            self.check_boxes(boxes, (*self.path, *path), ALL_TOOLBOXES)
        for scope in valid.get("scopes", {}):
            if not _is_scope(scope):
                message = "is not a scope: it has a space, a quote or a backslash"
                here = (*self.path, "scopes", scope)
                self.findings.error(here, "WB-CONF-044", message, "write one scope for each key")
        if any(key in valid for key in _GRANTS) and not lists:
            message = "no token of this issuer opens a toolbox"
            fix = "name toolboxes in 'toolboxes', 'scopes' or 'claims'; without all three, all open"
            self.findings.warning(self.path, "WB-CONF-017", message, fix)

    def introspection(self, value: Object | None) -> Introspection | None:
        if value is None:
            return None
        path = (*self.path, "introspection")
        valid = self.findings.members(value, INTROSPECTION, path)
        for key in ("clientId", "clientSecret"):
            if key not in value:
                fix = f'add "{key}": "{INTROSPECTION[key].example}"'
                self.findings.error(path, "WB-CONF-044", f"there is no '{key}' in it", fix)
        secret: str = valid.get("clientSecret", "")
        if secret and not expand(secret, {}).missing:
            message = "the secret stands in the file itself, for all who can read that"
            fix = "write ${NAME}, and set the variable where this program is started"
            self.findings.warning((*path, "clientSecret"), "WB-CONF-043", message, fix)
        if "clientId" not in valid or not secret:
            return None  # reported above
        return Introspection(valid["clientId"], secret, valid.get("url", ""))

    def check_values(self, settings: IssuerSettings) -> None:
        """Report what the values would be refused for, where all variables are set."""
        expanded, missing = _expanded(settings, self.environ)
        for place, variable in missing:
            if variable in self.secrets:
                continue
            message = f"variable {variable} is not set and has no default; `serve --http` needs it"
            path = (*self.path, *place.split("."))
            inside = f"${{{variable}"
            self.findings.add(
                Finding(path, "WB-CONF-021", message, remedy(variable), "warning", inside)
            )
        if missing:
            return
        for place, message, fix in _wrong_values(expanded):
            self.findings.error((*self.path, *place.split(".")), "WB-CONF-044", message, fix)


def _claim_grants(claims: dict[str, dict[str, list[str]]]) -> Iterator[ClaimGrant]:
    for claim, values in claims.items():
        for value, boxes in values.items():
            yield ClaimGrant(claim, value, tuple(boxes))


def _is_scope(text: str) -> bool:
    """RFC 6749: visible characters but the quote and the backslash."""
    return bool(text) and all("!" <= char <= "~" and char not in '"\\' for char in text)


# Values, when the port opens


def resolve_auth(
    settings: IssuerSettings, environ: Mapping[str, str], problems: list[Problem]
) -> IssuerSettings:
    """Returns the settings with their values; what is wrong with them is added to `problems`."""
    expanded, missing = _expanded(settings, environ)
    for place, name in missing:
        message = f"variable {name} is not set and has no default"
        problems.append(Problem(f"{PLACE}.{place}", message, remedy(name), "WB-CONF-021"))
    if not missing:
        wrong = _wrong_values(expanded)
        problems += [
            Problem(f"{PLACE}.{where}", what, fix, "WB-CONF-044") for where, what, fix in wrong
        ]
    if any(find_spec(module) is None for module in MODULES):
        message = "the packages that check signatures of tokens are not installed"
        problems.append(Problem(PLACE, message, INSTALL, "WB-CONF-045"))
    return expanded


def texts_of(settings: IssuerSettings) -> tuple[str, ...]:
    """Returns every string that is expanded when the port opens."""
    asking = settings.introspection
    texts = (settings.issuer, settings.audience, settings.resource, settings.jwks_uri)
    return texts if asking is None else (*texts, asking.client_id, asking.client_secret, asking.url)


def _expanded(
    settings: IssuerSettings, environ: Mapping[str, str]
) -> tuple[IssuerSettings, list[tuple[str, str]]]:
    """Returns the settings with values, and places with their unset variables."""
    missing: list[tuple[str, str]] = []

    def value(text: str, place: str) -> str:
        expanded = expand(text, environ)
        missing.extend((place, name) for name in expanded.missing)
        return expanded.text

    audience = value(settings.audience, "audience")
    asking = settings.introspection
    if asking is not None:
        asking = Introspection(
            value(asking.client_id, "introspection.clientId"),
            value(asking.client_secret, "introspection.clientSecret"),
            value(asking.url, "introspection.url"),
        )
    expanded = msgspec.structs.replace(
        settings,
        issuer=value(settings.issuer, "issuer"),
        audience=audience,
        resource=value(settings.resource, "resource") or audience,
        jwks_uri=value(settings.jwks_uri, "jwksUri"),
        introspection=asking,
    )
    return expanded, missing


def _wrong_values(settings: IssuerSettings) -> Iterator[tuple[str, str, str]]:
    """Yields place, message and fix; no message quotes a value."""
    asking = settings.introspection
    for place, url in (
        ("issuer", settings.issuer),
        ("jwksUri", settings.jwks_uri),
        ("introspection.url", asking.url if asking else ""),
    ):
        if url and (message := _not_an_address(url)):
            yield place, message, "write the address that the issuer's documentation gives"
    if "?" in settings.issuer or "#" in settings.issuer:
        yield "issuer", "an issuer has no query", "write it as its tokens have it in 'iss'"
    if message := _not_our_url(settings.resource):
        place = "audience" if settings.resource == settings.audience else "resource"
        fix = 'write "resource": "https://…/mcp", the URL that hosts use'
        yield place, message, fix
    if asking and not (asking.client_id and asking.client_secret):
        place = "introspection.clientSecret" if asking.client_id else "introspection.clientId"
        yield place, "is empty", "give it a value"


def _not_an_address(text: str) -> str:
    """Why we send no request there; empty if we do."""
    try:
        url = parse_url(text)
    except BadUrl:
        return "is not a URL"
    if url.user:
        return "must not carry a name or a password"
    if url.scheme != "https" and not is_loopback(url.host):
        return "must be https; only an address of this machine may be http"
    return ""


def _not_our_url(text: str) -> str:
    try:
        url = parse_url(text)
    except BadUrl:
        return "is not the URL of this workbench"
    if url.user or not url.target.endswith(ENDPOINT):
        return f"must be the URL of this workbench, which ends with {ENDPOINT}"
    return ""
