"""`completion`: prints a shell's completion script, and answers its queries. Starts no server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from mcp_workbench.cli.completion_scripts import ASKED, SCRIPTS
from mcp_workbench.cli.settings import DONE, Settings, global_options

if TYPE_CHECKING:
    from mcp_workbench.core.spec import ServerSpec, Snapshot
WIDEST = 80  # characters of a tool's description; a shell shows it on one line
# Completions end up on a command line, so a tool whose name a shell could interpret is left out. MCP
# allows no such names anyway.
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
        from mcp_workbench.cli.terminal import say_json

        say_json({"shell": chosen, "script": SCRIPTS[chosen]})
    else:
        click.echo(SCRIPTS[chosen], nl=False)
    return DONE


def answer(group: click.Command) -> int:
    """Prints what may stand at the cursor: lines of KIND, tab, VALUE, tab, HELP."""
    from click.shell_completion import ShellComplete

    *args, incomplete = os.environ[ASKED].split("\n")
    try:
        items = ShellComplete(group, {}, "mcp-workbench", ASKED).get_completions(args, incomplete)
    except (_workbench_error(), click.ClickException):  # the line is invalid: nothing to offer
        return DONE
    for item in items:
        description = (item.help or "").split("\n")[0]
        click.echo(f"{item.type}\t{item.value}\t{description}")
    return DONE


def _workbench_error() -> type[Exception]:
    """Loads the class only after an error: completion has to be fast."""
    from mcp_workbench.core.errors import WorkbenchError

    return WorkbenchError


def complete_toolbox(
    context: click.Context, param: click.Parameter, typed: str
) -> list[CompletionItem]:
    return _fitting(typed, _snapshot(context).toolboxes)


def complete_tool(
    context: click.Context, param: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Completes `TOOLBOX/SERVER/TOOL`, part by part."""
    return _paths(_snapshot(context), typed, deep=True)


def complete_server(
    context: click.Context, param: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Completes `TOOLBOX/SERVER`."""
    return _paths(_snapshot(context), typed, deep=False)


def complete_host(
    context: click.Context, param: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Completes the hosts that we can install to."""
    return [item for item, writable in _hosts(typed) if writable]


def complete_source(
    context: click.Context, param: click.Parameter, typed: str
) -> list[CompletionItem]:
    """Completes any host, else a file."""
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
    """Returns the tools of a server with their descriptions, without asking it: from the cache, else
    the names in its filter.
    """
    import logging

    from mcp_workbench.cli.terminal import plain
    from mcp_workbench.upstream.cache import CatalogueCache

    logging.disable()  # other commands report a damaged file; here it would be reported at each tab
    known = CatalogueCache(os.environ).recall(spec)
    if known is None:
        tools = dict.fromkeys(spec.tools.include, "")
    else:
        reported = known.report(spec, 0.0).tools
        tools = {t.name: plain(" ".join(t.description.split()))[:WIDEST] for t in reported}
    return {name: text for name, text in tools.items() if _NAME.fullmatch(name)}


def _snapshot(context: click.Context) -> Snapshot:
    """Returns the configuration that the line so far names; an empty one if it is broken."""
    from mcp_workbench.core.errors import WorkbenchError
    from mcp_workbench.core.spec import Snapshot

    try:
        return (context.find_object(Settings) or Settings()).snapshot(silent=True, shows_demo=True)
    except WorkbenchError:
        return Snapshot({})


def _fitting(typed: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(typed)]
