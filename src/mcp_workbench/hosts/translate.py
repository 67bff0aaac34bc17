"""A server entry in a host's words, in ours. What is not carried over is named."""

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from mcp_workbench.hosts.places import Surroundings
from mcp_workbench.hosts.table import Host
from mcp_workbench.hosts.variables import foreign, translate

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
# Ways to come by a header that only the host has; without it the server would refuse us.
_HELPERS = ("headersHelper", "http_headers_helper")
# Said by the host about itself, or by us; nothing is lost by leaving them out.
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


class Found(msgspec.Struct, frozen=True):
    """A server in a host's file: our entry for it, or the reason why there is none."""

    name: str
    host: str
    file: str
    entry: Entry = {}
    notes: tuple[str, ...] = ()
    skipped: str = ""
    keys: tuple[str, ...] = ()  # where it stands in the file
    ourselves: bool = False

    def __repr__(self) -> str:
        return f"Found({self.name!r}, {self.host!r})"  # the entry may hold a secret


class NotCarried(ValueError):
    """This entry can't be served by us, and this is why."""


class Reader:
    """Reads one entry."""

    def __init__(self, host: Host, around: Surroundings) -> None:
        self.host = host
        self.around = around
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
        """The strings of the first of these keys that is there: one, or a list of them."""
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
        done = translate(text, self.host.variables, self.around)
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


def read_entry(name: str, raw: Any, host: Host, file: str, around: Surroundings) -> Found:
    """What this entry is here, or why it is nothing."""
    reader = Reader(host, around)
    found = Found(name, host.id, file)
    if not isinstance(raw, dict):
        return msgspec.structs.replace(found, skipped="its entry is no object")
    try:
        entry = reader.entry(cast("Entry", raw))
    except NotCarried as reason:
        return msgspec.structs.replace(found, skipped=str(reason))
    notes = tuple(dict.fromkeys(reader.notes))
    if is_ourselves(entry):
        return msgspec.structs.replace(found, skipped="this program", ourselves=True)
    return msgspec.structs.replace(found, entry=entry, notes=(*notes, *_doubts(entry)))


def is_ourselves(entry: Entry) -> bool:
    """Does this entry start the workbench? Behind itself it would never end."""
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
