"""Collectors of traces that answer without end, elsewhere, or with words of their own: calls go on, and memory is kept."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import repeat

import pytest

from mcp_workbench.gateway.tracing import CallTracing, tracing_of
from tests.kit.clock import PATIENCE

ENOUGH = 64 << 20  # bytes that a collector sends, if nobody stops it
READ = 16 << 20  # of them, in the buffers of the system as well
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n"
PIECE = b"a" * (64 << 10)
KEY = "a-key-for-this-collector"


def request_of(peer: socket.socket) -> bytes:
    """A whole request; what there is of it, if it is not whole."""
    data = b""
    while part := peer.recv(1 << 16):
        data += part
        head, end, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if end and length and len(body) >= int(length[1]):
            break
    return data


class Collector(threading.Thread):
    """Answers every request with these bytes, until whoever asked hangs up."""

    def __init__(self, answer: Callable[[], Iterator[bytes]]) -> None:
        super().__init__(daemon=True)
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[bytes] = []
        self.sent = 0

    def run(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                peer, _ = self._listener.accept()
                with peer, suppress(OSError):
                    self.requests.append(request_of(peer))
                    self._send(peer)

    def _send(self, peer: socket.socket) -> None:
        for piece in self._answer():
            if self.sent >= ENOUGH:
                return
            peer.sendall(piece)
            self.sent += len(piece)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def collector(answer: Callable[[], Iterator[bytes]]) -> Generator[Collector]:
    one = Collector(answer)
    one.start()
    try:
        yield one
    finally:
        one.close()
        one.join(PATIENCE)


def export(to: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send one span, and wait until it is known what became of it."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", to.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"api-key={KEY}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    (tracing,) = tracing_of(os.environ).interceptors
    assert isinstance(tracing, CallTracing)
    provider = tracing.provider
    provider.get_tracer("test").start_span("a call").end()
    ended = threading.Thread(target=provider.force_flush, daemon=True)
    ended.start()
    ended.join(PATIENCE)
    assert not ended.is_alive()
    tracing.close()


def chunked() -> Iterator[bytes]:
    yield HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    yield from repeat(b"%x\r\n%b\r\n" % (len(PIECE), PIECE))


def long() -> Iterator[bytes]:
    yield HEAD + b"Content-Length: 99999999999\r\n\r\n"
    yield from repeat(PIECE)


def without_length() -> Iterator[bytes]:
    yield HEAD + b"\r\n"
    yield from repeat(PIECE)


def interim() -> Iterator[bytes]:
    yield from repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 2000)


def refused() -> Iterator[bytes]:
    yield b"HTTP/1.1 400 no\r\n\r\n"
    yield from repeat(PIECE)


@pytest.mark.parametrize("answer", [chunked, long, without_length, interim, refused])
def test_of_an_answer_without_end_little_is_read(
    answer: Callable[[], Iterator[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector(answer) as endless:
        export(endless, monkeypatch)

    assert endless.requests
    assert endless.sent < READ * max(1, len(endless.requests))
    assert endless.sent < ENOUGH


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_leads_nobody_elsewhere(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with collector(lambda: iter((HEAD + b"Content-Length: 0\r\n\r\n",))) as other:

        def elsewhere() -> Iterator[bytes]:
            yield b"HTTP/1.1 %d x\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (
                status,
                other.url.encode(),
            )

        with collector(elsewhere) as first:
            export(first, monkeypatch)

    assert KEY.encode() in first.requests[0]
    assert other.requests == []


@pytest.mark.parametrize("start", [b"HTTP/1.1 400 ", b"", b"HTTP/1.1 200 OK\r\nLocation: "])
def test_words_of_a_collector_are_logged_as_plain_text(
    start: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    words = b"\x1b[2J\x1b]0;gone\x07" + b"x" * 30_000
    answer = b"%b%b\r\nContent-Length: 0\r\n\r\n" % (start, words)

    with collector(lambda: iter((answer,))) as rude, caplog.at_level(logging.WARNING):
        export(rude, monkeypatch)

    logged = [record.getMessage() for record in caplog.records if "export" in record.getMessage()]
    assert logged or b"200" in start
    assert all("\x1b" not in line and len(line) < 1000 for line in logged)


def test_a_collector_that_answers_is_asked_on_the_same_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is read of an answer is enough for that."""
    accepted: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{listener.getsockname()[1]}"
        )
        (tracing,) = tracing_of(os.environ).interceptors
        assert isinstance(tracing, CallTracing)

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                for _ in range(2):
                    accepted.append(request_of(peer))
                    peer.sendall(HEAD + b"Content-Length: 2\r\n\r\nok")

        collecting = threading.Thread(target=answer, daemon=True)
        collecting.start()
        for _ in range(2):
            tracing.provider.get_tracer("test").start_span("a call").end()
            tracing.provider.force_flush()
        collecting.join(PATIENCE)
        tracing.close()

    assert [one.startswith(b"POST /v1/traces") for one in accepted] == [True, True]
