"""Legacy hosts without an SDK, many in one process: every outcome of every call is known."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.cluster.scenes import TOKENS
from tests.kit.results import INITIALIZE, LEGACY

CALL_TIME = 20.0  # seconds
BAD_GATEWAY = 502  # HAProxy's connection to a replica broke
AGAIN = 30  # times that an answer is sent
MAY_HAVE_RUN = "the call may have run"

Json = dict[str, Any]
OnEvent = Callable[[Json], None]


class Broken(Exception):
    """The connection ended before the answer."""


class Connection:
    """One HTTP connection; a request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turns = asyncio.Lock()

    async def request(
        self, head: bytes, body: bytes, on_event: OnEvent | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """The status, headers and body; of a stream of events, its last message. Raises Broken."""
        async with self._turns:
            return await self._request(head, body, on_event)

    async def _request(
        self, head: bytes, body: bytes, on_event: OnEvent | None
    ) -> tuple[int, dict[str, str], bytes]:
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            return await self._answer(reader, on_event)
        except (OSError, EOFError, asyncio.IncompleteReadError, ValueError) as error:
            self.close()
            raise Broken(repr(error)) from None

    async def _answer(
        self, reader: asyncio.StreamReader, on_event: OnEvent | None
    ) -> tuple[int, dict[str, str], bytes]:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        pairs = (line.partition(": ") for line in lines[1:] if line)
        headers = {name.lower(): value for name, _, value in pairs}
        if headers.get("transfer-encoding") == "chunked":
            body = await self._events(reader, on_event)
        else:
            body = await reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection") == "close":
            self.close()
        return status, headers, body

    async def _events(self, reader: asyncio.StreamReader, on_event: OnEvent | None) -> bytes:
        text, last = b"", b""
        while True:
            size = int(await reader.readline(), 16)
            text += (await reader.readexactly(size + 2))[:-2]
            if not size:
                return last
            *blocks, text = text.split(b"\n\n")
            for block in blocks:
                for line in block.split(b"\n"):
                    if line.startswith(b"data:") and line[5:].strip():
                        last = line[5:].strip()
                        if on_event is not None:
                            on_event(json.loads(last))

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class RawHost:
    """One legacy host: a session, its calls, and what became of each."""

    def __init__(self, port: int, name: str, principal: str) -> None:
        self.port = port
        self.name = name
        self.principal = principal
        self.outcomes: Counter[str] = Counter()
        self.strange: list[str] = []
        self.session = ""
        self.asked = 0
        self.notices = 0
        self._good: list[float] = []  # the loop's times of good answers
        self._ids = 0
        self._connection = Connection(port)
        self._beside = Connection(port)  # for answers and cancellations

    def _head(self, session: str) -> bytes:
        lines = [
            "POST /mcp HTTP/1.1",
            "Host: 127.0.0.1",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            f"Authorization: Bearer {TOKENS[self.principal]}",
            f"MCP-Protocol-Version: {LEGACY}",
            *([f"Mcp-Session-Id: {session}"] if session else []),
        ]
        return "".join(f"{line}\r\n" for line in lines).encode()

    async def open(self) -> None:
        params: Json = {**INITIALIZE, "capabilities": {"elicitation": {}}}
        message: Json = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        status, headers, body = await self._connection.request(self._head(""), _bytes(message))
        assert status == 200, (status, body)
        self.session = headers["mcp-session-id"]
        await self._tell({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def _tell(self, message: Json) -> int:
        """Send an answer or a notification; again, if the connection breaks."""
        for _ in range(AGAIN):
            try:
                status, _, _ = await self._beside.request(self._head(self.session), _bytes(message))
            except Broken:
                status = 0
            if 0 < status < 500:
                return status
            await asyncio.sleep(0.2)
        return 0

    async def call(self, server: str, tool: str, arguments: Json, **meta: Any) -> Any:
        """The text of the result; None if there is none, and why is counted."""
        self._ids += 1
        tool_id = {"toolbox": "dev", "server": server, "tool": tool}
        params: Json = {"name": "use_tool", "arguments": {"tool": tool_id, "arguments": arguments}}
        if meta:
            params["_meta"] = meta
        message = {"jsonrpc": "2.0", "id": self._ids, "method": "tools/call", "params": params}
        tasks: list[asyncio.Task[Any]] = []

        def heard(event: Json) -> None:
            if event.get("method") == "elicitation/create":
                self.asked += 1
                result = {"action": "accept", "content": {"name": self.name}}
                answer = {"jsonrpc": "2.0", "id": event["id"], "result": result}
                tasks.append(asyncio.create_task(self._tell(answer)))
            elif event.get("method") == "notifications/progress":
                self.notices += 1

        answer = await self._answer(message, heard)
        for task in tasks if answer else ():
            await task
        return self._text(*answer, self._ids) if answer else None

    async def _answer(self, message: Json, heard: OnEvent) -> tuple[int, bytes] | None:
        """Status and body; None if there is no answer, and why is counted."""
        head, about = self._head(self.session), str(message["params"])[:100]
        broken = self.outcomes["broken"]
        answer = await self._sent(head, _bytes(message), heard, about)
        if self.outcomes["broken"] > broken or (answer and answer[0] == BAD_GATEWAY):
            await self._cancel(message["id"])
        return answer

    async def _sent(
        self, head: bytes, body: bytes, heard: OnEvent, about: str
    ) -> tuple[int, bytes] | None:
        try:
            async with asyncio.timeout(CALL_TIME):
                status, _, answer = await self._connection.request(head, body, heard)
        except Broken as error:
            self._count("broken", str(error))
            return None
        except TimeoutError:
            self._connection.close()
            self._count("hangs", about)
            return None
        return status, answer

    async def _cancel(self, id: Any) -> None:
        """Give up a call whose stream broke: without that it goes on, and its question stays open."""
        params = {"requestId": id, "reason": "its connection broke"}
        await self._tell({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    def _text(self, status: int, body: bytes, id: int) -> Any:
        if status != 200:
            self._count(f"http {status}", body.decode("utf-8", "replace")[:200])
            return None
        message = json.loads(body)
        if message.get("id") != id:
            self._count("wrong id", body.decode()[:200])
        elif "error" in message:
            kind = "lost" if MAY_HAVE_RUN in message["error"]["message"] else "error"
            self._count(kind, message["error"]["message"])
        elif message["result"].get("isError"):
            text = message["result"]["content"][0]["text"]
            self._count("lost" if MAY_HAVE_RUN in text else "failed", text)
        else:
            return message["result"]["content"][0]["text"]
        return None

    def _count(self, outcome: str, detail: str = "") -> None:
        self.outcomes[outcome] += 1
        if outcome != "ok" and len(self.strange) < 20:
            self.strange.append(f"{outcome}: {detail}")

    def judge(self, text: Any, *, right: bool) -> None:
        if text is not None:
            self._count("ok" if right else "wrong", str(text)[:200])
            self._good.append(asyncio.get_running_loop().time())

    def has_returned(self, since: float) -> bool:
        return any(time > since for time in self._good)

    def returned_after(self, since: float) -> float:
        """Seconds from then to its next good answer."""
        return next(time - since for time in self._good if time > since)

    # Calls of every kind

    async def echo(self) -> None:
        nonce = f"{self.principal}/{self.name}/{self._ids}"
        text = await self.call("quick", "echo", {"nonce": nonce})
        self.judge(text, right=text is not None and nonce in text)

    async def progress(self) -> None:
        before = self.notices
        text = await self.call("one", "progress", {"n": 3}, progressToken=f"p{self._ids}")
        self.judge(text, right=self.notices - before == 3)

    async def question(self) -> None:
        before = self.asked
        text = await self.call("asker", "name", {})
        right = text is not None and self.name in text and self.asked == before + 1
        self.judge(text, right=right)

    async def cancelled(self) -> None:
        """A call that never ends, and its cancellation: its stream ends without an answer."""
        id = self._ids + 1
        params = {"requestId": id, "reason": "enough"}
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
        tool_id = {"toolbox": "dev", "server": "quick", "tool": "hold"}
        arguments = {"tool": tool_id, "arguments": {"nonce": f"{self.session}{id}"}}
        call = {"name": "use_tool", "arguments": arguments}
        self._ids = id
        message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call}
        request = asyncio.create_task(
            self._connection.request(self._head(self.session), _bytes(message))
        )
        try:
            async with asyncio.timeout(CALL_TIME):
                while not request.done():  # two connections have no order: it may overtake the call
                    await asyncio.wait((request,), timeout=0.1)
                    await self._tell(note)
                status, _, body = await request
        except (Broken, TimeoutError) as error:
            request.cancel()
            self._connection.close()
            self._count("hangs" if isinstance(error, TimeoutError) else "broken", "cancelled call")
            return
        self._count(_outcome_of_cancelled(status, body), f"{status} {body[:100]!r}")

    async def any(self, number: int) -> None:
        """One call in twenty with progress, one with a question, one that is cancelled."""
        kinds = {5: self.progress, 10: self.question, 15: self.cancelled}
        await kinds.get(number % 20, self.echo)()

    async def end(self) -> int:
        head = self._head(self.session).replace(b"POST", b"DELETE", 1)
        try:
            status, _, _ = await self._beside.request(head, b"")
        except Broken:
            return 0
        finally:
            self.close()
        return status

    def close(self) -> None:
        self._connection.close()
        self._beside.close()

    def number_from(self, number: int) -> None:
        """Several hosts of one session need different ids."""
        self._ids = number

    def move_to(self, port: int) -> None:
        """Send everything from now on to another replica."""
        self.close()
        self._connection, self._beside = Connection(port), Connection(port)


def _outcome_of_cancelled(status: int, body: bytes) -> str:
    if status != 200:
        return f"http {status}"
    if not body:
        return "ok"
    return "lost" if MAY_HAVE_RUN.encode() in body else "wrong"


def _bytes(message: Json) -> bytes:
    return json.dumps(message).encode()


@asynccontextmanager
async def hosts_at(port: int, count: int) -> AsyncGenerator[list[RawHost]]:
    """Hosts of both principals, by turns, for the length of the block."""
    names = list(TOKENS)
    hosts = [RawHost(port, f"h{i}", names[i % len(names)]) for i in range(count)]
    for at in range(0, count, 100):
        async with asyncio.TaskGroup() as tasks:
            for host in hosts[at : at + 100]:
                tasks.create_task(host.open())
    try:
        yield hosts
    finally:
        for host in hosts:
            host.close()


def summed(hosts: list[RawHost]) -> Counter[str]:
    total: Counter[str] = Counter()
    for host in hosts:
        total.update(host.outcomes)
    return total


def strange(hosts: list[RawHost]) -> list[str]:
    return [line for host in hosts for line in host.strange][:20]
