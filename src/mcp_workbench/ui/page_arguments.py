"""Arguments of a call, as the audit has them: read from its file when a person opens the call."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import msgspec

from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.gateway.audit_search import recorded_call
from mcp_workbench.schema.document import printable
from mcp_workbench.ui.page_sessions import now

if TYPE_CHECKING:
    from mcp_workbench.core.ended_calls import RecentCall
    from mcp_workbench.gateway.workbench import Gateway

MOST_TEXT = 4096  # characters; a line of the audit has no more


class CallArguments(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The arguments of one call, or why there are none and how to keep those of further calls."""

    text: str | None = None
    is_cut: bool = False
    reason: str = ""
    key: str = ""  # of the configuration, to copy
    place: str = ""  # where it belongs


async def arguments_of_call(gateway: Gateway, number: int, ended: float) -> CallArguments:
    """Read the arguments of the call with this number of the meter, which ended at this time of its clock.

    A page that was open over a restart has calls of another process, with the same numbers.
    """
    call = gateway.meter.find(number)
    if call is None or call.ended != ended:
        return CallArguments(reason="this call is no longer among those that are kept")
    if not gateway.audits:
        reason = "the audit is off, so the arguments of this call were not kept"
        key = '"audit": {"arguments": true}'
        return CallArguments(reason=reason, key=key, place="the configuration, then start again")
    moment = call.ended + now() - time.monotonic()
    wanted = call.record, call.arguments_bytes, moment
    found = await asyncio.to_thread(recorded_call, gateway.audits[0].file, *wanted)
    if found is None:
        return CallArguments(reason="the audit has no line of this call, or not any more")
    if found.arguments is None:
        return _not_kept(gateway, call)
    text = printable(found.arguments[:MOST_TEXT])
    return CallArguments(text, is_cut=text.endswith("…"))


def _not_kept(gateway: Gateway, call: RecentCall) -> CallArguments:
    spec = gateway.snapshot.find(ServerAddress(call.names.toolbox, call.names.server))
    if spec is None:
        return CallArguments(reason="the audit keeps arguments of configured servers only")
    if spec.audit_arguments:
        return CallArguments(reason="the audit kept no arguments of this server at that time")
    reason = "the audit keeps no arguments of this server"
    place = f"its entry ({spec.place}); it takes effect at once"
    return CallArguments(reason=reason, key='"auditArguments": true', place=place)
