"""Decides what an import adds to our configuration: each server once, and none that is there.

A server of a host is there already if an entry of ours reaches the same server with the same account. In
our entries variables stand for the secrets: `ExistingServers` finds out which secret each stands for by
comparing entry with entry, so that two accounts stay two and a second import adds nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from mcp_workbench.hosts.environment import with_environment, without_secrets
from mcp_workbench.hosts.own_config import OwnServer
from mcp_workbench.hosts.plan import Identity, identity, normal_url, plain_name, same_account
from mcp_workbench.hosts.read import Entry, HostServer
from mcp_workbench.hosts.secrets import (
    ExtractedSecret,
    Vault,
    replace_references,
    variable_names,
)

_PLACEHOLDER = re.compile(r"\$\{(wb_secret_\d+_)\}")


class ImportChoice(msgspec.Struct, frozen=True):
    """What the import does with one server."""

    server: HostServer
    name: str = ""  # in our configuration
    entry: Entry = {}
    same_as: str = ""  # the name of the identical server before it
    there: bool = False  # already in our configuration
    notes: tuple[str, ...] = ()
    toolbox: str = ""  # known of a server that is there; of a new one it is proposed later

    @property
    def new(self) -> bool:
        return bool(self.name) and not self.same_as and not self.there


class Merged(msgspec.Struct, frozen=True):
    """All choices, in the order of the files."""

    chosen: tuple[ImportChoice, ...]
    taken: tuple[ExtractedSecret, ...]
    values: dict[str, str] = {}  # of the variables that stand for secrets

    def __repr__(self) -> str:
        return f"Merged({self.chosen!r})"  # without the values

    @property
    def new(self) -> list[ImportChoice]:
        return [choice for choice in self.chosen if choice.new]


def merge(
    servers: list[HostServer],
    existing: Sequence[OwnServer] = (),
    reserved: frozenset[str] = frozenset(),
    environ: Mapping[str, str] | None = None,
    stored: Mapping[str, str] | None = None,
) -> Merged:
    """Chooses names and entries; `existing` are the servers of our file that count as there already.

    `stored`: secrets go into the encrypted store, which has these values; two values share no name.
    """
    vault = Vault(reserved, stored)
    chosen: list[ImportChoice] = []
    kept: defaultdict[Identity, list[ImportChoice]] = defaultdict(list)
    there = ExistingServers(existing, environ or {}).matches(servers)
    names = {own.name for own in existing}
    for index, server in enumerate(servers):
        if server.skipped:
            chosen.append(ImportChoice(server))
            continue
        alike = kept[identity(server.entry)]
        twin = next((c for c in alike if same_account(c.server.entry, server.entry)), None)
        if twin:
            same = ImportChoice(server, twin.name, twin.entry, twin.name, toolbox=twin.toolbox)
            chosen.append(same)
            continue
        own = there.get(index)
        choice = _added(server, names, vault) if own is None else _kept(server, own)
        names.add(choice.name)
        chosen.append(choice)
        alike.append(choice)
    return _without_each_others_secrets(chosen, vault, reserved)


def _without_each_others_secrets(
    chosen: list[ImportChoice], vault: Vault, reserved: frozenset[str]
) -> Merged:
    written = {choice.name for choice in chosen if choice.new}
    taken = tuple(secret for secret in vault.taken if secret.server in written)
    variables = [secret.variable for secret in taken]
    final = [
        msgspec.structs.replace(c, entry=without_secrets(c.entry, variables, reserved))
        for c in chosen
    ]
    return Merged(tuple(final), taken, vault.values())


def _kept(server: HostServer, own: OwnServer) -> ImportChoice:
    return ImportChoice(server, own.name, there=True, toolbox=own.toolbox)


def _added(server: HostServer, names: set[str], vault: Vault) -> ImportChoice:
    plain = plain_name(server.name)
    name = plain if plain not in names else plain_name(f"{plain}-{server.host}")
    number = 2
    while name in names:
        name, number = f"{plain}-{number}", number + 1
    renamed = (f"'{server.name}' is called '{name}' here",) if name != server.name else ()
    entry = with_environment(server.host, vault.cleaned(server, name))
    return ImportChoice(server, name, entry, notes=(*renamed, *server.notes))


# Servers that are there already


class ExistingServers:
    """Our servers, compared with those of hosts."""

    def __init__(self, servers: Sequence[OwnServer], environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._values: dict[str, str] = {}  # of variables, as the servers found so far show them
        self._alike: defaultdict[Identity, list[OwnServer]] = defaultdict(list)
        for own in servers:
            self._alike[_shape(own.entry)].append(own)

    def matches(self, servers: Sequence[HostServer]) -> dict[int, OwnServer]:
        """Returns, by the positions of the servers, our entries for them.

        Servers of equal names come first: of two accounts of one service, each finds its own entry.
        """
        matches: dict[int, OwnServer] = {}
        for same_name in (True, False):
            for index, server in enumerate(servers):
                if index in matches or server.skipped:
                    continue
                own = self._match(server, same_name=same_name)
                if own is not None:
                    matches[index] = own
        return matches

    def _match(self, server: HostServer, *, same_name: bool) -> OwnServer | None:
        name = plain_name(server.name)
        shape = _shape(PlaceholderVault().cleaned(server, name))
        for own in self._alike.get(shape, ()):
            if (own.name == name) == same_name and self._is_same(server, own, same_name=same_name):
                return own
        return None

    def _is_same(self, server: HostServer, own: OwnServer, *, same_name: bool) -> bool:
        """Has our entry nothing that differs, and variables that may stand for the same secrets?"""
        vault = PlaceholderVault()
        cleaned = vault.cleaned(server, own.name)
        variables: dict[str, str] = {}
        for theirs, ours, literal in _pairs(cleaned, own.entry, server.entry):
            found = {} if ours == literal else _variables(theirs, ours)
            if found is None:
                return False
            variables |= found
        for placeholder, variable in variables.items():
            secret = vault.secrets[placeholder]
            if not self._may_be(variable, secret, same_name=same_name):
                return False
        for placeholder, variable in variables.items():
            self._values[variable] = vault.secrets[placeholder].value
        return True

    def _may_be(self, variable: str, secret: Placed, *, same_name: bool) -> bool:
        """May this variable of ours stand for this secret?

        Under another name only a variable that an import would have chosen, without another value now;
        under the same name the secret may have been renewed.
        """
        if variable in self._values:
            return self._values[variable] == secret.value
        if same_name:
            return True
        value = self._environ.get(variable, secret.value)
        return value == secret.value and variable in variable_names(secret.wanted, secret.server)


class Placed(msgspec.Struct, frozen=True):
    """A secret in a host's entry, and what its variable would be named after."""

    wanted: str
    server: str
    value: str

    def __repr__(self) -> str:
        return f"Placed({self.wanted!r})"


class PlaceholderVault(Vault):
    """Gives each secret of an entry a placeholder of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets: dict[str, Placed] = {}

    def variable(self, wanted: str, server: str, value: str) -> str:
        placeholder = f"wb_secret_{len(self.secrets)}_"
        self.secrets[placeholder] = Placed(wanted, server, value)
        return placeholder


def _shape(entry: Entry) -> Identity:
    """Returns the identity of an entry, whatever its variables are called."""
    return tuple(replace_references(part, "${}") for part in identity(entry))


def _pairs(cleaned: Entry, ours: Entry, literal: Entry) -> Iterator[tuple[Any, Any, Any]]:
    """Yields the values that must be the same: of the host's entry with placeholders, of ours, and
    of the host's entry as it is. A variable or header that only one of them has does not count.
    """
    if "url" in cleaned:
        theirs, own, plain = (normal_url(str(e.get("url"))) for e in (cleaned, ours, literal))
        yield theirs, own, plain
    args = cleaned.get("args", ())
    yield from zip(args, ours.get("args", ()), literal.get("args", ()), strict=False)
    for key in ("env", "headers", "auth"):
        theirs, own, plain = (entry.get(key) for entry in (cleaned, ours, literal))
        if isinstance(theirs, dict) and isinstance(own, dict) and isinstance(plain, dict):
            for name in theirs:  # pyright: ignore[reportUnknownVariableType]
                if name in own and (key != "auth" or name in ("clientId", "clientSecret")):
                    yield theirs[name], own[name], plain[name]


def _variables(theirs: Any, ours: Any) -> dict[str, str] | None:
    """Returns our variables by the placeholders whose places they have; None if the texts differ."""
    if not isinstance(theirs, str) or not isinstance(ours, str):
        return {} if theirs == ours else None
    parts = _PLACEHOLDER.split(theirs)
    if len(parts) == 1:
        return {} if theirs == ours else None
    pattern = "".join(
        rf"\$\{{(?P<{part}>[A-Za-z_][A-Za-z0-9_]*)(?::-[^}}]*)?\}}" if odd % 2 else re.escape(part)
        for odd, part in enumerate(parts)
    )
    match = re.fullmatch(pattern, ours)
    return None if match is None else match.groupdict()
