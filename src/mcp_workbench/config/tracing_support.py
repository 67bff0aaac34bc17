"""Whether traces can be sent: the extra `otel`. Nothing of it is loaded to find out."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from mcp_workbench.core.errors import Problem
from mcp_workbench.core.spec import Snapshot

INSTALL = "pip install 'mcp-workbench-gateway[otel]'"
MISSING = "'tracing' is true, but the extra 'otel' is not installed: no traces are sent"
CODE = "WB-CONF-066"
_MODULES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def can_trace() -> bool:
    """Is the extra installed?"""
    try:
        return all(find_spec(module) is not None for module in _MODULES)
    except ModuleNotFoundError:  # not even what contains it
        return False


def tracing_warnings(snapshot: Snapshot) -> Iterator[Problem]:
    """Yields a warning if traces are wanted and can't be sent."""
    if snapshot.tracing and not can_trace():
        yield Problem("tracing", MISSING, INSTALL, CODE, severity="warning")
