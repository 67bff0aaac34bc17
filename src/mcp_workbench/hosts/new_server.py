"""What `add` is given on its command line, as entries of our own: a command, a URL, or JSON."""

import os
import re
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from mcp_workbench.config.load import snapshot_of
from mcp_workbench.config.schema import SERVER
from mcp_workbench.core.errors import InvalidCall
from mcp_workbench.hosts.files import HostUsage, Machine
from mcp_workbench.hosts.plan import plain_name
from mcp_workbench.hosts.read import (
    ANY_FILE,
    Entry,
    HostServer,
    is_ourselves,
    read_entry,
    servers_in_any,
    value_of,
)

ORIGIN = "the command line"
_URL = re.compile(r"https?://.", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Parts of a host's name that say nothing about the service.
_COMMON = {"www", "mcp", "api", "app", "server", "localhost"}
_OURS = set(SERVER)


class Options(msgspec.Struct, frozen=True):
    """The options of `add` that become parts of an entry."""

    env: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    type: str = ""

    def __repr__(self) -> str:
        return "Options()"  # they may hold a secret


def is_url(text: str) -> bool:
    return _URL.match(text) is not None


def from_command(
    name: str, words: tuple[str, ...], options: Options, machine: Machine
) -> HostServer:
    """Returns the server that this command line starts."""
    if options.headers or options.type:
        raise InvalidCall("--header and --type belong to a URL, and this is a command")
    command, *args = words
    notes: list[str] = []
    here = machine.folder / command
    if "/" in command and not Path(command).is_absolute() and here.exists():
        command = os.path.normpath(here)
        notes.append(f"its command is written as {command}, so that it works from any folder")
    notes += [
        f"'{arg}' means a place in the folder that the server is started in; its full path would "
        "work everywhere"
        for arg in args
        if _is_relative(arg, machine)
    ]
    entry: Entry = {"command": command}
    if args:
        entry["args"] = args
    if options.env:
        entry["env"] = environment(options.env)
    _refuse_ourselves(entry)
    return HostServer(name, "", ORIGIN, entry, tuple(notes))


def _refuse_ourselves(entry: Entry) -> None:
    if is_ourselves(entry):
        raise InvalidCall("that is this program: behind itself it would never end")


def _is_relative(arg: str, machine: Machine) -> bool:
    """Is this the relative path of something in the current folder?"""
    if arg.startswith(("-", "/", "~", "$")) or not ("/" in arg or "." in arg):
        return False
    return (machine.folder / arg).exists()


def from_url(name: str, url: str, options: Options) -> HostServer:
    """Returns the server at this URL."""
    if options.env:
        raise InvalidCall(
            "--env belongs to a command, and this is a URL; --header sends a value there"
        )
    entry: Entry = {"url": url}
    if options.type:
        entry["type"] = options.type
    if options.headers:
        entry["headers"] = headers(options.headers)
    return HostServer(name or name_in(url), "", ORIGIN, entry)


def name_in(url: str) -> str:
    """Returns a name for the server at this URL: the telling part of its host."""
    labels = (urlsplit(url).hostname or "").split(".")
    telling = [label for label in (labels[:-1] or labels) if label and label not in _COMMON]
    return plain_name(telling[-1] if telling else labels[0])


def from_json(name: str, text: str, options: Options, machine: Machine) -> list[HostServer]:
    """Returns the servers in a JSON text: one entry, or an object of entries as hosts have it."""
    if options.env or options.headers or options.type:
        raise InvalidCall(
            "--env, --header and --type can't stand together with JSON: write them into it"
        )
    return from_value(name, value_of(text, "json", ORIGIN), text, machine)


def from_value(name: str, value: Any, text: str, machine: Machine) -> list[HostServer]:
    entry = cast("Entry", value) if isinstance(value, dict) else {}
    if not _is_entry(entry):
        servers = [_required(server) for server in servers_in_any(text, ORIGIN, machine)]
        if name and len(servers) > 1:
            raise InvalidCall(f"'{name}' can't be the name of {len(servers)} servers")
        return [_renamed(server, name) for server in servers]
    named = entry.get("name")
    name = name or (plain_name(named) if isinstance(named, str) else "")
    if not name:
        raise InvalidCall("the server has no name", hint="mcp-workbench add NAME --json '{…}'")
    rest = {key: item for key, item in entry.items() if key != "name"}
    return [_required(_own_or_translated(name, rest, machine))]


def _is_entry(entry: Entry) -> bool:
    return any(
        isinstance(entry.get(key), str | list)
        for key in ("command", "cmd", "url", "httpUrl", "serverUrl", "uri")
    )


def _own_or_translated(name: str, entry: Entry, machine: Machine) -> HostServer:
    """An entry with no other keys than ours is taken as it is; that of a host is translated."""
    if set(entry) <= _OURS:
        file = msgspec.json.encode({"mcpServers": {name: entry}})
        snapshot_of(ORIGIN, file, machine.environ)  # fails with every mistake
        _refuse_ourselves(entry)
        texts = {key: _texts(entry[key]) for key in ("env", "headers") if key in entry}
        return HostServer(name, "", ORIGIN, entry | texts)
    return read_entry(name, entry, ANY_FILE, ORIGIN, machine)


def _texts(pairs: dict[str, Any]) -> dict[str, str]:
    """Returns the values as text: a number or a boolean is allowed there."""
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in pairs.items()
    }


def _required(server: HostServer) -> HostServer:
    if server.skipped:
        raise InvalidCall(f"'{server.name}' can't be added: {server.skipped}")
    return server


def _renamed(server: HostServer, name: str) -> HostServer:
    return msgspec.structs.replace(server, name=name or plain_name(server.name))


def require_name(name: str) -> None:
    """Refuses a name that a server can't have."""
    if plain_name(name) != name:
        hint = f"letters, digits, '-' and '_', such as: {plain_name(name)}"
        raise HostUsage("bad_name", f"a server can't be called '{name}'", hint=hint)


def environment(given: tuple[str, ...]) -> dict[str, str]:
    """Returns the variables of `--env`: `NAME=VALUE`, or `NAME` for the value of the same variable."""
    env: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not _PLACEHOLDER.fullmatch(name):
            raise InvalidCall(f"'{name}' is not the name of a variable", hint="--env NAME=VALUE")
        env[name] = value if sign else f"${{{name}}}"
    return env


def headers(given: tuple[str, ...]) -> dict[str, str]:
    """Returns the headers of `--header 'Name: value'`."""
    sent: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition(":")
        if not sign or not name.strip():
            raise InvalidCall("a header has no name or no value", hint="--header 'Name: value'")
        sent[name.strip()] = value.strip()
    return sent


def assignments(given: tuple[str, ...]) -> dict[str, str]:
    """Returns the values of `--set NAME=VALUE`."""
    values: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise InvalidCall(f"'{name}' has no value", hint="--set NAME=VALUE")
        values[name] = value
    return values
