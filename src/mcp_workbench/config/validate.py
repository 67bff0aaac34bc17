"""Validates the value of a configuration file: the snapshot it describes, and all findings.

A finding is an error or a warning with the path of the value at fault. Validation never stops at an
error, so that a user sees all of them at once. `load` adds lines and columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mcp_workbench.config.expand import (
    Path,
)
from mcp_workbench.config.findings import Finding, Findings, Object, advice, foreign_keys
from mcp_workbench.config.schema import (
    AMBIGUOUS,
    LIMITS,
    NAME,
    TOOLBOX,
    TOP,
)
from mcp_workbench.config.server_entries import EntryReader, SandboxDefault
from mcp_workbench.core.spec import (
    CALLS,
    CALLS_PER_SERVER,
    DRAIN,
    MESSAGE_BYTES,
    OPEN_WAIT,
    QUEUE_BYTES,
    SESSIONS,
    TOOLS_PER_SERVER,
    AuditSettings,
    ClusterSettings,
    HttpSettings,
    Limits,
    LockLevel,
    Naming,
    SecretSource,
    ServerAddress,
    ServerSpec,
    Snapshot,
    ToolboxSpec,
)

NAME_RULE = (
    "Toolbox and server names should contain only alphanumeric characters, hyphens, and underscores"
)


def validate(
    value: Any, environ: Mapping[str, str], folder: str = "", file: str = ""
) -> tuple[Snapshot, list[Finding]]:
    """Returns the configuration, as far as it can be understood, and all findings."""
    findings = Findings()
    reader = _FileReader(findings, EntryReader(findings, environ, folder, file))
    return reader.file(value), findings.all


class _FileReader:
    """Reads the value of one file, from the top."""

    def __init__(self, findings: Findings, entries: EntryReader) -> None:
        self.findings = findings
        self.entries = entries
        self.dynamic = False
        self.inherit: bool | list[str] = False  # for toolboxes without `inheritEnv`
        self.approve: bool | str | list[str] = False  # for toolboxes without `approve`
        self.scripts = False  # for toolboxes without `scripts`
        self.lock: LockLevel = "record"  # for toolboxes without `lock`
        self.sandbox = SandboxDefault()  # for toolboxes without `sandbox`

    def file(self, value: Any) -> Snapshot:
        if not self.findings.is_object(value, (), 'write {"mcpServers": {…}}'):
            return Snapshot({})
        top = self.findings.members(value, TOP, ())
        self.dynamic = top.get("toolMode") == "dynamic"
        limits = self.findings.members(top.get("limits", {}), LIMITS, ("limits",))
        if "secrets" in top:
            self.entries.secrets = self.secrets(top["secrets"])
        audit = self.audit(top["audit"]) if top.get("audit") else None
        self.entries.has_cluster = "cluster" in top
        boxes = self.toolboxes(value, top)
        return Snapshot(
            boxes,
            top.get("toolMode", "proxy"),
            _limits(limits),
            http=self.http(top["http"], list(boxes)) if "http" in top else HttpSettings(),
            naming=self.naming(top),
            secrets=tuple(self.entries.secrets.items()),
            audit=audit,
            tracing=bool(top.get("tracing", False)),
            cluster=self.cluster(top["cluster"]) if "cluster" in top else None,
        )

    def cluster(self, value: Object) -> ClusterSettings | None:
        from mcp_workbench.config.cluster_settings import (
            read_cluster,  # loaded only for files with this key
        )

        secrets = frozenset(self.entries.secrets)
        return read_cluster(self.findings, value, self.entries.environ, secrets)

    def audit(self, value: Object | bool | str) -> AuditSettings:  # noqa: FBT001 - a value of the file
        from mcp_workbench.config.audit_settings import (
            read_audit,  # loaded only for files with this key
        )

        settings, self.entries.audit_arguments = read_audit(
            self.findings, value, self.entries.folder
        )
        return settings

    def secrets(self, value: Object) -> dict[str, SecretSource]:
        # Loaded only for files with this key.
        from mcp_workbench.config.secret_settings import SecretsReader

        return SecretsReader(self.findings, self.entries.folder).secrets(value)

    def http(self, value: Object, boxes: list[str]) -> HttpSettings:
        from mcp_workbench.config.http_settings import (
            HttpReader,  # loaded only for files with this key
        )

        secrets = frozenset(self.entries.secrets)
        return HttpReader(self.findings, self.entries.environ, boxes, secrets).http(value)

    def naming(self, top: Object) -> Naming:
        bare = top.get("naming") == "bare"
        if bare and not self.dynamic:
            fix = 'set "toolMode": "dynamic", or leave "naming" out'
            message = "bare names are for dynamic mode only"
            self.findings.error(("naming",), "WB-CONF-028", message, fix)
        return "bare" if bare else "full"

    def check_name(self, name: str, path: Path, what: str) -> None:
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
        forms = [key for key in ("toolboxes", "mcpServers") if key in value]
        if not forms:
            foreign = foreign_keys(value, "mcpServers")
            fix = advice(foreign[0], list(TOP)) if foreign else 'write "mcpServers": {…}'
            self.findings.error((), "WB-CONF-016", "neither 'toolboxes' nor 'mcpServers'", fix)
        if len(forms) == 2:
            fix = "move these servers into one of the toolboxes"
            message = "'mcpServers' and 'toolboxes' can't be used together"
            self.findings.error(("mcpServers",), "WB-CONF-015", message, fix)
        boxes: Object = top.get("toolboxes", {})
        self.inherit = self.entries.inherit = top.get("inheritEnv", False)
        self.approve = self.entries.approve = top.get("approve", False)
        self.scripts = bool(top.get("scripts", False))
        self.lock = self.entries.lock = top.get("lock", "record")
        self.sandbox = self.entries.sandbox = self.sandbox_default(top, ())
        specs = {name: self.toolbox(name, boxes[name], ("toolboxes", name)) for name in boxes}
        if "mcpServers" in top:
            servers = self.servers("default", top["mcpServers"], ("mcpServers",))
            specs["default"] = ToolboxSpec("default", servers=servers, scripts=self.scripts)
        if "toolboxes" in top and not boxes:
            self.findings.warning(("toolboxes",), "WB-CONF-017", "there is no toolbox", "add one")
        return specs

    def toolbox(self, name: str, value: Any, path: Path) -> ToolboxSpec:
        self.check_name(name, path, "toolbox")
        if not self.findings.is_object(
            value, path, 'write {"description": "…", "mcpServers": {…}}'
        ):
            return ToolboxSpec(name)
        valid = self.findings.members(value, TOOLBOX, path)
        if "mcpServers" not in value:
            foreign = foreign_keys(value, "mcpServers")
            fix = advice(foreign[0], list(TOOLBOX)) if foreign else 'add "mcpServers": {…}'
            self.findings.error(path, "WB-CONF-016", "the toolbox has no 'mcpServers'", fix)
        self.entries.inherit = valid.get("inheritEnv", self.inherit)
        self.entries.approve = valid.get("approve", self.approve)
        self.entries.lock = valid.get("lock", self.lock)
        self.entries.sandbox = self.sandbox_default(valid, path)
        servers = self.servers(name, valid.get("mcpServers"), (*path, "mcpServers"))
        return ToolboxSpec(
            name,
            valid.get("description", ""),
            servers,
            valid.get("detail", "schema"),
            int(valid.get("resultBudget", 0)),
            valid.get("discover", "eager"),
            bool(valid.get("scripts", self.scripts)),
        )

    def sandbox_default(self, valid: Object, path: Path) -> SandboxDefault:
        if "sandbox" not in valid:
            return self.sandbox
        from mcp_workbench.config.sandbox_settings import (
            read_default,  # loaded only for files with this key
        )

        return read_default(self.findings, valid["sandbox"], (*path, "sandbox"))

    def servers(self, toolbox: str, value: Object | None, path: Path) -> dict[str, ServerSpec]:
        if value == {}:
            self.findings.warning(
                path, "WB-CONF-017", f"toolbox '{toolbox}' has no server", "add one"
            )
        specs: dict[str, ServerSpec] = {}
        for name, entry in (value or {}).items():
            here = (*path, name)
            self.check_name(name, here, "server")
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
        int(valid.get("sessions", SESSIONS)),
    )


# Server entries
