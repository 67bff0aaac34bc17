"""Hosts of single replicas that block, for scenes of few requests."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Generator, Iterator
from typing import Any

from tests.cluster.scenes import TOKENS, Cluster
from tests.kit.blocking_http_host import HttpHost
from tests.kit.clock import PATIENCE
from tests.kit.http_host import rpc
from tests.kit.results import INITIALIZE, LEGACY


class Hosts:
    """Makes hosts of the replicas of one cluster."""

    def __init__(self, running: Cluster, stack: contextlib.ExitStack) -> None:
        self._running = running
        self._stack = stack

    def modern(self, replica: int, who: str = "alice", **more: Any) -> HttpHost:
        return self._open(replica, who, modern=True, **more)

    def legacy(self, replica: int, who: str = "alice", **more: Any) -> HttpHost:
        return self._open(replica, who, modern=False, **more)

    def _open(self, replica: int, who: str, **more: Any) -> HttpHost:
        host = HttpHost(self._running.replicas[replica].url, token=TOKENS[who], **more)
        self._stack.callback(host.close)
        return host

    def move(self, host: HttpHost, replica: int) -> None:
        """Let this host go on at another replica."""
        host.move_to(f"127.0.0.1:{self._running.replicas[replica].port}")


@contextlib.contextmanager
def hosts_of(running: Cluster) -> Generator[Hosts]:
    with contextlib.ExitStack() as stack:
        yield Hosts(running, stack)


class StreamHost:
    """A legacy host that reads streams event by event, and resumes them where it likes."""

    def __init__(self, running: Cluster, replica: int, who: str = "alice") -> None:
        self._running = running
        self.replica = replica
        self._headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "authorization": f"Bearer {TOKENS[who]}",
        }
        with self._sent("POST", rpc("initialize", INITIALIZE, 1)) as answer:
            self._headers["mcp-session-id"] = answer.headers["mcp-session-id"]
            self._headers["mcp-protocol-version"] = LEGACY
        self.post(rpc("notifications/initialized"))

    @contextlib.contextmanager
    def _sent(
        self, method: str, body: bytes = b"", **more: str
    ) -> Generator[http.client.HTTPResponse]:
        port = self._running.replicas[self.replica].port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request(method, "/mcp", body, {**self._headers, **more})
            with connection.getresponse() as answer:
                yield answer

    def post(self, body: bytes) -> tuple[int, bytes]:
        """Status and body of an answer that comes whole."""
        with self._sent("POST", body) as answer:
            return answer.status, answer.read()

    def call(self, id: int, name: str, arguments: Any) -> Any:
        """The answer to a call, however it comes."""
        params = {"name": name, "arguments": arguments}
        _, body = self.post(rpc("tools/call", params, id))
        return json.loads(body[body.index(b"{") :])

    @contextlib.contextmanager
    def stream(self, body: bytes = b"", last: str = "") -> Generator[Stream]:
        """The answer to a POST, or a stream that is listened to, for the length of the block."""
        more = {"last-event-id": last} if last else {}
        with self._sent("POST" if body else "GET", body, **more) as answer:
            yield Stream(answer)


class Stream:
    """Events as they come."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self._answer = answer
        self.last = ""  # the id of the last event

    def messages(self) -> Iterator[Any]:
        """Each message; ends when the stream does."""
        while line := self._answer.readline():
            if line.startswith(b"id:"):
                self.last = line[3:].strip().decode()
            elif line.startswith(b"data:") and line[5:].strip():
                yield json.loads(line[5:])

    def primed(self) -> str:
        """Read up to the first id."""
        while not self.last and (line := self._answer.readline()):
            if line.startswith(b"id:"):
                self.last = line[3:].strip().decode()
        return self.last

    def text(self) -> str:
        """The rest, as it is."""
        return self._answer.read().decode()
