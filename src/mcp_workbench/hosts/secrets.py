"""Literal secrets in entries: found, taken out, and a variable put in their place."""

import re
from typing import cast

import msgspec

from mcp_workbench.hosts.translate import Entry, Found

_WORDS = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|KEY|AUTH|COOKIE|CREDENTIAL|DSN|(?:^|[_-])(?:PAT|PASS|PWD)(?:$|[_-])",
    re.IGNORECASE,
)
# What gives itself away: keys of well-known services, and addresses with a password in them.
TELLTALE = re.compile(
    r"\b(?:sk-|sk_live_|ghp_|gho_|ghs_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|AIza|eyJ[A-Za-z0-9_-]{8}|npg_|hf_|figd_|ntn_|lin_api_)"
    r"[A-Za-z0-9_.-]{6,}|://[^/\s:@]*:[^/\s@]+@"
)
_SCHEME = re.compile(r"(?i)(bearer|basic|token) +")
REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(?::-[^}]*)?\}")
_QUERY = re.compile(r"(?<=[?&])([^=&#]+)=([^&#]+)")
FLAG = re.compile(r"--?([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)
PLAIN = {"", "true", "false", "none", "null", "yes", "no", "0", "1"}


class Taken(msgspec.Struct, frozen=True):
    """A secret that was taken out: where it stood, and which variable stands there now."""

    server: str
    place: str
    variable: str
    blanks: bool = False  # around the value: often the reason why it does not work


class Vault:
    """Gives each secret value its variable; two values never share one."""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        self._values: dict[str, str] = {}
        self._reserved = reserved  # names that others mean something by already
        self.taken: list[Taken] = []

    def twin(self) -> "Vault":
        """One that knows the same, for a look at what would come out; it reserves nothing."""
        twin = Vault()
        twin._values = dict(self._values)
        return twin

    def variable(self, wanted: str, server: str, value: str) -> str:
        base, own = _variable(wanted), _variable(f"{server}_{wanted}")
        names = (base, own, *(f"{own}_{n}" for n in range(2, 1000)))
        for name in names:
            if name in self._reserved:
                continue
            if self._values.setdefault(name, value) == value:
                return name
        raise AssertionError("a thousand secrets of one name")

    def cleaned(self, found: Found, name: str) -> Entry:
        """The entry without its literal secrets. The value itself is kept nowhere but in memory."""
        entry = dict(found.entry)
        for key in ("env", "headers"):
            if key in entry:
                pairs = cast("dict[str, str]", entry[key])
                entry[key] = {n: self._pair(name, key, n, value) for n, value in pairs.items()}
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

    def _args(self, server: str, args: list[str]) -> list[str]:
        cleaned: list[str] = []
        flag = ""  # the one before, which may speak of this one
        for index, text in enumerate(args):
            found = FLAG.fullmatch(text)
            place = f"args[{index}]"
            if found and found[2] and is_secret(found[1], found[2]):
                head = text[: len(text) - len(found[2])]
                cleaned.append(head + self._take(server, place, f"{server}_{found[1]}", found[2]))
            elif not found and (is_secret(flag, text) or header_argument(text)):
                cleaned.append(self._argument(server, place, flag, text))
            else:
                cleaned.append(text)
            flag = found[1] if found and not found[2] else ""
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
        if at and sign and "/" not in user and not REFERENCE.fullmatch(user):
            url = f"{head}://{self._take(server, 'url', f'{server}_LOGIN', user)}@{host}"

        def value(found: re.Match[str]) -> str:
            if not is_secret(found[1], found[2]):
                return found[0]
            wanted = f"{server}_{found[1]}"
            return f"{found[1]}={self._take(server, 'url', wanted, found[2])}"

        return _QUERY.sub(value, url)

    def _take(self, server: str, place: str, wanted: str, value: str) -> str:
        literal = value.replace("$${", "${")
        variable = self.variable(wanted, server, literal)
        self.taken.append(Taken(server, place, variable, blanks=literal != literal.strip()))
        return f"${{{variable}}}"


def is_secret(name: str, value: str) -> bool:
    """Is this a literal that nobody else should read? A reference to a variable is none."""
    if value.strip().lower() in PLAIN or not REFERENCE.sub("", _SCHEME.sub("", value)).strip():
        return False
    if TELLTALE.search(value):
        return True
    return bool(_WORDS.search(name)) and not REFERENCE.search(value) and not _harmless(name, value)


def _harmless(name: str, value: str) -> bool:
    """A path to a key is not the key; nor is a number, or a choice such as `AUTH_TYPE=oauth`."""
    if re.search(r"(?i)(FILE|PATH|DIR|TYPE|MODE|METHOD|URL|URI|HOST|ENABLED|NAME|ID)$", name):
        return True
    return value.startswith(("/", "~/", "./")) and "://" not in value


def secret_query(text: str) -> bool:
    """Is this an address whose query has a secret in it?"""
    return "://" in text and any(is_secret(*found.groups()) for found in _QUERY.finditer(text))


def header_argument(text: str) -> re.Match[str] | None:
    """`Authorization: Bearer …`, as some bridges take it on their command line."""
    found = re.match(r"((?:[\w-]+): *(?:(?:Bearer|Basic|Token) +)?)(.+)", text, re.I | re.S)
    if not found or "://" in text.partition(" ")[0]:
        return None
    return found if is_secret(found[1].partition(":")[0], found[2]) else None


def _variable(wanted: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", wanted).strip("_").upper() or "SECRET"
    return name if not name[0].isdigit() else f"_{name}"
