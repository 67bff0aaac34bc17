"""What a person sees who types the bare command: what was found, and what to type next."""

from __future__ import annotations

from mcp_workbench import __version__
from mcp_workbench.cli.render import nearby, say
from mcp_workbench.cli.settings import DONE, Settings
from mcp_workbench.core.errors import ConfigError
from mcp_workbench.core.spec import Snapshot

NEXT = """
Usage: mcp-workbench COMMAND …     (mcp-workbench --help for all of it)

  tour              see what an agent sees, in a few seconds
  import            bring the servers of your hosts into the configuration
  check             look at the configuration; with --connect start its servers, too
  install HOST      put this program into a host; undo takes it back
  tools             what the toolboxes hold
  doctor            find out what is wrong, and how to mend it
  call T/S/TOOL     call one tool, such as: mcp-workbench call demo/basics/add a:=2 b:=3
  serve             be an MCP server on stdin and stdout: this is what a host starts"""


def overview(settings: Settings) -> int:
    say(f"MCP Workbench {__version__}   {_found(settings)}")
    say(NEXT)
    return DONE


def _found(settings: Settings) -> str:
    try:
        snapshot = settings.snapshot()
    except ConfigError as error:
        count = len(error.problems)
        noun = "problem" if count == 1 else "problems"
        return f"config {nearby(error.file)}: {count} {noun}, see mcp-workbench check"
    if not snapshot.origin:
        return "no workbench-config.json here: the demo toolbox is used"
    return f"config {nearby(snapshot.origin)}: {counted(snapshot)}"


def counted(snapshot: Snapshot) -> str:
    """`2 toolboxes, 3 servers`"""
    boxes, servers = (
        len(snapshot.toolboxes),
        sum(len(t.servers) for t in snapshot.toolboxes.values()),
    )
    return f"{boxes} toolbox{'' if boxes == 1 else 'es'}, {servers} server{'' if servers == 1 else 's'}"
