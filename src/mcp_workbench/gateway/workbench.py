"""The workbench: the Python API, and the gateway behind it that all hosts share."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mcp_workbench.core.call_request import TOOLS_CALL, CallRequest
from mcp_workbench.core.catalogue import (
    OpenToolboxResult,
    ServerHealth,
    ServerReport,
    toolbox_result,
)
from mcp_workbench.core.errors import empty_component
from mcp_workbench.core.spec import ServerAddress, ServerSpec, Snapshot, ToolIdentifier
from mcp_workbench.gateway.arguments import ArgumentCheck, ArgumentHints
from mcp_workbench.gateway.calls import PythonCall
from mcp_workbench.gateway.interceptors import Interceptor
from mcp_workbench.gateway.views import Scopes, View
from mcp_workbench.transport.tasks import Lifetime
from mcp_workbench.upstream import reports
from mcp_workbench.upstream.connection import Connection
from mcp_workbench.upstream.pool import ConnectionPool

if TYPE_CHECKING:
    from mcp_workbench.gateway.approvals import OnApproval, SessionApprovals
    from mcp_workbench.gateway.audit import AuditLog
    from mcp_workbench.gateway.call_limits import PrincipalQuotas, SharedCounts
    from mcp_workbench.gateway.call_meter import CallMeter
    from mcp_workbench.gateway.reload import Reloaded
    from mcp_workbench.gateway.result_budget import KeptResults
    from mcp_workbench.gateway.script_worker import ScriptWorker
    from mcp_workbench.gateway.sign_ins import SignIns
    from mcp_workbench.gateway.suspended_scripts import ScriptSeals
    from mcp_workbench.gateway.task_handles import Tasks
    from mcp_workbench.gateway.tool_search import Finder
    from mcp_workbench.search.queries import SearchResult

log = logging.getLogger(__name__)

Listener = Callable[[ServerAddress], None]
OnReload = Callable[["Reloaded"], None]


class Listening(NamedTuple):
    """Who listens to changes, and whose servers it sees; None: those of everybody."""

    changed: Listener
    reloaded: OnReload | None = None
    first_listed: Listener | None = None
    principal: str | None = None

    def sees(self, spec: ServerSpec) -> bool:
        """Whether it sees what this server has, to which others may have signed in for themselves."""
        own = self.principal is None or spec.scope != "principal"
        return own or self.principal == spec.principal


def _new_owner(principal: str, toolboxes: tuple[str, ...]) -> object:
    return object()


_HINTS = ArgumentHints()
_CHECK = ArgumentCheck()


class Workbench(Lifetime):
    """The servers of one configuration. Use it with `async with`.

    `interceptors` look at every call; see `Interceptor`. `on_approval` asks a person whether a call is
    approved, where the configuration wants that (`approve`); see `ApprovalRequest`.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        environ: Mapping[str, str] | None = None,
        interceptors: Iterable[Interceptor] = (),
        on_approval: OnApproval | None = None,
    ) -> None:
        self._gateway = Gateway(snapshot, environ=environ, interceptors=interceptors)
        self._gateway.on_approval = on_approval

    def _life(self) -> AbstractAsyncContextManager[None]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None]:
        async with self._gateway:
            yield

    @property
    def snapshot(self) -> Snapshot:
        """The current configuration."""
        return self._gateway.snapshot

    async def open_toolbox(self, name: str) -> OpenToolboxResult:
        """Connect to every server of a toolbox. Returns what they offer."""
        return toolbox_result((await self._gateway.view.open(name)).for_model())

    async def use_tool(
        self,
        tool: ToolIdentifier,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """Return the server's own result. Raises a WorkbenchError if there is none."""
        for field in ("toolbox", "server", "tool"):
            if not getattr(tool, field):
                raise ValueError(empty_component(field))
        params = {"arguments": msgspec.Raw(msgspec.json.encode(arguments or {}))}
        meta = {} if on_progress is None else {"progressToken": msgspec.Raw(b"0")}
        request = CallRequest(tool, params, meta)
        return await PythonCall(self._gateway.view, request, on_progress).result()

    async def search(
        self, words: str, *, toolbox: str = "", server: str = "", limit: int = 5
    ) -> SearchResult:
        """Return the known tools that match these words, best first."""
        from mcp_workbench.gateway.tool_search import find  # not needed before the first search
        from mcp_workbench.search.queries import Query

        return await find(self._gateway.view, Query(words, toolbox, server, limit))

    async def survey(self, address: ServerAddress) -> ServerReport:
        """Report on one server in detail. If it can't be reached, the report says why."""
        return await self._gateway.view.survey(address)

    def health(self) -> list[ServerHealth]:
        """The health of every server of the configuration, without starting any."""
        return self._gateway.health()

    def reload(self, snapshot: Snapshot) -> Reloaded:
        """Replace the configuration in one step. Returns what that changed. Calls in flight finish."""
        return self._gateway.reload(snapshot)

    def on_change(self, listener: Callable[[ServerAddress], None]) -> Callable[[], None]:
        """Call `listener` when a connected server's tools have changed. Returns what ends that."""
        return self._gateway.on_change(listener)


class Gateway(Lifetime):
    """The servers of one configuration. Use it with `async with`; requests go through a view."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        environ: Mapping[str, str] | None = None,
        interceptors: Iterable[Interceptor] = (),
        log_calls: str = "",
    ) -> None:
        self.interceptors = tuple(interceptors)  # of every call
        self.first_interceptors: tuple[Interceptor, ...] = ()  # of those that have a route
        environ = os.environ if environ is None else environ
        self.audits: tuple[AuditLog, ...] = ()
        if log_calls or snapshot.audit is not None:
            from mcp_workbench.gateway.audit import audit_logs  # only where calls are recorded

            self.audits = audit_logs(snapshot, log_calls, environ)
            self.interceptors += self.audits
        self.is_traced = snapshot.tracing and self._trace(environ)
        self.on_approval: OnApproval | None = None  # of a Python program
        self.scopes = Scopes(snapshot)
        self.quotas: PrincipalQuotas | None = None  # None: no principal ever had limits of its own
        self.shared_counts: SharedCounts | None = None  # of all replicas; set with `share_limits`
        if snapshot.http.has_limits:
            self._limit_principals()
        self.pool = ConnectionPool(
            snapshot.limits, environ, self._catalogue_changed, self._first_listed
        )
        if snapshot.lock is not None:
            self.pool.relock(snapshot.lock)
        self.suspended: dict[str, Callable[[str], None]] = {}  # by handle: gives up one call
        self.finder: Finder | None = None  # made with the first search
        self._listeners: list[Listening] = []
        # Who may read a kept result: the host that got it; with replicas, its principal.
        self.results_owner: Callable[[str, tuple[str, ...]], object] = _new_owner
        self.view = View(self, self.scopes.whole)  # of everything

    def _life(self) -> AbstractAsyncContextManager[None]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None]:
        try:
            async with self.pool:
                yield
        finally:
            for interceptor in self.interceptors:
                interceptor.close()

    @property
    def snapshot(self) -> Snapshot:
        """The current configuration."""
        return self.scopes.whole.snapshot

    def policy(
        self, request: CallRequest, spec: ServerSpec, snapshot: Snapshot
    ) -> tuple[Interceptor, ...]:
        """Return the interceptors that the configuration asks for."""
        if request.method != TOOLS_CALL:
            return ()
        chosen: list[Interceptor] = [_CHECK] if spec.validate else []
        budget = snapshot.toolbox(spec.address.toolbox).budget(spec)
        if budget and snapshot.tool_mode == "proxy":  # only proxy mode has `read_result`
            from mcp_workbench.gateway.result_budget import ResultBudget

            chosen.append(ResultBudget(budget, self.kept_results))
        if self.pool.sole_host is None:  # otherwise servers speak its era
            from mcp_workbench.gateway.back_channel import BackChannelHints

            chosen.append(BackChannelHints())
        return (*chosen, _HINTS)

    def _trace(self, environ: Mapping[str, str]) -> bool:
        """Have every call traced. Returns False if the extra for it is missing, or switched off."""
        from mcp_workbench.config.tracing_support import INSTALL, MISSING, can_trace

        if not can_trace():
            log.warning("%s (%s)", MISSING, INSTALL)
            return False
        from mcp_workbench.gateway.tracing import tracing_of  # loads the OpenTelemetry SDK

        tracing = tracing_of(environ)
        self.first_interceptors += tracing.first
        self.interceptors += tracing.interceptors
        return bool(tracing.interceptors)

    def _limit_principals(self) -> None:
        from mcp_workbench.gateway.call_limits import PrincipalQuotas  # only where it is configured

        self.quotas = PrincipalQuotas(lambda: self.snapshot.http)
        self.quotas.shared = self.shared_counts

    def share_limits(self, shared: SharedCounts | None) -> None:
        """Count what principals use for all replicas; None: for this one alone."""
        self.shared_counts = shared
        if self.quotas is not None:
            self.quotas.shared = shared

    def intercept(
        self, *interceptors: Interceptor, first: tuple[Interceptor, ...] = ()
    ) -> Callable[[], None]:
        """Show every call from now on to these, too; returns what ends that.

        `first` see an outcome before anything has changed it.
        """
        self.interceptors += interceptors
        self.first_interceptors += first
        self.scopes.renew()

        def end() -> None:
            self.interceptors = tuple(i for i in self.interceptors if i not in interceptors)
            self.first_interceptors = tuple(i for i in self.first_interceptors if i not in first)
            self.scopes.renew()

        return end

    @cached_property
    def meter(self) -> CallMeter:
        """Measures calls while somebody looks."""
        from mcp_workbench.gateway.call_meter import CallMeter  # only for those who look

        return CallMeter(self)

    @cached_property
    def kept_results(self) -> KeptResults:
        """Long results of all hosts, which share one limit."""
        from mcp_workbench.gateway.result_budget import KeptResults  # only with a budget

        return KeptResults()

    @cached_property
    def scripts(self) -> ScriptWorker:
        """Runs the scripts of all hosts."""
        from mcp_workbench.gateway.script_worker import ScriptWorker  # only with a script

        return ScriptWorker(self.pool.start)

    @cached_property
    def script_seals(self) -> ScriptSeals:
        """Seals the scripts of modern hosts that wait for people."""
        from mcp_workbench.gateway.suspended_scripts import ScriptSeals  # only where one does

        return ScriptSeals(self.pool.context.environ)

    @cached_property
    def approvals(self) -> SessionApprovals:
        """What a Python program has approved; each host has its own."""
        from mcp_workbench.gateway.approvals import SessionApprovals

        return SessionApprovals()

    @cached_property
    def tasks(self) -> Tasks:
        """The tasks that hosts have handles of."""
        from mcp_workbench.gateway.task_handles import Tasks, task_key  # where a server creates one

        return Tasks(task_key(self.pool.context.environ))

    @cached_property
    def sign_ins(self) -> SignIns:
        """The sign-ins that calls wait for."""
        from mcp_workbench.gateway.sign_ins import SignIns  # only where a server wants a login

        return SignIns(self.pool, self.pool.context.environ)

    def end_sign_ins(self, session: Hashable) -> None:
        """The session that asked for them has ended."""
        if "sign_ins" in self.__dict__:
            self.sign_ins.forget(session)

    @property
    def connected(self) -> list[Connection]:
        """Every connection that takes calls."""
        return self.pool.all_met()

    def hold(self, held: bool) -> None:  # noqa: FBT001 - a callback's one argument
        """Pause reading from the servers while a host reads too slowly."""
        self.pool.hold(held=held)

    def health(self, snapshot: Snapshot | None = None) -> list[ServerHealth]:
        """The health of every server of the configuration, or of a view's, without starting any."""
        boxes = (snapshot or self.snapshot).toolboxes.values()
        return [self.health_of(spec) for box in boxes for spec in box.servers.values()]

    def health_of(self, spec: ServerSpec) -> ServerHealth:
        """The health of one of them."""
        context = self.pool.context
        return reports.health(spec, self.pool.last(spec), context.processes, context.locks)

    @property
    def processes(self) -> int:
        """How many server processes are running, including those that are shutting down."""
        return self.pool.context.processes.count

    # Changes

    def reload(self, snapshot: Snapshot) -> Reloaded:
        """Replace the configuration in one step. Returns what that changed.

        Calls in flight finish on their connection; a server whose entry leads to another process or
        URL is reconnected when it is next needed, the others stay connected.
        """
        from mcp_workbench.gateway.reload import reload  # not needed at start-up

        change = reload(snapshot, self.scopes, self.pool)
        if self.quotas is None and snapshot.http.has_limits:
            self._limit_principals()
        if "sign_ins" in self.__dict__:
            self.sign_ins.reloaded(change.plan.changed, change.plan.removed)
        if change.anything:
            for listening in tuple(self._listeners):
                if (reloaded := listening.reloaded) is not None:
                    reloaded(change)
        return change

    def warn(self, *warnings: str) -> None:
        """Show these warnings in every opened toolbox until the configuration is replaced."""
        self.scopes.warnings = warnings

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.scopes.warnings

    def on_change(
        self,
        changed: Listener,
        reloaded: OnReload | None = None,
        first_listed: Listener | None = None,
        principal: str | None = None,
    ) -> Callable[[], None]:
        """Call `changed` when a connected server's tools have changed, `reloaded` when the configuration
        was replaced, and `first_listed` when tools are known that never were. Returns what ends that.

        With a `principal`, servers that others have signed in to for themselves do not count."""
        listening = Listening(changed, reloaded, first_listed, principal)
        self._listeners.append(listening)
        return lambda: self._listeners.remove(listening)

    def _catalogue_changed(self, spec: ServerSpec) -> None:
        for listening in tuple(self._listeners):
            if listening.sees(spec):
                listening.changed(spec.address)

    def _first_listed(self, spec: ServerSpec) -> None:
        for listening in tuple(self._listeners):
            if listening.first_listed is not None and listening.sees(spec):
                listening.first_listed(spec.address)
