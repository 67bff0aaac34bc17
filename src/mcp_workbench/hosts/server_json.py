"""A `server.json` of the MCP registry, as an entry of our own.

Packages become a command: npm `npx`, PyPI `uvx`, OCI `docker run`; remotes become a URL. The version is
pinned. What the publisher calls secret, or leaves to the user, becomes a variable; a required value
that no variable can hold (an argument) has to be given. Nothing here is run by a shell.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from mcp_workbench.core.errors import InvalidCall
from mcp_workbench.hosts.plan import plain_name
from mcp_workbench.hosts.read import Entry, HostServer

Object = dict[str, Any]

MOST_TEXT = 1 << 20  # characters of all values that an entry is filled with
_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
_RUNTIMES = {"npm": "npx", "pypi": "uvx", "oci": "docker"}
_STATUS = "io.modelcontextprotocol.registry/official"
_SNAKE = re.compile(r"_([a-z])")


class ValueSource:
    """Values that the publisher leaves to the user: given beforehand, or asked for."""

    def __init__(self, given: Mapping[str, str], ask: Callable[[str, str], str]) -> None:
        self.given = given
        self.ask = ask  # by a name and its description
        self._used: set[str] = set()

    def take(self, name: str) -> str:
        self._used.add(name)
        return self.given[name]

    def require_all_used(self, title: str) -> None:
        """Refuses values that nothing asks for."""
        unused = set(self.given) - self._used
        if unused:
            names = ", ".join(sorted(unused))
            raise InvalidCall(f"--set: '{title}' has no value called {names}")


def is_server_json(value: Any) -> bool:
    """Is this a server of the registry, or the registry's answer with one?"""
    whole = _server(value)
    return isinstance(whole.get("name"), str) and ("packages" in whole or "remotes" in whole)


def from_server_json(
    name: str, value: Any, values: ValueSource, installed: Callable[[str], bool]
) -> HostServer:
    """Returns our entry for this server; `installed` knows the programs of this machine."""
    whole = _server(value)
    title = str(whole.get("name", ""))
    _refuse_deleted(value, title)
    name = name or plain_name(title.rpartition("/")[2])
    translator = _Translator(name, values)
    choices = list(_choices(whole))
    if not choices:
        kinds = ", ".join(
            dict.fromkeys(str(p.get("registryType")) for p in _objects(whole, "packages"))
        )
        reason = (
            f"its packages are of kinds that are not supported: {kinds}"
            if kinds
            else "it has no package and no remote"
        )
        raise InvalidCall(f"'{title}' can't be added: {reason}")
    runtime, part = next((c for c in choices if not c[0] or installed(c[0])), choices[0])
    entry = translator.package(part) if runtime else translator.remote(part)
    version = str(part.get("version") or whole.get("version") or "")
    notes = [f"from {title}{f' {version}' if version else ''}", *translator.notes]
    values.require_all_used(title)
    return HostServer(name, "", title, entry, tuple(notes))


def _server(value: Any) -> Object:
    whole = _camel(value)
    inner = whole.get("server")
    return cast("Object", inner) if isinstance(inner, dict) else whole


def _camel(value: Any) -> Any:
    """Returns the value with keys as today's schema spells them: earlier ones had `registry_type`."""
    if isinstance(value, list):
        return [_camel(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    members = cast("Object", value).items()
    return {
        _SNAKE.sub(lambda m: m[1].upper(), key) if "/" not in key else key: _camel(item)
        for key, item in members
    }


def _refuse_deleted(value: Any, title: str) -> None:
    meta = value.get("_meta") if isinstance(value, dict) else None  # pyright: ignore
    official = cast("Object", meta).get(_STATUS) if isinstance(meta, dict) else None
    status = cast("Object", official).get("status") if isinstance(official, dict) else ""
    if status == "deleted":
        raise InvalidCall(f"'{title}' can't be added: the registry has deleted it")


def _choices(whole: Object) -> Iterator[tuple[str, Object]]:
    """Yields the packages that we can start, each with its program, and the remotes, without one."""
    for package in _objects(whole, "packages"):
        transport = package.get("transport")
        kind = cast("Object", transport).get("type") if isinstance(transport, dict) else "stdio"
        runtime = _RUNTIMES.get(str(package.get("registryType")))
        if runtime and kind == "stdio" and isinstance(package.get("identifier"), str):
            yield runtime, package
    for remote in _objects(whole, "remotes"):
        if remote.get("type") in ("streamable-http", "sse", "http") and isinstance(
            remote.get("url"), str
        ):
            yield "", remote


def _objects(value: Object, key: str) -> list[Object]:
    items = value.get(key)
    listed = cast("list[Any]", items) if isinstance(items, list) else []
    return [cast("Object", item) for item in listed if isinstance(item, dict)]


class _Translator:
    """Translates one package or remote."""

    def __init__(self, name: str, values: ValueSource) -> None:
        self.name = name
        self.values = values
        self.notes: list[str] = []
        self.left = MOST_TEXT

    def package(self, package: Object) -> Entry:
        kind, identifier = package["registryType"], package["identifier"]
        version = package.get("version")
        pinned = f"{identifier}@{version}" if version else identifier
        env = dict(self.environment(package))
        first = list(self.arguments(package, "runtimeArguments"))
        last = list(self.arguments(package, "packageArguments"))
        match kind:
            case "npm":
                words = ["npx", *(first if "-y" in first else ["-y", *first]), pinned, *last]
            case "pypi":
                words = ["uvx", *first, pinned, *last]
            case _:  # the identifier of an image has its tag
                passed = [word for variable in env for word in ("-e", variable)]
                words = ["docker", "run", "-i", "--rm", *passed, *first, identifier, *last]
        return {"command": words[0], "args": words[1:], **({"env": env} if env else {})}

    def remote(self, remote: Object) -> Entry:
        variables = remote.get("variables")
        entry: Entry = {"url": self.filled(remote["url"], variables)}
        if remote.get("type") == "sse":
            entry["type"] = "sse"
        headers = {
            header: value
            for item in _objects(remote, "headers")
            if (header := str(item.get("name", "")))
            and (value := self.value(item, header, derived_variable(self.name, header))) is not None
        }
        return entry | ({"headers": headers} if headers else {})

    def environment(self, package: Object) -> Iterator[tuple[str, str]]:
        for item in _objects(package, "environmentVariables"):
            name = str(item.get("name", ""))
            value = self.value(item, name, name) if name else None
            if value is not None:
                yield name, value

    def arguments(self, package: Object, key: str) -> Iterator[str]:
        """Yields `--flag=value`, a flag alone, or a positional value."""
        for item in _objects(package, key):
            flag = str(item.get("name") or "") if item.get("type") == "named" else ""
            label = flag.lstrip("-") or str(item.get("valueHint") or item.get("name") or "argument")
            value = self.argument(item, label)
            if value is not None:
                yield f"{flag}={value}" if flag and value else flag or value

    def argument(self, item: Object, label: str) -> str | None:
        """Returns the value of an argument; None to leave it out, empty for a flag without one."""
        if label in self.values.given:
            return self.chosen(item, label)
        if isinstance(item.get("value"), str):
            return self.filled(item["value"], item.get("variables"))
        if item.get("isSecret"):
            return f"${{{derived_variable(self.name, label)}}}"
        if isinstance(item.get("default"), str):
            return _escaped(item["default"])
        if item.get("isRequired"):
            return _escaped(self.values.ask(label, str(item.get("description") or "")))
        bare = item.get("type") == "named" and not {"valueHint", "format", "choices"} & set(item)
        return "" if bare else None  # a flag that takes no value

    def value(self, item: Object, label: str, variable: str) -> str | None:
        """Returns the value of a variable or a header; None to leave it out."""
        default = item.get("default")
        if label in self.values.given:
            return self.chosen(item, label)
        if isinstance(item.get("value"), str):
            return self.filled(item["value"], item.get("variables"))
        if isinstance(default, str):
            return f"${{{variable}:-{default}}}" if "}" not in default else _escaped(default)
        if item.get("isRequired"):
            return f"${{{variable}}}"
        # Empty if it is not set, as most programs expect of one that they can do without.
        return f"${{{variable}:-}}" if item.get("isSecret") else self.left_out(label)

    def left_out(self, label: str) -> None:
        self.notes.append(f"optional, and left out: {label} (--set {label}=VALUE)")

    def chosen(self, item: Object, label: str) -> str:
        value, choices = self.values.take(label), item.get("choices")
        if isinstance(choices, list) and choices and value not in choices:
            allowed = ", ".join(map(str, cast("list[Any]", choices)))
            raise InvalidCall(f"{label} can't be '{value}'", hint=f"one of: {allowed}")
        return value

    def filled(self, text: str, variables: Any) -> str:
        """Returns the text with each `{name}` replaced by its value, or by a variable of ours."""
        known = cast("Object", variables) if isinstance(variables, dict) else {}

        def instead(match: re.Match[str]) -> str:
            item = known.get(match[1])
            if not isinstance(item, dict):
                return match[0]
            # A variable has no variables of its own, each of which could have two more in it.
            own = {"isRequired": True, **cast("Object", item), "variables": None}
            value = self.value(own, match[1], derived_variable(self.name, match[1])) or ""
            self.left -= len(value)
            if self.left < 0:
                raise InvalidCall(
                    f"'{self.name}' can't be added: its variables would fill the entry"
                )
            return value

        return _PLACE.sub(instead, text.replace("${", "$${"))


def _escaped(text: str) -> str:
    return text.replace("${", "$${")


def derived_variable(server: str, label: str) -> str:
    """Returns the name of a variable for a value that has none of its own."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", f"{server}_{label}").strip("_").upper()
    return name if not name[:1].isdigit() else f"_{name}"
