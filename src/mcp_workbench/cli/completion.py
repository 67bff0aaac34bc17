"""`completion`: prints a shell's completion script, and answers its queries without starting a server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from mcp_workbench.cli.scripts import ASKED, SCRIPTS
from mcp_workbench.cli.settings import DONE, Settings, global_options

if TYPE_CHECKING:
    from mcp_workbench.core.spec import ServerSpec, Snapshot
WIDEST = 80  # characters of what a tool says of itself; a shell shows it on one line
# What is offered lands on a person's command line: a name that a shell would read as more than a
# name is not among it, whatever a server calls its tools. MCP allows no others anyway.
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


@click.command()
@click.argument("shell", type=click.Choice(list(SCRIPTS)), required=False)
@global_options
@click.pass_obj
def completion(settings: Settings, shell: str | None) -> int:
    """Print the completion script of a shell: bash, zsh or fish.

    It completes commands, options, and the names of toolboxes, servers and tools; no server is
    started for that. Without SHELL, the one that $SHELL names is meant.

    \b
    Examples:
      mcp-workbench completion bash > ~/.local/share/bash-completion/completions/mcp-workbench
      mcp-workbench completion zsh > ~/.zfunc/_mcp-workbench
      mcp-workbench completion fish > ~/.config/fish/completions/mcp-workbench.fish
    """
    chosen = shell or PurePath(os.environ.get("SHELL", "")).name
    if chosen not in SCRIPTS:
        raise click.UsageError(f"Name a shell: {', '.join(SCRIPTS)}")
    if settings.json:
        from mcp_workbench.cli.ui.render import say_json

        say_json({"shell": chosen, "script": SCRIPTS[chosen]})
    else:
        click.echo(SCRIPTS[chosen], nl=False)
    return DONE


def answer(group: click.Command) -> int:
    """Tell the shell what may stand at the cursor: lines of KIND, tab, VALUE, tab, HELP."""
    from click.shell_completion import ShellComplete

    *args, incomplete = os.environ[ASKED].split("\n")
    try:
        found = ShellComplete(group, {}, "mcp-workbench", ASKED).get_completions(args, incomplete)
    except (_workbench_error(), click.ClickException):  # the line is wrong already: nothing fits
        return DONE
    for item in found:
        told = (item.help or "").split("\n")[0]
        click.echo(f"{item.type}\t{item.value}\t{told}")
    return DONE


def _workbench_error() -> type[Exception]:
    """Looked up only when something was raised: the tab key is to be quick."""
    from mcp_workbench.core.errors import WorkbenchError

    return WorkbenchError


def complete_toolbox(
    context: click.Context, param: click.Parameter, typed: str
) -> list[CompletionItem]:
    return _fitting(typed, _snapshot(context).toolboxes)


def complete_tool(
    context: click.Context, param: click.Parameter, typed: str
) -> list[CompletionItem]:
    """`TOOLBOX/SERVER/TOOL`, one part after the other."""
    return _paths(_snapshot(context), typed, deep=True)


def complete_server(
    context: click.Context, param: click.Parameter, typed: str
) -> list[CompletionItem]:
    """`TOOLBOX/SERVER`"""
    return _paths(_snapshot(context), typed, deep=False)


def complete_host(
    context: click.Context, param: click.Parameter, typed: str
) -> list[CompletionItem]:
    """The hosts that an entry can be put into."""
    return [item for item, writable in _hosts(typed) if writable]


def complete_source(
    context: click.Context, param: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Any host, else a file."""
    return [item for item, _ in _hosts(typed)] or [CompletionItem(typed, type="file")]


def _hosts(typed: str) -> list[tuple[CompletionItem, bool]]:
    from mcp_workbench.hosts.table import HOSTS

    fitting = [host for host in HOSTS.values() if host.id.startswith(typed)]
    return [(CompletionItem(h.id, help=h.title), not h.import_only) for h in fitting]


def _paths(snapshot: Snapshot, typed: str, *, deep: bool) -> list[CompletionItem]:
    toolbox, slash, rest = typed.partition("/")
    if not slash:
        return _fitting(typed, [f"{name}/" for name in snapshot.toolboxes])
    box = snapshot.toolboxes.get(toolbox)
    server, slash, _ = rest.partition("/")
    if box is None:
        return []
    if not slash:
        return _fitting(typed, [f"{toolbox}/{name}{'/' if deep else ''}" for name in box.servers])
    spec = box.servers.get(server) if deep else None
    names = known_tools(spec) if spec is not None else {}
    full = {f"{toolbox}/{server}/{name}": text for name, text in names.items()}
    return [CompletionItem(name, help=full[name]) for name in full if name.startswith(typed)]


def known_tools(spec: ServerSpec) -> dict[str, str]:
    """The tools of a server with what they say of themselves, as far as they are known without asking
    it: what it offered last time, else those that its filter names.
    """
    import logging

    from mcp_workbench.cli.ui.render import plain
    from mcp_workbench.downstream.memory import Memory

    logging.disable()  # a damaged file is told by others; here it would be told at each tab
    known = Memory(os.environ).recall(spec)
    if known is None:
        found = dict.fromkeys(spec.tools.include, "")
    else:
        tools = known.report(spec, 0.0).tools
        found = {tool.name: plain(" ".join(tool.description.split()))[:WIDEST] for tool in tools}
    return {name: text for name, text in found.items() if _NAME.fullmatch(name)}


def _snapshot(context: click.Context) -> Snapshot:
    """The configuration as the line so far leads to it; a broken one offers nothing."""
    from mcp_workbench.core.errors import WorkbenchError
    from mcp_workbench.core.spec import Snapshot

    try:
        return (context.find_object(Settings) or Settings()).snapshot(silent=True)
    except WorkbenchError:
        return Snapshot({})


def _fitting(typed: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(typed)]
