"""One server entry of the file, and the spec that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from mcp_workbench.config.expand import (
    Path,
    Target,
    dotted,
    doubtful,
    expand,
    remedy,
    strings_of,
    unset,
)
from mcp_workbench.config.findings import Finding, Findings, Object
from mcp_workbench.config.foreign import advice, meant
from mcp_workbench.config.kinds import kind_of
from mcp_workbench.config.schema import SERVER, TRANSPORTS
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import (
    CALL_TIMEOUT,
    CONNECT_TIMEOUT,
    IDLE_TIMEOUT,
    HttpEndpoint,
    Pairs,
    ServerSpec,
    StdioCommand,
    tool_filter,
)

EARLY = ("type", "transport", "era", "toolFilters")  # they decide what is shown: expanded at once
HOW = "add 'command' for a program of this machine, or 'url' for a remote server"
ONE_SIDED = {"command": ("headers",), "url": ("args", "env", "cwd")}  # no use beside this one


class EntryReader:
    """Reads the server entries of one file."""

    def __init__(self, findings: Findings, environ: Mapping[str, str], folder: str) -> None:
        self.findings = findings
        self.environ = environ
        self.folder = folder

    def spec(self, address: ServerAddress, entry: Object, path: Path) -> ServerSpec | None:
        entry, unset_here = self.expanded_early(entry, path)
        right = self.findings.members(entry, SERVER, path)
        if right.get("disabled"):
            return None
        self.findings.add(*unset_here)
        target = self.target(entry, right, path)
        if target is None:
            return None
        self.doubt_variables(target, path)
        return ServerSpec(
            address,
            target,
            tool_filter(() if unset_here else tuple(right.get("toolFilters", ("*",)))),
            right.get("era", "auto"),
            float(right.get("connectTimeout", CONNECT_TIMEOUT)),
            float(right.get("timeout", CALL_TIMEOUT)),
            dotted(path),
            "; ".join(unset(lack.inside[2:], dotted(lack.path)) for lack in unset_here),
            right.get("scope", "shared"),
            float(right.get("idleTimeout", IDLE_TIMEOUT)),
            None if "resultBudget" not in right else int(right["resultBudget"]),
            right.get("validate", False),
        )

    def expanded_early(self, entry: Object, path: Path) -> tuple[Object, list[Finding]]:
        """The entry with the values of its early members; a member that lacks one is left out."""
        entry, lacking = dict(entry), list[Finding]()
        for key in EARLY:
            here, value = (*path, key), entry.get(key)
            if isinstance(value, str):
                entry[key] = self.value(value, here, lacking)
            elif isinstance(value, list):
                items = enumerate(cast("list[Any]", value))
                entry[key] = [self.value(item, (*here, index), lacking) for index, item in items]
        for finding in lacking:
            entry.pop(str(finding.path[len(path)]), None)
        return entry, lacking

    def value(self, text: Any, path: Path, lacking: list[Finding]) -> Any:
        if not isinstance(text, str):
            return text
        expanded = expand(text, self.environ)
        lacking += [_unset(name, path) for name in expanded.missing]
        return expanded.text

    def target(self, entry: Object, right: Object, path: Path) -> Target | None:
        ways = [key for key in ("command", "url") if key in entry]
        if not ways:
            found = meant(entry, "command", "url")
            fix = advice(found[0], list(SERVER)) if found else HOW
            self.findings.error(path, "WB-CONF-018", "neither 'command' nor 'url'", fix)
            return None
        if len(ways) == 2:
            fix = "keep 'command' for a program of this machine, 'url' for a remote server"
            self.findings.error(path, "WB-CONF-019", "both 'command' and 'url'", fix)
            return None
        [way] = ways
        for key in ONE_SIDED[way]:
            if key in right:
                message = f"has no effect beside '{way}'"
                self.findings.warning((*path, key), "WB-CONF-026", message, "remove it")
        transport = self.transport(way, right, path)
        if way not in right:
            return None
        if way == "url":
            headers = self.pairs(right.get("headers", {}), (*path, "headers"))
            return HttpEndpoint(right["url"], headers, "sse" if transport == "sse" else "http")
        env = self.pairs(right.get("env", {}), (*path, "env"))
        args = tuple(right.get("args", ()))
        return StdioCommand(right["command"], args, env, right.get("cwd", ""), self.folder)

    def transport(self, way: str, right: Object, path: Path) -> str:
        given = {key: TRANSPORTS[right[key]] for key in ("type", "transport") if key in right}
        if len(set(given.values())) == 2:
            message = "'type' and 'transport' contradict each other"
            self.findings.error((*path, "transport"), "WB-CONF-020", message, "keep one of them")
        for key, kind in given.items():
            if (kind == "stdio") != (way == "command"):
                message = f"\"{right[key]}\" does not go with '{way}'"
                fix = f"remove '{key}': it follows from '{way}'"
                self.findings.error((*path, key), "WB-CONF-020", message, fix)
        return next(iter(given.values()), "")

    def pairs(self, value: Object, path: Path) -> Pairs:
        pairs: list[tuple[str, str]] = []
        for name, item in value.items():
            text = str(item).lower() if isinstance(item, bool) else str(item)
            if not isinstance(item, str):
                message = f"{kind_of(item)} where a string belongs; taken as its text"
                self.findings.warning(
                    (*path, name), "WB-CONF-023", message, "put it in double quotes"
                )
            pairs.append((name, text))
        return tuple(pairs)

    def doubt_variables(self, target: Target, path: Path) -> None:
        for inner, text in strings_of(target):
            here = (*path, *inner)
            missing = expand(text, self.environ).missing
            self.findings.add(*(_unset(name, here) for name in missing))
            if doubtful(text):
                message = "a '${' in it is no variable and stays as it is"
                fix = "write ${NAME} or ${NAME:-default}; $${ is a literal ${"
                self.findings.warning(here, "WB-CONF-027", message, fix)


def _unset(variable: str, path: Path) -> Finding:
    message = f"variable {variable} is not set and has no default; the server is unavailable"
    return Finding(path, "WB-CONF-021", message, remedy(variable), "warning", f"${{{variable}")
