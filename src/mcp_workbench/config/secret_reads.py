"""Reads of secrets beside the event loop: each in a thread, shared by all servers that wait for it.

Servers that start together read a keyring, or the encrypted store, together: one process serves all of
them. A command or a file is read on its own, so that a slow one costs the servers that need it and no
other. A thread that never comes back is left behind; it does not keep the program from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

from mcp_workbench.config.expand import Environment, Unexpandable, dotted, references, strings_of
from mcp_workbench.config.secret_sources import Outcome, read_secrets
from mcp_workbench.core.errors import SecretUnavailable
from mcp_workbench.core.spec import SecretSource, ServerSpec
from mcp_workbench.timing import deadline

FRESH = 300.0  # seconds for which a value that was read is used for further launches
MARGIN = 5.0  # seconds beyond the time limits of the sources themselves

Pair = tuple[str, SecretSource]


class SecretRead:
    """One read, of one or more secrets."""

    def __init__(self) -> None:
        self.sources: dict[str, SecretSource] = {}
        self.outcomes: Mapping[str, Outcome] = {}
        self.done = asyncio.Event()


class SecretReads:
    """The reads of one environment. Its methods are called in the event loop."""

    def __init__(self, environ: Environment) -> None:
        self._environ = environ
        self.loop = asyncio.get_running_loop()
        self._under_way: dict[Pair, SecretRead] = {}
        self._open: dict[object, SecretRead] = {}  # begin in a moment, and take more until then

    def reading(self, name: str, source: SecretSource) -> SecretRead:
        """Return the read of this secret that is under way, or begin one."""
        pair = (name, source)
        if pair in self._under_way:
            return self._under_way[pair]
        shared = source.kind in ("store", "keyring")
        key: object = source.kind if shared else pair
        reading = self._open.get(key)
        if reading is None or name in reading.sources:
            reading = self._open[key] = SecretRead()
            self.loop.call_soon(self._begin, key, reading)
        reading.sources[name] = source
        self._under_way[pair] = reading
        return reading

    def _begin(self, key: object, reading: SecretRead) -> None:
        if self._open.get(key) is reading:
            del self._open[key]
        plain = dict(self._environ)

        def read() -> None:
            outcomes = read_secrets(reading.sources, plain)
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(self._end, reading, outcomes)

        threading.Thread(target=read, name="secrets", daemon=True).start()
        longest = max(source.timeout for source in reading.sources.values())
        self.loop.call_later(deadline(longest) + MARGIN, self._give_up, reading)

    def _give_up(self, reading: SecretRead) -> None:
        error = SecretUnavailable(
            "WB-SEC-606", "it could not be read in time", hint="mcp-workbench doctor"
        )
        self._end(reading, dict.fromkeys(reading.sources, error))

    def _end(self, reading: SecretRead, outcomes: Mapping[str, Outcome]) -> None:
        if reading.done.is_set():
            return
        for name, source in reading.sources.items():
            value = outcomes[name]
            self._environ.keep(name, source, value if isinstance(value, str) else None)
            del self._under_way[name, source]
        reading.outcomes = outcomes
        reading.done.set()


async def prepare(environ: Environment, spec: ServerSpec) -> None:
    """Read the secrets of this server that are not fresh. Raises Unexpandable with every reason."""
    reads = environ.reads
    if not isinstance(reads, SecretReads) or reads.loop is not asyncio.get_running_loop():
        reads = environ.reads = SecretReads(environ)
    readings = {
        name: reads.reading(name, source)
        for name, source in spec.secrets
        if not environ.is_fresh(name, source, FRESH)
    }
    for reading in readings.values():
        await reading.done.wait()
    failures = {
        name: outcome
        for name, reading in readings.items()
        if isinstance(outcome := reading.outcomes[name], SecretUnavailable)
    }
    if failures:
        raise Unexpandable("; ".join(_reason(spec, n, error) for n, error in failures.items()))


def _reason(spec: ServerSpec, name: str, error: SecretUnavailable) -> str:
    places = [
        dotted(path, spec.place)
        for path, text in strings_of(spec.target)
        if name in references(text)
    ]
    return f"{error.message}, {error.code} ({places[0]}; fix: {error.hint})"
