"""The trace context in the headers of a request, for the calls that come of it."""

from __future__ import annotations

from contextvars import Context

from mcp_workbench.gateway.tracing import HEADERS, read_headers
from mcp_workbench.server.http.front import HttpFront
from mcp_workbench.transport.http.messages import HttpRequest, ResponseWriter
from mcp_workbench.transport.tasks import TaskScope


def keep_trace(front: HttpFront, requests: TaskScope) -> None:
    """Have the front note the context of each request. Tasks of `requests` that it starts have it, too."""
    handle = front.handle

    def noted(request: HttpRequest, response: ResponseWriter) -> None:
        found = read_headers(request.headers)
        if not found:
            handle(request, response)
            return
        token = HEADERS.set(found)
        try:
            handle(request, response)
        finally:
            HEADERS.reset(token)

    front.handle = noted
    requests.new_context = _with_headers


def _with_headers() -> Context:
    """A context of its own for a task, in which only the headers are known."""
    context = Context()
    if found := HEADERS.get():
        context.run(HEADERS.set, found)
    return context
