"""Reads what servers define, for `lock` and its subcommands, and compares it with the lock file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mcp_workbench.app import run_interruptible
from mcp_workbench.cli.lock_packages import resolved_package
from mcp_workbench.cli.settings import Settings
from mcp_workbench.cli.terminal import ProgressLine
from mcp_workbench.config.lock_file import NotWritten, lock_path, read_lock
from mcp_workbench.config.lock_records import new_entry
from mcp_workbench.core.errors import InvalidCall, did_you_mean
from mcp_workbench.core.lock_changes import Hashes, ServerReview, review_server
from mcp_workbench.core.lock_states import hashes_of
from mcp_workbench.core.spec import LockedServer, LockFile, ServerSpec, Snapshot
from mcp_workbench.gateway.interactive import interactive_session
from mcp_workbench.gateway.received_definitions import (
    CAPABILITIES,
    ReceivedDefinitions,
    cached_definitions,
    received_definitions,
)
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.protocol.elicitation import ROOTS, Question
from mcp_workbench.upstream.cache import SWITCH, CatalogueCache

NO_FILE = "there is no configuration file, and so no place for a lock file"


class ReadServer(msgspec.Struct, frozen=True):
    """A server as it is now, compared with the lock file."""

    review: ServerReview
    received: ReceivedDefinitions
    fresh: LockedServer  # an entry without definitions, as it would be made now

    @property
    def spec(self) -> ServerSpec:
        return self.review.spec

    @property
    def texts(self) -> dict[str, bytes]:
        """The definitions by their hash."""
        lists, reviews = self.received.lists, self.review.reviews
        return {
            reviews[kind].hashes[name]: raw
            for kind, found in lists.items()
            for name, raw in found.items()
        }


def lock_of(snapshot: Snapshot) -> LockFile:
    """Returns the lock file of this configuration. Raises if there can't be one, or it can't be used."""
    if not snapshot.origin:
        raise InvalidCall(NO_FILE, hint="mcp-workbench init writes one")
    lock = snapshot.lock or read_lock(lock_path(snapshot.origin))
    if lock.problem is not None:
        raise NotWritten(lock.problem.message, hint=lock.problem.fix)
    return lock


def locked_specs(snapshot: Snapshot, which: str = "") -> list[ServerSpec]:
    """Returns the servers that the lock file is for: all, those of a toolbox, or one."""
    specs = [s for box in snapshot.toolboxes.values() for s in box.servers.values()]
    named = [s for s in specs if not which or which in (s.address.toolbox, str(s.address))]
    if which and not named:
        known = [name for s in specs for name in (s.address.toolbox, str(s.address))]
        hint = did_you_mean(which, known) or "mcp-workbench list shows the servers"
        raise InvalidCall(f"no toolbox or server '{which}'", hint=hint)
    return [spec for spec in named if spec.lock != "off" or which]


def read_servers(
    settings: Settings, snapshot: Snapshot, lock: LockFile, specs: Sequence[ServerSpec]
) -> list[ReadServer]:
    """Starts these servers, all at once, and compares what they define with the lock file."""
    settings.open_log(reports_servers=True)
    open_snapshot = msgspec.structs.replace(snapshot, lock=None, audit=None)
    received = run_interruptible(_read(settings, open_snapshot, specs)) if specs else []
    return [_compared(one, lock, spec) for one, spec in zip(received, specs, strict=True)]


def cached_servers(lock: LockFile, specs: Sequence[ServerSpec]) -> list[ReadServer]:
    """The same, as far as it is cached; starts nothing."""
    cache = CatalogueCache(os.environ)
    servers: list[ReadServer] = []
    for spec in specs:
        known = cache.recall_received(spec)
        received = (
            ReceivedDefinitions(spec.address)
            if known is None
            else cached_definitions(spec.address, known)
        )
        servers.append(_compared(received, lock, spec))
    return servers


def _compared(received: ReceivedDefinitions, lock: LockFile, spec: ServerSpec) -> ReadServer:
    hashes: Hashes = {kind: hashes_of(found) for kind, found in received.lists.items()}
    entry = lock.servers.get(str(spec.address))
    review = review_server(spec, entry, hashes, received.capabilities)
    fresh = msgspec.structs.replace(
        new_entry(spec, os.environ),
        package=resolved_package(spec, os.environ),
        server=received.program,
    )
    return ReadServer(review, received, fresh)


async def _read(
    settings: Settings, snapshot: Snapshot, specs: Sequence[ServerSpec]
) -> list[ReceivedDefinitions]:
    line = ProgressLine(wanted=settings.talkative)
    gateway = Gateway(snapshot, environ=without_cache())
    async with gateway, interactive_session(gateway.view, _AskedForEverything()) as session:
        names = ", ".join(str(spec.address) for spec in specs)
        try:
            with line.waiting(f"reading {names}"):
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(received_definitions(session.view, spec.address))
                        for spec in specs
                    ]
        finally:
            line.clear()
    return [task.result() for task in tasks]


def without_cache() -> Mapping[str, str]:
    """Our environment without the cache: what is read here is for this command only."""
    return {**os.environ, SWITCH: "off"}


class _AskedForEverything:
    """A host that declares every capability, so that servers offer all they have, and answers nothing."""

    capabilities: dict[str, Any] = CAPABILITIES

    async def answer(self, question: Question) -> dict[str, Any] | None:
        return {"roots": []} if question.method == ROOTS else None
