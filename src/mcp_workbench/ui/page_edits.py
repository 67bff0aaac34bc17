"""The one edit that the page makes: tools are switched on and off, in `toolFilters`.

It is planned, previewed, applied and undone like an edit of `install`. Only names of tools that their servers have
listed are written, and nothing but this key.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import msgspec

from mcp_workbench.core.errors import InvalidCall
from mcp_workbench.core.filter_edits import NotSwitchable, switched
from mcp_workbench.core.spec import ServerAddress, Snapshot
from mcp_workbench.hosts.journal import apply_changes, own_journal, undo
from mcp_workbench.hosts.own_config import OwnServer, plan_change, read_config_file, servers_of
from mcp_workbench.hosts.plan import Change, Member, diff

KEY = "toolFilters"
COMMAND = "ui"  # in the journal
MOST_LINES = 2000  # of a preview


class Switch(msgspec.Struct, frozen=True):
    """Tools of one server to be switched."""

    toolbox: str
    server: str
    off: tuple[str, ...] = ()
    on: tuple[str, ...] = ()


class SwitchRequest(msgspec.Struct, frozen=True):
    """What the page asks for; `digest` is that of the preview which a person has seen."""

    switches: tuple[Switch, ...]
    digest: str = ""


class Preview(msgspec.Struct, frozen=True, rename="camel"):
    """An edit before it is made."""

    file: str
    lines: list[str]
    digest: str
    is_needed: bool


class Applied(msgspec.Struct, frozen=True, rename="camel"):
    """An edit that was made, and the number that undoes it."""

    file: str
    undo: int


Listed = dict[ServerAddress, tuple[str, ...]]  # the names of all tools of each server


def plan_switches(snapshot: Snapshot, switches: tuple[Switch, ...], listed: Listed) -> Change:
    """Plan the edit. Raises InvalidCall where it can't be made."""
    if not snapshot.origin:
        raise InvalidCall(
            "there is no configuration file: the demo is served", hint="mcp-workbench init"
        )
    config = read_config_file(Path(snapshot.origin))
    entries = {ServerAddress(s.toolbox, s.name): s for s in servers_of(config)}
    put: list[Member] = []
    remove: list[tuple[str, ...]] = []
    for switch in switches:
        address = ServerAddress(switch.toolbox, switch.server)
        server = entries.get(address)
        tools = listed.get(address)
        if server is None or tools is None:
            raise InvalidCall(f"the tools of {address} are not known", hint="connect it first")
        patterns = _switched(server, tools, switch)
        if patterns is not None:
            put.append(Member((*server.keys, KEY), list(patterns)))
        elif KEY in server.entry:
            remove.append((*server.keys, KEY))
    return plan_change(config, tuple(put), tuple(remove))


def _switched(server: OwnServer, tools: tuple[str, ...], switch: Switch) -> tuple[str, ...] | None:
    strange = {*switch.off, *switch.on} - set(tools)
    if strange:
        raise InvalidCall(f"{server.address} has no tool '{min(strange)[:100]}'")
    written: Any = server.entry.get(KEY)
    patterns = tuple(map(str, cast("list[Any]", written))) if isinstance(written, list) else None
    try:
        return switched(patterns, tools, set(switch.off), set(switch.on))
    except NotSwitchable as error:
        hint = f"edit {KEY} of this server in the file"
        raise InvalidCall(f"{server.address}: {error}", hint=hint) from None


def preview(change: Change) -> Preview:
    return Preview(str(change.path), diff(change)[:MOST_LINES], _digest(change), change.needed)


def apply(change: Change, digest: str) -> Applied:
    """Make the edit that was shown. Raises InvalidCall if it would be another one by now."""
    if digest != _digest(change):
        raise InvalidCall("the file has changed since the preview", hint="look at it again")
    record = apply_changes(own_journal(os.environ), COMMAND, [change])
    return Applied(str(change.path), record.id)


def _digest(change: Change) -> str:
    return sha256((change.before or b"") + b"\0" + change.after).hexdigest()


def undo_edit(number: int) -> Applied:
    """Undo an edit that was made here. Raises InvalidCall for any other."""
    journal = own_journal(os.environ)
    record = journal.record(number)
    if record.command != COMMAND:
        raise InvalidCall(f"change {number} was not made here", hint=f"mcp-workbench undo {number}")
    undo(journal, record)
    return Applied(record.steps[0].file, number)
