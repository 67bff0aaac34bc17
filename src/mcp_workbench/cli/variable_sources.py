"""Where each `${NAME}` of a configuration comes from, without its value, for `check` and `doctor`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from mcp_workbench.config.expand import references, strings_of
from mcp_workbench.config.http_settings import http_variables
from mcp_workbench.core.errors import Problem
from mcp_workbench.core.spec import ServerSpec, Snapshot

MISSING = "missing"
_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):-")
_WORDS = {
    "environment": "from the environment",
    "default": "with the default of the file",
    "store": "from the encrypted store",
    "keyring": "from the keyring",
    "command": "from a command",
    "file": "from a file",
    MISSING: "missing",
}


class VariableSource(msgspec.Struct, frozen=True, rename="camel"):
    """One variable of the configuration, in the JSON of `check`."""

    name: str
    source: str  # environment, default, store, keyring, command, file, or missing
    used_by: list[str]  # servers, and `http`
    code: str = ""  # why it is certainly missing, and what to do
    reason: str = ""
    fix: str = ""


def variable_sources(
    snapshot: Snapshot, specs: Iterable[ServerSpec], environ: Mapping[str, str]
) -> list[VariableSource]:
    """Returns the variables that these servers and `http` refer to. Reads no secret, runs nothing."""
    users: defaultdict[str, list[str]] = defaultdict(list)
    optional: defaultdict[str, bool] = defaultdict(lambda: True)
    for spec in specs:
        for _, text in strings_of(spec.target):
            with_default = set(_DEFAULT.findall(text))
            for name in references(text):
                optional[name] &= name in with_default
                if str(spec.address) not in users[name]:
                    users[name].append(str(spec.address))
    for name in http_variables(snapshot.http):
        users[name].append("http")
    return [_source(snapshot, n, users[n], environ, optional=optional[n]) for n in users]


def _source(
    snapshot: Snapshot, name: str, users: list[str], environ: Mapping[str, str], *, optional: bool
) -> VariableSource:
    source = dict(snapshot.secrets).get(name)
    if source is not None:
        from mcp_workbench.config.secret_sources import doubt  # few have secrets

        problem = doubt(name, source, environ)
        if problem is None:
            return VariableSource(name, source.kind, users)
        return VariableSource(name, MISSING, users, problem.code, problem.message, problem.hint)
    if environ.get(name) or (name in environ and not optional):
        return VariableSource(name, "environment", users)
    return VariableSource(name, "default" if optional else MISSING, users)


def described(sources: Iterable[VariableSource]) -> str:
    """`A and B from the environment; C from the encrypted store; D missing`."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for one in sources:
        groups[one.source].append(one.name)
    return "; ".join(f"{', '.join(groups[k])} {w}" for k, w in _WORDS.items() if k in groups)


def source_warnings(sources: Iterable[VariableSource]) -> Iterator[Problem]:
    """Yields a warning for each secret that certainly can't be read."""
    for one in sources:
        if one.code:
            message = f"secret {one.name} of {', '.join(one.used_by)}: {one.reason}"
            yield Problem(f"secrets.{one.name}", message, one.fix, one.code, severity="warning")
