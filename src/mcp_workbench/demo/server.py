"""One server's side of the conversation, in both eras: lines in, messages out."""

from __future__ import annotations

import json  # noqa: TID251 - stands alone: the standard library only
import threading
from collections.abc import Callable
from typing import Any, TypeGuard, cast

from mcp_workbench.demo.tools import Job, Json, Tool, text

LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
WITH_BATCHES = "2025-03-26"  # the only revision that has them
MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
VERSION = "1.0.0"
DAY = 86_400_000  # milliseconds; our answers to these never change
LASTING: Json = {"ttlMs": DAY, "cacheScope": "public"}

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
UNSUPPORTED_VERSION = -32022

Id = str | int


class Refused(Exception):
    """A request that is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Json | None = None) -> None:
        super().__init__(message)
        self.error: Json = {"code": code, "message": message} | ({"data": data} if data else {})


class Server:
    """Answers one host. A slow call has a thread of its own; everything else is answered at once."""

    def __init__(self, name: str, tools: dict[str, Tool], send: Callable[[Json], None]) -> None:
        self._about: Json = {"name": name, "version": VERSION}
        self._tools = tools
        self._send = send
        self._revision = ""  # of the legacy era, once `initialize` has agreed on one
        self._jobs: dict[Id, tuple[Job, threading.Thread]] = {}

    def receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._send({"id": None, "error": Refused(PARSE_ERROR, "This is not JSON").error})
            return
        if isinstance(message, list) and self._revision == WITH_BATCHES:
            for one in cast("list[Any]", message):
                self._take(one)
        else:
            self._take(message)

    def stop(self) -> None:
        for job, thread in list(self._jobs.values()):
            job.cancelled.set()
            thread.join()

    def _take(self, message: Any) -> None:
        number: Any = message.get("id") if _is_object(message) else None
        try:
            result = self._result(number, message)
        except Refused as refused:
            known = number if isinstance(number, Id) else None
            self._send({"id": known, "error": refused.error})
        else:
            if result is not None:
                self._send({"id": number, "result": result})

    def _result(self, number: Any, message: Any) -> Json | None:
        if not _is_object(message) or not _is_object(params := message.get("params", {})):
            raise Refused(INVALID_REQUEST, "A message is an object, and so are its params")
        method: Any = message.get("method")
        if "id" not in message:
            if method == "notifications/cancelled":
                self._cancel(params.get("requestId"))
            return None
        if not isinstance(number, Id) or not isinstance(method, str):
            raise Refused(INVALID_REQUEST, "A request has a method and an id, a string or integer")
        meta: Any = params.get("_meta")
        if _is_object(meta) and f"{META}protocolVersion" in meta:
            return self._modern(number, method, params)
        if self._revision or method == "initialize":
            return self._legacy(number, method, params)
        raise Refused(
            INVALID_PARAMS,
            f"Begin with initialize, or name {META}protocolVersion in the _meta of each request",
        )

    def _legacy(self, number: Id, method: str, params: Json) -> Json | None:
        match method:
            case "initialize":
                asked = params.get("protocolVersion")
                self._revision = asked if asked in LEGACY else LEGACY[0]
                tools: Json = {"tools": {"listChanged": False}}
                agreed = {"protocolVersion": self._revision, "capabilities": tools}
                return agreed | {"serverInfo": self._about}
            case "ping":
                return {}
            case "tools/list":
                return self._listing()
            case "tools/call":
                return self._call(number, params, dict[str, Any]())
            case _:
                raise Refused(NO_METHOD, f"Method not found: {method}")

    def _modern(self, number: Id, method: str, params: Json) -> Json | None:
        _check_envelope(params["_meta"])
        stamp: Json = {"resultType": "complete", "_meta": {f"{META}serverInfo": self._about}}
        match method:
            case "server/discover":
                known: Json = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
                return known | LASTING | stamp
            case "tools/list":
                return self._listing() | LASTING | stamp
            case "tools/call":
                return self._call(number, params, stamp)
            case _:
                raise Refused(NO_METHOD, f"Method not found: {method}")

    def _listing(self) -> Json:
        return {"tools": [tool.definition(name) for name, tool in self._tools.items()]}

    def _call(self, number: Id, params: Json, stamp: Json) -> Json | None:
        """The tool's result, or nothing yet: a slow one answers by itself."""
        name: Any = params.get("name")
        arguments: Any = params.get("arguments") or dict[str, Any]()
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise Refused(INVALID_PARAMS, f"Unknown tool: {name}")
        if not _is_object(arguments):
            raise Refused(INVALID_PARAMS, "arguments must be an object")
        complaints = tool.complaints(arguments)
        if complaints:
            return text("; ".join(complaints), isError=True) | stamp
        if tool.run is not Job.slow:
            return tool.result(arguments) | stamp
        self._begin(number, Job(self._reporter(params)), arguments, stamp)
        return None

    def _reporter(self, params: Json) -> Callable[[Json], None]:
        meta: Any = params.get("_meta")
        token: Any = meta.get("progressToken") if _is_object(meta) else None

        def report(progress: Json) -> None:
            if token is not None:
                told = {"progressToken": token} | progress
                self._send({"method": "notifications/progress", "params": told})

        return report

    def _begin(self, number: Id, job: Job, arguments: Json, stamp: Json) -> None:
        def work() -> None:
            result = job.slow(**arguments)
            self._jobs.pop(number, None)
            if not job.cancelled.is_set():  # a cancelled request is not answered
                self._send({"id": number, "result": result | stamp})

        thread = threading.Thread(target=work, daemon=True)
        self._jobs[number] = (job, thread)
        thread.start()

    def _cancel(self, number: Any) -> None:
        if isinstance(number, Id) and number in self._jobs:
            self._jobs[number][0].cancelled.set()


def _is_object(value: Any) -> TypeGuard[Json]:
    return isinstance(value, dict)


def _check_envelope(meta: Json) -> None:
    version, capabilities = meta[f"{META}protocolVersion"], meta.get(f"{META}clientCapabilities")
    if not isinstance(version, str):
        raise Refused(INVALID_PARAMS, f"_meta: {META}protocolVersion must be a string")
    if not _is_object(capabilities):
        raise Refused(INVALID_PARAMS, f"_meta: {META}clientCapabilities is required, an object")
    if version != MODERN:
        versions: Json = {"supported": [MODERN], "requested": version}
        raise Refused(UNSUPPORTED_VERSION, f"Unsupported protocol version: {version}", versions)
