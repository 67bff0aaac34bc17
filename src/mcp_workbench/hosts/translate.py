"""Translates a host's server entry, with its variables, to ours. What is not carried over is named."""

import os
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.hosts.files import Machine
from mcp_workbench.hosts.table import Host, Syntax

Entry = dict[str, Any]

_ENVIRONMENT = ("env", "environment", "envs")
URLS = ("httpUrl", "serverUrl", "uri", "url")
_HEADERS = ("headers", "http_headers")
_SHOWN = ("toolFilters", "includeTools", "enabled_tools", "available_tools", "tools")
_HIDDEN = ("excludeTools", "disabledTools", "disabled_tools")
_TYPES = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "remote": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "streamable_http": "http",
    "sse": "sse",
}
# Only the host can run these to get its headers; without them the server refuses us.
_HELPERS = ("headersHelper", "http_headers_helper")
# Of use to the host alone, or handled elsewhere: dropped without a note.
_SILENT = {
    "name",
    "envFile",
    "type",
    "transport",
    "source",
    "alwaysLoad",
    "deferTools",
    "enabled",
    "disabled",
}
_APPROVAL = {"trust", "autoApprove", "alwaysAllow", "default_tools_approval_mode"}
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_OURS = rf"\$\{{{_NAME}(?::-[^}}]*)?\}}"
_SYNTAX: dict[Syntax, str] = {
    "braces": rf"(?P<braces>{_OURS})",
    "env": rf"\$\{{env:(?P<env>{_NAME})\}}",
    "input": r"\$\{(?:prompt|)input:(?P<input>[^}]+)\}",
    "folders": r"\$\{(?P<folders>workspaceFolder|workspaceFolderBasename|userHome|cwd|pathSeparator|/)\}",
    "curly": rf"\{{env:(?P<curly>{_NAME})\}}",
    "dollar": rf"\$(?P<dollar>{_NAME})|%(?P<percent>{_NAME})%",
    "none": r"(?!)",
}
_REST = r"(?P<file>\$?\{file:[^}]*\})|(?P<literal>\$\{)"
_BELONGS_TO_PLUGINS = re.compile(
    r"\$\{(CLAUDE_PLUGIN_ROOT|CLAUDE_PROJECT_DIR|user_config\.[^}]*)\}"
)


class HostServer(msgspec.Struct, frozen=True):
    """A server in a host's file: our entry for it, or the reason why there is none."""

    name: str
    host: str
    file: str
    entry: Entry = {}
    notes: tuple[str, ...] = ()
    skipped: str = ""
    keys: tuple[str, ...] = ()  # its path in the file
    ourselves: bool = False

    def __repr__(self) -> str:
        return f"HostServer({self.name!r}, {self.host!r})"  # the entry may hold a secret


class NotCarried(ValueError):
    """We can't serve this entry, for this reason."""


class Reader:
    """Translates one entry."""

    def __init__(self, host: Host, machine: Machine) -> None:
        self.host = host
        self.machine = machine
        self.notes: list[str] = []
        self.used: set[str] = set()

    def entry(self, raw: Entry) -> Entry:
        for helper in _HELPERS:
            if helper in raw:
                raise NotCarried(f"its headers come from the host's own '{helper}'")
        new = self.way(raw)
        filters = [*self.strings(raw, _SHOWN), *(f"!{n}" for n in self.strings(raw, _HIDDEN))]
        if filters and filters != ["*"]:
            new["toolFilters"] = filters
        if raw.get("disabled") is True or raw.get("enabled") is False:
            new["disabled"] = True
        new |= dict(self.times(raw))
        self.name_the_rest(raw)
        return new

    def way(self, raw: Entry) -> Entry:
        kind = raw.get("type", raw.get("transport"))
        if isinstance(kind, str) and kind not in _TYPES:
            raise NotCarried(f"its type is '{kind}'")
        if url := next(self.strings(raw, URLS), ""):
            return self.remote(raw, url)
        words = list(self.strings(raw, ("command", "cmd")))
        if not words or not words[0]:
            raise NotCarried("it has neither a command nor a URL of its own")
        new: Entry = {"command": words[0]}
        if args := [*words[1:], *self.strings(raw, ("args",))]:
            new["args"] = args
        if env := dict(self.environment(raw)):
            new["env"] = env
        if cwd := next(self.strings(raw, ("cwd",)), ""):
            new["cwd"] = cwd
        return new

    def remote(self, raw: Entry, url: str) -> Entry:
        if not url.startswith(("http://", "https://", "${")):
            raise NotCarried("its URL is neither http nor https")
        kind = _TYPES.get(str(raw.get("type", raw.get("transport"))))
        if kind is None:
            kind = "http" if "httpUrl" in raw else self.host.url_means
        new: Entry = {"url": url}
        if kind == "sse":
            new["type"] = "sse"
        if headers := dict(self.headers(raw)):
            new["headers"] = headers
        return new

    def environment(self, raw: Entry) -> Iterator[tuple[str, str]]:
        for key in _ENVIRONMENT:
            yield from self.pairs(raw, key)
        for name in self.strings(raw, ("env_vars", "env_keys")):
            yield name, f"${{{name}}}"

    def headers(self, raw: Entry) -> Iterator[tuple[str, str]]:
        for key in _HEADERS:
            yield from self.pairs(raw, key)
        self.used |= {"env_http_headers", "bearer_token_env_var"}
        named = raw.get("env_http_headers")
        if isinstance(named, dict):
            for header, variable in cast("dict[str, Any]", named).items():
                yield header, f"${{{variable}}}"
        if isinstance(raw.get("bearer_token_env_var"), str):
            yield "Authorization", f"Bearer ${{{raw['bearer_token_env_var']}}}"

    def pairs(self, raw: Entry, key: str) -> Iterator[tuple[str, str]]:
        self.used.add(key)
        value = raw.get(key)
        if not isinstance(value, dict):
            return
        for name, item in cast("dict[str, Any]", value).items():
            if item is None:
                self.notes.append(f"{key}.{name} was null and is left out")
            elif isinstance(item, str | int | float):
                text = str(item).lower() if isinstance(item, bool) else str(item)
                yield name, self.translated(text)

    def strings(self, raw: Entry, keys: tuple[str, ...]) -> Iterator[str]:
        """Yields the strings of the first of these keys that is present: one string, or a list."""
        self.used |= set(keys)
        value = next((raw[key] for key in keys if key in raw), None)
        if isinstance(value, str):
            yield self.translated(value)
        elif isinstance(value, list):
            for item in cast("list[Any]", value):
                yield self.translated(str(item))

    def translated(self, text: str) -> str:
        if plugin := foreign(text):
            raise NotCarried(f"only the host can fill {plugin}")
        done = translate(text, self.host.variables, self.machine)
        self.notes += done.notes
        return done.text

    def times(self, raw: Entry) -> Iterator[tuple[str, float]]:
        units = {
            "timeout": ("timeout", self.host.seconds),
            "tool_timeout_sec": ("timeout", 1),
            "startup_timeout_sec": ("connectTimeout", 1),
            "startup_timeout_ms": ("connectTimeout", 0.001),
        }
        for key, (ours, unit) in units.items():
            value = raw.get(key)
            if isinstance(value, int | float) and value > 0 and unit:
                self.used.add(key)
                seconds = value * unit
                yield ours, int(seconds) if seconds == int(seconds) else round(seconds, 3)

    def name_the_rest(self, raw: Entry) -> None:
        left = [key for key in raw if key not in self.used | _SILENT | _APPROVAL]
        if approving := [key for key in raw if key in _APPROVAL]:
            self.notes.append(f"approval stays with the host: {', '.join(approving)}")
        if left:
            self.notes.append(f"not carried: {', '.join(left)}")


def read_entry(name: str, raw: Any, host: Host, file: str, machine: Machine) -> HostServer:
    """Returns our entry for this server, or why there is none."""
    reader = Reader(host, machine)
    server = HostServer(name, host.id, file)
    if not isinstance(raw, dict):
        return msgspec.structs.replace(server, skipped="its entry is no object")
    try:
        entry = reader.entry(cast("Entry", raw))
    except NotCarried as reason:
        return msgspec.structs.replace(server, skipped=str(reason))
    notes = tuple(dict.fromkeys(reader.notes))
    if is_ourselves(entry):
        return msgspec.structs.replace(server, skipped="this program", ourselves=True)
    return msgspec.structs.replace(server, entry=entry, notes=(*notes, *_doubts(entry)))


def is_ourselves(entry: Entry) -> bool:
    """Does this entry start the workbench? Behind itself it would recurse without end."""
    words = [str(entry.get("command", "")), *entry.get("args", ())]
    named = [word.replace("\\", "/").rpartition("/")[2].removesuffix(".exe") for word in words]
    return (
        named[0] == "mcp-workbench"
        or (named[0] in ("uvx", "uv", "pipx") and "mcp-workbench" in named)
        or ("-m" in words and "mcp_workbench" in words)
    )


def _doubts(entry: Entry) -> Iterator[str]:
    words = " ".join([str(entry.get("command", "")), *entry.get("args", ())])
    for gateway in ("docker mcp gateway", "mcpproxy", "metamcp", "mcp-hub", "1mcp"):
        if gateway in words:
            yield "it is a gateway itself; its own servers could stand here directly"


class Translated(msgspec.Struct, frozen=True):
    """A text with variables in our syntax, and notes for the user."""

    text: str
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "Translated()"  # the text may hold a secret


def foreign(text: str) -> str:
    """Returns a variable in this text that only its host can fill, or an empty string."""
    match = _BELONGS_TO_PLUGINS.search(text)
    return match[0] if match else ""


def translate(text: str, syntaxes: tuple[Syntax, ...], machine: Machine) -> Translated:
    """Returns the text with the host's variables in our syntax; any other `${` is escaped as `$${`."""
    if not any(sign in text for sign in "$%{"):
        return Translated(text)
    notes: list[str] = []
    pattern = "|".join([*(_SYNTAX[syntax] for syntax in syntaxes), _REST])
    changed = re.sub(pattern, lambda match: _instead(match, machine, notes), text)
    return Translated(changed, tuple(notes))


def _instead(match: re.Match[str], machine: Machine, notes: list[str]) -> str:
    kind = match.lastgroup or ""
    writer = _WRITERS.get(kind)
    return writer(match[kind], machine, notes) if writer else match[0]


def _reference(name: str, machine: Machine, notes: list[str]) -> str:
    return f"${{{name}}}"


def _input(name: str, machine: Machine, notes: list[str]) -> str:
    variable = re.sub(r"\W+", "_", name).upper().strip("_") or "INPUT"
    variable = variable if not variable[0].isdigit() else f"_{variable}"
    notes.append(f"the host asked for '{name}': set {variable} before use")
    return f"${{{variable}}}"


def _folder(name: str, machine: Machine, notes: list[str]) -> str:
    value = {
        "userHome": str(machine.home),
        "pathSeparator": os.sep,
        "/": os.sep,
        "workspaceFolderBasename": machine.folder.name,
    }.get(name, str(machine.folder))
    if name not in ("pathSeparator", "/"):
        notes.append(f"${{{name}}} was written as {value}")
    return value.replace("${", "$${")


def _file(reference: str, machine: Machine, notes: list[str]) -> str:
    notes.append("a reference to a file was not read: put its value into a variable")
    return reference.replace("${", "$${")


def _literal(sign: str, machine: Machine, notes: list[str]) -> str:
    return "$${"


_WRITERS: dict[str, Callable[[str, Machine, list[str]], str]] = {
    "env": _reference,
    "curly": _reference,
    "dollar": _reference,
    "percent": _reference,
    "input": _input,
    "folders": _folder,
    "file": _file,
    "literal": _literal,
}
