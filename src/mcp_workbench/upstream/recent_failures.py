"""Servers that have just failed to start, remembered for the commands that follow.

A command starts servers and stops them at its end, so that the next one would start a server again that
can't run. Each failure is a small file, which is ignored after `RECENT` seconds. The shared workbench
needs none of it: it knows its servers. A server behind a URL is not started, so nothing is kept of it.

Nothing here raises: without a usable state folder, or with `MCP_WORKBENCH_CACHE=off`, nothing is remembered.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import msgspec

from mcp_workbench.config.expand import (
    Unexpandable,
    expand,
    expand_target,
    secrets_of,
    strings_of,
)
from mcp_workbench.config.state_home import private_folder, read_own, state_home, write_whole
from mcp_workbench.core.catalogue import age_text
from mcp_workbench.core.redact import redact
from mcp_workbench.core.spec import ServerSpec, StdioCommand
from mcp_workbench.upstream.cache import CatalogueFiles, is_enabled

FOLDER = "failures"
RECENT = 30.0  # seconds
MOST_BYTES = 64 << 10  # of one file


class RecentFailure(msgspec.Struct, frozen=True):
    """Why and when a server failed to start."""

    at: float  # seconds of the epoch
    reason: str

    def describe(self, now: float) -> str:
        """The reason, how old it is, and how to start the server all the same."""
        ago = age_text(max(now - self.at, 0.0))
        again = f"is not started again within {RECENT:g} s; --refresh starts it now"
        return f"{self.reason} (it failed {ago}, and {again})"


class RecentFailures:
    """The failures of the last seconds, of this user's commands."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._home = state_home(environ) if is_enabled(environ) else ""
        self._names = CatalogueFiles(environ)

    def find(self, spec: ServerSpec, now: float) -> RecentFailure | None:
        """The failure of this server, with these values of its variables, if it is recent."""
        try:
            path = self._path(spec)
            failure = msgspec.json.decode(read_own(path, MOST_BYTES), type=RecentFailure)
        except (OSError, msgspec.DecodeError):
            return None
        return failure if 0 <= now - failure.at < RECENT else None

    def note(self, spec: ServerSpec, reason: str, now: float) -> None:
        """The server could not be started. One whose variables are not set was not even tried."""
        try:
            expand_target(spec, self._environ)
        except Unexpandable:
            return
        text = redact(reason, secrets_of(spec, self._environ))
        try:
            path = self._path(spec, create=True)
            write_whole(path, msgspec.json.encode(RecentFailure(now, text)))
            self._prune(now)
        except OSError:  # the next command starts it once more
            return

    def forget(self, spec: ServerSpec) -> None:
        """The server could be started."""
        try:
            os.unlink(self._path(spec))  # noqa: PTH108
        except OSError:
            return

    def _path(self, spec: ServerSpec, *, create: bool = False) -> str:
        """Raises OSError where there can't be a file about this server."""
        if not self._home or not isinstance(spec.target, StdioCommand):
            raise FileNotFoundError
        folder = os.path.join(self._home, FOLDER)  # noqa: PTH118
        if create:
            private_folder(self._home, FOLDER)
        name = self._names.name(_identity(spec, spec.target, self._environ), create=create)
        if not name:
            raise FileNotFoundError
        return os.path.join(folder, name)  # noqa: PTH118

    def _prune(self, now: float) -> None:
        folder = os.path.join(self._home, FOLDER)  # noqa: PTH118
        with os.scandir(folder) as entries:
            old = [entry.path for entry in entries if now - entry.stat().st_mtime > RECENT]
        for path in old:
            os.unlink(path)  # noqa: PTH108


def _identity(spec: ServerSpec, target: StdioCommand, environ: Mapping[str, str]) -> Iterator[str]:
    """All that decides whether a server starts, as far as it can be compared.

    Unlike the identity of a catalogue it has the values of variables: a new token may help. Of a server
    with secrets nothing is noted, because their values are not known here.
    """
    yield from (spec.era, spec.problem, str(spec.connect_timeout), target.folder)
    yield os.path.realpath(".")
    yield environ.get("PATH", "")
    for path, text in strings_of(target):
        yield f"{path}: {expand(text, environ).text}"
    for name in sorted(environ):
        if target.inherits(name):
            yield f"{name}={environ[name]}"
