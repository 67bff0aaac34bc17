"""`login` and `logout` with replicas: a sign-in, and its end, are for all of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.cli.terminal import say
from mcp_workbench.config.cluster_settings import resolve_cluster
from mcp_workbench.core.errors import ConfigError, WorkbenchError

if TYPE_CHECKING:
    from mcp_workbench.core.spec import Snapshot
    from mcp_workbench.upstream.oauth.store import Credential

PATIENCE = 5.0  # seconds for the engine
SIGNED_OUT = "it was ended with `mcp-workbench logout`"


async def share_sign_in(snapshot: Snapshot, name: str, credential: Credential) -> None:
    """Write a sign-in where the replicas of this configuration find it; says so if that fails."""
    if snapshot.cluster is None:
        return
    try:
        config = resolve_cluster(snapshot, os.environ)
        if config is None:
            return
        from mcp_workbench.cluster.engine import Engine  # few have one
        from mcp_workbench.cluster.keys import ValueSeal
        from mcp_workbench.cluster.shared_credentials import SharedCredentials
        from mcp_workbench.transport.tasks import task_scope

        async with task_scope() as scope:
            engine = Engine(config.engine, config.name)
            scope.start(engine.run(), "engine")
            await engine.ready(PATIENCE)
            shared = SharedCredentials(engine, ValueSeal(config.key))
            await shared.newer(name, None)  # which it replaces
            shared.publish(name, credential)
            await engine.ask("PING")  # it has arrived
    except (ConfigError, WorkbenchError) as error:
        say(f"Replicas do not know of it, because their engine can't be used: {error}", err=True)


def signed_out(credential: Credential) -> Credential:
    """What replicas find instead of a sign-in that was ended."""
    return msgspec.structs.replace(
        credential,
        access_token="",
        refresh_token="",
        expires_at=0.0,
        ended=SIGNED_OUT,
    )
