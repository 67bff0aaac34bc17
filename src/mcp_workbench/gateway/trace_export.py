"""Traces on their way to the collector, and what is read of its answers: little, and not for long.

The exporter of the OpenTelemetry SDK reads an answer to its end, wherever that is. Here the bytes of each answer are
counted as they arrive, with its head and whatever comes before that. A redirect is not followed: it would lead the
headers, which may hold a key, somewhere else. Runs in the thread of the SDK.
"""

from __future__ import annotations

import io
import os
import time
from http.client import HTTPResponse
from typing import TYPE_CHECKING, Any

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError

if TYPE_CHECKING:
    import socket

MOST_BYTES = 1 << 18  # of an answer with its head; a collector's have a few hundred
SECONDS = 30.0  # for an answer; the SDK gives up sooner if nothing comes at all
LONGEST_REASON = 200  # characters that are logged of why a collector refuses
# Whoever sets one of these has a session of their own.
_PROVIDERS = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
)


class AnswerTooLong(OSError):
    """A collector sends more, or takes longer, than any answer does."""


def new_exporter() -> OTLPSpanExporter:
    """Return what sends traces to the collector that the variables of OpenTelemetry name."""
    own = any(os.environ.get(name) for name in _PROVIDERS)
    return OTLPSpanExporter() if own else OTLPSpanExporter(session=_Session())


class _Session(requests.Session):
    def __init__(self) -> None:
        super().__init__()
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter())

    def request(self, method: str, url: Any, *args: Any, **kwargs: Any) -> requests.Response:  # pyright: ignore[reportIncompatibleMethodOverride]
        kwargs["allow_redirects"] = False
        return super().request(method, url, *args, **kwargs)


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager

    def send(self, *args: Any, **kwargs: Any) -> requests.Response:
        try:
            response = super().send(*args, **{**kwargs, "stream": True})
        except requests.RequestException as error:
            error.args = (_shown(str(error)),)  # it may quote what came instead of an answer
            raise
        try:
            response.raw.read(decode_content=False)  # then the connection can be used again
        except (HTTPError, OSError):
            response.close()
        response.raw = io.BytesIO()  # its status says all that there is to know
        response.reason = _shown(response.reason or "")
        return response


def _shown(words: str) -> str:
    return "".join(c if c.isprintable() else " " for c in words[:LONGEST_REASON])


class _CountedBytes(io.RawIOBase):
    """The bytes of one answer, as far as it may go."""

    def __init__(self, source: socket.SocketIO) -> None:
        self._source = source
        self._left = MOST_BYTES
        self._until = time.monotonic() + SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._left <= 0 or time.monotonic() > self._until:
            raise AnswerTooLong("the collector's answer has no end")
        count = self._source.readinto(buffer)
        self._left -= count or 0
        return count

    def fileno(self) -> int:
        return self._source.fileno()

    def close(self) -> None:
        self._source.close()
        super().close()


class _Answer(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.fp = io.BufferedReader(_CountedBytes(sock.makefile("rb", buffering=0)))


class _Connection(HTTPConnection):
    response_class = _Answer


class _SafeConnection(HTTPSConnection):
    response_class = _Answer


class _Pool(HTTPConnectionPool):
    ConnectionCls: Any = _Connection


class _SafePool(HTTPSConnectionPool):
    ConnectionCls: Any = _SafeConnection


_POOLS: dict[str, Any] = {"http": _Pool, "https": _SafePool}
