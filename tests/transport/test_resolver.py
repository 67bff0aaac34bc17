"""Names of hosts: silent name servers keep nobody waiting for other names."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter

import pytest

from mcp_workbench.transport.http import resolver
from mcp_workbench.transport.http.resolver import Resolver, system_lookup
from tests.kit.clock import PATIENCE, until


class NameServer:
    """Knows every name; those that begin with `silent` when it is told to answer."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked: Counter[str] = Counter()

    def lookup(self, host: str) -> list[str]:
        self.asked[host] += 1
        if host.startswith("silent"):
            self.answers.wait(3 * PATIENCE)
        if host.startswith("unknown"):
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return ["192.0.2.1"]


async def test_names_that_nobody_answers_for_keep_no_other_name_waiting() -> None:
    names = NameServer()
    resolver_of_test = Resolver(names.lookup)
    async with asyncio.timeout(PATIENCE):
        silent = [
            asyncio.ensure_future(resolver_of_test.addresses(f"silent-{n}.example"))
            for n in range(resolver.MOST // 2)
        ]
        await until(lambda: len(names.asked) == len(silent))

        assert await resolver_of_test.addresses("other.example") == ["192.0.2.1"]
        with pytest.raises(socket.gaierror):
            await resolver_of_test.addresses("unknown.example")
        assert not any(task.done() for task in silent)
        names.answers.set()
        assert [await task for task in silent] == [["192.0.2.1"]] * len(silent)


async def test_a_name_is_looked_up_once_for_all_and_one_who_leaves_takes_nothing_along() -> None:
    names = NameServer()
    resolver_of_test = Resolver(names.lookup)
    async with asyncio.timeout(PATIENCE):
        waiting = [
            asyncio.ensure_future(resolver_of_test.addresses("silent.example")) for _ in range(5)
        ]
        await until(lambda: bool(names.asked))
        waiting[0].cancel()
        names.answers.set()

        assert [await task for task in waiting[1:]] == [["192.0.2.1"]] * 4
        assert await resolver_of_test.addresses("silent.example") == ["192.0.2.1"]
    assert names.asked == {"silent.example": 2}


async def test_very_many_names_at_once_are_refused() -> None:
    names = NameServer()
    resolver_of_test = Resolver(names.lookup)
    async with asyncio.timeout(PATIENCE):
        silent = [
            asyncio.ensure_future(resolver_of_test.addresses(f"silent-{n}.example"))
            for n in range(resolver.MOST)
        ]
        await until(lambda: len(names.asked) == len(silent))

        with pytest.raises(OSError, match="too many names"):
            await resolver_of_test.addresses("one-too-many.example")
        assert await resolver_of_test.addresses("127.0.0.1") == ["127.0.0.1"]
        names.answers.set()
        await asyncio.wait(silent)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%1"])
async def test_an_address_needs_no_look(host: str) -> None:
    names = NameServer()

    assert await Resolver(names.lookup).addresses(host) == [host]
    assert names.asked == {}


def test_the_system_knows_this_machine_and_no_broken_name() -> None:
    assert "127.0.0.1" in system_lookup("localhost")
    for broken in ("", "a" * 70 + ".example", "..", "\N{SNOWMAN}" * 100):
        with pytest.raises(OSError):  # noqa: PT011 - as the system says it
            assert system_lookup(broken) == []
