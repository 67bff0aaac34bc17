"""The `cluster` section: as the file has it, and with its values when the port opens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

import msgspec

from mcp_workbench.config.expand import Path, expand, references, remedy
from mcp_workbench.config.findings import Finding, Findings, Object
from mcp_workbench.config.schema import CLUSTER, NAME
from mcp_workbench.core.errors import ConfigError, Problem
from mcp_workbench.core.spec import CLUSTER_LISTEN, CLUSTER_NAME, ClusterSettings, Snapshot

PLACE = "cluster"
UNUSABLE = "WB-CONF-060"
NOT_INSTALLED = "WB-CONF-061"
SHORTEST_KEY = 32  # characters: it is all that keeps strangers out of the cluster
ENGINE_PORT = 6379
SCHEMES = {"valkey": False, "redis": False, "valkeys": True, "rediss": True}  # with TLS?
MODULES = ("cryptography",)
INSTALL = "pip install 'mcp-workbench-gateway[cluster]', in the environment of this program"

_LONGEST_NAME = 64
_HIGHEST_PORT = 65535
_EVERY_ADDRESS = ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.%a-z]+)\]|([^:\[\]\s/@]+)):([0-9]{1,5})")


class EngineAddress(msgspec.Struct, frozen=True):
    """Where the Valkey or Redis is, and how to enter."""

    host: str
    port: int = ENGINE_PORT
    tls: bool = False
    user: str = ""
    password: str = ""
    database: int = 0

    def __repr__(self) -> str:
        return f"EngineAddress({self})"

    def __str__(self) -> str:
        return join_address(self.host, self.port)


class ClusterConfig(msgspec.Struct, frozen=True):
    """The section with its values."""

    engine: EngineAddress
    key: bytes  # follows from the key and the name: two clusters have nothing in common
    listen: tuple[str, int]
    advertise: tuple[str, int] | None  # None: where it listens
    name: str

    def __repr__(self) -> str:
        return "ClusterConfig()"  # the key is a secret


def read_cluster(
    findings: Findings, value: Object, environ: Mapping[str, str], secrets: frozenset[str]
) -> ClusterSettings | None:
    """Returns the section as written; no finding quotes its strings."""
    valid = findings.members(value, CLUSTER, (PLACE,))
    for key, fix in (("url", '"url": "${VALKEY_URL}"'), ("key", '"key": "${CLUSTER_KEY}"')):
        if key not in value:
            findings.error((PLACE,), UNUSABLE, f"there is no '{key}' in it", f"add {fix}")
    if "url" not in valid or "key" not in valid:
        return None
    for key, text in valid.items():
        _check_variables(findings, text, (PLACE, key), environ, secrets)
    known = expand(valid["key"], {})
    if known.text and not known.missing:
        message = "the key stands in the file itself, for all who can read that"
        fix = "write ${NAME}, and set the variable where this program is started"
        findings.warning((PLACE, "key"), "WB-CONF-043", message, fix)
    return ClusterSettings(
        valid["url"],
        valid["key"],
        valid.get("listen", CLUSTER_LISTEN),
        valid.get("advertise", ""),
        valid.get("name", CLUSTER_NAME),
    )


def _check_variables(
    findings: Findings,
    text: str,
    path: Path,
    environ: Mapping[str, str],
    secrets: frozenset[str],
) -> None:
    for name in expand(text, environ).missing:
        if name not in secrets:
            message = f"variable {name} is not set and has no default; `serve --http` needs it"
            inside = f"${{{name}"
            findings.add(Finding(path, "WB-CONF-021", message, remedy(name), "warning", inside))


# Values, when the port opens


def resolve_cluster(snapshot: Snapshot, environ: Mapping[str, str]) -> ClusterConfig | None:
    """Returns the section with its values; None if there is none. Raises ConfigError."""
    if snapshot.cluster is None:
        return None
    from mcp_workbench.config.http_settings import with_secrets  # not needed by readers

    settings = snapshot.cluster
    texts = (settings.url, settings.key, settings.listen, settings.advertise, settings.name)
    variables = tuple(name for text in texts for name in references(text))
    values = _Values(with_secrets(snapshot, environ, variables, PLACE))
    name = values.name(values.text(settings.name, "name"))
    config = ClusterConfig(
        values.engine(values.text(settings.url, "url")),
        values.key(values.text(settings.key, "key"), name),
        values.address(values.text(settings.listen, "listen"), "listen") or ("127.0.0.1", 0),
        values.address(values.text(settings.advertise, "advertise"), "advertise"),
        name,
    )
    values.check_advertised(config)
    if any(find_spec(module) is None for module in MODULES):
        message = "the packages for a cluster are not installed"
        values.problems.append(Problem(PLACE, message, INSTALL, NOT_INSTALLED))
    if values.problems:
        raise ConfigError(snapshot.origin, tuple(values.problems))
    return config


class _Values:
    """The values, and what is wrong with them; no message quotes one."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.problems: list[Problem] = []
        self._environ = environ
        self._unset: set[str] = set()

    def text(self, text: str, key: str) -> str:
        expanded = expand(text, self._environ)
        for name in expanded.missing:
            self._unset.add(key)
            message = f"variable {name} is not set and has no default"
            self.problems.append(Problem(f"{PLACE}.{key}", message, remedy(name), "WB-CONF-021"))
        return expanded.text

    def wrong(self, key: str, message: str, fix: str) -> None:
        if key not in self._unset:  # else that was said already
            self.problems.append(Problem(f"{PLACE}.{key}", message, fix, UNUSABLE))

    def engine(self, url: str) -> EngineAddress:
        fix = "write it as valkey://user:password@host:6379/0"
        try:
            parts = urlsplit(url)
            port = parts.port or ENGINE_PORT
        except ValueError:
            self.wrong("url", "is no URL", fix)
            return EngineAddress("")
        if parts.scheme not in SCHEMES:
            self.wrong("url", f"must begin with one of {', '.join(SCHEMES)}, and ://", fix)
        elif not parts.hostname:
            self.wrong("url", "names no host", fix)
        database = parts.path.strip("/")
        if database and not (database.isascii() and database.isdigit() and len(database) <= 4):
            self.wrong("url", "its path must be the number of a database", fix)
            database = ""
        if parts.query or parts.fragment:
            self.wrong("url", "must have nothing after the number of the database", fix)
        return EngineAddress(
            parts.hostname or "",
            port,
            SCHEMES.get(parts.scheme, False),
            unquote(parts.username or ""),
            unquote(parts.password or ""),
            int(database or 0),
        )

    def key(self, text: str, name: str) -> bytes:
        if len(text) < SHORTEST_KEY:
            message = f"the key must have {SHORTEST_KEY} characters or more"
            self.wrong(
                "key", message, "openssl rand -hex 32 prints one; all replicas have the same"
            )
        import hmac  # few have a cluster

        purpose = b"mcp-workbench cluster: " + name.encode("utf-8", "surrogateescape")
        return hmac.digest(text.encode("utf-8", "surrogateescape"), purpose, "sha256")

    def address(self, text: str, key: str) -> tuple[str, int] | None:
        if not text:
            return None
        match = _ADDRESS.fullmatch(text)
        if match is None or int(match[3]) > _HIGHEST_PORT:
            self.wrong(key, "must be an address and a port", "for example 10.0.0.5:7412")
            return None
        return match[1] or match[2], int(match[3])

    def name(self, text: str) -> str:
        if not re.fullmatch(NAME, text) or len(text) > _LONGEST_NAME:
            message = "must be made of letters, digits, hyphens and underscores"
            self.wrong("name", message, f"for example {CLUSTER_NAME}")
        return text

    def check_advertised(self, config: ClusterConfig) -> None:
        fix = 'write "advertise": "10.0.0.5:7412", with the address by which they reach it'
        if config.advertise is None and config.listen[0] in _EVERY_ADDRESS:
            self.wrong("listen", "other replicas can't connect to an address that means all", fix)
        elif config.advertise is not None and config.advertise[1] == 0:
            self.wrong("advertise", "other replicas can't connect to port 0", fix)


def join_address(host: str, port: int) -> str:
    """Returns the usual text of an address and a port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
