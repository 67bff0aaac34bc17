"""What a host's entry says about signing in, as our `auth`.

Hosts keep their tokens to themselves, so a login is needed here as well; what stands in the file is the client
that somebody registered, its scopes and its port. The spellings differ: `oauth.clientId` (Claude Code, VS Code,
Gemini CLI, opencode), `oauth.client_id` (Codex, Zed), `auth.CLIENT_ID` (Cursor), `oauthClientId` (Copilot CLI).
"""

import re
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import urlsplit

from mcp_workbench.config.expand import names_a_secret

Entry = dict[str, Any]

_OBJECTS = ("oauth", "auth")
_BESIDE = ("oauthClientId", "oauthScopes", "scopes", "oauthPublicClient")
_OURS = {
    "clientid": "clientId",
    "clientsecret": "clientSecret",
    "scope": "scopes",
    "scopes": "scopes",
    "callbackport": "redirectPort",
    "redirectport": "redirectPort",
    "callbackurl": "redirectPort",
    "redirecturi": "redirectPort",
}
_SILENT = ("enabled", "publicclient")
_LOOPBACK = ("127.0.0.1", "localhost")


class HostSignIn:
    """The keys of one entry that are about signing in."""

    def __init__(self, raw: Entry) -> None:
        self.auth: Entry = {}  # as we write it; its texts are not translated yet
        self.used: set[str] = set()
        self.left: list[str] = []  # what has no place here
        for key in _OBJECTS:
            value = raw.get(key)
            if isinstance(value, dict):
                self.used.add(key)
                for name, item in cast("Entry", value).items():
                    self._take(f"{key}.{name}", name, item)
            elif isinstance(value, bool):
                self.used.add(key)
        for key in _BESIDE:
            if key in raw:
                self.used.add(key)
                self._take(key, key.removeprefix("oauth"), raw[key])

    def _take(self, place: str, name: str, value: Any) -> None:
        plain = re.sub("[^a-z]", "", name.lower()).removeprefix("oauth")
        ours = _OURS.get(plain, "")
        converted = _CONVERTERS[ours](value) if ours else None
        if converted:
            self.auth.setdefault(ours, converted)
        elif plain not in _SILENT:
            self.left.append(place)

    def notes(self) -> Iterator[str]:
        """What the user has to know about this entry."""
        if self.left:
            yield f"not carried: {', '.join(self.left)}"
        if "clientId" in self.auth:
            port = self.auth.get("redirectPort")
            where = f"http://127.0.0.1:{port}/callback" if port else "http://127.0.0.1/callback"
            yield f"its client must allow the redirect address {where}, which login uses here"


def has_no_credential(entry: Entry) -> bool:
    """Is this a server at a URL that is sent no credential? Then its host may sign in by itself."""
    headers = cast("Entry", entry.get("headers") or {})
    user = "@" in str(entry.get("url", "")).partition("://")[2].partition("/")[0]
    return "url" in entry and not user and not any(map(names_a_secret, headers))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _scopes(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split()
    words = cast("list[Any]", value) if isinstance(value, list) else []
    return [word for word in words if isinstance(word, str)]


def _port(value: Any) -> int:
    """A port, also of an address on the loopback that ends like ours."""
    if isinstance(value, str):
        try:
            parts = urlsplit(value)
            port = parts.port or 0
        except ValueError:
            return 0
        fits = parts.hostname in _LOOPBACK and parts.path == "/callback"
        return port if fits else 0
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 16
    return value if usable else 0


_CONVERTERS = {
    "clientId": _text,
    "clientSecret": _text,
    "scopes": _scopes,
    "redirectPort": _port,
}
