"""Variables in the strings of a server entry: replaced once, late, and never shown."""

import os
import re
from collections.abc import Iterator, Mapping

import msgspec

from mcp_workbench.core.redact import SHORTEST
from mcp_workbench.core.spec import HttpEndpoint, ServerSpec, StdioCommand

Path = tuple[str | int, ...]
Target = StdioCommand | HttpEndpoint
Way = tuple[Target, str, str, str]  # a target with its values, era, scope, and what is wrong

_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_PLAIN_KEY = "[A-Za-z0-9_$-]+"
_SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "KEY", "AUTH", "COOKIE", "CREDENTIAL", "DSN")


class Expanded(msgspec.Struct, frozen=True):
    """A text with its variables replaced, and the variables that have no value."""

    text: str
    missing: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Expanded(missing={self.missing!r})"  # the text holds values


class Unexpandable(Exception):
    """This server can't be reached as it stands; the message names place and remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def expand(text: str, environ: Mapping[str, str]) -> Expanded:
    """Replace `${VAR}` and `${VAR:-default}`, and `$${` by `${`. What is malformed stays as it is."""
    if "${" not in text:
        return Expanded(text)
    missing: list[str] = []

    def value(found: re.Match[str]) -> str:
        name, default = found.groups()
        if name is None:
            return "${"
        if default is not None:
            return environ.get(name) or default
        if name not in environ:
            missing.append(name)
        return environ.get(name, "")

    expanded = _REFERENCE.sub(value, text)
    return Expanded(expanded, tuple(dict.fromkeys(missing)))


def references(text: str) -> tuple[str, ...]:
    """The variables that a text asks for, each once, in their order."""
    return tuple(dict.fromkeys(m[1] for m in _REFERENCE.finditer(text) if m[1]))


def doubtful(text: str) -> bool:
    """Whether a `${` stays in the text that may have been meant as a variable."""
    return "${" in _REFERENCE.sub(lambda found: f" {found[2] or ''}", text)


def remedy(variable: str) -> str:
    return f"export {variable}=…   or write ${{{variable}:-}}"


def unset(variable: str, place: str) -> str:
    """Why a server is unavailable: the variable, the place and what to do."""
    return f"variable {variable} is not set and has no default ({place}; fix: {remedy(variable)})"


def dotted(path: Path, start: str = "") -> str:
    """A path as people read it: `toolboxes.dev.mcpServers.fs.args[1]`."""
    text = start
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        elif re.fullmatch(_PLAIN_KEY, key):
            text += f".{key}" if text else key
        else:
            text += f"[{msgspec.json.encode(key).decode()}]"
    return text


def strings_of(target: Target) -> Iterator[tuple[Path, str]]:
    """Every string that is expanded late, with its place in the entry."""
    if isinstance(target, HttpEndpoint):
        yield ("url",), target.url
        yield from ((("headers", name), value) for name, value in target.headers)
        return
    yield ("command",), target.command
    yield from ((("args", index), value) for index, value in enumerate(target.args))
    yield from ((("env", name), value) for name, value in target.env)
    yield ("cwd",), target.cwd


def expand_target(spec: ServerSpec, environ: Mapping[str, str]) -> Target:
    """The server's target with the values of now, or `Unexpandable` with every reason why not."""
    texts = {path: expand(text, environ) for path, text in strings_of(spec.target)}
    reasons = [spec.problem] if spec.problem else []
    for path, expanded in texts.items():
        place = dotted(path, spec.place)
        reasons += [unset(name, place) for name in expanded.missing]
        if any(sign in expanded.text for sign in _forbidden(path)):
            reasons.append(f"the value has a line break or a NUL character in it ({place})")
    if reasons:
        raise Unexpandable("; ".join(reasons))
    return _filled(spec.target, {path: expanded.text for path, expanded in texts.items()})


def way_to(spec: ServerSpec, environ: Mapping[str, str]) -> Way:
    """How the server is reached, with the values of now. Who is reached the same way is the same."""
    texts = {path: expand(text, environ).text for path, text in strings_of(spec.target)}
    target = _filled(spec.target, texts)
    if isinstance(target, StdioCommand):
        cwd = os.path.join(target.folder, target.cwd) if target.cwd else ""  # noqa: PTH118
        env = tuple(sorted(target.env))  # in whatever order they are written
        target = StdioCommand(target.command, target.args, env, cwd)
    else:
        target = HttpEndpoint(target.url, tuple(sorted(target.headers)), target.transport)
    return target, spec.era, spec.scope, spec.problem


def _forbidden(path: Path) -> str:
    return "\0\r\n" if path[0] in ("url", "headers") else "\0"  # the others may well have lines


def _filled(target: Target, texts: dict[Path, str]) -> Target:
    if isinstance(target, HttpEndpoint):
        headers = tuple((name, texts["headers", name]) for name, _ in target.headers)
        return HttpEndpoint(texts["url",], headers, target.transport)
    return StdioCommand(
        texts["command",],
        tuple(texts["args", index] for index in range(len(target.args))),
        tuple((name, texts["env", name]) for name, _ in target.env),
        texts["cwd",],
        target.folder,
    )


def secrets_of(spec: ServerSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Values that nobody may print, each with the name to print instead."""
    args = spec.target.args if isinstance(spec.target, StdioCommand) else ()
    found = dict(_secret_arguments([expand(text, environ).text for text in args]))
    for path, text in strings_of(spec.target):
        value = expand(text, environ).text
        if path[0] == "headers":
            found |= {value: str(path[1]), value.rpartition(" ")[2]: str(path[1])}
        elif path[0] == "env" and names_a_secret(str(path[1])):
            found[value] = str(path[1])
        elif path[0] == "url":
            found |= dict.fromkeys(_hidden_parts(value), "url")
        found |= {environ[name]: name for name in references(text) if name in environ}
    return {value: name for value, name in found.items() if len(value) >= SHORTEST}


def names_a_secret(name: str) -> bool:
    return any(word in name.upper() for word in _SECRET_WORDS)


def _hidden_parts(url: str) -> list[str]:
    """What a URL keeps to itself: user, password, and the query with each of its values."""
    from urllib.parse import unquote, urlsplit  # start-up prints nothing and needs it not

    try:
        parts = urlsplit(url)
    except ValueError:
        return [url]
    user = parts.netloc.rpartition("@")[0]
    values = [pair.partition("=")[2] for pair in parts.query.split("&")]
    hidden = [user, user.partition(":")[2], parts.query, *values]
    return [*hidden, *map(unquote, hidden)]  # whoever has read the URL knows what they stand for


def _secret_arguments(args: list[str]) -> Iterator[tuple[str, str]]:
    """`--api-key=VALUE` and `--api-key VALUE`."""
    for argument, following in zip(args, (*args[1:], ""), strict=False):
        flag, equals, value = argument.partition("=")
        if flag.startswith("-") and names_a_secret(flag):
            yield value if equals else following, flag.lstrip("-")
