"""The page on the loopback to which an authorization server sends the browser back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from html import escape

from mcp_workbench.protocol.oauth import SignInFailed

HOST = "127.0.0.1"
PATH = "/callback"
LARGEST = 1 << 14  # bytes of a request's head
PATIENCE = 10.0  # seconds for a request, and for its page
MOST = 16  # connections that have sent no request yet, and requests that wait for their page
LAST_PAGE = 1.0  # seconds to send the page after the sign-in is complete

_HEAD = (
    "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {length}\r\n"
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nConnection: close\r\n\r\n"
)
_PAGE = (
    "<!doctype html><meta charset=utf-8><title>MCP Workbench</title>"
    "<body style='font:1.1em system-ui;max-width:36em;margin:4em auto'><h1>{title}</h1><p>{text}</p>"
)


class Visit:
    """One browser that came back."""

    def __init__(self, query: str) -> None:
        self.query = query
        self.page: asyncio.Future[tuple[str, bool]] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return "Visit()"  # the query has the code

    def answer(self, text: str, *, ok: bool) -> None:
        if not self.page.done():
            self.page.set_result((text, ok))


class Visits:
    """The browsers that come back to one redirect address."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._visits: asyncio.Queue[Visit] = asyncio.Queue(MOST)

    async def next(self) -> Visit:
        return await self._visits.get()

    def add(self, query: str) -> Visit:
        """A browser has come back with this query. Raises asyncio.QueueFull."""
        visit = Visit(query)
        self._visits.put_nowait(visit)
        return visit


class Redirects(Visits):
    """Those that come back to a loopback address."""

    def __init__(self, port: int) -> None:
        super().__init__(f"http://{HOST}:{port}{PATH}")
        self._host = f"{HOST}:{port}"
        self._open = 0
        self._silent: dict[asyncio.StreamWriter, None] = {}  # without a request yet, oldest first
        self._waiting: set[Visit] = set()
        self._closed = asyncio.Event()  # no connection is open

    async def end(self) -> None:
        """Answer whoever still waits, and wait until the last page was sent, which may take a moment."""
        for visit in tuple(self._waiting):
            visit.answer("The sign-in was ended before it was complete.", ok=False)
        for writer in tuple(self._silent):  # browsers connect ahead
            writer.transport.abort()
        if self._open:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_PAGE):
                    await self._closed.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, then close."""
        self._open += 1
        self._closed.clear()
        self._make_room(writer)
        try:
            async with asyncio.timeout(PATIENCE):
                head = await _read_head(reader)
                self._silent.pop(writer, None)
                status, text, ok = await self._answer(head)
                await _write(writer, status, text, ok=ok)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            self._silent.pop(writer, None)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self._open -= 1
            if not self._open:
                self._closed.set()

    def _make_room(self, writer: asyncio.StreamWriter) -> None:
        """Close the connection that has been silent for longest: others must not keep the person's out."""
        self._silent[writer] = None
        if len(self._silent) > MOST:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.transport.abort()

    async def _answer(self, head: str) -> tuple[str, str, bool]:
        line, *headers = head.split("\r\n")
        method, _, target = line.partition(" ")
        target = target.partition(" ")[0]
        path, _, query = target.partition("?")
        hosts = [
            value.strip()
            for name, _, value in (h.partition(":") for h in headers)
            if name.lower() == "host"
        ]
        if method != "GET" or path != PATH or hosts != [self._host]:
            return "404 Not Found", "There is nothing here.", False
        try:
            visit = self.add(query)
        except asyncio.QueueFull:
            return "503 Service Unavailable", "Too many requests.", False
        self._waiting.add(visit)
        try:
            text, ok = await visit.page
        finally:
            self._waiting.discard(visit)
        return "200 OK", text, ok


async def _read_head(reader: asyncio.StreamReader) -> str:
    return (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")


async def _write(writer: asyncio.StreamWriter, status: str, text: str, ok: bool) -> None:  # noqa: FBT001
    title = "Signed in" if ok else "Not signed in"
    hint = " You can close this page." if ok else ""
    page = _PAGE.format(title=title, text=escape(text) + hint).encode()
    writer.write(_HEAD.format(status=status, length=len(page)).encode() + page)
    await writer.drain()


@asynccontextmanager
async def redirect_listener(fixed: int, preferred: int) -> AsyncGenerator[Redirects]:
    """Listen on this port, else on the preferred one, else on a free one. Raises SignInFailed."""
    redirects: list[Redirects] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await redirects[0].serve(reader, writer)

    server = None
    for port in [fixed] if fixed else [preferred, 0]:
        try:
            server = await asyncio.start_server(serve, HOST, port, limit=LARGEST)
            break
        except OSError as error:
            if fixed or not port:
                raise SignInFailed(
                    "WB-AUTH-008",
                    f"port {port} of {HOST} can't be used for the redirect ({error.strerror}): "
                    "end what listens there, or change 'auth.redirectPort'",
                ) from None
    assert server is not None  # noqa: S101 - the loop raises otherwise
    redirects.append(Redirects(server.sockets[0].getsockname()[1]))
    try:
        yield redirects[0]
    finally:
        server.close()
        await redirects[0].end()
