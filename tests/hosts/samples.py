"""A home folder with a file of every host, written as people and programs write them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# Made up, and in no file of the workbench after an import. Each is long enough to be searched for.
SECRETS = {
    "github": "ghp_made0up0token0for0tests0000000000",
    "linear": "lin-value-that-nobody-may-see",
    "figma": "figma-value-that-nobody-may-see",
    "postgres": "postgresql://ada:pass-that-nobody-may-see@localhost/db",
    "codex": "codex-value-that-nobody-may-see",
    "query": "query-value-that-nobody-may-see",
}


def demo(name: str = "basics") -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-P", "-m", "mcp_workbench.demo", name]}


def demo_json(name: str = "basics") -> str:
    return json.dumps(demo(name))


CLAUDE_CODE = """{
  "numStartups": 41,
  "mcpServers": {
    "basics": {"type": "stdio", %(demo)s},
    "github": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "%(github)s"}
    },
    "postgres": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-postgres", "%(postgres)s"]
    },
    "events": {"type": "ws", "url": "wss://example.com/mcp"}
  },
  "projects": {
    "%(folder)s": {"mcpServers": {"local": {"command": "local-server", "args": []}}, "history": []},
    "/elsewhere": {"mcpServers": {"other": {"command": "never-imported"}}}
  }
}"""
CLAUDE_DESKTOP = """{
  "mcpServers": {
    "github": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-github"],
      "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "%(github)s"}
    },
    "literal": {"command": "echo", "args": ["${NOT_A_VARIABLE_THERE}"]}
  },
  "globalShortcut": ""
}
"""
CURSOR = """{
\t"mcpServers": {
\t\t"github": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-github"], "env": {"GITHUB_PERSONAL_ACCESS_TOKEN": "%(github)s"}},
\t\t"figma": {
\t\t\t"url": "https://Figma.example.com:443/mcp/",
\t\t\t"headers": {"X-Figma-Token": "%(figma)s"}
\t\t},
\t\t"linear": {"command": "npx", "args": ["-y", "linear-mcp", "--api-key", "%(linear)s"], "env": {"TEAM": "${env:LINEAR_TEAM}"}}
\t}
}
"""
VSCODE = """{
    // what VS Code asks for
    "inputs": [{"type": "promptString", "id": "perplexity-key", "password": true}],
    "servers": {
        "perplexity": {
            "type": "stdio",
            "command": "npx",
            "args": ["-y", "server-perplexity", "${workspaceFolder}/notes"],
            "env": {"PERPLEXITY_API_KEY": "${input:perplexity-key}", "PORT": 7, "UNSET": null}
        }, /* the last one */
        "pipe": {"type": "http", "url": "unix:///tmp/server.sock"},
    },
}
"""
CODEX = """# my settings
model = "o5"

[mcp_servers.docs]  # documents
command = "npx"
args = [
  "-y", # yes
  "docs-mcp",
]
env_vars = ["DOCS_HOME"]
startup_timeout_sec = 20
enabled_tools = ["search", "fetch"]

[mcp_servers.docs.env]
DOCS_SECRET = "%(codex)s"

[mcp_servers.remote]
url = "https://mcp.example.com/mcp?api_key=%(query)s"
bearer_token_env_var = "REMOTE_TOKEN"
enabled = false

# the end
[tui]
notifications = true
"""
GEMINI = """{
  "theme": "Default",
  "mcpServers": {
    "search": {"httpUrl": "https://search.example.com/mcp", "headers": {"Authorization": "Bearer $SEARCH_TOKEN"}, "trust": true, "timeout": 30000},
    "old": {"url": "https://old.example.com/sse", "excludeTools": ["danger"]}
  },
  "mcp": {"excluded": ["old"]}
}"""
WINDSURF = """{"mcpServers": {"wind": {"serverUrl": "https://wind.example.com/mcp", "disabledTools": ["gust"]}}}"""
ZED = """// Zed settings
{
  "ui_font_size": 16,
  "context_servers": {
    "zed-docs": {"command": "zed-docs", "args": [], "env": {}, "timeout": 30},
    "extension": {"settings": {}}
  }
}
"""
OPENCODE = """{
  "$schema": "https://opencode.ai/config.json",
  // local and remote
  "mcp": {
    "files": {"type": "local", "command": ["npx", "-y", "files-mcp"], "environment": {"ROOT": "{env:FILES_ROOT}"}, "enabled": true},
    "cloud": {"type": "remote", "url": "https://cloud.example.com/mcp", "enabled": false},
  }
}
"""
COPILOT = """{
  "mcpServers": {
    "tickets": {"type": "local", "command": "tickets-mcp", "args": [], "tools": ["*"]}
  }
}
"""
PLAIN = """{"mcpServers": {"%(host)s-notes": {"command": "%(host)s-notes", "disabled": false, "autoApprove": ["read"]}}}
"""
CRUSH = """{
  "mcp": {"files": {"type": "stdio", "command": "crush-files", "timeout": 120}}
}
"""
GOOSE = "extensions:\n  developer:\n    type: builtin\n    enabled: true\n"

FILES: dict[str, tuple[str, str]] = {
    "claude-code": (".claude.json", CLAUDE_CODE),
    "claude-desktop": (".config/Claude/claude_desktop_config.json", CLAUDE_DESKTOP),
    "cursor": (".cursor/mcp.json", CURSOR),
    "vscode": (".config/Code/User/mcp.json", VSCODE),
    "vscode-insiders": (".config/Code - Insiders/User/mcp.json", VSCODE),
    "codex": (".codex/config.toml", CODEX),
    "gemini": (".gemini/settings.json", GEMINI),
    "windsurf": (".codeium/windsurf/mcp_config.json", WINDSURF),
    "windsurf-jetbrains": (".codeium/mcp_config.json", WINDSURF),
    "zed": (".config/zed/settings.json", ZED),
    "opencode": (".config/opencode/opencode.json", OPENCODE),
    "copilot": (".copilot/mcp-config.json", COPILOT),
    "cline": (
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        PLAIN,
    ),
    "kiro": (".kiro/settings/mcp.json", PLAIN),
    "antigravity": (".gemini/antigravity/mcp_config.json", PLAIN),
    "lmstudio": (".lmstudio/mcp.json", PLAIN),
    "amazonq": (".aws/amazonq/mcp.json", PLAIN),
    "crush": (".config/crush/crush.json", CRUSH),
    "goose": (".config/goose/config.yaml", GOOSE),
    "continue": (".continue/config.yaml", "mcpServers: []\n"),
}


def write_home(home: Path, folder: Path, only: tuple[str, ...] = ()) -> dict[str, Path]:
    """Every file, each with a mode of its own; the paths by host."""
    written: dict[str, Path] = {}
    values = {**SECRETS, "folder": str(folder), "demo": demo_json()[1:-1]}
    for host, (place, text) in FILES.items():
        if only and host not in only:
            continue
        path = home / place
        path.parent.mkdir(parents=True, exist_ok=True)
        data = (text % (values | {"host": host})).encode()
        if host == "windsurf-jetbrains":
            data = b"\xef\xbb\xbf" + data.replace(b'{"wind"', b'\r\n  {"breeze"')
        path.write_bytes(data)
        path.chmod(0o600 if host == "claude-code" else 0o644)
        written[host] = path
    return written


def tree(folder: Path) -> dict[str, tuple[int, bytes | None]]:
    """Everything below a folder: modes, and bytes where it is a file."""
    return {
        str(item.relative_to(folder)): (
            item.stat().st_mode & 0o7777,
            item.read_bytes() if item.is_file() else None,
        )
        for item in sorted(folder.rglob("*"))
    }
