"""Variables that a server's failure mentions and that the server did not get."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from mcp_workbench.core.spec import StdioCommand
from mcp_workbench.hosts.environment import known_variables
from mcp_workbench.upstream.launch import child_environment

_STDERR = "stderr: "
_NAME = re.compile(r"(?<![\w$./-])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*(?![\w(])")
_NO_NAME = re.compile(r"ERR_|E[A-Z]+$|.*_(?:NOT_FOUND|FAILED|ERROR|REFUSED|DENIED)$")
# Beside a name, these words say that it is a variable that should have been there.
_CONTEXT = re.compile(
    r"environ|\benv\b|variable|required|missing|undefined|unset|KeyError|provide"
    r"|(?:not|isn't|must be|be|to be) (?:set|defined|found|configured)|\bset [A-Z]",
    re.IGNORECASE,
)


def variable_advice(reason: str, target: StdioCommand, environ: Mapping[str, str]) -> str:
    """Returns what to do about the variables that this failure mentions; empty if there are none."""
    missing = mentioned_variables(reason, target, environ)
    kept = [name for name in missing if name in environ]
    unset = [name for name in missing if name not in environ]
    advice: list[str] = []
    if kept:
        names = ", ".join(kept)
        verb = "is" if len(kept) == 1 else "are"
        advice.append(
            f"{names} {verb} set here and not passed on: add {_listed(kept)} to its entry"
        )
    if unset:
        names = ", ".join(unset)
        exports = " ".join(f"{name}=…" for name in unset)
        verb = "is" if len(unset) == 1 else "are"
        advice.append(
            f"{names} {verb} not set here: export {exports} and add {_listed(unset)} to its entry"
        )
    return "; ".join(advice)


def _listed(names: list[str]) -> str:
    return f'"inheritEnv": {msgspec.json.encode(names).decode()}'


def mentioned_variables(
    reason: str, target: StdioCommand, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """Returns the variables that the server's stderr names and that the server did not get."""
    _, _, stderr = reason.partition(_STDERR)
    is_about_variables = _CONTEXT.search(stderr) is not None
    passed = child_environment(environ, target)
    known = known_variables(dict.fromkeys(_NAME.findall(stderr), ""))
    names = [
        name
        for name in dict.fromkeys(_NAME.findall(stderr))
        if name in known or (is_about_variables and _looks_like_a_variable(name, environ))
    ]
    return tuple(name for name in names if not passed.get(name))


def _looks_like_a_variable(name: str, environ: Mapping[str, str]) -> bool:
    return name in environ or ("_" in name and not _NO_NAME.match(name))
