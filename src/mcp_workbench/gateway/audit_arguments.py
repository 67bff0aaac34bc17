"""Arguments of calls in the audit, for servers whose entry asks for them: masked, and cut to a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from mcp_workbench.config.expand import names_a_secret, secrets_of
from mcp_workbench.core.definition_hash import canonical_form
from mcp_workbench.core.raw_json import read_any
from mcp_workbench.core.redact import redact
from mcp_workbench.core.spec import Snapshot, ToolIdentifier
from mcp_workbench.gateway.reload import servers_of
from mcp_workbench.schema.document import json_text

LONGEST_LINE = 4095  # bytes
MOST_READ = 1 << 16  # bytes of arguments; larger ones are not recorded
HIDDEN = "[secret]"
_END = b"}\n"


class ArgumentTexts:
    """What is shown of arguments, under one configuration."""

    def __init__(self, snapshot: Snapshot, environ: Mapping[str, str]) -> None:
        wanted = {a: spec for a, spec in servers_of(snapshot).items() if spec.audit_arguments}
        self._secrets = {address: secrets_of(spec, environ) for address, spec in wanted.items()}

    def added(self, line: bytes, tool: ToolIdentifier, arguments: bytes) -> bytes:
        """Return the line with the arguments as its last member, if they are to be recorded."""
        secrets = self._secrets.get(tool.address)
        if secrets is None:
            return line
        head = line.removesuffix(_END) + b',"arguments":'
        return (
            head + _fitting(_shown(arguments, secrets), LONGEST_LINE - len(head) - len(_END)) + _END
        )


def _shown(raw: bytes, secrets: Mapping[str, str]) -> str:
    if len(raw) > MOST_READ:
        return f"({len(raw)} bytes: too long to be recorded)"
    if canonical_form(raw) is None:  # the server may read another one than we would record
        return f"({len(raw)} bytes: a name occurs twice, or they are nested too deeply)"
    try:
        text = msgspec.json.encode(_masked(read_any(raw))).decode()
    except (msgspec.DecodeError, RecursionError):
        return f"({len(raw)} bytes: can't be read)"
    return redact(text, secrets)


def _masked(value: Any) -> Any:
    """Return the value without texts and numbers under names such as `password`."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return {name: HIDDEN if _hides(name, v) else _masked(v) for name, v in members.items()}
    if isinstance(value, list):
        return [_masked(item) for item in cast("list[Any]", value)]
    return value


def _hides(name: str, value: Any) -> bool:
    return names_a_secret(name) and not isinstance(value, dict | list | bool) and value is not None


def _fitting(text: str, most: int) -> bytes:
    """Return the text as JSON, cut to so many bytes."""
    shown = json_text(text).encode()
    while len(shown) > most:
        text = text[: max(int(len(text) * most / len(shown)) - 8, 0)]
        shown = json_text(f"{text}…").encode()
    return shown
