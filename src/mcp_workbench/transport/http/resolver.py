"""Names of hosts. Each is looked up in a thread of its own, and once for all who need it.

The threads that event loops have for this are few (four with uvloop): as many names whose name servers are silent
would keep everybody waiting who connects to another host.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

MOST = 128  # names at once; each takes a thread

Lookup = Callable[[str], list[str]]  # raises OSError


def system_lookup(host: str) -> list[str]:
    """The addresses of a host, in the order in which they should be tried. Blocks."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError:  # a part of it is empty, or too long
        raise socket.gaierror(socket.EAI_NONAME, "it is not the name of a host") from None
    return list(dict.fromkeys(_address(info[4]) for info in found))


def _address(place: tuple[Any, ...]) -> str:
    """The address, with the interface of one that is valid on one link only."""
    host, _, *more = place
    return f"{host}%{more[-1]}" if more and more[-1] else str(host)


class Resolver:
    """Looks names up for one event loop."""

    _of: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, Resolver]] = WeakKeyDictionary()

    def __init__(self, lookup: Lookup = system_lookup) -> None:
        self._lookup = lookup
        self._pending: dict[str, asyncio.Future[list[str] | OSError]] = {}

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> Resolver:
        return cls._of.setdefault(loop, cls())

    async def addresses(self, host: str) -> list[str]:
        """The addresses of a host; an address is its own. Raises OSError."""
        if _is_address(host):
            return [host]
        found = self._pending.get(host) or self._begin(host)
        await asyncio.wait((found,))  # whoever leaves early leaves it to the others
        result = found.result()
        if isinstance(result, OSError):
            raise result
        return result

    def _begin(self, host: str) -> asyncio.Future[list[str] | OSError]:
        if len(self._pending) >= MOST:
            raise OSError(errno.EAGAIN, "too many names of hosts are being looked up")
        loop = asyncio.get_running_loop()
        found = self._pending[host] = loop.create_future()
        work = threading.Thread(target=self._run, args=(loop, host), name="resolver", daemon=True)
        work.start()
        return found

    def _run(self, loop: asyncio.AbstractEventLoop, host: str) -> None:
        try:
            found: list[str] | OSError = self._lookup(host)
        except OSError as error:
            found = error
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(self._found, host, found)

    def _found(self, host: str, found: list[str] | OSError) -> None:
        self._pending.pop(host).set_result(found)


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError, ValueError):
            socket.inet_pton(family, host.partition("%")[0])
            return True
    return False
