"""A connection to a server that asks for the roots of its host, and the host that is asked."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from mcp_workbench.core.spec import ServerAddress
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.server_requests import ServerRequests

ADDRESS = ServerAddress("dev", "s")


class AskingServer:
    """What it is sent stands in `sent`, and who was asked in `asked`; a question is never answered."""

    backlog = 0
    key = owner = None
    takes_turns = False
    is_legacy = False
    folder = ""

    def __init__(self) -> None:
        self.leases: Any = {}
        self.now = 0.0
        self.asked: list[Any] = []
        self.sent: list[Any] = []
        self.withdrawn: list[Any] = []
        self.requests = ServerRequests(ADDRESS, self, lambda: self.now)
        self.talk = Conversation(1000, lambda message: self.requests.received(self.talk, message))
        self.talk.channel = self
        self.requests.declare(self.talk)

    def asking_capabilities(self) -> Any:
        return {"roots": msgspec.Raw(b"{}")}

    def told_capabilities(self) -> Any:
        return self.asking_capabilities()

    def ask(self, question: Any, caller: Any, answered: Any) -> Any:
        self.asked.append(caller)
        return lambda: self.withdrawn.append(caller)

    def send(self, frame: bytes, about: bytes = b"") -> None:
        self.sent.append(json.loads(frame))
