"""Which entries of a host's file `install --replace` may remove.

An entry may go if one of our servers is the same one with the same account: the same command or URL, and
the same values of its variables and headers, all variables expanded as they are now. And the host must
pass on to us what that server needs. Every other entry stays, with the reason. Whether our server can be
reached is for the caller to find out.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from mcp_workbench.config.expand import (
    Target,
    Unexpandable,
    dotted,
    expand,
    expand_target,
    names_a_secret,
    references,
    strings_of,
)
from mcp_workbench.core.spec import (
    AuthSettings,
    HttpEndpoint,
    ServerAddress,
    ServerSpec,
    StdioCommand,
)
from mcp_workbench.hosts.files import HostFile, Keys, Machine
from mcp_workbench.hosts.plan import USUAL, Identity, normal_url
from mcp_workbench.hosts.read import (
    ENV_FILE,
    Entry,
    HostServer,
    servers_in,
    translate,
    value_at,
    value_of,
)
from mcp_workbench.hosts.secrets import Vault, replace_references
from mcp_workbench.hosts.table import ENTRY, HOSTS

_HOST_VALUE = re.compile(r"\$\{(?:prompt)?input:[^{}\"]*\}|\$?\{file:[^{}\"]*\}")
_ENVIRONMENTS = ("env", "environment", "envs")
NOT_OURS = "no server that the host gets from here is the same   fix: mcp-workbench import {host}"


class Verdict(msgspec.Struct, frozen=True):
    """One entry of a host's file: our server that is the same, or why the entry stays."""

    keys: Keys
    server: ServerAddress | None = None
    reason: str = ""
    signs_in: bool = False  # the entry says that its host signs in by itself

    @property
    def name(self) -> str:
        return self.keys[-1]


class OwnServers:
    """Our servers, to be compared with many entries."""

    def __init__(
        self, specs: Iterable[ServerSpec], disabled: Mapping[str, Entry], environ: Mapping[str, str]
    ) -> None:
        self.environ = environ
        self._by_value: defaultdict[Identity, list[ServerSpec]] = defaultdict(list)
        self._by_form: defaultdict[Identity, list[ServerSpec]] = defaultdict(list)
        self._disabled = {_form(target_of(entry)): name for name, entry in disabled.items()}
        for spec in specs:
            self._by_form[_form(spec.target)].append(spec)
            try:
                self._by_value[_identity(expand_target(spec, environ))].append(spec)
            except Unexpandable:
                continue

    def like(self, server: HostServer) -> list[ServerSpec]:
        """Returns our servers that may be the same as this one, the likeliest first."""
        try:
            value = _identity(_expanded(target_of(server.entry), self.environ))
        except Unexpandable:
            value = ()
        same = [*self._by_value.get(value, ()), *self._by_form.get(_cleaned_form(server), ())]
        return list({spec.address: spec for spec in same}.values())

    def disabled_like(self, server: HostServer) -> str:
        """Returns the name of our disabled entry for this server, or an empty string."""
        return self._disabled.get(_cleaned_form(server), "")


def judge(
    file: HostFile, text: str, own: OwnServers, given: Mapping[str, str], machine: Machine
) -> list[Verdict]:
    """Returns a verdict on every entry of this file but our own.

    `given` are the variables that our entry there gives us, as it will be written.
    """
    value = value_of(text, file.host.format, str(file.path))
    return [
        Verdict(
            server.keys,
            *_verdict(server, value_at(value, server.keys), own, given, machine),
            signs_in="auth" in server.entry,
        )
        for server in servers_in(file, text, machine)
        if not server.ourselves and server.name != ENTRY
    ]


def given_variables(entry: Mapping[str, Any]) -> dict[str, str]:
    """Returns the variables that an entry of a host gives its server, as written."""
    tables = (entry[key] for key in _ENVIRONMENTS if isinstance(entry.get(key), dict))
    return {name: str(value) for table in tables for name, value in cast("Entry", table).items()}


def _verdict(
    server: HostServer,
    raw: Any,
    own: OwnServers,
    given: Mapping[str, str],
    machine: Machine,
) -> tuple[ServerAddress | None, str]:
    if server.skipped:
        return None, server.skipped
    candidates = own.like(server)
    if not candidates:
        name = own.disabled_like(server)
        return None, f"{name} is disabled" if name else NOT_OURS.format(host=server.host)
    if reason := _only_for_host(raw):
        return None, reason
    reasons: list[str] = []
    for spec in candidates:
        reason = _difference(server, spec, own.environ, machine) or _not_passed_on(
            server.host, spec, given, own.environ, machine
        )
        if not reason:
            return spec.address, ""
        reasons.append(reason)
    return None, reasons[0]


def _only_for_host(raw: Any) -> str:
    """Returns why the values of an entry can't be known to us, or an empty string."""
    entry = cast("Entry", raw) if isinstance(raw, dict) else {}
    if isinstance(entry.get(ENV_FILE), str):
        return f"its variables are in {entry[ENV_FILE]}, which only the host reads"
    match = _HOST_VALUE.search(msgspec.json.encode(entry).decode())
    return f"only the host knows the value of {match[0]}" if match else ""


def _difference(
    server: HostServer, spec: ServerSpec, environ: Mapping[str, str], machine: Machine
) -> str:
    """Returns what keeps our server from being the same with the same account; empty if it is."""
    theirs = target_of(server.entry)
    if isinstance(theirs, StdioCommand):
        inherit = HOSTS[server.host].inherits or ()
        theirs = msgspec.structs.replace(theirs, folder=str(machine.folder), inherit=inherit)
    try:
        ours = expand_target(spec, environ)
        theirs = _expanded(theirs, environ)
    except Unexpandable as error:
        return error.message
    part = next(_differing(theirs, ours, environ), "")
    return (
        f"{part} is not the same in {spec.address}, so that may be another account" if part else ""
    )


def _differing(theirs: Target, ours: Target, environ: Mapping[str, str]) -> Iterator[str]:
    """Yields the parts of two servers whose values differ."""
    if isinstance(theirs, HttpEndpoint) or isinstance(ours, HttpEndpoint):
        yield from _differing_urls(theirs, ours)
        return
    if theirs.command != ours.command:
        yield "command"
    for index in range(max(len(theirs.args), len(ours.args))):
        if theirs.args[index : index + 1] != ours.args[index : index + 1]:
            yield f"args[{index}]"
    if _folder(theirs) != _folder(ours):
        yield "cwd"
    for name in _names(theirs.env, ours.env):
        if _variable(theirs, name, environ) != _variable(ours, name, environ):
            yield dotted(("env", name))


def _differing_urls(theirs: Target, ours: Target) -> Iterator[str]:
    if not (isinstance(theirs, HttpEndpoint) and isinstance(ours, HttpEndpoint)):
        yield "url"
        return
    if normal_url(theirs.url) != normal_url(ours.url):
        yield "url"
    left, right = ({name.lower(): value for name, value in t.headers} for t in (theirs, ours))
    for name in _names(left.items(), right.items()):
        if left.get(name) != right.get(name):
            yield dotted(("headers", name))
    if theirs.auth.client_id and theirs.auth.client_id != ours.auth.client_id:
        yield "auth.clientId"


def _names(theirs: Iterable[tuple[str, str]], ours: Iterable[tuple[str, str]]) -> list[str]:
    """Returns all names of theirs, and those of ours that may choose an account."""
    names = [name for name, _ in theirs]
    return list(dict.fromkeys([*names, *(name for name, _ in ours if names_a_secret(name))]))


def _variable(target: StdioCommand, name: str, environ: Mapping[str, str]) -> str | None:
    """Returns the value of a variable in this server's process, unless every process has it."""
    return dict(target.env).get(name, environ.get(name) if target.inherits(name) else None)


def _folder(target: StdioCommand) -> str:
    return os.path.normpath(os.path.join(target.folder, target.cwd)) if target.cwd else ""  # noqa: PTH118


def _not_passed_on(
    host: str,
    spec: ServerSpec,
    given: Mapping[str, str],
    environ: Mapping[str, str],
    machine: Machine,
) -> str:
    """Returns which variable our server would lack, or have with another value, in this host."""
    known = HOSTS[host]
    names = (name for _, text in strings_of(spec.target) for name in references(text))
    for name in dict.fromkeys(names):
        if name in USUAL or name in dict(spec.secrets):  # those are read here, not passed on
            continue
        if name in given:
            text = translate(given[name], known.variables, machine).text
            if expand(text, environ).text != environ.get(name, ""):
                return f"our entry '{ENTRY}' gives {name} another value there"
        elif known.passes == "none" and name in environ:
            return (
                f"{known.title} passes no variables on, and {spec.address} needs {name}   "
                f"fix: write it into the env of the entry '{ENTRY}' there"
            )
    return ""


# Targets


def target_of(entry: Entry) -> Target:
    """Returns what an entry of ours starts or reaches, as written."""
    if isinstance(entry.get("url"), str):
        auth = _texts(entry.get("auth"))
        client = AuthSettings(auth.get("clientId", ""), auth.get("clientSecret", ""))
        return HttpEndpoint(entry["url"], _pairs(entry.get("headers")), auth=client)
    args = entry.get("args")
    words = cast("list[Any]", args) if isinstance(args, list) else []
    return StdioCommand(
        str(entry.get("command", "")),
        tuple(map(str, words)),
        _pairs(entry.get("env")),
        str(entry.get("cwd", "")),
    )


def _texts(value: Any) -> dict[str, str]:
    members = cast("Entry", value) if isinstance(value, dict) else {}
    return {name: item for name, item in members.items() if isinstance(item, str)}


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    pairs = cast("Entry", value) if isinstance(value, dict) else {}
    return tuple((name, str(item)) for name, item in pairs.items())


def _expanded(target: Target, environ: Mapping[str, str]) -> Target:
    return expand_target(ServerSpec(ServerAddress("", ""), target), environ)


def _identity(target: Target) -> Identity:
    if isinstance(target, HttpEndpoint):
        return ("url", normal_url(target.url))
    return ("command", target.command, *target.args)


def _form(target: Target) -> Identity:
    """Returns the identity with a placeholder for every variable."""
    return tuple(replace_references(text, "*") for text in _identity(target))


def _cleaned_form(server: HostServer) -> Identity:
    return _form(target_of(Vault().cleaned(server, server.name)))
