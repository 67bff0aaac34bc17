"""Calls are measured while somebody looks, whoever makes them and however they end; otherwise not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest

from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.gateway.call_meter import CallMeter
from mcp_workbench.gateway.calls import Call
from mcp_workbench.gateway.interceptors import CallOutcome, Interceptor
from tests.kit.clock import PATIENCE, until
from tests.kit.config import snapshot, spec, tool
from tests.kit.http_host import port
from tests.kit.inside import InsideWorkbench
from tests.kit.results import use_tool


@asynccontextmanager
async def workbench(config: Snapshot | None = None) -> AsyncGenerator[InsideWorkbench]:
    async with asyncio.timeout(PATIENCE), InsideWorkbench(config or snapshot(spec("a"))) as opened:
        yield opened


def outcomes(meter: CallMeter) -> dict[tuple[str, str], int]:
    return {(s.server, s.outcome): s.calls for s in meter.snapshot().series}


async def test_nothing_is_measured_until_somebody_looks_and_nothing_afterwards() -> None:
    async with workbench() as bench:
        await bench.use_tool(tool("a", "echo"))
        meter = bench.gateway.meter
        end = meter.look()
        await bench.use_tool(tool("a", "echo"))
        end()
        end()
        await bench.use_tool(tool("a", "echo"))

        assert outcomes(meter) == {("a", "ok"): 1}
        assert not meter.is_on
        assert bench.gateway.interceptors == bench.gateway.first_interceptors == ()


async def test_the_second_who_looks_goes_on_when_the_first_has_gone() -> None:
    async with workbench() as bench:
        meter = bench.gateway.meter
        one, two = meter.look(calls=True), meter.look()
        await bench.use_tool(tool("a", "echo"))
        assert len(meter.recent()) == 1
        one()
        await bench.use_tool(tool("a", "echo"))

        assert outcomes(meter) == {("a", "ok"): 2}
        assert meter.recent() == ()
        two()
        assert not meter.is_on


async def test_every_outcome_is_counted_also_of_calls_that_reach_no_server() -> None:
    async with workbench(snapshot(spec("a"), spec("dead", "stderr_exit"))) as bench:
        meter = bench.gateway.meter
        meter.look(calls=True)
        await bench.use_tool(tool("a", "echo"))
        for server, name in (("a", "no_such"), ("dead", "echo"), ("nobody", "x" * 5000)):
            with suppress(WorkbenchError):
                await bench.use_tool(tool(server, name))

        seen = meter.snapshot()
        assert sorted(outcomes(meter)) == [
            ("(other)", "unknown_server"),
            ("a", "ok"),
            ("a", "unknown_tool"),
            ("dead", "connect_failed"),
        ]
        assert [(t.server, t.tool, t.calls) for t in seen.tools] == [("a", "echo", 1)]
        assert max(len(call.names.tool) for call in meter.recent()) < 300
        assert {call.names.door for call in meter.recent()} == {"python"}


async def test_the_first_call_waits_for_its_server_and_the_second_does_not() -> None:
    async with workbench() as bench:
        meter = bench.gateway.meter
        meter.look(calls=True)
        await bench.use_tool(tool("a", "echo"), {"text": "x" * 100})
        await bench.use_tool(tool("a", "echo"))

        second, first = meter.recent()
        assert first.start > 0
        assert first.at_server > 0
        assert first.workbench > 0
        assert first.arguments_bytes > 100
        assert first.result_bytes > 100
        assert second.start < first.start
        assert meter.recent(after=1) == (second,)


@pytest.mark.parametrize("modern", [False, True])
async def test_hosts_over_http_are_measured_on_connections_that_were_open_before(
    modern: bool,
) -> None:
    async with port() as opened:
        peer = await opened.connect()
        session = await opened.open()
        legacy = session.request(session.ask("tools/call", use_tool("fixture", "echo")))
        request = opened.modern_use("echo") if modern else legacy
        peer.send(request)
        await peer.answer()
        meter = opened.front.gateway.meter
        meter.look(calls=True)
        peer.send(request)
        await peer.answer()

        await until(lambda: meter.calls == 1)
        (call,) = meter.recent()
        assert (call.names.door, call.names.outcome, call.names.tool) == ("http", "ok", "echo")
        assert call.queue == 0.0
        assert call.at_server > 0


async def test_a_look_of_somebody_who_polls_ends_by_itself() -> None:
    async with workbench() as bench:
        meter = bench.gateway.meter
        meter.look_for(PATIENCE)
        meter.look_for(0.01)
        assert meter.is_on
        await until(lambda: not meter.is_on)


class Broken(Interceptor):
    """Fails whenever it is shown a result."""

    observes_only = True

    def after(self, call: Call, outcome: CallOutcome) -> CallOutcome:
        raise RuntimeError


@pytest.mark.parametrize("is_alone", [True, False])
async def test_an_observer_that_fails_after_the_answer_costs_no_call(
    is_alone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with port() as opened:
        session = await opened.open()
        peer = await opened.connect()
        gateway = opened.front.gateway
        gateway.intercept(Broken())
        if not is_alone:
            gateway.meter.look()
        for _ in range(2):
            peer.send(session.request(session.ask("tools/call", use_tool("fixture", "echo"))))
            assert (await peer.answer()).status == 200
        await until(lambda: caplog.text.count("failed after a call") == 2)

        assert gateway.meter.calls == (0 if is_alone else 2)
