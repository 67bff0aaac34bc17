"""The bench's host: one child at the other end of two pipes, spoken to by blocking system calls."""

# A yardstick or a measure, not the product: what is plainly wrong is enough.
# pyright: basic, reportOptionalMemberAccess=false

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec
import proc

PATIENCE = 60  # seconds for any one answer: a hang ends the run instead of lasting for ever
POLITE = 2.0  # seconds for a child to leave after its stdin has closed, and again after SIGTERM
READ = 1 << 20
CONFIG = "{config}"  # stands for the configuration's path in a gateway's command
PORT = "{port}"  # stands for a free port: the gateway is then spoken to over HTTP
SERVER = Path(__file__).with_name("server.py")
TOOLBOX = "box"
LAST_TOOL = "tool_0007"  # of every server: its listing has arrived as a whole
VERSION = "2025-06-18"
FIRST_ID = 1_000_000  # timed calls all have ids of the same length

Line = Callable[[int], bytes]


class GatewayFailed(Exception):
    """A child ended, hung, or answered with an error."""


class Message(msgspec.Struct, gc=False):
    id: int | None = None
    method: str | None = None
    error: msgspec.Raw = msgspec.Raw(b"")


decode_message = msgspec.json.Decoder(Message).decode


class Contender(msgspec.Struct, frozen=True):
    """One that is measured: a gateway's command, or the bare server called directly."""

    name: str
    command: tuple[str, ...]

    @property
    def relays(self) -> bool:
        return CONFIG in self.command

    @property
    def over_http(self) -> bool:
        return any(PORT in part for part in self.command)


class Host:
    """A session with one contender. The timed methods do nothing between write and read."""

    def __init__(self, contender: Contender, folder: Path) -> None:
        self.name, self.relays = contender.name, contender.relays
        self._number, self._rest = 0, b""
        self._log = folder / "stderr.log"
        self._port = free_port() if contender.over_http else 0
        config = str(folder / "config.json")
        command = [
            part.replace(CONFIG, config).replace(PORT, str(self._port))
            for part in contender.command
        ]
        home = {"MCP_WORKBENCH_HOME": str(folder / "home")}
        with self._log.open("wb") as log:
            self._spawned = time.perf_counter_ns()
            try:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=os.environ | home,
                    cwd=folder,
                    bufsize=0,
                    start_new_session=True,  # Ctrl-C is ours alone; close() ends the child
                )
            except OSError as error:
                raise GatewayFailed(f"{self.name} cannot be started: {error}") from error
        proc.favour(self._child.pid)
        self._in, self._out = self._child.stdin.fileno(), self._child.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._out, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The session

    def get_ready(self, servers: int = 1) -> dict[str, float]:
        """From the handshake to the first call; milliseconds since the spawn at each step."""
        about = {"name": "bench", "version": "1"}
        wanted = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": about}
        self.ask("initialize", wanted)
        self._send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        reached = {"initialize": self._since_spawn()}
        self.ask("tools/list", {})
        reached["list"] = self._since_spawn()
        if self.relays:
            opened = self.ask("tools/call", _call("open_toolbox", {"toolbox_name": TOOLBOX}))
        reached["open"] = self._since_spawn()
        if self.relays and str(opened).count(LAST_TOOL) < servers:
            raise GatewayFailed(f"{self.name} did not open all {servers} servers")
        answer = self.ask("tools/call", self._params("echo", {"text": "héllo"}))
        reached["first_call"] = self._since_spawn()
        if answer["content"][0]["text"] != "héllo":
            raise GatewayFailed(f"{self.name} garbled an echo: {answer}")
        return reached

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """The result of one request, not timed."""
        self._number += 1
        head = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._send(msgspec.json.encode(head) + b"\n")
        while not self._answers(line := self._read_line()):
            pass
        result = msgspec.json.decode(line)["result"]
        if result.get("isError"):
            raise GatewayFailed(f"{self.name} answered {line[:300]!r}")
        return result

    def call(self, tool: str, arguments: dict[str, Any]) -> Line:
        """How the call number i looks on the wire."""
        params = msgspec.json.encode(self._params(tool, arguments))
        tail = b',"method":"tools/call","params":' + params + b"}\n"
        return lambda i: b'{"jsonrpc":"2.0","id":%d%b' % (FIRST_ID + i, tail)

    # What is timed

    def in_turn(self, line: Line, calls: int) -> list[int]:
        """One call after the other; nanoseconds of each."""
        clock, send, read_line = time.perf_counter_ns, self._send, self._read_line
        taken, answer = [], b""
        for i in range(calls):
            data = line(i)
            start = clock()
            send(data)
            answer = read_line()
            while b'"method"' in answer[:80]:  # a notification
                answer = read_line()
            taken.append(clock() - start)
        if b'"error"' in answer[:80] or b'"isError":true' in answer[-200:]:
            raise GatewayFailed(f"{self.name} answered {answer[:300]!r}")
        return taken

    def at_once(self, line: Line, calls: int, in_flight: int) -> float:
        """So many calls, so many of them in flight all the time; seconds for all."""
        start = time.perf_counter_ns()
        sent = min(in_flight, calls)
        self._send(b"".join(map(line, range(sent))))
        done = 0
        while done < calls:
            answered = sum(map(self._answers, [self._read_line(), *self._read_rest()]))
            done += answered
            more = min(answered, calls - sent)
            if more:
                self._send(b"".join(map(line, range(sent, sent + more))))
                sent += more
        return (time.perf_counter_ns() - start) / 1e9

    # The gateway's own processes

    def memory(self) -> tuple[float, float]:
        return proc.memory(self._own())

    def cpu(self) -> float:
        return proc.cpu(self._own())

    def _own(self) -> list[int]:
        return proc.own(self._child.pid, str(SERVER))

    # The pipes

    def _send(self, data: bytes) -> None:
        try:
            written = os.write(self._in, data)
            while written != len(data):
                data = data[written:]
                written = os.write(self._in, data)
        except BrokenPipeError:
            raise self._lost("closed its stdin") from None

    def _read_line(self) -> bytes:
        line, newline, rest = self._rest.partition(b"\n")
        if newline:
            self._rest = rest
            return line
        parts = [line]
        while not newline:
            if not self._poll.poll(PATIENCE * 1000):
                raise self._lost(f"did not answer within {PATIENCE} s")
            chunk = os.read(self._out, READ)
            if not chunk:
                raise self._lost("closed its stdout")
            part, newline, self._rest = chunk.partition(b"\n")
            parts.append(part)
        return b"".join(parts)

    def _read_rest(self) -> list[bytes]:
        """The lines that have arrived along with the last one read."""
        *lines, self._rest = self._rest.split(b"\n")
        return lines

    def _answers(self, line: bytes) -> bool:
        """Whether it is an answer, rather than a notification."""
        if not line:
            return False
        message = decode_message(line)
        if message.error:
            raise GatewayFailed(f"{self.name} answered {line[:300]!r}")
        return message.method is None

    def _params(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if not self.relays:
            return _call(tool, arguments)
        name = {"toolbox": TOOLBOX, "server": "s0", "tool": tool}
        return _call("use_tool", {"tool": name, "arguments": arguments})

    def _since_spawn(self) -> float:
        return (time.perf_counter_ns() - self._spawned) / 1e6

    def _lost(self, what: str) -> GatewayFailed:
        last = self._log.read_text(errors="replace").strip().splitlines()[-5:]
        return GatewayFailed("\n    ".join([f"{self.name} {what}", *last]))

    # The end

    def close(self) -> None:
        """Ask, tell, then force the child to leave, and see that its servers left with it."""
        behind = proc.descendants(self._child.pid)[1:]
        try:
            self._child.stdin.close()
            if not self._left():
                self._signal_group(signal.SIGTERM)
                self._left()
        finally:  # also when Ctrl-C cuts the waiting short
            self._signal_group(signal.SIGKILL)
            self._child.wait()
            self._child.stdout.close()
        deadline = time.monotonic() + POLITE
        while any(map(_serves, behind)) and time.monotonic() < deadline:
            time.sleep(0.01)
        for pid in filter(_serves, behind):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _left(self) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(POLITE)
        return self._child.returncode is not None

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)


class HttpHost(Host):
    """The same over HTTP: one connection for calls one by one, 64 for calls at once."""

    def __init__(self, contender: Contender, folder: Path) -> None:
        super().__init__(contender, folder)
        self._head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
        ).encode()
        self._connections = [self._connect()]

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", self._port), PATIENCE)
                break
            except ConnectionRefusedError:
                if self._child.poll() is not None or time.monotonic() > deadline:
                    self.close()
                    raise self._lost("does not listen") from None
                time.sleep(0.001)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        head, body = self._exchange(self._request(msgspec.json.encode(message)))
        name = b"mcp-session-id: "
        if method == "initialize" and name in head.lower():
            start = head.lower().index(name) + len(name)
            self._head += b"Mcp-Session-Id: %b\r\n" % head[start:].partition(b"\r\n")[0]
        result = msgspec.json.decode(body).get("result")
        if result is None or result.get("isError"):
            raise GatewayFailed(f"{self.name} answered {body[:300]!r}")
        return result

    def in_turn(self, line: Line, calls: int) -> list[int]:
        clock, exchange = time.perf_counter_ns, self._exchange
        taken, body = [], b""
        for i in range(calls):
            request = self._request(line(i)[:-1])
            start = clock()
            _, body = exchange(request)
            taken.append(clock() - start)
        if b'"error"' in body[:80] or b'"isError":true' in body[-200:]:
            raise GatewayFailed(f"{self.name} answered {body[:300]!r}")
        return taken

    def at_once(self, line: Line, calls: int, in_flight: int) -> float:
        while len(self._connections) < in_flight:
            self._connections.append(self._connect())
        poll = select.poll()
        busy = {connection.fileno(): connection for connection in self._connections[:in_flight]}
        for number in busy:
            poll.register(number, select.POLLIN)
        start = time.perf_counter_ns()
        sent = done = 0
        for connection in list(busy.values())[:calls]:
            connection.sendall(self._request(line(sent)[:-1]))
            sent += 1
        while done < calls:
            for number, _ in poll.poll(PATIENCE * 1000):
                self._receive(busy[number])
                done += 1
                if sent < calls:
                    busy[number].sendall(self._request(line(sent)[:-1]))
                    sent += 1
        return (time.perf_counter_ns() - start) / 1e9

    def _request(self, body: bytes) -> bytes:
        return b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body)

    def _exchange(self, request: bytes) -> tuple[bytes, bytes]:
        self._connections[0].sendall(request)
        return self._receive(self._connections[0])

    def _receive(self, connection: socket.socket) -> tuple[bytes, bytes]:
        """Head and body of one response, which has its length in its head."""
        data = self._more(connection)
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self._more(connection)
        head = data[:end]
        at = head.lower().find(b"content-length:") + len(b"content-length:")
        missing = end + 4 + int(head[at:].partition(b"\r\n")[0]) - len(data)
        parts = [data]
        while missing > 0:
            parts.append(self._more(connection))
            missing -= len(parts[-1])
        return head, b"".join(parts)[end + 4 :]

    def _more(self, connection: socket.socket) -> bytes:
        try:
            data = connection.recv(READ)
        except TimeoutError:
            raise self._lost(f"did not answer within {PATIENCE} s") from None
        if not data:
            raise self._lost("closed the connection")
        return data

    def _send(self, data: bytes) -> None:
        """A notification; it is answered without a body."""
        self._exchange(self._request(data[:-1]))

    def close(self) -> None:
        for connection in getattr(self, "_connections", ()):
            connection.close()
        self._signal_group(signal.SIGTERM)
        super().close()


class UrlServer:
    """The server over HTTP, for gateways whose servers have a URL."""

    def __init__(self) -> None:
        self.port = free_port()
        command = [sys.executable, "-I", str(SERVER), "s0", str(self.port)]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def __enter__(self) -> Self:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", self.port), PATIENCE).close()
                return self
            time.sleep(0.01)
        raise GatewayFailed("the server does not listen")

    def __exit__(self, *_: object) -> None:
        self._child.stdin.close()
        try:
            self._child.wait(POLITE)
        finally:
            self._child.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def _call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def _serves(pid: int) -> bool:
    return str(SERVER) in proc.command(pid)
