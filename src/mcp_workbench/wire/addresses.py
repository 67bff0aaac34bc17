"""URLs, origins and the proxies on the way to them. Pure: nothing is resolved or opened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

DEFAULT_PORTS = {"http": 80, "https": 443}
_HOST = re.compile("[!-~]+")  # whatever else it is: it has to fit into a header


class BadAddress(ValueError):
    """A URL that can't be used; the text says why, without repeating it."""


class Address(msgspec.Struct, frozen=True):
    """Where a request goes: an origin, and a target within it."""

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

    def same_origin(self, other: Address) -> bool:
        return self.origin == other.origin

    def __repr__(self) -> str:
        return f"Address({self.origin!r})"  # the rest may hold secrets

    def joined(self, reference: str) -> Address:
        """Where a reference found at this address leads."""
        try:
            return read_address(urljoin(f"{self.origin}{self.target}", reference))
        except ValueError:  # of both
            raise BadAddress("what it leads to is no usable URL") from None


def read_address(url: str) -> Address:
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise BadAddress("the URL has no usable form: correct 'url'") from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise BadAddress("the URL is none of http:// or https://: correct 'url'")
    try:
        host = parts.hostname if parts.hostname.isascii() else _ascii_host(parts.hostname)
        target = _ascii_target(parts.path or "/", parts.query)
    except UnicodeError:
        host = target = ""
    if not _HOST.fullmatch(host):
        raise BadAddress("the URL's host name has no usable form: correct 'url'")
    user = unquote(parts.netloc.rpartition("@")[0])
    return Address(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], target, user)


def _ascii_host(host: str) -> str:
    return host.encode("idna").decode()


def _ascii_target(path: str, query: str) -> str:
    from urllib.parse import quote

    target = f"{path}?{query}" if query else path
    return quote(target, safe="%/:=&?~#+!$,;'@()*[]")


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.endswith(".localhost") or host.startswith("127.")


def proxy_for(address: Address, environ: Mapping[str, str]) -> Address | None:
    """The proxy that the environment wants for this address, if any; this machine needs none."""
    if is_loopback(address.host) or _exempt(address, _setting("no_proxy", environ)):
        return None
    # `HTTP_PROXY` may come from a request's header where a web server started us: lower case only.
    found = (
        environ.get("http_proxy", "")
        if address.scheme == "http"
        else _setting("https_proxy", environ)
    ) or _setting("all_proxy", environ)
    if not found:
        return None
    try:
        proxy = read_address(found if "://" in found else f"http://{found}")
    except BadAddress:
        raise BadAddress("the proxy of the environment is no http:// URL") from None
    if proxy.scheme != "http":
        raise BadAddress("the proxy of the environment is no http:// URL")
    return proxy


def _setting(name: str, environ: Mapping[str, str]) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def _exempt(address: Address, no_proxy: str) -> bool:
    return any(_covers(rule.strip().lower(), address) for rule in no_proxy.split(","))


def _covers(rule: str, address: Address) -> bool:
    if not rule:
        return False
    if rule == "*":
        return True
    name, _, port = rule.rpartition(":")
    if name and port.isdigit() and "]" not in port and rule.count(":") == 1:
        if int(port) != address.port:
            return False
        rule = name
    rule = rule.removeprefix("*").removeprefix(".")
    return address.host == rule or address.host.endswith(f".{rule}")
