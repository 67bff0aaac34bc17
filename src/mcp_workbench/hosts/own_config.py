"""Our own configuration file as a text to be edited: its entries by name, and planned changes of them.

`plan_addition` puts servers into a toolbox, `plan_change` puts and removes single members. Both return a
`Change`, which is previewed, applied and undone like one of a host's file. Nothing is touched here.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from mcp_workbench.core.errors import did_you_mean
from mcp_workbench.hosts.files import CannotEdit, HostUsage, Keys, not_editable, read_file
from mcp_workbench.hosts.plan import Change, Member, edited, plain_name
from mcp_workbench.hosts.read import Entry, HostServer, decoded, value_at, value_of
from mcp_workbench.hosts.secrets import ExtractedSecret, Vault

DEFAULT = "default"  # the toolbox of servers that are in none
TOOLBOXES = "toolboxes"
SERVERS = "mcpServers"
SECRETS = "secrets"
STORE = "store"  # a source of secrets
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")
_NEW = """\
// The configuration of MCP Workbench. Comments and trailing commas are allowed, changes are applied
// while it runs, and `mcp-workbench check` shows every mistake. `mcp-workbench schema` lists all keys.
{
  "toolboxes": {
    // A toolbox is a named group of servers. An agent sees its name and description at the start, and
    // its tools when it opens the toolbox. Have one for each kind of work.
    "%s": {
      // "description": "One sentence on what these tools are for, by which an agent chooses",

      // How tools are listed: "signature" is one short line each, "schema" their whole definitions.
      "detail": "signature",

      "mcpServers": {
        // Entries have the format that hosts use. The command line writes them, too:
        //   mcp-workbench add NAME -- COMMAND ARGUMENTS    a program
        //   mcp-workbench add NAME https://example.com/mcp a server at a URL
        //   mcp-workbench import                           the servers of your hosts
        // A secret is taken from a variable, such as "env": {"API_KEY": "${API_KEY}"}.
      }
    }
  }
}
"""


class ConfigFile(msgspec.Struct, frozen=True):
    """The file before a change."""

    path: Path
    before: bytes | None  # None: there is no such file
    value: Any

    def __repr__(self) -> str:
        return f"ConfigFile({str(self.path)!r})"  # it may hold a secret

    @property
    def toolboxes(self) -> list[str]:
        if SERVERS in _object(self.value):
            return [DEFAULT]
        return list(_object(value_at(self.value, (TOOLBOXES,))))


class OwnServer(msgspec.Struct, frozen=True):
    """One server of the file, enabled or not."""

    toolbox: str
    name: str
    keys: Keys
    entry: Entry

    def __repr__(self) -> str:
        return f"OwnServer({self.address!r})"

    @property
    def address(self) -> str:
        return f"{self.toolbox}/{self.name}"

    @property
    def disabled(self) -> bool:
        return self.entry.get("disabled") is True


def read_config_file(path: Path) -> ConfigFile:
    """Returns the file as it is now. Raises ConfigError if it can't be read."""
    before = read_file(path)
    value = value_of(decoded(before or b"", str(path)), "json", str(path))
    return ConfigFile(path, before, value)


def new_text(toolbox: str = DEFAULT) -> str:
    """Returns the text of a new file: comments that explain it, and one empty toolbox."""
    return _NEW % toolbox


def servers_of(config: ConfigFile) -> list[OwnServer]:
    """Returns every server of the file, in its order."""
    servers: list[OwnServer] = []
    for toolbox in config.toolboxes:
        keys = servers_keys(config, toolbox)
        for name, entry in _object(value_at(config.value, keys)).items():
            servers.append(OwnServer(toolbox, name, (*keys, name), _object(entry)))
    return servers


def named_server(config: ConfigFile, name: str) -> OwnServer:
    """Returns the server that `TOOLBOX/SERVER`, or `SERVER` where that is enough, names."""
    servers = servers_of(config)
    fitting = [server for server in servers if name in (server.address, server.name)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        addresses = ", ".join(server.address for server in fitting)
        message = f"'{name}' is in several toolboxes"
        raise HostUsage("invalid_parameters", message, hint=f"name one of: {addresses}")
    known = [text for server in servers for text in (server.name, server.address)]
    hint = did_you_mean(name, known) or "mcp-workbench list shows the servers of the file"
    raise HostUsage("unknown_server", f"there is no server '{name}' in {config.path}", hint=hint)


def servers_keys(config: ConfigFile, toolbox: str) -> Keys:
    """Returns the path of this toolbox's servers in the file, in either of its two forms."""
    if SERVERS not in _object(config.value):
        return (TOOLBOXES, toolbox, SERVERS)
    if toolbox == DEFAULT:
        return (SERVERS,)
    message = "it has 'mcpServers' at the top, which are the toolbox 'default'"
    fix = 'leave --toolbox out, or write "toolboxes": {"default": {"mcpServers": …}} around them'
    error = CannotEdit(f"{message}, so there is no room for '{toolbox}'")
    raise not_editable(str(config.path), error, fix=fix)


def chosen_toolbox(config: ConfigFile, wanted: str) -> str:
    """Returns the toolbox that a new server goes into: the wanted one, or the only one."""
    if wanted:
        if plain_name(wanted) == wanted:
            return wanted
        hint = f"letters, digits, '-' and '_', such as: --toolbox {plain_name(wanted)}"
        raise HostUsage("bad_name", f"a toolbox can't be called '{wanted}'", hint=hint)
    toolboxes = config.toolboxes
    if not toolboxes or DEFAULT in toolboxes:
        return DEFAULT
    if len(toolboxes) == 1:
        return toolboxes[0]
    hint = f"name one: --toolbox {'|'.join(toolboxes)}"
    raise HostUsage("invalid_parameters", "the file has several toolboxes", hint=hint)


# Changes


class Addition(msgspec.Struct, frozen=True):
    """Servers that are about to be added."""

    change: Change
    toolbox: str
    names: tuple[str, ...]
    taken: tuple[ExtractedSecret, ...]
    values: dict[str, str]  # of the variables that stand for secrets
    stored: bool = False  # they go into the encrypted store

    def __repr__(self) -> str:
        return f"Addition({self.names!r})"


def plan_addition(
    config: ConfigFile,
    toolbox: str,
    servers: list[HostServer],
    *,
    replace: bool,
    stored: Mapping[str, str] | None = None,
) -> Addition:
    """Plans to add these servers to this toolbox. Their literal secrets become variables.

    `stored`: whose values go into the encrypted store, which has these.
    """
    keys = servers_keys(config, toolbox)
    existing = _object(value_at(config.value, keys))
    in_use = _references(config.value, keys, {server.name for server in servers})
    vault = Vault(in_use | reserved_secrets(config, stored=stored is not None), stored)
    members: list[Member] = []
    for server in servers:
        entry = vault.cleaned(server, server.name)
        there = existing.get(server.name)
        if there is not None and there != entry and not replace:
            raise HostUsage(
                "server_exists",
                f"the toolbox '{toolbox}' has a server '{server.name}' already",
                hint="choose another name, or replace it with --replace",
            )
        if there != entry:
            members.append(Member((*keys, server.name), entry))
    text = new_text(toolbox) if config.before is None else decoded(config.before, str(config.path))
    names = tuple(member.keys[-1] for member in members)
    taken = tuple(secret for secret in vault.taken if secret.server in names)
    if stored is not None:
        members += secret_members(config, taken)
    change = _planned(config, text, tuple(members), ())
    return Addition(change, toolbox, names, taken, vault.values(), stored is not None)


def reserved_secrets(config: ConfigFile, *, stored: bool) -> frozenset[str]:
    """Returns the names whose source in this file is not the one that a new secret would get."""
    sources = _object(value_at(config.value, (SECRETS,)))
    return frozenset(name for name, it in sources.items() if not (stored and it == STORE))


def stored_names(config: ConfigFile) -> list[str]:
    """Returns the names that this file takes from the encrypted store."""
    sources = _object(value_at(config.value, (SECRETS,)))
    return [name for name, source in sources.items() if source == STORE]


def secret_members(config: ConfigFile, taken: Iterable[ExtractedSecret]) -> list[Member]:
    """Returns what says in the file that these secrets are in the encrypted store."""
    sources = _object(value_at(config.value, (SECRETS,)))
    names = dict.fromkeys(secret.variable for secret in taken)
    return [Member((SECRETS, name), STORE) for name in names if name not in sources]


def plan_change(
    config: ConfigFile, put: tuple[Member, ...] = (), remove: tuple[Keys, ...] = ()
) -> Change:
    """Plans to put these members into the file, and to remove those."""
    return _planned(config, decoded(config.before or b"", str(config.path)), put, remove)


def plan_new(path: Path, toolbox: str) -> Change:
    """Plans to write a new file."""
    return Change("", path, "json", None, new_text(toolbox).encode())


def _planned(
    config: ConfigFile, text: str, put: tuple[Member, ...], remove: tuple[Keys, ...]
) -> Change:
    try:
        after = edited(text, "json", put, remove) if put or remove else text
    except CannotEdit as error:
        raise not_editable(str(config.path), error) from None
    before = config.before
    if before is not None and not (put or remove):
        return Change("", config.path, "json", before, before)
    return Change("", config.path, "json", before, after.encode(), put, remove)


def _references(value: Any, keys: Keys, names: set[str]) -> frozenset[str]:
    """Returns the variables in use, except by the entries with these names, which are replaced."""
    text = msgspec.json.encode(_without(value, keys, names)).decode()
    return frozenset(_REFERENCE.findall(text))


def _without(value: Any, keys: Keys, names: set[str]) -> Any:
    members = _object(value)
    if not keys:
        return {name: item for name, item in members.items() if name not in names}
    if keys[0] not in members:
        return value
    return members | {keys[0]: _without(members[keys[0]], keys[1:], names)}


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
