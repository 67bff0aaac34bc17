"""One pass over the file's value: what it wishes for, and everything that is wrong or doubtful."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mcp_workbench.config.entry import EntryReader
from mcp_workbench.config.expand import Path
from mcp_workbench.config.findings import Finding, Findings, Object
from mcp_workbench.config.foreign import advice, meant
from mcp_workbench.config.schema import AMBIGUOUS, LIMITS, NAME, TOOLBOX, TOP
from mcp_workbench.core.names import ServerAddress
from mcp_workbench.core.spec import (
    CALLS,
    CALLS_PER_SERVER,
    DRAIN,
    MESSAGE_BYTES,
    OPEN_WAIT,
    QUEUE_BYTES,
    TOOLS_PER_SERVER,
    HttpWish,
    Limits,
    Naming,
    ServerSpec,
    Snapshot,
    ToolboxSpec,
)

NAME_RULE = (
    "Toolbox and server names should contain only alphanumeric characters, hyphens, and underscores"
)


def validate(
    value: Any, environ: Mapping[str, str], folder: str = ""
) -> tuple[Snapshot, list[Finding]]:
    """What the file wishes for, as far as it can be understood, and all findings."""
    findings = Findings()
    reader = _FileReader(findings, EntryReader(findings, environ, folder))
    return reader.file(value), findings.all


class _FileReader:
    def __init__(self, findings: Findings, entries: EntryReader) -> None:
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
            http=self.http(top["http"], list(boxes)) if "http" in top else HttpWish(),
            naming=self.naming(top),
        )

    def http(self, value: Object, boxes: list[str]) -> HttpWish:
        from mcp_workbench.config.tokens import TokenReader  # most files have no port in them

        return TokenReader(self.findings, self.entries.environ, boxes).http(value)

    def naming(self, top: Object) -> Naming:
        bare = top.get("naming") == "bare"
        if bare and not self.dynamic:
            fix = 'set "toolMode": "dynamic", or leave "naming" out'
            told = "bare names are for dynamic mode only"
            self.findings.error(("naming",), "WB-CONF-028", told, fix)
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
            tell = self.findings.error if self.dynamic else self.findings.warning
            told = f"{what} name {fault}" + ("" if self.dynamic else ", which dynamic mode refuses")
            tell(path, "WB-CONF-014", told, f"rename it, for example '{better}'")

    def toolboxes(self, value: Object, top: Object) -> dict[str, ToolboxSpec]:
        shapes = [key for key in ("toolboxes", "mcpServers") if key in value]
        if not shapes:
            found = meant(value, "mcpServers")
            fix = advice(found[0], list(TOP)) if found else 'write "mcpServers": {…}'
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
        right = self.findings.members(value, TOOLBOX, path)
        if "mcpServers" not in value:
            found = meant(value, "mcpServers")
            fix = advice(found[0], list(TOOLBOX)) if found else 'add "mcpServers": {…}'
            self.findings.error(path, "WB-CONF-016", "the toolbox has no 'mcpServers'", fix)
        servers = self.servers(name, right.get("mcpServers"), (*path, "mcpServers"))
        return ToolboxSpec(
            name,
            right.get("description", ""),
            servers,
            right.get("detail", "schema"),
            int(right.get("resultBudget", 0)),
            right.get("discover", "lazy"),
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


def _limits(right: Object) -> Limits:
    return Limits(
        int(right.get("messageBytes", MESSAGE_BYTES)),
        int(right.get("callsPerServer", CALLS_PER_SERVER)),
        int(right.get("queueBytes", QUEUE_BYTES)),
        float(right.get("openWait", OPEN_WAIT)),
        int(right.get("calls", CALLS)),
        int(right.get("toolsPerServer", TOOLS_PER_SERVER)),
        float(right.get("drain", DRAIN)),
    )
