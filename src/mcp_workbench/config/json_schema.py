"""The JSON Schema of the configuration file, for editors, and all tables of keys."""

from collections.abc import Iterable
from typing import Any

from mcp_workbench.config.kinds import VARIABLE_TEXT
from mcp_workbench.config.schema import (
    AMBIGUOUS,
    AUDIT_KEYS,
    AUTH,
    CLUSTER,
    HTTP,
    HTTP_AUTH,
    INTROSPECTION,
    LIMITS,
    NAME,
    PRINCIPAL_LIMITS,
    RESOURCES,
    SANDBOX_KEYS,
    SECRET,
    SECRET_KINDS,
    SERVER,
    TOKEN,
    TOOLBOX,
    TOP,
    Key,
)

TABLES = {
    "top": TOP,
    "toolbox": TOOLBOX,
    "server": SERVER,
    "auth": AUTH,
    "limits": LIMITS,
    "http": HTTP,
    "token": TOKEN,
    "httpAuth": HTTP_AUTH,
    "introspection": INTROSPECTION,
    "principalLimits": PRINCIPAL_LIMITS,
    "secret": SECRET,
    "audit": AUDIT_KEYS,
    "cluster": CLUSTER,
    "sandbox": SANDBOX_KEYS,
    "resourceLimits": RESOURCES,
}


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema of the file, for editors. It allows unknown keys, as the loader does."""
    named: dict[str, Any] = {"type": "object", "propertyNames": {"pattern": f"^{NAME}$"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "MCP Workbench configuration",
        **_members(TOP),
        "oneOf": [{"required": ["toolboxes"]}, {"required": ["mcpServers"]}],
        "if": {"required": ["toolMode"], "properties": {"toolMode": {"const": "dynamic"}}},
        "then": {"properties": _with_unambiguous_names()},
        "$defs": {
            "toolboxes": {**named, "additionalProperties": {"$ref": "#/$defs/toolbox"}},
            "toolbox": {**_members(TOOLBOX), "required": ["mcpServers"]},
            "servers": {**named, "additionalProperties": {"$ref": "#/$defs/server"}},
            "server": {**_members(SERVER), "anyOf": list(_server_shapes())},
            "auth": _members(AUTH),
            "limits": _members(LIMITS),
            "audit": _members(AUDIT_KEYS),
            "sandbox": _members(SANDBOX_KEYS),
            "resourceLimits": _members(RESOURCES),
            "cluster": {**_members(CLUSTER), "required": ["url", "key"]},
            "http": _members(HTTP),
            "tokens": {**named, "additionalProperties": {"$ref": "#/$defs/token"}},
            "token": {**_members(TOKEN), "required": ["token"]},
            "httpAuth": {**_members(HTTP_AUTH), "required": ["issuer", "audience"]},
            "introspection": {**_members(INTROSPECTION), "required": ["clientId", "clientSecret"]},
            "principalLimits": _members(PRINCIPAL_LIMITS),
            "secret": {**_members(SECRET), "oneOf": [{"required": [k]} for k in SECRET_KINDS]},
        },
    }


def _members(table: dict[str, Key]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: _member(key) for name, key in table.items()}}


def _member(key: Key) -> dict[str, Any]:
    default = {} if key.default is None else {"default": key.default}
    examples = {} if key.example is None else {"examples": [key.example]}
    return {**key.kind.schema, "description": key.doc, **default, **examples}


def _with_unambiguous_names() -> dict[str, Any]:
    names = {"propertyNames": {"not": {"pattern": AMBIGUOUS}}}
    inner = {"properties": {"mcpServers": names}}
    return {"toolboxes": {**names, "additionalProperties": inner}, "mcpServers": names}


def _server_shapes() -> Iterable[dict[str, Any]]:
    yield {"required": ["disabled"], "properties": {"disabled": {"const": True}}}
    for key, other, kinds in (
        ("command", "url", ["stdio"]),
        ("url", "command", ["http", "streamable-http", "sse"]),
    ):
        fits = {"anyOf": [{"enum": kinds}, VARIABLE_TEXT]}
        yield {
            "required": [key],
            "not": {"required": [other]},
            "properties": {"type": fits, "transport": fits},
        }
