"""Variables in the strings of a server entry: expanded late, and never shown.

Also what follows from the values: whether two entries are the same server, and which values are secret.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping

import msgspec

from mcp_workbench.core.redact import SHORTEST
from mcp_workbench.core.spec import (
    HttpEndpoint,
    Sandbox,
    SecretSource,
    SecretSources,
    ServerSpec,
    StdioCommand,
)

Path = tuple[str | int, ...]
Target = StdioCommand | HttpEndpoint
# Target with values other than secrets, era, scope, problem, where its secrets come from, and placement
ResolvedServer = tuple[Target, str, str, str, SecretSources, str]

_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
# Behind the last brace, where a search for the end of a default would go through the whole rest each time.
_ESCAPE = re.compile(r"\$\$\{((?!))?((?!))?")
MOST_EXPANDED = (
    1 << 20
)  # characters of all values in one text; an argument has 128 KiB at most on Linux
_LIKE_A_REFERENCE = re.compile(r"\$\{[A-Z0-9_]+(?:\}|$)")
VARIABLE_FORMS = "write ${NAME} or ${NAME:-default}; $${ is a literal ${"
# Literal secrets in arguments
_ASSIGNMENT = re.compile(
    r"(?:(?<![A-Z0-9_])(?=[A-Z])|(?<=[?&]))([A-Za-z0-9_-]{1,200})=['\"]?([^\s&#'\"]+)"
)
_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9-]*): *(\S(?:.*\S)?)")
_USER = re.compile(r"([a-z][a-z0-9+.-]{0,20})://([^\s/?#@]+)@")
_PLAIN_KEY = "[A-Za-z0-9_$-]+"
# These find their program independently of the folder they are started in.
_RUNNERS = ("npx", "bunx", "uvx", "pipx", "docker", "podman", "dnx")
FORMER = 8  # values that a secret had before, which are masked like the current one
_SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "KEY", "AUTH", "COOKIE", "CREDENTIAL", "DSN")


class Expanded(msgspec.Struct, frozen=True):
    """A text with its variables expanded, and the variables that have no value."""

    text: str
    missing: tuple[str, ...] = ()
    is_too_long: bool = False  # then some values are left out

    def __repr__(self) -> str:
        return f"Expanded(missing={self.missing!r})"  # the text holds values


class Unexpandable(Exception):
    """This server can't be reached as configured; the message names place and fix."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Environment(Mapping[str, str]):
    """The environment of this process, and apart from it the secrets that have been read so far.

    Secrets are no variables of the environment: nothing that iterates over it or passes it on gets one.
    They are read at the launch of a server that refers to them (`prepare`), and kept in memory.
    """

    def __init__(self, environ: Mapping[str, str], given: Mapping[str, str] | None = None) -> None:
        self._environ = environ
        self._given = given or {}  # secrets whose values are known already, by name
        self._read: dict[tuple[str, SecretSource], tuple[float, str]] = {}
        self._former: dict[str, tuple[str, ...]] = {}
        self.reads: object = None  # those under way: `config.secret_reads`
        self.shared_credentials: object = None  # with replicas: `cluster.shared_credentials`

    def __getitem__(self, name: str) -> str:
        return self._environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)

    def __repr__(self) -> str:
        return "Environment()"  # it holds secrets

    def secret(self, name: str, source: SecretSource) -> str | None:
        """Returns the value, if it has been read."""
        return self._given.get(name) or self._read.get((name, source), (0.0, None))[1]

    def is_fresh(self, name: str, source: SecretSource, seconds: float) -> bool:
        """Was it read at most so long ago?"""
        at, _ = self._read.get((name, source), (-seconds, ""))
        return bool(self._given.get(name)) or time.monotonic() - at < seconds

    def keep(self, name: str, source: SecretSource, value: str | None) -> None:
        """Takes the value that was just read; None: it can't be read any more."""
        _, before = self._read.pop((name, source), (0.0, ""))
        if before and before != value:
            others = (old for old in self._former.get(name, ()) if old != before)
            self._former[name] = (before, *others)[:FORMER]
        if value is not None:
            self._read[name, source] = (time.monotonic(), value)

    def former(self, name: str) -> tuple[str, ...]:
        """Returns values of this secret that a server may still have."""
        return self._former.get(name, ())

    async def prepare(self, spec: ServerSpec) -> None:
        """Read what this server refers to, unless it was just read. Raises Unexpandable."""
        if spec.secrets:
            from mcp_workbench.config.secret_reads import prepare  # only where there are secrets

            await prepare(self, spec)


def environment(environ: Mapping[str, str]) -> Environment:
    return environ if isinstance(environ, Environment) else Environment(environ)


def expand(text: str, environ: Mapping[str, str]) -> Expanded:
    """Expands `${VAR}`, `${VAR:-default}`, and `$${` to `${`. Anything malformed stays as it is."""
    if "${" not in text:
        return Expanded(text)
    missing: list[str] = []
    left = MOST_EXPANDED

    def value(match: re.Match[str]) -> str:
        nonlocal left
        name, default = match.groups()
        if name is None:
            return "${"
        if default is None and name not in environ:
            missing.append(name)
        value = environ.get(name) or default or ""
        left -= len(value)
        return value if left >= 0 else ""

    expanded = _replaced(value, text)
    return Expanded(expanded, tuple(dict.fromkeys(missing)), left < 0)


def _replaced(value: Callable[[re.Match[str]], str], text: str) -> str:
    """Returns the text with every reference and escape replaced, in one pass."""
    end = text.rfind("}") + 1
    return _REFERENCE.sub(value, text[:end]) + _ESCAPE.sub(value, text[end:])


def references(text: str) -> tuple[str, ...]:
    """Returns the variables in a text, each once, in order."""
    found = _REFERENCE.finditer(text, 0, text.rfind("}") + 1)
    return tuple(dict.fromkeys(m[1] for m in found if m[1]))


def doubtful(text: str) -> bool:
    """Is there a `${` that is no variable but may have been meant as one?"""
    return "${" in _replaced(lambda match: f" {match[2] or ''}", text)


def malformed(spec: ServerSpec) -> tuple[str, ...]:
    """Returns, for every string of the entry with a `${` that begins no variable, what to do about it."""
    return tuple(
        f"{_begun(text)} in {dotted(path, spec.place)} is no variable and is passed on as it is; "
        f"{VARIABLE_FORMS}"
        for path, text in strings_of(spec.target)
        if "${" in text and doubtful(text)
    )


def _begun(text: str) -> str:
    """Returns the reference in quotes where it looks like a name; other text may be a secret."""
    rest = _replaced(lambda _: " ", text)
    names = [match[0] for match in _LIKE_A_REFERENCE.finditer(rest)]
    return " and ".join(f"'{name}'" for name in dict.fromkeys(names)) or "a '${'"


def remedy(variable: str) -> str:
    return f"export {variable}=…   or write ${{{variable}:-}}"


def unset(variable: str, place: str) -> str:
    """Returns why a server is unavailable: the variable, the place and the fix."""
    return f"variable {variable} is not set and has no default ({place}; fix: {remedy(variable)})"


def dotted(path: Path, start: str = "") -> str:
    """Returns a path as text: `toolboxes.dev.mcpServers.fs.args[1]`."""
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
    """Yields every string that is expanded late, with its path in the entry."""
    if isinstance(target, HttpEndpoint):
        yield ("url",), target.url
        yield from ((("headers", name), value) for name, value in target.headers)
        yield from ((("auth", name), value) for name, value in _auth_texts(target))
        return
    yield ("command",), target.command
    yield from ((("args", index), value) for index, value in enumerate(target.args))
    yield from ((("env", name), value) for name, value in target.env)
    yield ("cwd",), target.cwd
    if target.sandbox.kind == "files":
        for key, paths in _sandbox_paths(target).items():
            yield from ((("sandbox", key, index), path) for index, path in enumerate(paths))


def _sandbox_paths(target: StdioCommand) -> dict[str, tuple[str, ...]]:
    box = target.sandbox
    return {"read": box.read, "write": box.write, "hide": box.hide}


def _auth_texts(target: HttpEndpoint) -> Iterator[tuple[str, str]]:
    auth = target.auth
    texts = {
        "clientId": auth.client_id,
        "clientSecret": auth.client_secret,
        "clientMetadataUrl": auth.client_metadata_url,
        "privateKey": auth.private_key,
    }
    return ((name, text) for name, text in texts.items() if text)


def expand_target(spec: ServerSpec, environ: Mapping[str, str]) -> Target:
    """Returns the target with the current values. Raises Unexpandable with every reason."""
    return _expanded(spec, _values(spec, environ))


def expand_without_secrets(spec: ServerSpec, environ: Mapping[str, str]) -> Target:
    """Returns the target with the current values, except those of secrets: `${NAME}` stays. Raises Unexpandable."""
    return _expanded(spec, _shown(spec, environ))


def has_secret_launch(spec: ServerSpec) -> bool:
    """Does a secret decide which program is started, or where?"""
    target, names = spec.target, dict(spec.secrets)
    texts = (target.command, target.cwd) if isinstance(target, StdioCommand) else ()
    return any(name in names for text in texts for name in references(text))


def _values(spec: ServerSpec, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the variables of this server. A name in `secrets` has that source alone."""
    if not spec.secrets:
        return environ
    values = {name: environ[name] for name in environ if name not in dict(spec.secrets)}
    if isinstance(environ, Environment):
        read = ((name, environ.secret(name, source)) for name, source in spec.secrets)
        values |= {name: value for name, value in read if value is not None}
    return values


def _shown(spec: ServerSpec, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the variables of this server, with the reference itself for every secret."""
    if not spec.secrets:
        return environ
    return {**environ, **{name: f"${{{name}}}" for name, _ in spec.secrets}}


def _expanded(spec: ServerSpec, values: Mapping[str, str]) -> Target:
    texts = {path: expand(text, values) for path, text in strings_of(spec.target)}
    reasons = [spec.problem] if spec.problem else []
    secrets = dict(spec.secrets)
    for path, expanded in texts.items():
        place = dotted(path, spec.place)
        reasons += [
            f"secret {name} has not been read ({place}; fix: mcp-workbench doctor)"
            if name in secrets
            else unset(name, place)
            for name in expanded.missing
        ]
        if any(sign in expanded.text for sign in _forbidden(path)):
            reasons.append(f"the value has a line break or a NUL character in it ({place})")
        if expanded.is_too_long:
            reasons.append(f"its variables have too long values ({place})")
    if reasons:
        raise Unexpandable("; ".join(reasons))
    return _filled(spec.target, {path: expanded.text for path, expanded in texts.items()})


def _forbidden(path: Path) -> str:
    return (
        "\0\r\n" if path[0] in ("url", "headers", "auth") else "\0"
    )  # other values may have several lines


def _filled(target: Target, texts: dict[Path, str]) -> Target:
    if isinstance(target, HttpEndpoint):
        headers = tuple((name, texts["headers", name]) for name, _ in target.headers)
        auth = msgspec.structs.replace(
            target.auth,
            client_id=texts.get(("auth", "clientId"), ""),
            client_secret=texts.get(("auth", "clientSecret"), ""),
            client_metadata_url=texts.get(("auth", "clientMetadataUrl"), ""),
            private_key=texts.get(("auth", "privateKey"), ""),
        )
        return HttpEndpoint(texts["url",], headers, target.transport, auth)
    return StdioCommand(
        texts["command",],
        tuple(texts["args", index] for index in range(len(target.args))),
        tuple((name, texts["env", name]) for name, _ in target.env),
        texts["cwd",],
        target.folder,
        target.inherit,
        _filled_sandbox(target, texts),
        target.resources,
    )


def _filled_sandbox(target: StdioCommand, texts: dict[Path, str]) -> Sandbox:
    if target.sandbox.kind != "files":
        return target.sandbox
    paths = {
        key: tuple(texts["sandbox", key, index] for index in range(len(written)))
        for key, written in _sandbox_paths(target).items()
    }
    return msgspec.structs.replace(target.sandbox, **paths)


# Identity


def resolve_server(spec: ServerSpec, environ: Mapping[str, str]) -> ResolvedServer:
    """Returns how the server is reached with the current values. Equal ones share a connection.

    Of a secret it has the source and not the value, which is read only at launch.
    """
    environ = _shown(spec, environ)
    texts = {path: expand(text, environ).text for path, text in strings_of(spec.target)}
    target = _filled(spec.target, texts)
    if isinstance(target, StdioCommand):
        cwd = os.path.join(target.folder, target.cwd) if target.cwd else ""  # noqa: PTH118
        env = tuple(sorted(target.env))  # their order in the file does not count
        folder = target.folder if target.sandbox.kind == "files" else ""  # its paths start there
        target = msgspec.structs.replace(target, env=env, cwd=cwd, folder=folder)
    else:
        headers = tuple(sorted(target.headers))
        target = HttpEndpoint(target.url, headers, target.transport, target.auth)
    return target, spec.era, spec.scope, spec.problem, spec.secrets, spec.placement


def server_identity(spec: ServerSpec, environ: Mapping[str, str], cwd: str) -> tuple[str, ...]:
    """Returns what identifies a server, whatever its name, without the value of any secret.

    Equal identities mean equal tools, as far as that is known without asking. Command, arguments, folder
    and URL count with the values of their variables, unless the name of a variable suggests a secret.
    `env` and `headers` count as written: a token that changes every hour belongs to the same server.
    """
    target = spec.target
    environ = _shown(spec, environ)
    texts: list[str] = [spec.era]
    for path, text in sorted(strings_of(target), key=lambda pair: tuple(map(str, pair[0]))):
        plain = text if path[0] in ("env", "headers", "auth") else _plain(text, environ)
        texts += [".".join(map(str, path)), plain]
    if isinstance(target, HttpEndpoint):
        return ("url", target.transport, *texts)
    return ("command", _folder(target, environ, cwd), *texts)


def _plain(text: str, environ: Mapping[str, str]) -> str:
    named = [name for name in references(text) if not names_a_secret(name)]
    return expand(text, {name: environ[name] for name in named if name in environ}).text


def _folder(target: StdioCommand, environ: Mapping[str, str], cwd: str) -> str:
    """Returns the folder of the process, if that can make it another server."""
    given = _plain(target.cwd, environ)
    folder = os.path.join(target.folder, given) if given else cwd  # noqa: PTH118
    if given or os.path.basename(target.command) not in _RUNNERS:  # noqa: PTH119
        return folder
    # `npx -y some-server .` depends on the folder after all.
    args = [_plain(argument, environ) for argument in target.args]
    relative = [argument for argument in args if argument and not os.path.isabs(argument)]  # noqa: PTH117
    here = any(os.path.lexists(os.path.join(folder, argument)) for argument in relative)  # noqa: PTH118
    return folder if here else ""


# Secrets


def secrets_of(spec: ServerSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the values that must not be printed, each with the name to print instead."""
    args = spec.target.args if isinstance(spec.target, StdioCommand) else ()
    values = _values(spec, environ)
    secrets = dict(_secret_arguments([expand(text, values).text for text in args]))
    if isinstance(target := spec.target, StdioCommand) and target.inherit:
        inherited = [name for name in environ if names_a_secret(name) and target.inherits(name)]
        secrets |= {environ[name]: name for name in inherited}
    if isinstance(environ, Environment):
        secrets |= {old: name for name, _ in spec.secrets for old in environ.former(name)}
    for path, text in strings_of(spec.target):
        value = expand(text, values).text
        if path[0] == "headers":
            secrets |= {value: str(path[1]), value.rpartition(" ")[2]: str(path[1])}
        elif path[0] == "env" and names_a_secret(str(path[1])):
            secrets[value] = str(path[1])
        elif path == ("auth", "clientSecret"):
            secrets[value] = "clientSecret"
        elif path[0] == "url":
            secrets |= dict.fromkeys(_hidden_parts(value), "url")
        secrets |= {values[name]: name for name in references(text) if name in values}
    return {value: name for value, name in secrets.items() if len(value) >= SHORTEST}


def names_a_secret(name: str) -> bool:
    return any(word in name.upper() for word in _SECRET_WORDS)


def _hidden_parts(url: str) -> list[str]:
    """Returns the secret parts of a URL: user, password, and the query with each of its values."""
    from urllib.parse import unquote, urlsplit  # not needed at start-up

    try:
        parts = urlsplit(url)
    except ValueError:
        return [url]
    user = parts.netloc.rpartition("@")[0]
    values = [pair.partition("=")[2] for pair in parts.query.split("&")]
    hidden = [user, user.partition(":")[2], parts.query, *values]
    return [*hidden, *map(unquote, hidden)]  # a server prints them decoded


def _secret_arguments(args: list[str]) -> Iterator[tuple[str, str]]:
    """Yields literal secrets of a command line, and their names.

    `--api-key=VALUE`, `--api-key VALUE`, and inside of any argument `API_KEY=VALUE` (`docker run -e`), a
    header such as `Authorization: Bearer VALUE`, and user, password and query of a URL.
    """
    for argument, following in zip(args, (*args[1:], ""), strict=False):
        flag, equals, value = argument.partition("=")
        if flag.startswith("-") and names_a_secret(flag):
            yield value if equals else following, flag.lstrip("-")
        for name, text in _ASSIGNMENT.findall(argument) if equals else ():
            if names_a_secret(name):
                yield text, name
        if (header := _HEADER.fullmatch(argument)) and names_a_secret(header[1]):
            yield header[2], header[1]
            yield header[2].rpartition(" ")[2], header[1]
        for scheme, user in _USER.findall(argument) if "://" in argument else ():
            _, colon, password = user.partition(":")
            if colon or scheme.endswith(("http", "https")):  # a token alone, or a name
                yield user, "url"
                yield password, "url"
