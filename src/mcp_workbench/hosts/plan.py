"""What is to be done to one file, decided before anything is touched."""

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from mcp_workbench.hosts import edit_json
from mcp_workbench.hosts.entry import (
    add_command,
    handed_on,
    own_entry,
    remove_command,
    renewed,
)
from mcp_workbench.hosts.places import HostFile
from mcp_workbench.hosts.reading import decoded, keys_in, value_of
from mcp_workbench.hosts.refusals import CannotEdit, not_editable
from mcp_workbench.hosts.table import ENTRY, Format

Keys = tuple[str, ...]
Words = tuple[str, ...]


class Member(msgspec.Struct, frozen=True):
    """A value that we put into a file, and where."""

    keys: Keys
    value: Any

    def __repr__(self) -> str:
        return f"Member({self.keys!r})"


class Change(msgspec.Struct, frozen=True):
    """One file before and after. With `own` the host writes it, and `after` is our guess."""

    host: str  # or "" for our own configuration
    path: Path
    format: Format
    before: bytes | None  # None: there is no such file
    after: bytes
    added: tuple[Member, ...] = ()
    removed: tuple[Keys, ...] = ()
    own: Words = ()

    def __repr__(self) -> str:
        return f"Change({str(self.path)!r})"

    @property
    def needed(self) -> bool:
        return self.after != (self.before or b"")


def editor(format: str) -> ModuleType:
    if format != "toml":
        return edit_json
    from mcp_workbench.hosts import edit_toml  # only where there is such a file

    return edit_toml


def edited(text: str, format: str, put: Iterable[Member] = (), remove: Iterable[Keys] = ()) -> str:
    """The text with these members, and without those."""
    tool = editor(format)
    for keys in remove:
        text = tool.remove(text, keys)
    for member in put:
        text = tool.put(text, member.keys, member.value)
        if tool.lookup(text, member.keys) != member.value:
            raise CannotEdit(f"{'.'.join(member.keys)} can't be put there")
    return text


def plan_edit(
    file: HostFile, before: bytes | None, put: tuple[Member, ...], remove: tuple[Keys, ...]
) -> Change:
    """The change of a host's file that puts these members in and takes those out."""
    name = str(file.path)
    text = decoded(before or b"", name)
    value_of(text, file.host.format, name)  # refuses what its host could not read either
    try:
        after = edited(text, file.host.format, put, remove)
    except CannotEdit as error:
        raise not_editable(name, error) from None
    return Change(file.host.id, file.path, file.host.format, before, after.encode(), put, remove)


def entry_keys(file: HostFile, before: bytes | None) -> Keys:
    """Where our entry belongs in this file."""
    value = value_of(decoded(before or b"", str(file.path)), file.host.format, str(file.path))
    return (*keys_in(file.host, value), ENTRY)


def present(file: HostFile, before: bytes | None) -> Any:
    """What stands under our name there now."""
    text = decoded(before or b"", str(file.path))
    return editor(file.host.format).lookup(text, entry_keys(file, before))


class Installation(msgspec.Struct, frozen=True):
    """What every host is to get."""

    words: Words  # that start us
    variables: Words = ()  # that our servers need
    own: bool = True  # by the host's own command, where there is one


def plan_install(
    file: HostFile, before: bytes | None, wish: Installation, served: tuple[Keys, ...]
) -> Change:
    """Our entry into this file, and out with what we serve. The host's own command adds a command
    line, no more: to exchange an entry, to hand on variables or to take others out, we edit.
    """
    there = present(file, before)
    entry = own_entry(file.host, wish.words, wish.variables)
    member = Member(entry_keys(file, before), renewed(there, entry))
    if there == member.value:
        return plan_edit(file, before, (), served)
    change = plan_edit(file, before, (member,), served)
    if there is not None or served or not wish.own or handed_on(file.host, wish.variables):
        return change
    return msgspec.structs.replace(change, own=add_command(file.host, file.scope, wish.words))


def plan_uninstall(file: HostFile, before: bytes | None, *, own: bool) -> Change:
    """Our entry out of this file again, whoever put it there."""
    if before is None or present(file, before) is None:
        return Change(file.host.id, file.path, file.host.format, before, before or b"")
    change = plan_edit(file, before, (), (entry_keys(file, before),))
    command = remove_command(file.host, file.scope) if own else ()
    return msgspec.structs.replace(change, own=command)
