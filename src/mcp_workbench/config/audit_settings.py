"""The `audit` section: what the file says, and where the audit and its key are."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mcp_workbench.config.expand import expand, remedy
from mcp_workbench.config.findings import Findings, Object
from mcp_workbench.config.kinds import REQUIRED
from mcp_workbench.config.schema import AUDIT_KEYS
from mcp_workbench.config.state_home import private_folder, read_own, state_home, write_whole
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.spec import AUDIT_BYTES, AUDIT_FILES, AuditSettings

FOLDER = "audit"  # in the state folder
FILE = "calls.jsonl"
KEY = "key"
KEY_BYTES = 32


class LogUnusable(WorkbenchError):
    """The file of the audit can't be opened."""

    code = "log_unusable"


def read_audit(
    findings: Findings,
    value: Object | bool | str,  # noqa: FBT001 - a value of the file
    folder: str,
) -> tuple[AuditSettings, bool]:
    """Returns the settings, and whether arguments are recorded where a server's entry does not say so."""
    if not isinstance(value, dict):
        return AuditSettings(required=value == REQUIRED), False
    valid = findings.members(value, AUDIT_KEYS, ("audit",))
    settings = AuditSettings(
        valid.get("file", ""),
        folder,
        int(valid.get("maxBytes", AUDIT_BYTES)),
        int(valid.get("files", AUDIT_FILES)),
        valid.get("required", False),
    )
    return settings, valid.get("arguments", False)


def audit_path(settings: AuditSettings, environ: Mapping[str, str]) -> str:
    """Returns the path of the file; creates nothing. Raises LogUnusable."""
    if settings.file:
        expanded = expand(settings.file, environ)
        if expanded.missing:
            name = expanded.missing[0]
            hint = remedy(name)
            raise LogUnusable(f"audit.file: variable {name} is not set", hint=hint)
        return os.path.abspath(os.path.join(settings.folder, expanded.text))  # noqa: PTH100, PTH118
    home = state_home(environ)
    if not home:
        raise LogUnusable("there is no folder for the audit", hint="set HOME or MCP_WORKBENCH_HOME")
    return os.path.join(home, FOLDER, FILE)  # noqa: PTH118


def audit_key(environ: Mapping[str, str]) -> bytes:
    """Returns the key of the digests, and makes it if there is none. Raises OSError."""
    path = os.path.join(private_folder(state_home(environ), FOLDER), KEY)  # noqa: PTH118
    try:
        key = read_own(path, KEY_BYTES)
    except FileNotFoundError:
        write_whole(path, os.urandom(KEY_BYTES), replace=False)  # another process may be first
        key = read_own(path, KEY_BYTES)
    if len(key) < KEY_BYTES:
        raise OSError(f"{path} is damaged: remove it")
    return key
