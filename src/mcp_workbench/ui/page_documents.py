"""What the page shows of servers and of the workbench: the documents of its API."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec

from mcp_workbench import __version__
from mcp_workbench.config.expand import references, secrets_of
from mcp_workbench.core.catalogue import ServerHealth
from mcp_workbench.core.redact import redact
from mcp_workbench.core.spec import HttpEndpoint, ServerAddress, ServerSpec, StdioCommand
from mcp_workbench.gateway.remedies import cause, fix_of
from mcp_workbench.gateway.workbench import Gateway
from mcp_workbench.ui.page_log import LogLine, ServerLog, StateChange, Timeline
from mcp_workbench.ui.page_numbers import Curve, Minute
from mcp_workbench.ui.page_sessions import now
from mcp_workbench.ui.page_sign_ins import PageSignIn, PageSignIns, can_sign_in
from mcp_workbench.ui.page_tools import NAME, Budget, KnownTools, ServerTools
from mcp_workbench.upstream.connection import Connection, Ready
from mcp_workbench.upstream.reports import process_group

HIDDEN = "•••"  # instead of a value that may be a secret
_COMMAND = re.compile(r"`(mcp-workbench [^`]+)`")
_SANDBOX = re.compile(r" \(WB-BOX-\d+; fix: ([^()]*)\)")
_CAPABILITIES = {
    "tools_changed": "tools may change",
    "prompts_changed": "prompts may change",
    "resources_changed": "resources may change",
    "subscribe": "subscriptions",
    "tasks_cancel": "tasks can be cancelled",
}
_FAILED = ("failed", "broken", "degraded")
FIXES = 500  # that are kept
MOST_TEXT = 64 << 10  # characters of a server's instructions


class Fix(msgspec.Struct, frozen=True):
    """What to do about a server: a sentence, and a command to copy."""

    text: str = ""
    command: str = ""
    place: str = ""  # of its entry in the file, if that may have to be changed
    file: str = ""


class ServerLine(msgspec.Struct, frozen=True, rename="camel"):
    """One server on the first view."""

    toolbox: str
    server: str
    state: str
    reason: str = ""
    fix: Fix = Fix()
    tools: int | None = None  # shown; None: it was never connected
    hidden: int = 0
    tokens: int = 0
    in_flight: int = 0
    calls: int = 0
    failures: int = 0
    next_try: float = 0.0
    processes: int = 0
    box: str = ""
    kind: str = "stdio"
    era: str = ""


class ToolboxLine(msgspec.Struct, frozen=True, rename="camel"):
    """One toolbox."""

    name: str
    description: str
    servers: int
    tools: int
    hidden: int
    tokens: int


class Home(msgspec.Struct, frozen=True, rename="camel"):
    """The first view."""

    version: str
    config: str
    mode: str
    seconds: int
    url: str
    servers: tuple[ServerLine, ...]
    toolboxes: tuple[ToolboxLine, ...]
    tokens: Budget
    unread: int  # servers whose tools are not known
    warnings: tuple[str, ...]
    calls: list[Minute]  # of the last hour, as far as somebody looked


class ServerPage(msgspec.Struct, frozen=True, rename="camel"):
    """Everything about one server."""

    line: ServerLine
    entry: dict[str, Any]
    place: str
    timeline: list[StateChange]
    stderr: list[LogLine]
    connections: int
    pids: tuple[int, ...]
    revision: str = ""
    name: str = ""
    version: str = ""
    instructions: str = ""
    capabilities: tuple[str, ...] = ()  # in words
    seconds: float = 0.0  # that it took to start
    age: float | None = None  # seconds since it said so, if it is not connected now
    sign_in: str = ""
    can_sign_in: bool = False
    signing_in: PageSignIn | None = None
    complaints: tuple[str, ...] = ()
    skipped: int = 0
    scope: str = ""
    lock: str = ""


class Documents:
    """Makes the documents of one gateway."""

    def __init__(self, gateway: Gateway, log: ServerLog, url: str = "") -> None:
        self._gateway = gateway
        self._log = log
        self._since = time.monotonic()
        self.url = url
        self.tools = KnownTools(gateway.view)
        self.timeline = Timeline()
        self.sign_ins = PageSignIns(gateway)
        self._curve = Curve()
        self._fixes: dict[tuple[ServerAddress, str], Fix] = {}

    @property
    def gateway(self) -> Gateway:
        return self._gateway

    def observe_now(self) -> bool:
        """Note the states of all servers. Whether one has changed."""
        return self._note(self._gateway.health())

    def observe(self) -> tuple[bool, object]:
        """Note the states of all servers. Whether one has changed, and what the first view shows without calls.

        While nothing else happens, two of these are equal.
        """
        gateway = self._gateway
        health = gateway.health()
        catalogues = [connection.catalogue for connection in gateway.connected]
        shown = health, catalogues, gateway.snapshot, gateway.warnings, self.url
        return self._note(health), shown

    def _note(self, health: list[ServerHealth]) -> bool:
        at, live = now(), self._live()
        changed = [
            self.timeline.note(one.address, _state(one, live[one.address]), one.reason, at)
            for one in health
        ]
        return any(changed)

    async def home(self) -> Home:
        gateway = self._gateway
        known = await self.tools.read()
        budget = await self.tools.budget(known)
        health = self._gateway.health()
        self._note(health)
        servers = self._lines(health, known)
        snapshot = gateway.snapshot
        return Home(
            __version__,
            _shown(snapshot.origin, gateway.pool.context.environ),
            snapshot.tool_mode,
            round(time.monotonic() - self._since),
            self.url,
            servers,
            tuple(self._toolboxes(servers)),
            budget,
            sum(len(box.servers) for box in snapshot.toolboxes.values()) - len(known),
            gateway.warnings,
            self._curve.read(gateway.meter),
        )

    def _lines(
        self, health: list[ServerHealth], known: dict[ServerAddress, ServerTools]
    ) -> tuple[ServerLine, ...]:
        live = self._live()
        return tuple(self._line(one, live[one.address], known.get(one.address)) for one in health)

    def _live(self) -> defaultdict[ServerAddress, list[Connection]]:
        live: defaultdict[ServerAddress, list[Connection]] = defaultdict(list)
        for connection in self._gateway.connected:
            live[connection.spec.address].append(connection)
        return live

    def _line(
        self, health: ServerHealth, live: list[Connection], known: ServerTools | None
    ) -> ServerLine:
        spec = self._gateway.view.spec(health.address)
        state = _state(health, live)
        reason = health.reason if state not in ("ready", "asleep") else ""
        pending = [connection.conversation.pending for connection in live]
        return ServerLine(
            health.address.toolbox,
            health.address.server,
            state,
            cause(reason),
            self._fix(spec, state, reason),
            None if known is None else known.shown,
            0 if known is None else len(known.lines) - known.shown,
            0 if known is None else known.tokens,
            sum(requests.count for requests in pending),
            sum(requests.given for requests in pending),
            health.failures,
            round(health.next_try, 1),
            health.processes,
            health.box,
            "url" if isinstance(spec.target, HttpEndpoint) else "stdio",
            _era(live),
        )

    def _fix(self, spec: ServerSpec, state: str, reason: str) -> Fix:
        if not reason or state not in (*_FAILED, "idle"):
            return Fix()
        key = spec.address, reason
        fix = self._fixes.get(key)
        if fix is None:
            if len(self._fixes) >= FIXES:
                self._fixes.clear()
            environ, file = self._gateway.pool.context.environ, self._gateway.snapshot.origin
            fix = self._fixes[key] = _fix(spec, reason, environ, _shown(file, environ))
        return fix

    def _toolboxes(self, servers: tuple[ServerLine, ...]) -> list[ToolboxLine]:
        lines: list[ToolboxLine] = []
        for box in self._gateway.snapshot.toolboxes.values():
            mine = [line for line in servers if line.toolbox == box.name]
            lines.append(
                ToolboxLine(
                    box.name,
                    box.description,
                    len(mine),
                    sum(line.tools or 0 for line in mine),
                    sum(line.hidden for line in mine),
                    sum(line.tokens for line in mine),
                )
            )
        return lines

    async def server(self, address: ServerAddress) -> ServerPage:
        """Everything about one server. Raises NotFound."""
        spec = self._gateway.view.spec(address)
        known = await self.tools.read()
        spec = self._gateway.view.spec(address)  # it may have been removed meanwhile
        self.observe_now()
        live = self._live()[address]
        line = self._line(self._gateway.health_of(spec), live, known.get(address))
        page = ServerPage(
            line,
            masked_entry(spec, secrets_of(spec, self._gateway.pool.context.environ)),
            spec.place,
            self.timeline.of(address),
            self._log.lines(address),
            len(live),
            tuple(filter(None, map(process_group, live))),
            scope=spec.scope,
            lock=spec.lock if self._gateway.snapshot.lock is not None else "",
            sign_in=_sign_in(spec, line),
            can_sign_in=can_sign_in(spec),
            signing_in=self.sign_ins.find(address),
        )
        return self._described(page, spec, live)

    def _described(self, page: ServerPage, spec: ServerSpec, live: list[Connection]) -> ServerPage:
        """The page with what the server says of itself: now, or when it was last connected."""
        replace = msgspec.structs.replace
        state = live[0].state if live else None
        if isinstance(state, Ready):
            agreed = state.agreed
            return replace(
                page,
                revision=agreed.revision,
                name=agreed.name[:NAME],
                version=agreed.version[:NAME],
                instructions=agreed.instructions[:MOST_TEXT],
                capabilities=_declared(msgspec.structs.asdict(agreed.declared)),
                seconds=round(state.seconds, 3),
                complaints=live[0].complaints,
                skipped=live[0].conversation.skipped,
            )
        known = self._gateway.view.remembered(spec)
        if known is None:
            return page
        return replace(
            page,
            revision=known.revision,
            name=known.server_name[:NAME],
            version=known.server_version[:NAME],
            instructions=known.instructions[:MOST_TEXT],
            capabilities=_declared(known.capabilities),
            seconds=round(known.seconds, 3),
            age=round(known.age(now())),
        )


def _shown(path: str, environ: Mapping[str, str]) -> str:
    """A path as people write it: from the home folder, if it is in there."""
    home = environ.get("HOME", "").rstrip("/")
    return f"~{path.removeprefix(home)}" if home and path.startswith(f"{home}/") else path


def _state(health: ServerHealth, live: list[Connection]) -> str:
    """The state in a word of the page: an idle server is asleep if nothing is wrong with it."""
    if health.state == "idle":
        if live:
            return "ready"
        return "idle" if health.reason and "idle" not in health.reason else "asleep"
    return health.state


def _era(live: list[Connection]) -> str:
    return ("modern" if live[0].modern else "legacy") if live else ""


def _fix(spec: ServerSpec, reason: str, environ: Mapping[str, str], file: str) -> Fix:
    """What to do. `file` is the configuration file as it is shown; empty: there is none."""
    place = spec.place if file else ""
    if reason.startswith("quarantined"):
        command = f"mcp-workbench lock diff {spec.address}"
        return Fix("see what it defines, and approve it at a terminal", command)
    if reason.startswith("sandbox: ") and (found := _SANDBOX.search(reason)):
        return Fix(found[1], "", place, file)
    if command := _COMMAND.search(reason):
        text = "sign in to it" if command[1].startswith("mcp-workbench login") else "run this"
        return Fix(text, command[1])
    text, command = fix_of(spec, reason, environ), f"mcp-workbench doctor {spec.address}"
    return Fix(text, command, place, file)


def _sign_in(spec: ServerSpec, line: ServerLine) -> str:
    """The command that signs in to this server; empty where no sign-in can be needed."""
    if not isinstance(spec.target, HttpEndpoint) or spec.scope == "principal":
        return ""
    wanted = line.fix.command.startswith("mcp-workbench login")
    return line.fix.command if wanted else ""


def _declared(capabilities: dict[str, bool]) -> tuple[str, ...]:
    return (
        "tools",
        *(_CAPABILITIES.get(name, name) for name, has in capabilities.items() if has),
    )


# An entry without values


def masked_entry(spec: ServerSpec, secrets: dict[str, str]) -> dict[str, Any]:
    """The entry of a server as it is written, with names in place of values that may be secret."""
    target = spec.target
    if isinstance(target, StdioCommand):
        entry: dict[str, Any] = {
            "command": redact(target.command, secrets),
            "args": [redact(text, secrets) for text in target.args],
            "env": {name: _masked(text) for name, text in target.env},
            "cwd": target.cwd,
            "inheritEnv": list(target.inherit),
            "sandbox": target.sandbox.kind if target.sandbox.kind != "off" else "",
        }
    else:
        url, query, _ = redact(target.url, secrets).partition("?")
        entry = {
            "url": f"{url}?{HIDDEN}" if query else url,
            "type": target.transport if target.transport != "http" else "",
            "headers": {name: _masked(text) for name, text in target.headers},
        }
    filters = [*spec.tools.include, *(f"!{pattern}" for pattern in spec.tools.exclude)]
    entry["toolFilters"] = [] if filters == ["*"] else filters
    entry["approve"] = list(spec.approve)
    return {name: value for name, value in entry.items() if value}


def _masked(text: str) -> str:
    """A value as it is written: a reference to a variable says where it comes from, a literal is hidden."""
    names = references(text)
    if len(names) == 1 and text == f"${{{names[0]}}}":
        return text
    return HIDDEN if text else ""
