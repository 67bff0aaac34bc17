"""What replicas share beside sessions and limits: set up when a replica starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_workbench.cluster.shared_catalogues import share_catalogues
from mcp_workbench.cluster.shared_credentials import SharedCredentials
from mcp_workbench.cluster.shared_results import SharedResults, share_results
from mcp_workbench.cluster.shared_scripts import SharedScriptSeals
from mcp_workbench.cluster.shared_tasks import SharedTasks

if TYPE_CHECKING:
    from mcp_workbench.cluster.replica import Replica
    from mcp_workbench.gateway.workbench import Gateway


async def share_state(gateway: Gateway, replica: Replica) -> None:
    """Let this gateway keep in the engine what the hosts of other replicas may ask for."""
    gateway.pool.context.environ.shared_credentials = SharedCredentials(
        replica.engine, replica.vault
    )
    await share_catalogues(gateway, replica)
    gateway.script_seals = SharedScriptSeals(replica)
    gateway.tasks = SharedTasks(replica)
    share_results(gateway, SharedResults(replica.engine, replica.vault, replica.me.id))
