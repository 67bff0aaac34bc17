"""Who may see the page: addresses that open it once, and the cookies that they become.

Both are signed with a key in the state folder, so that any command of this user can make an address, and an
open page outlives a restart. An address is good for two minutes, once, and only in a process that was started
before the address was made. A cookie belongs to one configuration file, and to a path that nobody can guess:
browsers send cookies to every port of a host name, and this one must not reach another port's pages.
"""

from __future__ import annotations

import base64
import hmac
import os
import secrets
import time
from collections.abc import Mapping
from hashlib import sha256

from mcp_workbench.config.state_home import private_folder, read_own, state_home, write_whole

PAGE = "/ui"  # everything about the page is below this path
OPEN = "/ui/open/"  # addresses that open it
FOLDER, KEY_FILE = "ui", "key"  # in the state folder
KEY_BYTES = 32
ADDRESS_SECONDS = 120.0  # an address is opened by the command that made it, or pasted
COOKIE_SECONDS = 12 * 3600.0  # a working day; each load of the page renews it
USED = 1024  # addresses that are remembered as used; more were not made within their two minutes
NAME = "workbench-page"
SECURE_NAME = "__Secure-" + NAME

_LONGEST = 200  # characters of a signed value


class PageKey:
    """Signs and checks what opens the page of one configuration."""

    def __init__(self, key: bytes, config: str, *, started: float = 0.0) -> None:
        self._key = hmac.new(key, b"page " + os.fsencode(config), sha256).digest()
        self.started = started  # addresses that were made before are refused
        self._used: dict[str, float] = {}  # addresses, and until when they were good
        self.path = f"{PAGE}/{_text(self._mac('path', ''))[:16]}/"

    # Addresses

    def new_address(self, now: float) -> str:
        """A path that opens the page, once."""
        return OPEN + self._signed("open", now)

    def opens(self, code: str, now: float) -> bool:
        """Use up an address. Whether it was good."""
        made = self._checked("open", code)
        is_good = made is not None and made >= self.started and 0 <= now - made <= ADDRESS_SECONDS
        if not is_good or code in self._used:
            return False
        self._used = {one: until for one, until in self._used.items() if until >= now}
        if len(self._used) >= USED:
            return False
        self._used[code] = now + ADDRESS_SECONDS
        return True

    # Cookies

    def new_cookie(self, now: float, *, secure: bool) -> bytes:
        """The header that sets it."""
        name, more = (SECURE_NAME, "; Secure") if secure else (NAME, "")
        value = self._signed("cookie", now)
        return (
            f"Set-Cookie: {name}={value}; Path={self.path}; Max-Age={COOKIE_SECONDS:.0f}; HttpOnly; "
            f"SameSite=Strict{more}\r\n"
        ).encode()

    def admits(self, cookies: bytes, now: float) -> bool:
        """Whether one of these cookies is ours, and good."""
        pairs = (pair.strip().partition("=") for pair in cookies.decode("latin-1").split(";"))
        values = [value for name, _, value in pairs if name in (NAME, SECURE_NAME)]
        if len(values) != 1:
            return False
        made = self._checked("cookie", values[0])
        return made is not None and 0 <= now - made <= COOKIE_SECONDS

    # Signatures

    def _signed(self, kind: str, now: float) -> str:
        made = f"{int(now * 1000):x}"
        nonce = secrets.token_urlsafe(12)
        return f"{made}.{nonce}.{_text(self._mac(kind, f'{made}.{nonce}'))}"

    def _checked(self, kind: str, value: str) -> float | None:
        """When this was signed; None if it was not."""
        if len(value) > _LONGEST or not value.isascii():
            return None
        content, _, mac = value.rpartition(".")
        if not hmac.compare_digest(mac, _text(self._mac(kind, content))):
            return None
        return int(content.partition(".")[0], 16) / 1000

    def _mac(self, kind: str, content: str) -> bytes:
        return hmac.new(self._key, f"{kind} {content}".encode(), sha256).digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def page_key(environ: Mapping[str, str], config: str, *, starts: bool = False) -> PageKey:
    """The key of this user's pages, made if there is none. Raises OSError if it can't be kept.

    `starts`: for a process that serves the page from now on.
    """
    started = int(now() * 1000) / 1000 if starts else 0.0  # as exact as what is signed
    return PageKey(_stored_key(environ), config, started=started)


def now() -> float:
    """The time of day: addresses and cookies are checked by other processes than those that made them."""
    return time.time()


def _stored_key(environ: Mapping[str, str]) -> bytes:
    path = os.path.join(private_folder(state_home(environ), FOLDER), KEY_FILE)  # noqa: PTH118
    try:
        key = read_own(path, KEY_BYTES)
    except FileNotFoundError:
        write_whole(path, secrets.token_bytes(KEY_BYTES), replace=False)
        key = read_own(path, KEY_BYTES)
    if len(key) != KEY_BYTES:
        raise OSError(f"{path} is damaged: remove it, and all pages have to be opened again")
    return key
