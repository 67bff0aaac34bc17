"""The audit (`audit`, `--log-calls`): one JSON line per call, refused calls included.

A line says who called what, how it ended, how long it took, how large arguments and answer were. It has a
keyed digest of the arguments; the arguments themselves only of servers for which that is switched on, with
secrets masked; no results. docs/audit.md describes the fields and the outcomes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

from mcp_workbench.config.audit_settings import KEY_BYTES, audit_key, audit_path
from mcp_workbench.core.call_request import TOOLS_CALL
from mcp_workbench.core.errors import CallFailed, Quarantined
from mcp_workbench.gateway.audit_file import AuditFile
from mcp_workbench.gateway.call_summary import LOCAL, LONGEST_NAME, arguments_of, summary_of
from mcp_workbench.gateway.interceptors import (
    CallOutcome,
    Failed,
    Interceptor,
    Refusal,
)
from mcp_workbench.gateway.reload import servers_of
from mcp_workbench.schema.document import json_text
from mcp_workbench.transport.stdio import JoinedWrites

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp_workbench.core.spec import Snapshot, ToolIdentifier
    from mcp_workbench.gateway.audit_arguments import ArgumentTexts
    from mcp_workbench.gateway.calls import Call
    from mcp_workbench.gateway.workbench import Gateway

log = logging.getLogger(__name__)

VERSION = 1  # of the format
LONGEST_ENCODED = 400  # bytes of a name as JSON, which may be much longer than the name
MAC_BYTES = 16
_BLOCK = 64  # bytes of SHA-256
_LINE = (
    b'{"v":%d,"ts":"%b.%03dZ","seq":%d,"pid":%d,%b%b"outcome":"%b","is_error":%b,"may_have_run":%b,'
    b'"retried":%b,"ms":{"total":%.3f,"queue":%.3f,"connect":%.3f,"server":%.3f},'
    b'"args_bytes":%d,"args_mac":"%b","result_bytes":%d%b%b}\n'
)
_PIPES = ("stdio", "daemon")  # doors whose answers may be joined into one write
_TRUE, _FALSE = b"true", b"false"


class AuditLog(Interceptor):
    """Appends a line for each call, right after its answer was sent: that delays no answer.

    Answers that are sent together have their lines written together, before them.
    """

    observes_only = True

    def __init__(self, file: AuditFile, environ: Mapping[str, str]) -> None:
        self.file = file
        self._environ = environ
        self._turn: JoinedWrites | None = None
        self._digest: ArgumentDigest | None = None
        self._pid = os.getpid()
        self._count = 0
        self._lines: list[bytes] = []  # not written so far, in this step of the loop
        self._second = (0, b"")  # the last one, as text
        self._texts: ArgumentTexts | None = None  # if a server's entry asks for arguments
        self._snapshot: Snapshot | None = None  # to which that applies

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        end = time.monotonic()
        line = self._line(call, outcome, end)
        turn = self._turn
        if turn is None:
            turn = self._turn = JoinedWrites.of(asyncio.get_running_loop())
        if turn.joining and call.door in _PIPES and not self.records:
            if not self._lines:
                turn.writers.insert(0, self)  # before the answers, which are written then, too
            self._lines.append(line)
        else:
            self.file.append(line, end)
        return outcome

    def flush(self) -> None:
        """Write the lines of this step of the loop."""
        lines, self._lines = self._lines, []
        self.file.append(b"".join(lines), time.monotonic())

    def close(self) -> None:
        self.file.close()

    def _line(self, call: Call, outcome: CallOutcome, end: float) -> bytes:
        self._count = call.record = self._count + 1
        call.has_details = True
        request, now = call.request, time.time()
        arguments = arguments_of(request)
        word, is_error, may_have_run, size = summary_of(call, outcome)
        sent, connecting = call.sent, call.connecting
        waited = (sent or end) - call.started - connecting
        if self._snapshot is not call.view.gateway.snapshot:
            self._configure(call.view.gateway)
        box = call.view.gateway.pool.context.processes.box_of(request.tool.address)
        line = _LINE % (
            VERSION,
            self._text_of(int(now)),
            int(now % 1 * 1000),
            self._count,
            self._pid,
            _caller(call.view.principal, call.host, call.door, request.modern_host),
            _target(request.tool, request.method, call.view.snapshot.tool_mode, call.parent, box),
            word.encode(),
            _TRUE if is_error else _FALSE,
            _TRUE if may_have_run else _FALSE,
            _TRUE if call.is_resent else _FALSE,
            (end - call.started) * 1000,
            waited * 1000,
            connecting * 1000,
            (end - sent) * 1000 if sent else 0.0,
            len(arguments),
            self._mac(arguments),
            size,
            b""
            if self._snapshot is None or self._snapshot.lock is None
            else _pin_state(call, outcome),
            b"" if not self.file.lost else b',"lost":%d' % self.file.lost,
        )
        return line if self._texts is None else self._texts.added(line, request.tool, arguments)

    def _configure(self, gateway: Gateway) -> None:
        """Read from the configuration, which is new, whose arguments are recorded."""
        self._snapshot, self._texts = gateway.snapshot, None
        if any(spec.audit_arguments for spec in servers_of(gateway.snapshot).values()):
            from mcp_workbench.gateway.audit_arguments import ArgumentTexts  # most record none

            self._texts = ArgumentTexts(gateway.snapshot, self._environ)

    @property
    def _mac(self) -> Callable[[bytes], bytes]:
        if self._digest is None:
            self._digest = ArgumentDigest(_key(self._environ))
        return self._digest.of

    def _text_of(self, second: int) -> bytes:
        if self._second[0] != second:
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = (second, text.encode())
        return self._second[1]


class RequiredAuditLog(AuditLog):
    """Refuses calls while they can't be recorded, and writes each line before the answer is sent."""

    observes_only = False
    records = True

    def before(self, call: Call) -> Refusal | None:
        reason = self.file.problem(time.monotonic())
        if not reason:
            return None
        message = f"calls must be recorded, and {self.file.path} can't be written: {reason}"
        return Refusal(CallFailed("denied", call.request.tool, message, may_have_run=False))


def audit_logs(
    snapshot: Snapshot, log_calls: str, environ: Mapping[str, str]
) -> tuple[AuditLog, ...]:
    """Return the audit that the configuration asks for, and that of `--log-calls`. Raises LogUnusable."""
    logs: list[AuditLog] = []
    settings = snapshot.audit
    configured = "" if settings is None else audit_path(settings, environ)
    if settings is not None:
        kind = RequiredAuditLog if settings.required else AuditLog
        logs.append(kind(AuditFile(configured, settings.max_bytes, settings.files), environ))
    if log_calls and os.path.abspath(log_calls) != configured:  # noqa: PTH100 - text in, text out
        file = AuditFile(log_calls)
        file.open()
        logs.append(AuditLog(file, environ))
    return tuple(logs)


def _key(environ: Mapping[str, str]) -> bytes:
    try:
        return audit_key(environ)
    except OSError as error:
        log.warning("digests in the audit can't be compared with others: %s", error)
        return os.urandom(KEY_BYTES)


class ArgumentDigest:
    """HMAC-SHA256 with a key whose two states are made once: `hmac` would set them up for each text."""

    def __init__(self, key: bytes) -> None:
        padded = key.ljust(_BLOCK, b"\0")
        self._inner = sha256(bytes(byte ^ 0x36 for byte in padded))
        self._outer = sha256(bytes(byte ^ 0x5C for byte in padded))

    def of(self, text: bytes) -> bytes:
        """Return the digest in hexadecimal digits."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text)
        outer.update(inner.digest())
        return outer.digest()[:MAC_BYTES].hex().encode()


@lru_cache(256)
def _caller(principal: str, host: tuple[str, str], door: str, modern: bool) -> bytes:  # noqa: FBT001
    era = "modern" if modern else "legacy"
    fields = {"principal": principal or LOCAL, "host": host[0], "host_version": host[1]}
    return _members({**fields, "door": door, "era": era if door not in ("cli", "python") else ""})


@lru_cache(1024)
def _target(tool: ToolIdentifier, method: str, mode: str, parent: str, box: str) -> bytes:
    what = "tool" if method == TOOLS_CALL else "method"
    name = tool.tool if what == "tool" else method
    where = {"parent": parent, "toolbox": tool.toolbox, "server": tool.server}
    return _members({**where, what: name, "mode": mode, "box": box})


def _members(fields: Mapping[str, str]) -> bytes:
    """Return the fields as members of a JSON object, with a comma at the end."""
    return b"".join(b'"%b":%b,' % (name.encode(), _name(text)) for name, text in fields.items())


def _name(name: str) -> bytes:
    """Return the name as JSON, cut: a refused call can name anything."""
    most = LONGEST_NAME
    while True:
        text = json_text(name if len(name) <= most else f"{name[:most]}…").encode()
        if len(text) <= LONGEST_ENCODED:
            return text
        most //= 2


def _pin_state(call: Call, outcome: CallOutcome) -> bytes:
    """Return what the lock file says of the tool, as a member with a comma before it."""
    connection, request, state = call.connection, call.request, ""
    if isinstance(outcome, Failed) and isinstance(outcome.error, Quarantined):
        state = outcome.error.state
    elif connection is not None and request.method == TOOLS_CALL:
        review = connection.tools.reviews.get("tools")
        state = "" if review is None else review.states.get(request.tool.tool, "")
    return b',"pin_state":"%b"' % state.encode() if state else b""
