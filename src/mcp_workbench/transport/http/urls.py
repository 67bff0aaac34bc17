"""URLs, origins and the proxies for them. Nothing is resolved or opened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

DEFAULT_PORTS = {"http": 80, "https": 443}
LONGEST_NON_ASCII = 2048  # characters of a URL
_HOST = re.compile("[!-~]+")  # it has to fit into a header


class BadUrl(ValueError):
    """A URL that can't be used; the message says why, without repeating it."""


class Url(msgspec.Struct, frozen=True):
    """An HTTP URL: an origin, and a target within it."""

    scheme: str
    host: str
    port: int
    target: str = "/"
    user: str = ""  # `name:password`, where the URL carries one

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        return f"{self.scheme}://{self.authority}"

    def same_origin(self, other: Url) -> bool:
        return self.origin == other.origin

    def __repr__(self) -> str:
        return f"Url({self.origin!r})"  # the rest may hold secrets

    def joined(self, reference: str) -> Url:
        """Resolve a reference relative to this URL."""
        try:
            if is_slow_to_parse(reference):
                raise BadUrl("too long")
            return parse_url(urljoin(f"{self.origin}{self.target}", reference))
        except ValueError:  # of all three
            raise BadUrl("the URL it refers to is not valid") from None


def is_slow_to_parse(url: str) -> bool:
    """Whether it is long and not ASCII: Python normalizes its host, in quadratic time."""
    return len(url) > LONGEST_NON_ASCII and not url.isascii()


def parse_url(text: str) -> Url:
    """Parse an http:// or https:// URL. Raises BadUrl."""
    if is_slow_to_parse(text):
        raise BadUrl("the URL is too long: correct 'url'")
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise BadUrl("the URL is not valid: correct 'url'") from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise BadUrl("the URL must start with http:// or https://: correct 'url'")
    try:
        host = parts.hostname if parts.hostname.isascii() else _ascii_host(parts.hostname)
        target = _ascii_target(parts.path or "/", parts.query)
    except UnicodeError:
        host = target = ""
    if not _HOST.fullmatch(host):
        raise BadUrl("the URL's host name is not valid: correct 'url'")
    user = unquote(parts.netloc.rpartition("@")[0])
    return Url(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], target, user)


def _ascii_host(host: str) -> str:
    return host.encode("idna").decode()


def _ascii_target(path: str, query: str) -> str:
    from urllib.parse import quote

    target = f"{path}?{query}" if query else path
    return quote(target, safe="%/:=&?~#+!$,;'@()*[]")


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.endswith(".localhost") or host.startswith("127.")


def proxy_for(url: Url, environ: Mapping[str, str]) -> Url | None:
    """Return the proxy that the environment sets for this URL, if any; loopback never has one."""
    if is_loopback(url.host) or _exempt(url, _setting("no_proxy", environ)):
        return None
    # Lower case only: a CGI server sets `HTTP_PROXY` from a request's `Proxy` header.
    setting = (
        environ.get("http_proxy", "") if url.scheme == "http" else _setting("https_proxy", environ)
    ) or _setting("all_proxy", environ)
    if not setting:
        return None
    try:
        proxy = parse_url(setting if "://" in setting else f"http://{setting}")
    except BadUrl:
        raise BadUrl("the proxy set in the environment is not an http:// URL") from None
    if proxy.scheme != "http":
        raise BadUrl("the proxy set in the environment is not an http:// URL")
    return proxy


def _setting(name: str, environ: Mapping[str, str]) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def _exempt(url: Url, no_proxy: str) -> bool:
    return any(_covers(rule.strip().lower(), url) for rule in no_proxy.split(","))


def _covers(rule: str, url: Url) -> bool:
    if not rule:
        return False
    if rule == "*":
        return True
    name, _, port = rule.rpartition(":")
    if name and port.isdigit() and "]" not in port and rule.count(":") == 1:
        if int(port) != url.port:
            return False
        rule = name
    rule = rule.removeprefix("*").removeprefix(".")
    return url.host == rule or url.host.endswith(f".{rule}")
