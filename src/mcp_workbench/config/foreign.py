"""How other programs spell what people paste here."""

from __future__ import annotations

from typing import Any

from mcp_workbench.core.errors import did_you_mean

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

TRANSPORTS = {
    "streamableHttp": "streamable-http",
    "streamable_http": "streamable-http",
    "local": "stdio",
    "remote": "http",
}


def advice(key: str, known: list[str]) -> str:
    """What to do about a key that is not ours."""
    ours, whose = SPELLINGS.get(key, ("", ""))
    if ours in known:
        return f"'{key}' ({whose} spelling) is '{ours}' here"
    return ADVICE.get(key) or did_you_mean(key, known) or "remove it"


def meant(entry: dict[str, Any], *words: str) -> list[str]:
    """The keys of an entry that mean one of our words elsewhere."""
    return [key for key in entry if SPELLINGS.get(key, ("", ""))[0] in words]
