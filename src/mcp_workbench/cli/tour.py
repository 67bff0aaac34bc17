"""`tour`: one host's session with the demo toolbox, shown as it happens on the real protocol."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from textwrap import wrap
from typing import Any

import click
import msgspec

from mcp_workbench import __version__
from mcp_workbench.cli.host import Host, HostFailed, started_workbench
from mcp_workbench.cli.render import nearby, plain, say
from mcp_workbench.cli.settings import DONE, Settings, global_options
from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.tokens import tokens

Json = dict[str, Any]

WIDTH = 84  # columns
CONFIG = "workbench-config.json"
EXAMPLE = """\
{"toolboxes": {"dev": {
  "description": "Work on the code",
  "mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"]}}}}}"""


@click.command()
@global_options
@click.pass_obj
def tour(settings: Settings) -> int:
    """See in a few seconds what an agent sees, with the demo toolbox.

    Starts the real workbench without any configuration, plays one host's session with it, and says
    what to type next. Nothing is written, nothing stays behind.

    \b
    Example:
      mcp-workbench tour
    """
    try:
        with started_workbench() as host:
            _session(host)
    except HostFailed as error:
        raise TourFailed(
            f"the tour broke off: {error}", hint="mcp-workbench check --connect"
        ) from None
    _next_steps()
    return DONE


class TourFailed(WorkbenchError):
    """The demo did not work, so something is wrong with the installation."""

    code = "tour_failed"


def _session(host: Host) -> None:
    _head(f"MCP Workbench {__version__}: a tour with the built-in demo")
    _tell(
        "The host of an agent (Claude Code, an IDE, …) starts one MCP server, the workbench, instead "
        "of many. This tour is such a host, and all of it really happens."
    )
    instructions = host.hello().get("instructions", "")
    _step(1, "The host says hello, and gets instructions for its agent:")
    _quote(instructions)
    menu = host.request("tools/list", {})["tools"]
    _step(2, f"It asks for tools: not those of every server, but a menu of {len(menu)}:")
    for tool in menu:
        _quote(f"{tool['name']}: {tool['description']}")
    tools = _open(host)
    _use(host)
    _make_mistake(host)
    _cost(instructions, menu, tools)


def _open(host: Host) -> list[Json]:
    _step(3, "The agent opens a toolbox. Only now do its servers start:")
    arguments = {"toolbox_name": "demo"}
    _sent("open_toolbox", arguments)
    opened = msgspec.json.decode(_text(_call(host, "open_toolbox", arguments)))
    tools: list[Json] = opened["tools"]
    servers = dict.fromkeys(tool["source_server"] for tool in tools)
    _got(f"{opened['servers_connected']} servers connected, {len(tools)} tools with their schemas:")
    for server in servers:
        names = [tool["name"] for tool in tools if tool["source_server"] == server]
        _quote(f"{server}: {', '.join(names)}")
    return tools


def _use(host: Host) -> None:
    _step(4, "It uses a tool, named by its toolbox, its server and its own name:")
    arguments = _tool("basics", "add", a=2, b=3)
    _sent("use_tool", arguments)
    _got(_text(_call(host, "use_tool", arguments)))
    _step(5, "A slow tool tells how far it is:")
    arguments = _tool("workshop", "slow", seconds=0.6, steps=3)
    _sent("use_tool", arguments)
    params = {"name": "use_tool", "arguments": arguments}
    result = host.request("tools/call", params, lambda p: _got(f"progress: {p['message']}"))
    _got(_text(result))


def _make_mistake(host: Host) -> None:
    _step(6, "A mistake is answered so that the agent can mend it:")
    arguments = {"toolbox_name": "dmeo"}
    _sent("open_toolbox", arguments)
    result = _call(host, "open_toolbox", arguments)
    _got("error: " + " / ".join(block["text"] for block in result["content"]))


def _cost(instructions: str, menu: list[Json], tools: list[Json]) -> None:
    _step(7, "What it costs, in tokens (an estimate):")
    own = [
        {k: v for k, v in tool.items() if k not in ("toolbox_name", "source_server")}
        for tool in tools
    ]
    direct, ours = _tokens(own), _tokens(menu) + _tokens(instructions)
    hundred = round(direct / len(tools) * 100, -2)
    say(f"   {'in every request':30} {f'{len(tools)} tools':>12} {'100 such tools':>16}")
    say(f"   {'every tool listed directly':30} {f'≈ {direct:,}':>12} {f'≈ {hundred:,.0f}':>16}")
    say(f"   {'menu and instructions':30} {f'≈ {ours:,}':>12} {f'≈ {ours:,}':>16}")
    say(f"   and once, when it is needed: opening this toolbox, ≈ {_tokens(tools):,}")


def _next_steps() -> None:
    typed = _as_typed()
    _head("\nWith your own servers")
    say(f"1. Write {CONFIG}. A server's entry is the one from your host's file:")
    _lines(EXAMPLE)
    say("2. Try it:")
    for words in ("check --connect", "tools dev", "call dev/git/git_status repo_path=."):
        say(f"   {typed} {words}")
    say("3. Give it to your host, in place of its other servers:")
    _lines(host_entry())


def host_entry() -> str:
    """What to paste into a host's file: absolute paths, for hosts know no shell's PATH."""
    command, *first = _own_command()
    args = [*first, "serve", "--config", str(Path.cwd() / CONFIG)]
    return (
        '{"mcpServers": {"workbench": {\n'
        f'  "command": {_json(command)},\n'
        f'  "args": {_json(args)}}}}}}}'
    )


def _own_command() -> list[str]:
    beside = Path(sys.executable).with_name("mcp-workbench")
    for candidate in (sys.argv[0], str(beside)):
        found = shutil.which(candidate)
        if found and Path(found).stem == "mcp-workbench":
            return [os.path.abspath(found)]  # noqa: PTH100 - links stay links: they survive an update
    return [sys.executable, "-m", "mcp_workbench"]


def _as_typed() -> str:
    """The command as this person can type it here."""
    own = _own_command()
    on_path = shutil.which("mcp-workbench")
    return "mcp-workbench" if on_path and [on_path] == own else nearby(" ".join(own))


def _tool(server: str, tool: str, **arguments: float) -> Json:
    return {"tool": {"toolbox": "demo", "server": server, "tool": tool}, "arguments": arguments}


def _call(host: Host, name: str, arguments: Json) -> Json:
    return host.request("tools/call", {"name": name, "arguments": arguments})


def _text(result: Json) -> str:
    return str(result["content"][0]["text"])


def _tokens(value: object) -> int:
    return tokens(msgspec.json.encode(value).decode())


def _head(text: str) -> None:
    say(click.style(text, bold=True))


def _step(number: int, text: str) -> None:
    say(f"\n{click.style(f'{number}.', bold=True)} {text}")


def _tell(text: str) -> None:
    say("\n".join(wrap(text, WIDTH)))


def _quote(text: str) -> None:
    bar = click.style("│", dim=True)
    for line in text.splitlines():
        for part in wrap(plain(line), WIDTH - 5, drop_whitespace=False) or [""]:
            say(f"   {bar} {part.rstrip()}")


def _lines(text: str) -> None:
    for line in text.splitlines():
        say(f"   {line}")


def _sent(name: str, arguments: Json) -> None:
    under = " " * (len(name) + 6)
    data = _json(arguments).replace(', "arguments"', f',\n{under} "arguments"')
    say(f"   {click.style('→', fg='cyan')} {click.style(name, bold=True)} {data}")


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _got(text: str) -> None:
    say(f"   {click.style('←', fg='green')} {plain(text)}")
