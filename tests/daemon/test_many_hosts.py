"""Ten hosts of both eras at five servers: every answer goes where it belongs, and none is lost."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.kit.config import config_file, entry, program_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import META, json_text
from tests.kit.servers import ASKER
from tests.kit.shared import Shared, shared

pytestmark = pytest.mark.usefixtures("forked_commands")

HOSTS = 10
SERVERS = 4  # and one that asks
CALLS = int(os.environ.get("WORKBENCH_TEST_CALLS", "1500"))
IN_FLIGHT = 8
CAN: dict[str, Any] = {"elicitation": {"form": {}}}


class Player(threading.Thread):
    """One host: calls, calls with progress, calls that are taken back, and questions, all mixed."""

    def __init__(self, bench: Shared, number: int, count: int) -> None:
        super().__init__(daemon=True)
        self.host = bench.host(modern=number % 2 == 1)
        self.name = f"host-{number}"
        self._count = count
        self.answered = self.cancelled = self.progress = self.questions = 0
        self.wrong: list[Any] = []
        self._expected: dict[int, str] = {}
        self.pids: set[int] = set()

    def run(self) -> None:
        with self.host as host:
            self._open(host)
            for server in range(SERVERS):
                self.pids.add(json_text(host.use(f"s{server}", "stats"))["pid"])
            for turn in range(self._count):
                self._begin(host, turn)
                while len(self._expected) >= IN_FLIGHT:
                    self._take(host)
            while self._expected:
                self._take(host)

    def _open(self, host: PipeHost) -> None:
        if host.modern:
            return
        info = {"name": self.name, "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": CAN, "clientInfo": info}
        host.result("initialize", params)

    def _begin(self, host: PipeHost, turn: int) -> None:
        server, nonce = f"s{turn % SERVERS}", f"{self.name}.{turn}"
        if turn % 50 == 7:
            held = host.begin_use(server, "hang")
            host.notify("notifications/cancelled", {"requestId": held})
            self.cancelled += 1
        elif turn % 50 == 23:
            meta = {META + "clientCapabilities": CAN} if host.modern else {}
            self._expected[host.begin_use("asker", "name", _meta=meta)] = "asks"
        elif turn % 10 == 3:
            more = {"_meta": {"progressToken": nonce}}
            self._expected[host.begin_use(server, "progress", {"n": 2}, **more)] = "progress"
        else:
            self._expected[host.begin_use(server, "echo", {"nonce": nonce})] = nonce

    def _take(self, host: PipeHost) -> None:
        message = host.receive()
        assert message is not None, host.stderr
        if message.get("method") == "notifications/progress":
            self.progress += 1
            if not message["params"]["progressToken"].startswith(self.name):
                self.wrong.append(message)
        elif message.get("method") == "elicitation/create":
            host.send({"id": message["id"], "result": self._accept()})
        else:
            self._answered(host, message)

    def _answered(self, host: PipeHost, message: Any) -> None:
        expected = self._expected.pop(message["id"], None)
        result = message.get("result", {})
        if "inputRequests" in result:
            [key] = result["inputRequests"]
            more = {"inputResponses": {key: self._accept()}, "requestState": result["requestState"]}
            meta = {META + "clientCapabilities": CAN}
            again = host.begin_use("asker", "name", **more, _meta=meta)
            self._expected[again] = "asks"
            return
        self.answered += 1
        if expected == "asks":
            self.questions += 1
            right = json_text(result)["a"]["content"]["name"] == self.name
        elif expected == "progress":
            right = json_text(result) == 2
        else:
            right = expected is not None and json_text(result)["arguments"] == {"nonce": expected}
        if not right:
            self.wrong.append((expected, message))

    def _accept(self) -> Any:
        return {"action": "accept", "content": {"name": self.name}}


def test_every_answer_goes_where_it_belongs(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    servers: dict[str, Any] = {
        f"s{n}": entry(*(["modern"] if n % 2 else []), env={"PIDFILE": str(pids)})
        | {"era": "modern" if n % 2 else "legacy"}
        for n in range(SERVERS)
    }
    servers["asker"] = program_entry(ASKER, era="modern")
    with shared(config_file(tmp_path, servers)) as bench:
        players = [Player(bench, number, CALLS // HOSTS) for number in range(HOSTS)]
        for player in players:
            player.start()
        for player in players:
            player.join(600)
        status = bench.status()

        assert [player.wrong for player in players] == [[]] * HOSTS
        cancelled = sum(player.cancelled for player in players)
        assert sum(player.answered for player in players) == CALLS - cancelled
        assert min(player.progress for player in players) > 0
        assert min(player.questions for player in players) > 0
        assert len({pid for player in players for pid in player.pids}) == SERVERS
        assert len(pids.read_text().split()) == SERVERS
        assert [one["connections"] for one in status["servers"]] == [1] * (SERVERS + 1)
        assert status["callsInFlight"] == 0
        assert [player.host.stderr for player in players] == [""] * HOSTS
