"""The hosts as data: where their files are, their format, and how an entry is written there.

A place is a path with `~` for the home folder and `{VAR:default}` for a variable that moves it. The
table holds what the vendors' sources and documents say in autumn 2026; `docs/hosts.md` is checked
against it.
"""

from typing import Literal

import msgspec

Format = Literal["json", "toml", "yaml"]
System = Literal["linux", "darwin", "win32"]
Syntax = Literal["braces", "dollar", "env", "curly", "input", "folders", "none"]
Shape = Literal["plain", "typed", "claude", "opencode", "copilot"]
# All variables; those that the entry names as `${X}`, as `${env:X}` or in a list of names; or none.
Passing = Literal["all", "braces", "env", "names", "none"]

ENTRY = "workbench"  # our name in a host's file

_CODE = {
    "darwin": "~/Library/Application Support/{product}/User",
    "linux": "{{XDG_CONFIG_HOME:~/.config}}/{product}/User",
    "win32": "{{APPDATA:~/AppData/Roaming}}/{product}/User",
}
_MSIX = "{LOCALAPPDATA:~/AppData/Local}/Packages/Claude_*/LocalCache/Roaming"
_CLINE = "globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"


_ALL = ("*",)
_FEW = ()  # those of the SDKs (HOME, PATH and the like), which servers get here as well
# Gemini CLI withholds what looks like a secret.
_NO_SECRETS = (
    *_ALL,
    *(
        f"!*{word}*"
        for word in ("TOKEN", "SECRET", "PASSW", "KEY", "AUTH", "CRED", "PRIVATE", "CERT")
    ),
)


class OwnCommand(msgspec.Struct, frozen=True):
    """A host's own command to add and remove an entry. `{name}`, `{scope}`, `{json}`; `{words}` are many."""

    add: tuple[str, ...]
    remove: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ("user",)


class Host(msgspec.Struct, frozen=True):
    """One host. Of several user files the first that exists is used, else the last is created."""

    id: str
    title: str
    user: dict[str, tuple[str, ...]]  # by system; "" for all of them
    project: tuple[str, ...] = ()
    keys: tuple[str, ...] = ("mcpServers",)
    format: Format = "json"
    variables: tuple[Syntax, ...] = ("none",)
    shape: Shape = "plain"
    own: OwnCommand | None = None
    seconds: float = 0.001  # one unit of `timeout`; 0 where it means something else
    url_means: Literal["http", "sse"] = "http"
    passes: Passing = "none"  # how the user's environment variables reach a server that it starts
    # Which of its variables a server gets whatever its entry says, as in `inheritEnv`; None: not known.
    inherits: tuple[str, ...] | None = None
    after: str = "restart {title}"  # what the user does then, for the host to read its file
    import_only: str = ""  # why we write nothing there

    @property
    def next_step(self) -> str:
        """What the user does after a change of its file."""
        return self.after.format(title=self.title)

    def user_files(self, system: str) -> tuple[str, ...]:
        return self.user.get(system) or self.user.get("", ())


def _everywhere(*places: str) -> dict[str, tuple[str, ...]]:
    return {"": places}


def _editor(product: str, file: str) -> dict[str, tuple[str, ...]]:
    return {s: (f"{place.format(product=product)}/{file}",) for s, place in _CODE.items()}


_VSCODE = Host(
    "vscode",
    "VS Code",
    {
        **_editor("Code", "mcp.json"),
        "linux": (
            "~/.vscode-server/data/User/mcp.json",
            "{XDG_CONFIG_HOME:~/.config}/Code/User/mcp.json",
        ),
    },
    project=(".vscode/mcp.json",),
    keys=("servers",),
    variables=("env", "input", "folders", "braces"),
    shape="typed",
    after="start the server in its MCP view",
    passes="all",
    inherits=_ALL,
)

HOSTS = {
    host.id: host
    for host in (
        Host(
            "claude-code",
            "Claude Code",
            _everywhere("{CLAUDE_CONFIG_DIR:~}/.claude.json"),
            project=(".mcp.json",),
            variables=("braces",),
            shape="claude",
            passes="all",
            inherits=_ALL,
            own=OwnCommand(
                ("claude", "mcp", "add-json", "-s", "{scope}", "{name}", "{json}"),
                ("claude", "mcp", "remove", "-s", "{scope}", "{name}"),
                ("user", "project"),
            ),
            after="start a new session",
        ),
        Host(
            "claude-desktop",
            "Claude Desktop",
            {
                "darwin": ("~/Library/Application Support/Claude/claude_desktop_config.json",),
                "linux": ("{XDG_CONFIG_HOME:~/.config}/Claude/claude_desktop_config.json",),
                "win32": (
                    f"{_MSIX}/Claude/claude_desktop_config.json",
                    "{APPDATA:~/AppData/Roaming}/Claude/claude_desktop_config.json",
                ),
            },
            inherits=_FEW,
        ),
        Host(
            "cursor",
            "Cursor",
            _everywhere("~/.cursor/mcp.json"),
            project=(".cursor/mcp.json",),
            variables=("env", "folders", "braces"),
            passes="env",
        ),
        _VSCODE,
        msgspec.structs.replace(
            _VSCODE,
            id="vscode-insiders",
            title="VS Code Insiders",
            user=_editor("Code - Insiders", "mcp.json"),
            project=(),
        ),
        Host(
            "codex",
            "Codex",
            _everywhere("{CODEX_HOME:~/.codex}/config.toml"),
            project=(".codex/config.toml",),
            keys=("mcp_servers",),
            format="toml",
            passes="names",
            inherits=_FEW,
            own=OwnCommand(
                ("codex", "mcp", "add", "{name}", "--", "{words}"),
                ("codex", "mcp", "remove", "{name}"),
            ),
            after="start a new session",
        ),
        Host(
            "gemini",
            "Gemini CLI",
            _everywhere("~/.gemini/settings.json"),
            project=(".gemini/settings.json",),
            variables=("braces", "dollar"),
            passes="braces",
            inherits=_NO_SECRETS,
            own=OwnCommand(
                ("gemini", "mcp", "add", "-s", "{scope}", "{name}", "{words}"),
                ("gemini", "mcp", "remove", "-s", "{scope}", "{name}"),
                ("user", "project"),
            ),
            url_means="sse",
            after="start a new session",
        ),
        Host(
            "windsurf",
            "Windsurf",
            _everywhere("~/.codeium/windsurf/mcp_config.json"),
            variables=("env", "braces"),
            passes="env",
            after="refresh its MCP servers",
        ),
        Host(
            "windsurf-jetbrains",
            "Windsurf for JetBrains",
            _everywhere("~/.codeium/mcp_config.json"),
            variables=("env", "braces"),
            passes="env",
            after="refresh its MCP servers",
        ),
        Host(
            "zed",
            "Zed",
            {
                "darwin": ("~/.config/zed/settings.json",),
                "linux": ("{XDG_CONFIG_HOME:~/.config}/zed/settings.json",),
                "win32": ("{APPDATA:~/AppData/Roaming}/Zed/settings.json",),
            },
            project=(".zed/settings.json",),
            keys=("context_servers",),
            seconds=1,
            passes="all",
            inherits=_ALL,
            after="no restart needed",
        ),
        Host(
            "opencode",
            "opencode",
            _everywhere(  # the first overrides the second, and is what its own command creates
                "{XDG_CONFIG_HOME:~/.config}/opencode/opencode.jsonc",
                "{XDG_CONFIG_HOME:~/.config}/opencode/opencode.json",
                "{XDG_CONFIG_HOME:~/.config}/opencode/opencode.jsonc",
            ),
            project=("opencode.jsonc", ".opencode/opencode.json", "opencode.json"),
            keys=("mcp",),
            variables=("curly",),
            shape="opencode",
            passes="all",
            inherits=_ALL,
            own=OwnCommand(("opencode", "mcp", "add", "{name}", "--", "{words}")),
            seconds=0,
        ),
        Host(
            "copilot",
            "Copilot CLI",
            _everywhere("{COPILOT_HOME:~/.copilot}/mcp-config.json"),
            variables=("braces",),
            shape="copilot",
            passes="braces",
            own=OwnCommand(
                ("copilot", "mcp", "add", "{name}", "--", "{words}"),
                ("copilot", "mcp", "remove", "{name}"),
            ),
            after="start a new session",
        ),
        Host(
            "cline",
            "Cline",
            _editor("Code", _CLINE),
            seconds=1,
            inherits=_FEW,
            after="no restart needed",
        ),
        Host(
            "kiro",
            "Kiro",
            _everywhere("~/.kiro/settings/mcp.json"),
            project=(".kiro/settings/mcp.json",),
            variables=("braces",),
            passes="braces",
        ),
        Host("antigravity", "Antigravity", _everywhere("~/.gemini/antigravity/mcp_config.json")),
        Host("lmstudio", "LM Studio", _everywhere("~/.lmstudio/mcp.json")),
        Host("amazonq", "Amazon Q", _everywhere("~/.aws/amazonq/mcp.json")),
        Host(
            "crush",
            "Crush",
            {
                "": ("{XDG_CONFIG_HOME:~/.config}/crush/crush.json",),
                "win32": ("{LOCALAPPDATA:~/AppData/Local}/crush/crush.json",),
            },
            project=(".crush.json",),
            keys=("mcp",),
            variables=("dollar", "braces"),
            shape="typed",
            seconds=1,
            passes="all",
            inherits=_ALL,
        ),
        Host(
            "roo",
            "Roo Code",
            {},
            project=(".roo/mcp.json",),
            variables=("env", "braces"),
            inherits=_FEW,
            import_only="it is no longer made",
        ),
        Host(
            "goose",
            "Goose",
            {
                "": ("~/.config/goose/config.yaml",),
                "win32": ("{APPDATA:~/AppData/Roaming}/Block/goose/config/config.yaml",),
            },
            keys=("extensions",),
            format="yaml",
            import_only="its file is YAML, which we do not edit yet",
        ),
        Host(
            "continue",
            "Continue",
            _everywhere("~/.continue/config.yaml"),
            format="yaml",
            import_only="its file is YAML, which we do not edit yet",
        ),
    )
}
