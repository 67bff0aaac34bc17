"""The keys `sandbox`, `sandboxEnabled` and `resourceLimits`: ours, and the form that VS Code has."""

from __future__ import annotations

from typing import cast

from mcp_workbench.config.expand import Path
from mcp_workbench.config.findings import Findings, Object
from mcp_workbench.config.kinds import TEXTS
from mcp_workbench.config.schema import RESOURCES, SANDBOX_KEYS, Key
from mcp_workbench.config.server_entries import SandboxDefault
from mcp_workbench.core.spec import ResourceLimits, Sandbox

UNUSABLE = "WB-CONF-055"
WEAKER = "WB-CONF-056"
EVERYTHING = "/"
_LISTS = ("read", "write", "hide")
_FOREIGN_FILES = {
    "allowWrite": Key(TEXTS, "The same as `write`.", [], ["./out"]),
    "denyRead": Key(TEXTS, "The same as `hide`.", [], ["~/.ssh"]),
    "denyWrite": Key(TEXTS, "May be read only.", [], ["./out/.git"]),
}
_FOREIGN_NETWORK = {
    "allowedDomains": Key(TEXTS, "Not empty: there is a network.", [], ["example.com"]),
    "deniedDomains": Key(TEXTS, "Has no effect.", [], ["example.com"]),
}


def read_default(findings: Findings, value: Object | str, path: Path) -> SandboxDefault:
    """Returns the sandbox that a toolbox or the file gives to its servers."""
    return SandboxDefault(_read(findings, value, path), is_foreign_form(value))


def read_sandbox(findings: Findings, entry: Object, default: SandboxDefault, path: Path) -> Sandbox:
    """Returns the sandbox of a server. VS Code's form above an entry needs its `sandboxEnabled`."""
    enabled = entry.get("sandboxEnabled")
    if enabled is False:
        return Sandbox()
    if "sandbox" in entry:
        return _read(findings, entry["sandbox"], (*path, "sandbox"))
    if enabled and default.sandbox.kind == "off":
        return foreign_sandbox({}, {})
    if default.is_foreign and not enabled:
        return Sandbox()
    return default.sandbox


def is_foreign_form(value: object) -> bool:
    """Is it VS Code's `sandbox`?"""
    if not isinstance(value, dict):
        return False
    members = cast("Object", value)
    return "filesystem" in members or isinstance(members.get("network"), dict)


def _read(findings: Findings, value: Object | str, path: Path) -> Sandbox:
    if isinstance(value, str):
        return Sandbox("process") if value == "required" else Sandbox(cast("str", value))  # pyright: ignore
    valid = findings.members(value, SANDBOX_KEYS, path)
    if is_foreign_form(valid):
        return _foreign(findings, valid, path)
    for key in _LISTS:
        _check_paths(findings, valid.get(key, []), (*path, key))
    lists = [tuple(valid.get(key, ())) for key in _LISTS]
    return Sandbox("files", *lists, network=bool(valid.get("network", False)))


def _check_paths(findings: Findings, paths: list[str], path: Path) -> None:
    for index, text in enumerate(paths):
        if not text:
            findings.error((*path, index), UNUSABLE, "must not be empty", "write a path")
        elif text.rstrip("/") == "/proc" or text.startswith("/proc/"):
            message = "a sandbox has a /proc of its own, which shows its own processes only"
            findings.error((*path, index), UNUSABLE, message, "remove it")


# VS Code


def _foreign(findings: Findings, valid: Object, path: Path) -> Sandbox:
    for key in (key for key in _LISTS if key in valid):
        message = "has no effect beside 'filesystem' and 'network' of VS Code"
        findings.warning((*path, key), "WB-CONF-026", message, "use one form or the other")
    files = findings.members(valid.get("filesystem", {}), _FOREIGN_FILES, (*path, "filesystem"))
    network = valid.get("network", {})
    if isinstance(network, bool):
        network = {"allowedDomains": ["*"]} if network else {}
    network = findings.members(network, _FOREIGN_NETWORK, (*path, "network"))
    if any(domain != "*" for domain in network.get("allowedDomains", [])):
        message = "the network of a sandbox can't be limited to domains: it has all of it"
        fix = 'write "network": true if that is intended, "network": false for none'
        findings.warning((*path, "network", "allowedDomains"), WEAKER, message, fix)
    for key, texts in files.items():
        _check_paths(findings, texts, (*path, "filesystem", key))
    return foreign_sandbox(files, network)


def foreign_sandbox(files: Object, network: Object) -> Sandbox:
    """Returns what VS Code's `filesystem` and `network` mean: reads are allowed unless denied."""
    return Sandbox(
        "files",
        (EVERYTHING, *files.get("denyWrite", ())),
        tuple(files.get("allowWrite", ())),
        tuple(files.get("denyRead", ())),
        network=bool(network.get("allowedDomains")),
    )


# Limits


def read_resources(findings: Findings, entry: Object, path: Path) -> ResourceLimits:
    """Returns the limits of a server's processes."""
    here = (*path, "resourceLimits")
    valid = findings.members(entry.get("resourceLimits", {}), RESOURCES, here)
    return ResourceLimits(
        int(valid.get("memoryBytes", 0)),
        int(valid.get("processes", 0)),
        int(valid.get("openFiles", 0)),
    )
