"""What a reading of the file meets: members that are right, and findings about the others."""

from typing import Any, Literal

import msgspec

from mcp_workbench.config.expand import Path
from mcp_workbench.config.foreign import TRANSPORTS, advice
from mcp_workbench.config.kinds import SECONDS, kind_of, number
from mcp_workbench.config.schema import Key
from mcp_workbench.core.errors import did_you_mean

Object = dict[str, Any]
Severity = Literal["error", "warning"]

MOST = 20_000  # errors that are listed, and warnings; the others are counted
MILLISECONDS = 3600  # seconds; nobody waits that long, but pasted entries carry milliseconds


class Finding(msgspec.Struct, frozen=True):
    """Something wrong or doubtful, before it is known on which line it stands."""

    path: Path
    code: str
    message: str
    fix: str
    severity: Severity = "error"
    inside: str = ""  # the part of the value that is meant
    unlisted: int = 0  # findings that it only counts: it has no place of its own


class Findings:
    """The findings of one reading, in the order in which they were met; of very many, the first."""

    def __init__(self) -> None:
        self._kept: list[Finding] = []
        self._met: dict[Severity, int] = {"error": 0, "warning": 0}

    @property
    def all(self) -> list[Finding]:
        """Those that are kept, and how many of each kind are not."""
        return [*self._kept, *map(self._left_out, [s for s in self._met if self._met[s] > MOST])]

    def _left_out(self, severity: Severity) -> Finding:
        last = next(one for one in reversed(self._kept) if one.severity == severity)
        more = self._met[severity] - MOST
        kinds = f"{severity}, which is" if more == 1 else f"{severity}s, which are"
        message = f"{more} more {kinds} not listed"
        return Finding((), last.code, message, "correct the others first", severity, unlisted=more)

    def add(self, *findings: Finding) -> None:
        for finding in findings:
            if self._has_room(finding.severity):
                self._kept.append(finding)

    def _has_room(self, severity: Severity) -> bool:
        """Count one more; is it one of those that are kept?"""
        self._met[severity] += 1
        return self._met[severity] <= MOST

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
        """The members that are as the table says; the others are reported."""
        right: Object = {}
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
                right[name] = item
                self.doubt_seconds(key, item, (*path, name))
        return right

    def _unknown(self, path: Path, name: str, table: dict[str, Key]) -> None:
        if self._has_room("warning"):
            fix = advice(name, list(table))
            told = "unknown key, it has no effect"
            self._kept.append(Finding(path, "WB-CONF-012", told, fix, "warning"))

    def doubt_seconds(self, key: Key, value: Any, path: Path) -> None:
        if key.kind is SECONDS and value > MILLISECONDS:
            message = (
                f"{value:g} seconds are {value / 3600:.3g} hours; probably meant as milliseconds"
            )
            fix = f"write {value / 1000:g}: the unit here is a second"
            self.warning(path, "WB-CONF-022", message, fix)


def _fix(name: str, key: Key, value: Any, inner: Path) -> str:
    if name == "command" and isinstance(value, list):
        return "write its first word as 'command' and the others as 'args'"
    if inner and (number(value) or isinstance(value, bool)):  # an item of strings
        return "put it in double quotes"
    if key.kind.choices and isinstance(value, str):
        ours = TRANSPORTS.get(value)
        near = f'write "{ours}"' if ours else did_you_mean(value, list(key.kind.choices))
        return near or "write one of them"
    example = key.default if key.example is None else key.example
    return f"for example {msgspec.json.encode({name: example}).decode()[1:-1]}"
