"""One pass over the file's value: the configuration it describes, and every error and warning."""

from __future__ import annotations

import re
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
from mcp_workbench.config.findings import Finding, Findings, Object, advice, foreign_keys
from mcp_workbench.config.schema import (
    AMBIGUOUS,
    LIMITS,
    NAME,
    SERVER,
    TOOLBOX,
    TOP,
    TRANSPORTS,
    kind_of,
)
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import (
    CALL_TIMEOUT,
    CALLS,
    CALLS_PER_SERVER,
    CONNECT_TIMEOUT,
    DRAIN,
    IDLE_TIMEOUT,
    MESSAGE_BYTES,
    OPEN_WAIT,
    QUEUE_BYTES,
    TOOLS_PER_SERVER,
    HttpEndpoint,
    HttpSettings,
    Limits,
    Naming,
    Pairs,
    ServerSpec,
    Snapshot,
    StdioCommand,
    ToolboxSpec,
    tool_filter,
)

NAME_RULE = (
    "Toolbox and server names should contain only alphanumeric characters, hyphens, and underscores"
)
EARLY = ("type", "transport", "era", "toolFilters")  # they decide what is shown: expanded on load
HOW_TO_REACH = "add 'command' for a program of this machine, or 'url' for a remote server"
ONE_SIDED = {
    "command": ("headers",),
    "url": ("args", "env", "cwd"),
}  # without effect beside this key


def validate(
    value: Any, environ: Mapping[str, str], folder: str = ""
) -> tuple[Snapshot, list[Finding]]:
    """Returns the configuration, as far as it can be understood, and all findings."""
    findings = Findings()
    reader = _FileReader(findings, _EntryReader(findings, environ, folder))
    return reader.file(value), findings.all


class _FileReader:
    def __init__(self, findings: Findings, entries: _EntryReader) -> None:
        self.findings = findings
        self.entries = entries
        self.dynamic = False

    def file(self, value: Any) -> Snapshot:
        if not self.findings.is_object(value, (), 'write {"mcpServers": {…}}'):
            return Snapshot({})
        top = self.findings.members(value, TOP, ())
        self.dynamic = top.get("toolMode") == "dynamic"
        limits = self.findings.members(top.get("limits", {}), LIMITS, ("limits",))
        boxes = self.toolboxes(value, top)
        return Snapshot(
            boxes,
            top.get("toolMode", "proxy"),
            _limits(limits),
            http=self.http(top["http"], list(boxes)) if "http" in top else HttpSettings(),
            naming=self.naming(top),
        )

    def http(self, value: Object, boxes: list[str]) -> HttpSettings:
        from mcp_workbench.config.http_settings import HttpReader  # few files have an `http` key

        return HttpReader(self.findings, self.entries.environ, boxes).http(value)

    def naming(self, top: Object) -> Naming:
        bare = top.get("naming") == "bare"
        if bare and not self.dynamic:
            fix = 'set "toolMode": "dynamic", or leave "naming" out'
            message = "bare names are for dynamic mode only"
            self.findings.error(("naming",), "WB-CONF-028", message, fix)
        return "bare" if bare else "full"

    def name(self, name: str, path: Path, what: str) -> None:
        if not re.fullmatch(NAME, name):
            better = re.sub("[^A-Za-z0-9_-]+", "-", name).strip("-") or "main"
            self.findings.error(
                path, "WB-CONF-013", NAME_RULE, f"rename it, for example '{better}'"
            )
        elif re.search(AMBIGUOUS, name):
            better = re.sub("__+", "-", name.rstrip("_")) or "main"
            fault = "contains '__'" if "__" in name else "ends with '_'"
            report = self.findings.error if self.dynamic else self.findings.warning
            message = f"{what} name {fault}" + (
                "" if self.dynamic else ", which dynamic mode refuses"
            )
            report(path, "WB-CONF-014", message, f"rename it, for example '{better}'")

    def toolboxes(self, value: Object, top: Object) -> dict[str, ToolboxSpec]:
        shapes = [key for key in ("toolboxes", "mcpServers") if key in value]
        if not shapes:
            foreign = foreign_keys(value, "mcpServers")
            fix = advice(foreign[0], list(TOP)) if foreign else 'write "mcpServers": {…}'
            self.findings.error((), "WB-CONF-016", "neither 'toolboxes' nor 'mcpServers'", fix)
        if len(shapes) == 2:
            fix = "move these servers into one of the toolboxes"
            message = "'mcpServers' and 'toolboxes' can't stand side by side"
            self.findings.error(("mcpServers",), "WB-CONF-015", message, fix)
        boxes: Object = top.get("toolboxes", {})
        specs = {name: self.toolbox(name, boxes[name], ("toolboxes", name)) for name in boxes}
        if "mcpServers" in top:
            servers = self.servers("default", top["mcpServers"], ("mcpServers",))
            specs["default"] = ToolboxSpec("default", servers=servers)
        if "toolboxes" in top and not boxes:
            self.findings.warning(("toolboxes",), "WB-CONF-017", "there is no toolbox", "add one")
        return specs

    def toolbox(self, name: str, value: Any, path: Path) -> ToolboxSpec:
        self.name(name, path, "toolbox")
        if not self.findings.is_object(
            value, path, 'write {"description": "…", "mcpServers": {…}}'
        ):
            return ToolboxSpec(name)
        valid = self.findings.members(value, TOOLBOX, path)
        if "mcpServers" not in value:
            foreign = foreign_keys(value, "mcpServers")
            fix = advice(foreign[0], list(TOOLBOX)) if foreign else 'add "mcpServers": {…}'
            self.findings.error(path, "WB-CONF-016", "the toolbox has no 'mcpServers'", fix)
        servers = self.servers(name, valid.get("mcpServers"), (*path, "mcpServers"))
        return ToolboxSpec(
            name,
            valid.get("description", ""),
            servers,
            valid.get("detail", "schema"),
            int(valid.get("resultBudget", 0)),
            valid.get("discover", "lazy"),
        )

    def servers(self, toolbox: str, value: Object | None, path: Path) -> dict[str, ServerSpec]:
        if value == {}:
            self.findings.warning(
                path, "WB-CONF-017", f"toolbox '{toolbox}' has no server", "add one"
            )
        specs: dict[str, ServerSpec] = {}
        for name, entry in (value or {}).items():
            here = (*path, name)
            self.name(name, here, "server")
            if not self.findings.is_object(entry, here, 'write {"command": "…"} or {"url": "…"}'):
                continue
            spec = self.entries.spec(ServerAddress(toolbox, name), entry, here)
            if spec is not None:
                specs[name] = spec
        return specs


def _limits(valid: Object) -> Limits:
    return Limits(
        int(valid.get("messageBytes", MESSAGE_BYTES)),
        int(valid.get("callsPerServer", CALLS_PER_SERVER)),
        int(valid.get("queueBytes", QUEUE_BYTES)),
        float(valid.get("openWait", OPEN_WAIT)),
        int(valid.get("calls", CALLS)),
        int(valid.get("toolsPerServer", TOOLS_PER_SERVER)),
        float(valid.get("drain", DRAIN)),
    )


# Server entries


class _EntryReader:
    """Reads the server entries of one file."""

    def __init__(self, findings: Findings, environ: Mapping[str, str], folder: str) -> None:
        self.findings = findings
        self.environ = environ
        self.folder = folder

    def spec(self, address: ServerAddress, entry: Object, path: Path) -> ServerSpec | None:
        entry, unset_here = self.expanded_early(entry, path)
        valid = self.findings.members(entry, SERVER, path)
        if valid.get("disabled"):
            return None
        self.findings.add(*unset_here)
        target = self.target(entry, valid, path)
        if target is None:
            return None
        self.doubt_variables(target, path)
        return ServerSpec(
            address,
            target,
            tool_filter(() if unset_here else tuple(valid.get("toolFilters", ("*",)))),
            valid.get("era", "auto"),
            float(valid.get("connectTimeout", CONNECT_TIMEOUT)),
            float(valid.get("timeout", CALL_TIMEOUT)),
            dotted(path),
            "; ".join(unset(lack.inside[2:], dotted(lack.path)) for lack in unset_here),
            valid.get("scope", "shared"),
            float(valid.get("idleTimeout", IDLE_TIMEOUT)),
            None if "resultBudget" not in valid else int(valid["resultBudget"]),
            valid.get("validate", False),
        )

    def expanded_early(self, entry: Object, path: Path) -> tuple[Object, list[Finding]]:
        """Returns the entry with `EARLY` expanded, and the unset variables; their keys are left out."""
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

    def target(self, entry: Object, valid: Object, path: Path) -> Target | None:
        ways = [key for key in ("command", "url") if key in entry]
        if not ways:
            foreign = foreign_keys(entry, "command", "url")
            fix = advice(foreign[0], list(SERVER)) if foreign else HOW_TO_REACH
            self.findings.error(path, "WB-CONF-018", "neither 'command' nor 'url'", fix)
            return None
        if len(ways) == 2:
            fix = "keep 'command' for a program of this machine, 'url' for a remote server"
            self.findings.error(path, "WB-CONF-019", "both 'command' and 'url'", fix)
            return None
        [way] = ways
        for key in ONE_SIDED[way]:
            if key in valid:
                message = f"has no effect beside '{way}'"
                self.findings.warning((*path, key), "WB-CONF-026", message, "remove it")
        transport = self.transport(way, valid, path)
        if way not in valid:
            return None
        if way == "url":
            headers = self.pairs(valid.get("headers", {}), (*path, "headers"))
            return HttpEndpoint(valid["url"], headers, "sse" if transport == "sse" else "http")
        env = self.pairs(valid.get("env", {}), (*path, "env"))
        args = tuple(valid.get("args", ()))
        return StdioCommand(valid["command"], args, env, valid.get("cwd", ""), self.folder)

    def transport(self, way: str, valid: Object, path: Path) -> str:
        given = {key: TRANSPORTS[valid[key]] for key in ("type", "transport") if key in valid}
        if len(set(given.values())) == 2:
            message = "'type' and 'transport' contradict each other"
            self.findings.error((*path, "transport"), "WB-CONF-020", message, "keep one of them")
        for key, kind in given.items():
            if (kind == "stdio") != (way == "command"):
                message = f"\"{valid[key]}\" does not go with '{way}'"
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
