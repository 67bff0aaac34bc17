"""What a shell offers at the tab key: names of toolboxes, servers and tools. Starts no server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from mcp_workbench.cli.settings import Settings

if TYPE_CHECKING:
    from mcp_workbench.core.spec import ServerSpec, Snapshot

_PATTERN = frozenset("*?[")  # a filter with one of these is no name


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
    names = known_tools(spec) if spec is not None else ()
    return _fitting(typed, [f"{toolbox}/{server}/{name}" for name in names])


def known_tools(spec: ServerSpec) -> Iterator[str]:
    """The tools of a server, as far as they are known without asking it: those its filter names."""
    for pattern in spec.tools.include:
        if not _PATTERN & set(pattern):
            yield pattern


def _snapshot(context: click.Context) -> Snapshot:
    """The configuration as the line so far leads to it; a broken one offers nothing."""
    from mcp_workbench.core.errors import WorkbenchError
    from mcp_workbench.core.spec import Snapshot

    try:
        return (context.find_object(Settings) or Settings()).snapshot()
    except WorkbenchError:
        return Snapshot({})


def _fitting(typed: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(typed)]
