"""Sessions of principals with a limit of their own: whether one more fits, on all replicas."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from mcp_workbench.server.http.access import CLOSING, TOO_MANY, over_limit
from mcp_workbench.server.http.sessions import IDLE

if TYPE_CHECKING:
    from mcp_workbench.gateway.call_limits import PrincipalQuotas
    from mcp_workbench.server.http.sessions import Admitted, LegacySessions
    from mcp_workbench.server.parse import Message
    from mcp_workbench.transport.http.messages import Reply, ResponseWriter

RETRY = 60  # seconds; when a host ends its session is not known
SPARE = 60.0  # seconds without use: then a session makes room for another of its principal, if it has to


class CountedStart:
    """One `initialize` of such a principal."""

    def __init__(
        self,
        sessions: LegacySessions,
        quotas: PrincipalQuotas,
        message: Message,
        response: ResponseWriter,
        admitted: Admitted,
    ) -> None:
        self._sessions = sessions
        self._quotas = quotas
        self._message = message
        self._response = response
        self._admitted = admitted
        self._principal = admitted.principal.name
        quotas.session_count = sessions.count

    def run(self) -> Coroutine[Any, Any, None] | None:
        """Begin the session, unless that is one too many. Returns the rest, if other replicas must be asked."""
        fits = self._quotas.session(self._principal)
        if fits is False and self._make_room():
            fits = self._quotas.session(self._principal)
        if not isinstance(fits, bool):
            return self._ask()
        self._finish(fits=fits)
        return None

    async def _ask(self) -> None:
        fits = await self._quotas.session_later(self._principal)
        if not fits and self._make_room():
            fits = await self._quotas.session_later(self._principal)
        self._finish(fits=fits)

    def _finish(self, *, fits: bool) -> None:
        response = self._response
        if response.over:  # its host is gone
            return
        if self._sessions.closing:
            response.plain(CLOSING)
        elif self._sessions.is_full:
            response.plain(TOO_MANY)
        elif fits:
            self._sessions.begin(self._message, response, self._admitted)
        else:
            response.plain(self._refusal())

    def _refusal(self) -> Reply:
        most = self._quotas.sessions(self._principal)
        text = f"{most} sessions are allowed to this principal (limits.sessions)"
        return over_limit(text, RETRY, bytes(self._message.id))

    def _make_room(self) -> bool:
        """End the session that its principal has not used for longest: its host may be gone for good."""
        latest = self._sessions.now + IDLE - SPARE  # one in use expires later
        spare = [s for s in self._sessions.of(self._principal) if s.expires <= latest]
        if spare:
            self._sessions.end(min(spare, key=lambda session: session.expires))
        return bool(spare)
