"""Modern hosts without an SDK, beside legacy ones: no session, questions are answered with a new request."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.cluster.raw_hosts import Broken, Json, RawHost
from tests.cluster.scenes import TOKENS
from tests.kit.http_host import modern_headers, rpc
from tests.kit.results import META, enveloped, use_tool

ROUNDS = 3  # questions of one call
GONE = b"The suspended call is gone; it may have run"
CAN_ANSWER: Json = {META + "clientCapabilities": {"elicitation": {}}}


class ModernHost(RawHost):
    """One modern host: its calls, and what became of each."""

    def _request_head(self, params: Json) -> bytes:
        headers = {
            "Host": "127.0.0.1",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {TOKENS[self.principal]}",
            **modern_headers("tools/call", params),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST /mcp HTTP/1.1\r\n{lines}".encode()

    async def open(self) -> None:
        """There is nothing to open."""

    async def end(self) -> int:
        self.close()
        return 200

    async def call(self, server: str, tool: str, arguments: Json, **meta: Any) -> Any:
        params: Json = {**use_tool(server, tool, arguments), "_meta": {**CAN_ANSWER, **meta}}
        for _ in range(ROUNDS):
            text: Any = await self._called(params)
            if text is None or isinstance(text, str):
                return text
            self.asked += 1
            accepted = {"action": "accept", "content": {"name": self.name}}
            answers: Json = dict.fromkeys(text["inputRequests"], accepted)
            params = {**params, "inputResponses": answers, "requestState": text["requestState"]}
        self._count("wrong", "it asks on and on")
        return None

    async def _called(self, params: Json) -> Any:
        """The text of the result, or the questions; None if there is neither, and why is counted."""
        self._ids += 1
        message = rpc("tools/call", enveloped(params), self._ids)

        def heard(event: Json) -> None:
            self.notices += event.get("method") == "notifications/progress"

        answer = await self._sent(self._request_head(params), message, heard, str(params)[:100])
        if answer is None:
            return None
        status, body = answer
        if GONE in body:  # it waited for our answer at a replica that was killed
            self._count("lost", GONE.decode())
            return None
        if status == 200:
            result = json.loads(body).get("result", {})
            if result.get("resultType") == "input_required":
                return result
        return self._text(status, body, self._ids)

    async def cancelled(self) -> None:
        """A call that never ends: its host leaves."""
        self._ids += 1
        params = use_tool("quick", "hold", {"nonce": f"{self.name}{self._ids}"})
        message = rpc("tools/call", enveloped(params), self._ids)
        request = asyncio.create_task(self._connection.request(self._request_head(params), message))
        await asyncio.wait((request,), timeout=0.1)
        self._connection.close()
        try:
            status, _, body = await request
        except Broken:
            self._count("ok")
            return
        self._count(f"http {status}" if status != 200 else "wrong", str(body)[:100])
