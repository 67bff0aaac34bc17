"""Findings of one configuration file: errors and warnings with the path of the value at fault."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mcp_workbench.config.expand import (
    Path,
)
from mcp_workbench.config.kinds import SECONDS, is_number, kind_of
from mcp_workbench.config.schema import (
    Key,
)
from mcp_workbench.core.errors import did_you_mean

Object = dict[str, Any]
Severity = Literal["error", "warning"]

MOST = 20_000  # errors that are listed, and as many warnings; the others are counted
LONGEST_SECONDS = 3600  # a longer time was probably meant in milliseconds


class Finding(msgspec.Struct, frozen=True):
    """An error or a warning, before its line is known."""

    path: Path
    code: str
    message: str
    fix: str
    severity: Severity = "error"
    inside: str = ""  # the part of the value that is at fault
    unlisted: int = 0  # how many further findings it stands for; it has no place itself


class Findings:
    """Collects the findings of one file in order; of very many, only the first ones."""

    def __init__(self) -> None:
        self._kept: list[Finding] = []
        self._counts: dict[Severity, int] = {"error": 0, "warning": 0}

    @property
    def all(self) -> list[Finding]:
        """Returns the kept findings, and one that counts the rest of each severity."""
        return [
            *self._kept,
            *map(self._summary, [s for s in self._counts if self._counts[s] > MOST]),
        ]

    def _summary(self, severity: Severity) -> Finding:
        last = next(kept for kept in reversed(self._kept) if kept.severity == severity)
        more = self._counts[severity] - MOST
        kinds = f"{severity}, which is" if more == 1 else f"{severity}s, which are"
        message = f"{more} more {kinds} not listed"
        return Finding((), last.code, message, "correct the others first", severity, unlisted=more)

    def add(self, *findings: Finding) -> None:
        for finding in findings:
            if self._has_room(finding.severity):
                self._kept.append(finding)

    def _has_room(self, severity: Severity) -> bool:
        """Counts one more finding; returns whether it is kept."""
        self._counts[severity] += 1
        return self._counts[severity] <= MOST

    def error(self, path: Path, code: str, message: str, fix: str) -> None:
        self.add(Finding(path, code, message, fix))

    def warning(self, path: Path, code: str, message: str, fix: str) -> None:
        self.add(Finding(path, code, message, fix, "warning"))

    def is_object(self, value: Any, path: Path, fix: str) -> bool:
        if isinstance(value, dict):
            return True
        self.error(path, "WB-CONF-010", f"must be an object, not {kind_of(value)}", fix)
        return False

    def members(self, value: Object, table: dict[str, Key], path: Path) -> Object:
        """Returns the members that fit the table, and reports the others."""
        valid: Object = {}
        for name, item in value.items():
            key = table.get(name)
            if key is None:
                self._unknown((*path, name), name, table)
                continue
            wrong = False
            for inner, message in key.kind.wrong(item):
                wrong = True
                if self._has_room("error"):
                    fix = _fix(name, key, item[inner[0]] if inner else item, inner)
                    here = (*path, name, *inner)
                    self._kept.append(Finding(here, "WB-CONF-010", message, fix))
            if not wrong:
                valid[name] = item
                self.check_seconds(key, item, (*path, name))
        return valid

    def _unknown(self, path: Path, name: str, table: dict[str, Key]) -> None:
        if self._has_room("warning"):
            fix = advice(name, list(table))
            message = "unknown key, it has no effect"
            self._kept.append(Finding(path, "WB-CONF-012", message, fix, "warning"))

    def check_seconds(self, key: Key, value: Any, path: Path) -> None:
        if key.kind is SECONDS and value > LONGEST_SECONDS:
            message = (
                f"{value:g} seconds are {value / 3600:.3g} hours; probably meant as milliseconds"
            )
            fix = f"write {value / 1000:g}: the unit here is a second"
            self.warning(path, "WB-CONF-022", message, fix)


def _fix(name: str, key: Key, value: Any, inner: Path) -> str:
    if name == "command" and isinstance(value, list):
        return "write its first word as 'command' and the others as 'args'"
    if inner and (is_number(value) or isinstance(value, bool)):  # an item of strings
        return "put it in double quotes"
    if key.kind.choices and isinstance(value, str):
        ours = FOREIGN_TRANSPORTS.get(value)
        near = f'write "{ours}"' if ours else did_you_mean(value, list(key.kind.choices))
        return near or "write one of them"
    example = key.default if key.example is None else key.example
    return f"for example {msgspec.json.encode({name: example}).decode()[1:-1]}"


# Keys of other programs, which users paste here


SPELLINGS = {
    "cmd": ("command", "Goose's"),
    "envs": ("env", "Goose's"),
    "uri": ("url", "Goose's"),
    "available_tools": ("toolFilters", "Goose's"),
    "serverUrl": ("url", "Windsurf's"),
    "httpUrl": ("url", "Gemini CLI's"),
    "includeTools": ("toolFilters", "Gemini CLI's"),
    "environment": ("env", "opencode's"),
    "http_headers": ("headers", "Codex's"),
    "enabled_tools": ("toolFilters", "Codex's"),
    "startup_timeout_sec": ("connectTimeout", "Codex's"),
    "tool_timeout_sec": ("timeout", "Codex's"),
    "servers": ("mcpServers", "VS Code's"),
    "mcp_servers": ("mcpServers", "Codex's"),
    "context_servers": ("mcpServers", "Zed's"),
}

_APPROVAL = "remove it; the host decides what needs approval"
_EXCLUDE = "put each name into 'toolFilters' with a '!' before it"
ADVICE = {
    "enabled": "'enabled: false' is 'disabled: true' here",
    "autoApprove": _APPROVAL,
    "alwaysAllow": _APPROVAL,
    "trust": _APPROVAL,
    "excludeTools": _EXCLUDE,
    "disabledTools": _EXCLUDE,
    "disabled_tools": _EXCLUDE,
    "envFile": 'name the variables under \'env\', such as "TOKEN": "${TOKEN}"',
}

FOREIGN_TRANSPORTS = {
    "streamableHttp": "streamable-http",
    "streamable_http": "streamable-http",
    "local": "stdio",
    "remote": "http",
}


def advice(key: str, known: list[str]) -> str:
    """Returns what to do about an unknown key."""
    ours, whose = SPELLINGS.get(key, ("", ""))
    if ours in known:
        return f"'{key}' ({whose} spelling) is '{ours}' here"
    return ADVICE.get(key) or did_you_mean(key, known) or "remove it"


def foreign_keys(entry: dict[str, Any], *ours: str) -> list[str]:
    """Returns the keys of an entry that other programs use for one of these keys."""
    return [key for key in entry if SPELLINGS.get(key, ("", ""))[0] in ours]
