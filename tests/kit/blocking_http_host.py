"""The host over HTTP where the test blocks, one request at a time."""

from __future__ import annotations

import http.client
import json
from typing import Any

from tests.kit.clock import PATIENCE
from tests.kit.http_host import ACCEPT, modern_headers, rpc
from tests.kit.results import INITIALIZE, LEGACY, Message, enveloped, exact_outcome


class HttpHost:
    """A host on one connection, which blocks; a legacy one opens its session at once."""

    def __init__(
        self,
        url: str,
        *,
        modern: bool,
        timeout: float = PATIENCE,
        token: str = "",
        capabilities: Message | None = None,
    ) -> None:
        self.modern = modern
        place, _, path = url.removeprefix("http://").partition("/")
        self._path = f"/{path}"
        self.opening: Message = {}  # the result of `initialize`
        self._connection = http.client.HTTPConnection(place, timeout=timeout)
        self.streamed = 0  # answers that came as events
        self._id = 100
        self._session: dict[str, str] = {}
        self._token = {"authorization": f"Bearer {token}"} if token else {}
        if not modern:
            declared = {**INITIALIZE, "capabilities": capabilities or {}}
            self.opening = self.request("initialize", declared)["result"]
            self._post(rpc("notifications/initialized"), {})

    @property
    def session(self) -> str:
        """The id of a legacy host's session."""
        return self._session["mcp-session-id"]

    def take_session(self, other: HttpHost) -> None:
        """Use the session of another host from now on."""
        self._session = dict(other._session)

    def close(self) -> None:
        self._connection.close()

    def move_to(self, place: str) -> None:
        """Send everything from now on to another address, in the same session."""
        self._connection.close()
        self._connection = http.client.HTTPConnection(place, timeout=self._connection.timeout)

    def exact(self, method: str, params: Message) -> tuple[str, bytes]:
        """`result` or `error` and its bytes as they came."""
        return exact_outcome(self._ask(method, params), self._id)

    def request(self, method: str, params: Message) -> Message:
        """The whole answer to a request."""
        return json.loads(self._ask(method, params))

    def _ask(self, method: str, params: Message) -> bytes:
        self._id += 1
        if not self.modern:
            return self._post(rpc(method, params, self._id), {})
        return self._post(rpc(method, enveloped(params), self._id), modern_headers(method, params))

    def _post(self, body: bytes, headers: dict[str, Any]) -> bytes:
        sent = {"content-type": "application/json", "accept": ACCEPT, **self._session, **headers}
        sent |= self._token
        self._connection.request("POST", self._path, body, sent)
        answer = self._connection.getresponse()
        data = answer.read()
        if session := answer.headers.get("mcp-session-id"):
            self._session = {"mcp-session-id": session, "mcp-protocol-version": LEGACY}
        if answer.headers.get_content_type() == "text/event-stream":
            self.streamed += 1
            lines = [line for line in data.split(b"\n") if line.startswith(b"data: {")]
            return lines[-1].removeprefix(b"data: ")
        return data.removesuffix(b"\n")
