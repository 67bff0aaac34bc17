"""`check` and `doctor`: whether `cluster` can be used: its values, its engine, its key, its address."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mcp_workbench.cli.doctor_checks import CheckResult, problem_result
from mcp_workbench.config.cluster_settings import ClusterConfig, join_address, resolve_cluster
from mcp_workbench.core.errors import ConfigError, Problem
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.timing import deadline

if TYPE_CHECKING:
    from mcp_workbench.cluster.census import Census

SUBJECT = "cluster"
UNSET = "WB-CONF-021"
UNUSABLE = "WB-CONF-060"
AWAY = "WB-CONN-107"
REFUSED = "WB-CONN-108"
CLOCK_FIX = "let both set their clocks by the network: replicas may differ by ten seconds"
PATIENCE = deadline(5.0)  # seconds for the engine


def cluster_problems(snapshot: Snapshot, *, connect: bool) -> Iterator[Problem]:
    """What keeps `serve --http` from starting here; unset variables were reported before."""
    try:
        config = resolve_cluster(snapshot, os.environ)
    except ConfigError as error:
        yield from (_warning(problem) for problem in error.problems if problem.code != UNSET)
        return
    if config is not None and connect:
        yield from (_warning(problem) for problem in _unusable(config))


def check_cluster(snapshot: Snapshot) -> Iterator[CheckResult]:
    """The same for `doctor`, with a line if all is well."""
    if snapshot.cluster is None:
        return
    problems = list(cluster_problems(snapshot, connect=True))
    yield from (problem_result(problem, snapshot.origin, SUBJECT) for problem in problems)
    if not problems and not _has_unset(snapshot):
        yield CheckResult(
            "good", SUBJECT, "the engine answers, and the key is that of all replicas"
        )


def _has_unset(snapshot: Snapshot) -> bool:
    try:
        resolve_cluster(snapshot, os.environ)
    except ConfigError:
        return True
    return False


def _unusable(config: ClusterConfig) -> Iterator[Problem]:
    from mcp_workbench.app import run_interruptible  # the event loop
    from mcp_workbench.cluster.engine import EngineAway
    from mcp_workbench.cluster.joining import OTHER_KEY, OTHER_KEY_FIX, JoinRefused

    try:
        census = run_interruptible(_try_engine(config))
    except EngineAway as error:
        yield Problem("cluster.url", error.message, error.hint, AWAY)
    except JoinRefused as error:
        yield Problem("cluster.url", error.message, error.hint, REFUSED)
    else:
        if census.strangers:
            yield Problem("cluster.key", OTHER_KEY, OTHER_KEY_FIX, REFUSED)
        if census.is_skewed:
            yield Problem("cluster", census.clock, CLOCK_FIX, REFUSED)
    if (refused := _not_bindable(config)) is not None:
        message = f"can't listen on {join_address(*config.listen)}: {refused}"
        fix = "name an address of this machine; if a replica runs here already, all is well"
        yield Problem("cluster.listen", message, fix, UNUSABLE)


async def _try_engine(config: ClusterConfig) -> Census:
    from mcp_workbench.cluster.engine import Engine
    from mcp_workbench.cluster.joining import census_of
    from mcp_workbench.cluster.keys import ValueSeal
    from mcp_workbench.transport.tasks import task_scope

    async with task_scope() as scope:
        engine = Engine(config.engine, config.name)
        scope.start(engine.run(), "engine")
        await engine.ready(PATIENCE)
        return await census_of(engine, ValueSeal(config.key), writes=True)


def _not_bindable(config: ClusterConfig) -> str | None:
    """Returns why this machine can't listen at the address; None if it can."""
    host, port = config.listen
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            return (error.strerror or str(error)).lower()
    return None


def _warning(problem: Problem) -> Problem:
    """Other commands work without the cluster, so this is no error of the file."""
    import msgspec

    return msgspec.structs.replace(problem, severity="warning")
