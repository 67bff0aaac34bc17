"""Literal secrets: replaced by variables on import, and hidden in previews."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec

from mcp_workbench.config import jsonc
from mcp_workbench.config.kinds import SECRET_WORDS
from mcp_workbench.hosts.read import Entry, HostServer

_WORDS = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|KEY|AUTH|COOKIE|CREDENTIAL|DSN|(?:^|[_-])(?:PAT|PASS|PWD)(?:$|[_-])",
    re.IGNORECASE,
)
# Secrets by their look: keys of well-known services, and URLs with a password.
SECRET_LOOK = re.compile(
    r"\b(?:sk-|sk_live_|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|AIza|eyJ[A-Za-z0-9_-]{8}|npg_|hf_|figd_|ntn_|lin_api_)"
    r"[A-Za-z0-9_.-]{6,}|://[^/\s:@]*:[^/\s@]+@"
)
_SCHEME = re.compile(r"(?i)(bearer|basic|token) +")
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?\}")
_QUERY = re.compile(r"(?<=[?&])([^=&#?]+)=([^&#]+)")
FLAG = re.compile(r"--?([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)
PLAIN = {"", "true", "false", "none", "null", "yes", "no", "0", "1"}
Path = tuple[str | int, ...]
Span = tuple[int, int]
HIDDEN = "[hidden]"
# Objects whose values are hidden unless they are plainly no secrets.
_MOSTLY_HIDDEN = {"env", "environment", "envs", "headers", "http_headers"}
# Values that are plainly no secrets: numbers and words such as `debug`, `eu-west-1`, `Europe/Paris` or
# `application/json`; a path or a URL of such words. Letters next to digits may be a key.
_PLAIN_WORD = r"(?:[A-Z]?[a-z]{1,14}|[A-Z]{1,10}|v?\d{1,5})"
_PLAIN_VALUE = re.compile(rf"(?:https?://|~?/|\./|\.)?(?:{_PLAIN_WORD}(?:[-_.:,+=/]|$))*", re.ASCII)
LONGEST_PLAIN = 80  # characters of such a value
# Under these names a word may be a secret, too.
_DOUBTFUL_NAME = re.compile(
    r"PASSPHRASE|PHRASE|PRIVATE|SALT|SEED|SIGN|SESSION|WEBHOOK|LICEN[CS]E|LOGIN|CODE|(?:^|[_-])PIN(?:$|[_-])",
    re.IGNORECASE,
)
# Variables in the hosts' own syntax: names, no values.
_NAMED = re.compile(r"(?:(?:Bearer )?(?:\$\{(?:env|input):[^}]+\}|\{env:\w+\}|\$\w+))")


class ExtractedSecret(msgspec.Struct, frozen=True):
    """A secret that was replaced: where it was, and by which variable."""

    server: str
    place: str
    variable: str
    blanks: bool = False  # around the value: a common reason why it does not work


class Vault:
    """Assigns a variable to each secret value; two values never share one."""

    def __init__(
        self,
        reserved: frozenset[str] = frozenset(),
        stored: Mapping[str, str] | None = None,
    ) -> None:
        self._values: dict[str, str] = {}
        self._reserved = reserved  # names that are already in use
        self._stored = stored or {}  # values that some names have in the encrypted store
        self.taken: list[ExtractedSecret] = []

    def values(self) -> dict[str, str]:
        """Returns the secrets by the variables that stand for them."""
        return dict(self._values)

    def variable(self, wanted: str, server: str, value: str) -> str:
        for name in variable_names(wanted, server):
            if name in self._reserved or self._stored.get(name, value) != value:
                continue
            if self._values.setdefault(name, value) == value:
                return name
        raise AssertionError("a thousand secrets of one name")

    def cleaned(self, server: HostServer, name: str) -> Entry:
        """Returns the entry without its literal secrets; the values stay in memory only."""
        entry = dict(server.entry)
        for key in ("env", "headers"):
            if key in entry:
                pairs = cast("dict[str, str]", entry[key])
                entry[key] = {n: self._pair(name, key, n, value) for n, value in pairs.items()}
        if "clientSecret" in entry.get("auth", {}):
            secret = self._client_secret(name, entry["auth"]["clientSecret"])
            entry["auth"] = entry["auth"] | {"clientSecret": secret}
        if "args" in entry:
            entry["args"] = self._args(name, entry["args"])
        if "url" in entry:
            entry["url"] = self._url(name, entry["url"])
        return entry

    def _pair(self, server: str, kind: str, name: str, value: str) -> str:
        if not is_secret(name, value):
            return value
        scheme = _SCHEME.match(value) if kind == "headers" else None
        prefix = scheme[0] if scheme else ""
        wanted = f"{server}_TOKEN" if name.lower() == "authorization" else name
        return prefix + self._take(server, f"{kind}.{name}", wanted, value[len(prefix) :])

    def _client_secret(self, server: str, value: str) -> str:
        if not is_secret("clientSecret", value):
            return value
        return self._take(server, "auth.clientSecret", f"{server}_CLIENT_SECRET", value)

    def _args(self, server: str, args: list[str]) -> list[str]:
        cleaned: list[str] = []
        flag = ""  # the option before, which may name this value
        for index, text in enumerate(args):
            match = FLAG.fullmatch(text)
            place = f"args[{index}]"
            if match and match[2] and is_secret(match[1], match[2]):
                head = text[: len(text) - len(match[2])]
                cleaned.append(head + self._take(server, place, f"{server}_{match[1]}", match[2]))
            elif not match and (is_secret(flag, text) or header_argument(text)):
                cleaned.append(self._argument(server, place, flag, text))
            else:
                cleaned.append(text)
            flag = match[1] if match and not match[2] else ""
        return cleaned

    def _argument(self, server: str, place: str, flag: str, text: str) -> str:
        header = header_argument(text)
        if header:
            return header[1] + self._take(server, place, f"{server}_TOKEN", text[header.end(1) :])
        wanted = f"{server}_{flag}" if flag else f"{server}_{'URL' if '://' in text else 'KEY'}"
        return self._take(server, place, wanted, text)

    def _url(self, server: str, url: str) -> str:
        head, at, rest = url.partition("://")
        user, sign, host = rest.partition("@")
        if at and sign and "/" not in user and not _REFERENCE.fullmatch(user):
            url = f"{head}://{self._take(server, 'url', f'{server}_LOGIN', user)}@{host}"

        def value(match: re.Match[str]) -> str:
            if not is_secret(match[1], match[2]):
                return match[0]
            wanted = f"{server}_{match[1]}"
            return f"{match[1]}={self._take(server, 'url', wanted, match[2])}"

        return _QUERY.sub(value, url)

    def _take(self, server: str, place: str, wanted: str, value: str) -> str:
        literal = value.replace("$${", "${")
        variable = self.variable(wanted, server, literal)
        self.taken.append(
            ExtractedSecret(server, place, variable, blanks=literal != literal.strip())
        )
        return f"${{{variable}}}"


def variable_names(wanted: str, server: str) -> Iterator[str]:
    """Yields the names that the variable of this secret may get, the best first."""
    base, own = _variable(wanted), _variable(f"{server}_{wanted}")
    yield from (base, own)
    yield from (f"{own}_{n}" for n in range(2, 1000))


# A reference ends with a brace: beyond the last one, every `${` would be looked at to the end of the text.


def has_reference(text: str) -> bool:
    """Is there a variable in this text?"""
    return _REFERENCE.search(text, 0, text.rfind("}") + 1) is not None


def replace_references(text: str, value: str) -> str:
    """Returns the text with this value in place of every variable."""
    end = text.rfind("}") + 1
    return _REFERENCE.sub(lambda _: value, text[:end]) + text[end:]


def is_secret(name: str, value: str) -> bool:
    """Is this a literal secret? A reference to a variable is not."""
    if value.strip().lower() in PLAIN or not replace_references(_SCHEME.sub("", value), "").strip():
        return False
    if SECRET_LOOK.search(value):
        return True
    return bool(_WORDS.search(name)) and not has_reference(value) and not _harmless(name, value)


def _harmless(name: str, value: str) -> bool:
    """A path to a key is not a secret; nor is a choice such as `AUTH_TYPE=oauth`."""
    if re.search(r"(?i)(FILE|PATH|DIR|TYPE|MODE|METHOD|URL|URI|HOST|ENABLED|NAME|ID)$", name):
        return True
    return value.startswith(("/", "~/", "./")) and "://" not in value


def secret_query(text: str) -> bool:
    """Is this a URL with a secret in its query?"""
    return "://" in text and any(is_secret(*match.groups()) for match in _QUERY.finditer(text))


def header_argument(text: str) -> re.Match[str] | None:
    """`Authorization: Bearer …`, as some stdio-to-HTTP bridges accept it on their command line."""
    match = re.match(r"((?:[\w-]+): *(?:(?:Bearer|Basic|Token) +)?)(.+)", text, re.I | re.S)
    if not match or "://" in text.partition(" ")[0]:
        return None
    return match if is_secret(match[1].partition(":")[0], match[2]) else None


def _variable(wanted: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", wanted).strip("_").upper() or "SECRET"
    return name if not name[0].isdigit() else f"_{name}"


def masked(text: str, format: str) -> str:
    """Returns the text with every secret in it hidden."""
    if not text.strip():
        return text
    if format == "toml":
        from mcp_workbench.hosts.edit_toml import with_values  # only where there is such a file

        return with_values(
            text, lambda path, literal: HIDDEN if _is_secret_toml(path, literal) else None
        )
    pieces: list[str] = []
    at = 0
    for start, end in sorted(set(_json(text))):
        pieces += text[at:start], f'"{HIDDEN}"'
        at = end
    return "".join([*pieces, text[at:]])


def _json(text: str) -> Iterator[Span]:
    root = jsonc.read(text)
    for path in secret_strings(root.value):
        node = jsonc.find(root, path).node
        yield node.start, node.end


def _is_secret_toml(path: Path, literal: str) -> bool:
    """Is this TOML literal to be hidden as a whole?"""
    words = literal.replace("'", '"').split('"')
    listed = "args" in path and any(_hidden_words(words[1::2]))
    value = literal.strip(" \"'")
    mostly_hidden = bool(_MOSTLY_HIDDEN & set(path)) and not _is_plain(str(path[-1]), value)
    return mostly_hidden or listed or _looks_secret(str(path[-1]), value)


def secret_strings(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yields the paths of all strings that are, or may be, secrets."""
    if isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            yield from secret_strings(item, (*path, key))
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        words = [item if isinstance(item, str) else "" for item in items]
        for index, (item, hidden) in enumerate(zip(items, _hidden_words(words), strict=True)):
            yield from [(*path, index)] if hidden else secret_strings(item, (*path, index))
    elif isinstance(value, str) and _hidden(path, value):
        yield path


def _hidden(path: Path, value: str) -> bool:
    named = _NAMED.fullmatch(value) or has_reference(value)
    if named and not SECRET_LOOK.search(value):
        return False
    if path[:1] == ("secrets",) and len(path) == 2 and value in SECRET_WORDS:
        return False  # where our own configuration says that it comes from
    if _MOSTLY_HIDDEN & set(path) and not _is_plain(str(path[-1]), value):
        return True
    return _looks_secret(str(path[-1]) if path else "", value)


def _is_plain(name: str, value: str) -> bool:
    """Is this plainly no secret? One that `is_secret` recognizes is hidden all the same."""
    value = value.strip()
    if value.lower() in PLAIN:
        return True
    if len(value) > LONGEST_PLAIN or _DOUBTFUL_NAME.search(name):
        return False
    return _PLAIN_VALUE.fullmatch(value) is not None


def _looks_secret(name: str, value: str) -> bool:
    return is_secret(name, value) or secret_query(value) or bool(header_argument(value))


def _hidden_words(words: list[str]) -> Iterator[bool]:
    """Yields for each word of a command line whether it is secret: `--token X`, `--token=X`, or by its look."""
    flag = ""
    for word in words:
        match = FLAG.fullmatch(word)
        assigned = bool(match and match[2] and is_secret(match[1], match[2]))
        yield assigned or (not match and _looks_secret(flag, word))
        flag = match[1] if match and not match[2] else ""
