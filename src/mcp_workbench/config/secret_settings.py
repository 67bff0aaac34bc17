"""The `secrets` section: where the values of variables are read."""

from __future__ import annotations

import os
from typing import Any, cast

from mcp_workbench.config.expand import Path
from mcp_workbench.config.findings import Findings, Object
from mcp_workbench.config.schema import SECRET, SECRET_KINDS
from mcp_workbench.core.spec import SECRET_TIMEOUT, SecretSource

SERVICE = "mcp-workbench"  # in the keyring, unless the file names another
_SHAPES = 'write "store", "keyring", {"keyring": "…"}, {"command": ["…"]} or {"file": "…"}'


class SecretsReader:
    """Reads `secrets` of one file. No finding quotes a string: it may be a value, by mistake."""

    def __init__(self, findings: Findings, folder: str) -> None:
        self.findings = findings
        self.folder = folder

    def secrets(self, value: Object) -> dict[str, SecretSource]:
        sources = {name: self.source(name, item, ("secrets", name)) for name, item in value.items()}
        return {name: source for name, source in sources.items() if source is not None}

    def source(self, name: str, value: Any, path: Path) -> SecretSource | None:
        if value == "store":
            return SecretSource("store")
        if value == "keyring":
            return SecretSource("keyring", service=SERVICE, username=name)
        entry = cast("Object", value)
        valid = self.findings.members(entry, SECRET, path)
        kinds = [kind for kind in SECRET_KINDS if kind in entry]
        if len(kinds) != 1:
            message = "names no source" if not kinds else f"names {len(kinds)} sources"
            self.findings.error(path, "WB-CONF-046", message, _SHAPES)
            return None
        [kind] = kinds
        self.check_effect(kind, valid, path)
        if kind not in valid:
            return None  # reported above
        timeout = float(valid.get("timeout", SECRET_TIMEOUT))
        if kind == "keyring":
            username = valid.get("username", name)
            return SecretSource(
                "keyring", service=valid["keyring"], username=username, timeout=timeout
            )
        if kind == "file":
            return SecretSource("file", file=self.absolute(valid["file"]))
        return self.command(valid["command"], timeout, path)

    def command(self, words: list[str], timeout: float, path: Path) -> SecretSource | None:
        if not words or not words[0]:
            fix = 'write the program and its arguments, such as ["pass", "show", "github"]'
            self.findings.error((*path, "command"), "WB-CONF-046", "names no program", fix)
            return None
        program, *arguments = words
        if os.sep in program or program.startswith("~"):
            program = self.absolute(program)
        return SecretSource("command", (program, *arguments), timeout=timeout)

    def check_effect(self, kind: str, valid: Object, path: Path) -> None:
        beside = {"username": ("keyring",), "timeout": ("keyring", "command")}
        for key, kinds in beside.items():
            if key in valid and kind not in kinds:
                message = f"has no effect beside '{kind}'"
                self.findings.warning((*path, key), "WB-CONF-026", message, "remove it")

    def absolute(self, path: str) -> str:
        return os.path.join(self.folder, os.path.expanduser(path))  # noqa: PTH111, PTH118
