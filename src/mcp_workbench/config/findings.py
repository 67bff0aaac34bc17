"""What a reading of the file meets: members that are right, and findings about the others."""

from typing import Any, Literal

import msgspec

from mcp_workbench.config.expand import Path
from mcp_workbench.config.foreign import TRANSPORTS, advice
from mcp_workbench.config.kinds import SECONDS, kind_of, number
from mcp_workbench.config.schema import Key
from mcp_workbench.core.errors import did_you_mean

Object = dict[str, Any]

MILLISECONDS = 3600  # seconds; nobody waits that long, but pasted entries carry milliseconds


class Finding(msgspec.Struct, frozen=True):
    """Something wrong or doubtful, before it is known on which line it stands."""

    path: Path
    code: str
    message: str
    fix: str
    severity: Literal["error", "warning"] = "error"
    inside: str = ""  # the part of the value that is meant


class Findings:
    """All findings of one reading, in the order in which they were met."""

    def __init__(self) -> None:
        self.all: list[Finding] = []

    def error(self, path: Path, code: str, message: str, fix: str) -> None:
        self.all.append(Finding(path, code, message, fix))

    def warning(self, path: Path, code: str, message: str, fix: str) -> None:
        self.all.append(Finding(path, code, message, fix, "warning"))

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
                fix = advice(name, list(table))
                self.warning((*path, name), "WB-CONF-012", "unknown key, it has no effect", fix)
                continue
            wrong = list(key.kind.wrong(item))
            for inner, message in wrong:
                fix = _fix(name, key, item[inner[0]] if inner else item, inner)
                self.error((*path, name, *inner), "WB-CONF-010", message, fix)
            if not wrong:
                right[name] = item
                self.doubt_seconds(key, item, (*path, name))
        return right

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
