"""Reads the servers in a host's file, or in any file that looks like one, as entries of our own.

An entry is translated with its variables. What can't be carried over is named in a note; an entry that
we can't serve at all gives the reason instead.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from mcp_workbench.config import jsonc
from mcp_workbench.config.file_access import read_plain
from mcp_workbench.hosts.files import HostFile, Keys, Machine, read_file, shown, unreadable
from mcp_workbench.hosts.host_sandbox import HostSandbox, paths_in, with_sandbox_of_file
from mcp_workbench.hosts.host_sign_in import HostSignIn
from mcp_workbench.hosts.table import HOSTS, Host, Syntax
from mcp_workbench.transport.json_text import read_json

Entry = dict[str, Any]

# A file of no known host: the syntaxes of all hosts are accepted.
ANY_FILE = Host("file", "a file", {}, variables=("braces", "env", "input", "folders"))
_SECTIONS: tuple[Keys, ...] = (
    ("mcpServers",),
    ("servers",),
    ("mcp", "servers"),
    ("mcp",),
    ("context_servers",),
    ("mcp_servers",),
)
_PLAIN_WORDS = {"mcpServers", "servers", "mcp_servers", "context_servers"}  # unambiguous


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


def servers_in(file: HostFile, text: str, machine: Machine) -> list[HostServer]:
    """Returns every server of a host's file, including our own entry."""
    value = value_of(text, file.host.format, str(file.path))
    sections = [keys_in(file.host, value)]
    if file.host.id == "claude-code" and file.scope == "user":
        sections.append(("projects", str(machine.folder), "mcpServers"))
    servers = [
        server
        for keys in sections
        for server in _section(value, keys, file.host, file.path, machine)
    ]
    return [_switched_off(server, value) for server in servers]


def servers_in_any(text: str, name: str, machine: Machine) -> list[HostServer]:
    """Returns the servers of a file that the user names, or of standard input."""
    format = "toml" if name.endswith(".toml") else "json"
    value = value_of(text, format, name)
    host = _author(value)
    for keys in _SECTIONS:
        section = value_at(value, keys)
        if _is_section(section) or (keys[-1] in _PLAIN_WORDS and isinstance(section, dict)):
            return list(_section(value, keys, host, Path(name), machine))
    if isinstance(value, dict) and "toolboxes" in value:
        boxes = value_at(value, ("toolboxes",))
        return [
            server
            for box in (cast("dict[str, Any]", boxes) if isinstance(boxes, dict) else {})
            for server in _section(
                value, ("toolboxes", box, "mcpServers"), host, Path(name), machine
            )
        ]
    if _is_section(value):
        return list(_section(value, (), host, Path(name), machine))
    fix = "name a file that has 'mcpServers', 'servers' or 'mcp_servers', or a host"
    raise unreadable(name, "there are no servers in it", fix=fix)


def _author(value: Any) -> Host:
    """Returns the host whose format this file has."""
    if _is_section(value_at(value, ("mcp_servers",))):
        return HOSTS["codex"]
    if _is_section(value_at(value, ("context_servers",))):
        return HOSTS["zed"]
    if _is_section(value_at(value, ("mcp",))) or _is_section(value_at(value, ("mcp", "servers"))):
        return HOSTS["opencode"]
    return ANY_FILE


def keys_in(host: Host, value: Any) -> Keys:
    """Returns the path of this host's entries in this file: opencode moved them in version 2."""
    moved = value_at(value, ("mcp", "servers"))
    if host.shape == "opencode" and isinstance(moved, dict) and "type" not in moved:
        return ("mcp", "servers")
    return host.keys


def _section(
    value: Any, keys: Keys, host: Host, path: Path, machine: Machine
) -> Iterator[HostServer]:
    section = value_at(value, keys)
    if not isinstance(section, dict):
        return
    for name, written in cast("dict[str, Any]", section).items():
        raw = with_sandbox_of_file(written, value_at(value, ("sandbox",)))
        server = with_env_file(read_entry(name, raw, host, str(path), machine), raw, host, machine)
        yield msgspec.structs.replace(server, keys=(*keys, name))


def _switched_off(server: HostServer, value: Any) -> HostServer:
    """Gemini CLI has a separate list of disabled servers."""
    excluded = value_at(value, ("mcp", "excluded"))
    if server.host != "gemini" or server.skipped or not isinstance(excluded, list):
        return server
    if server.name not in excluded:
        return server
    return msgspec.structs.replace(server, entry=server.entry | {"disabled": True})


def _is_section(value: Any) -> bool:
    """Is this an object of server entries, each with a command or a URL?"""
    targets = {"command", "cmd", "url", "httpUrl", "serverUrl", "uri"}
    if not isinstance(value, dict) or not value:
        return False
    entries = cast("dict[str, Any]", value).values()
    return all(isinstance(e, dict) and targets & set(cast("dict[str, Any]", e)) for e in entries)


# Files and values


def text_of(file: Path, *, pipes: bool = False) -> str | None:
    """Returns the text of a file, or None if there is none; fails if it is not UTF-8."""
    raw = read_file(file, pipes=pipes)
    return None if raw is None else decoded(raw, str(file))


def decoded(raw: bytes, file: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        place = jsonc.place_of_byte(raw, error.start)
        raise unreadable(file, "the file is not UTF-8 text", *place) from None


def value_of(text: str, format: str, file: str) -> Any:
    """Returns the value of a whole file. Raises ConfigError with the place of a mistake."""
    if format == "toml":
        try:
            return parse_toml(text)
        except NotToml as error:
            raise unreadable(file, error.message, error.line, error.column) from None
    try:
        return parse_json(text)
    except jsonc.SyntaxProblem as error:
        raise unreadable(file, error.message, error.line, error.column) from None


def parse_json(text: str) -> Any:
    """Returns the value of JSON with comments; of an empty text, an empty object. Raises SyntaxProblem."""
    if not text.removeprefix(jsonc.BOM).strip():
        return {}
    try:
        return read_json(text)  # most files are strict; this is a hundred times faster
    except (ValueError, RecursionError):
        return jsonc.parse(text)


MOST_PARTS = 256  # of a dotted key
_DOTS = re.compile(r"""(?<=[\w"'-])[ \t]*\.[ \t]*(?=[\w"'-])""")
_BETWEEN_DOTS = re.compile(r"[=,{}\[\]\n]")


class NotToml(ValueError):
    """The text is not TOML, with place and reason."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


def parse_toml(text: str) -> dict[str, Any]:
    """Returns the values; raises NotToml with the place."""
    import tomllib  # only where there is such a file

    if any(len(_DOTS.findall(part)) > MOST_PARTS for part in _BETWEEN_DOTS.split(text)):
        raise NotToml("it is nested too deeply", 1, 1)  # its reader takes the square of the parts
    try:
        return tomllib.loads(text.removeprefix(jsonc.BOM))
    except tomllib.TOMLDecodeError as error:
        position = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        message = str(error).rpartition(" (at ")[0] or str(error)
        # The reader quotes a character at most, so no secret is in its words.
        line, column = map(int, position.groups()) if position else (text.count("\n") + 1, 1)
        raise NotToml(message[:1].lower() + message[1:], line, column) from None
    except RecursionError:
        raise NotToml("it is nested too deeply", 1, 1) from None


def value_at(value: Any, keys: Keys) -> Any:
    """Returns what stands at this path, or None."""
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return None
        value = cast("dict[str, Any]", value)[key]
    return value


# Files of variables


ENV_FILE = "envFile"
MOST_ENV_BYTES = 64 << 10  # far more than anybody writes by hand
_ASSIGNMENT = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=", re.MULTILINE)


def with_env_file(server: HostServer, raw: Any, host: Host, machine: Machine) -> HostServer:
    """Returns the entry with `${NAME}` for each name in its envFile; the user sets these from now on."""
    named = cast("dict[str, Any]", raw).get(ENV_FILE) if isinstance(raw, dict) else None
    if not isinstance(named, str) or server.skipped or "command" not in server.entry:
        return server
    path = machine.folder / Path(translate(named, host.variables, machine).text).expanduser()
    where = shown(path, machine)
    names = names_in(path)
    if names is None:
        note = f"its envFile {where} can't be read, so nothing of it is carried over"
        return msgspec.structs.replace(server, notes=(*server.notes, note))
    env = {name: f"${{{name}}}" for name in names} | server.entry.get("env", {})
    note = (
        f"its envFile {where} is not read by us; set what it sets: {', '.join(names) or 'nothing'}"
    )
    entry = server.entry | ({"env": env} if env else {})
    return msgspec.structs.replace(server, entry=entry, notes=(*server.notes, note))


def names_in(path: Path) -> tuple[str, ...] | None:
    """Returns the names that are assigned there, in order; None if there is no such file."""
    try:
        text = read_plain(path, MOST_ENV_BYTES).decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return None
    return tuple(dict.fromkeys(_ASSIGNMENT.findall(text)))


# Entries


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
# The host runs these to get headers that the server requires; we can't.
_HELPERS = ("headersHelper", "http_headers_helper")
# For the host alone, or handled elsewhere: dropped without a note.
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


def read_entry(name: str, raw: Any, host: Host, file: str, machine: Machine) -> HostServer:
    """Returns our entry for this server, or why there is none."""
    translator = EntryTranslator(host, machine)
    server = HostServer(name, host.id, file)
    if not isinstance(raw, dict):
        return msgspec.structs.replace(server, skipped="its entry is no object")
    try:
        entry = translator.entry(cast("Entry", raw))
    except NotCarried as reason:
        return msgspec.structs.replace(server, skipped=str(reason))
    notes = tuple(dict.fromkeys(translator.notes))
    if is_ourselves(entry):
        return msgspec.structs.replace(server, skipped="this program", ourselves=True)
    return msgspec.structs.replace(server, entry=entry, notes=(*notes, *_doubts(entry)))


class NotCarried(ValueError):
    """We can't serve this entry, for this reason."""


class EntryTranslator:
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
        new = self.target(raw)
        filters = [*self.strings(raw, _SHOWN), *(f"!{n}" for n in self.strings(raw, _HIDDEN))]
        if filters and filters != ["*"]:
            new["toolFilters"] = filters
        if raw.get("disabled") is True or raw.get("enabled") is False:
            new["disabled"] = True
        new |= dict(self.times(raw))
        self.name_the_rest(raw)
        return new

    def target(self, raw: Entry) -> Entry:
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
        return new | self.sandbox(raw)

    def sandbox(self, raw: Entry) -> Entry:
        """Returns our key for its sandbox. Its relative paths count from the folder of the host."""
        found = HostSandbox(raw)
        self.used |= found.used
        self.notes += found.notes
        if not isinstance(found.sandbox, dict):
            return {"sandbox": found.sandbox} if found.sandbox else {}
        lists = {
            key: [self.path(self.translated(path)) for path in paths]
            for key, paths in paths_in(found.sandbox)
        }
        return {"sandbox": found.sandbox | lists}

    def path(self, text: str) -> str:
        if text.startswith(("/", "~", "${")):
            return text
        return os.path.normpath(self.machine.folder / text).replace("${", "$${")

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
        if auth := self.sign_in(raw):
            new["auth"] = auth
        return new

    def sign_in(self, raw: Entry) -> Entry:
        found = HostSignIn(raw)
        self.used |= found.used
        self.notes += found.notes()
        return {
            key: self.translated(value) if isinstance(value, str) else value
            for key, value in found.auth.items()
        }

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
        if variable := host_variable(text):
            raise NotCarried(f"only the host can fill {variable}")
        translated = translate(text, self.host.variables, self.machine)
        self.notes += translated.notes
        return translated.text

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


def is_ourselves(entry: Entry) -> bool:
    """Does this entry start this program? Behind itself it would recurse without end."""
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


# Variables


_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_OURS = rf"\$\{{{_NAME}(?::-[^}}]*)?\}}"
_SYNTAX: dict[Syntax, str] = {
    "braces": rf"(?P<braces>{_OURS})",
    "env": rf"\$\{{env:(?P<env>{_NAME})\}}",
    "input": r"\$\{(?:prompt|)input:(?P<input>[^{}]+)\}",
    "folders": r"\$\{(?P<folders>workspaceFolder|workspaceFolderBasename|userHome|cwd|pathSeparator|/)\}",
    "curly": rf"\{{env:(?P<curly>{_NAME})\}}",
    "dollar": rf"\$(?P<dollar>{_NAME})|%(?P<percent>{_NAME})%",
    "none": r"(?!)",
}
_FILE, _LITERAL = r"(?P<file>\$?\{file:[^{}]*\})", r"(?P<literal>\$\{)"
_HOST_VARIABLE = re.compile(r"\$\{(CLAUDE_PLUGIN_ROOT|CLAUDE_PROJECT_DIR|user_config\.[^{}]*)\}")


class Translated(msgspec.Struct, frozen=True):
    """A text with variables in our syntax, and notes for the user."""

    text: str
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "Translated()"  # the text may hold a secret


def host_variable(text: str) -> str:
    """Returns a variable in this text that only its host can fill, or an empty string."""
    match = _HOST_VARIABLE.search(text)
    return match[0] if match else ""


def translate(text: str, syntaxes: tuple[Syntax, ...], machine: Machine) -> Translated:
    """Returns the text with the host's variables in our syntax; any other `${` is escaped as `$${`."""
    if not any(sign in text for sign in "$%{"):
        return Translated(text)
    notes: list[str] = []
    patterns = [*(_SYNTAX[syntax] for syntax in syntaxes), _FILE, _LITERAL]
    # Behind the last brace, every search for the end of a default would go through the whole rest.
    end = text.rfind("}") + 1
    behind = [pattern for pattern in patterns if pattern in (_SYNTAX["dollar"], _LITERAL)]
    changed = "".join(
        re.sub("|".join(some), lambda match: _instead(match, machine, notes), part)
        for some, part in ((patterns, text[:end]), (behind, text[end:]))
    )
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
