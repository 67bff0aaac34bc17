"""A host without a process or a port: it keeps what the workbench sends to it."""

from __future__ import annotations

import asyncio
import json
from typing import Any


class MemoryHost:
    """A channel that keeps what is sent to it."""

    backlog = 0

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.more = asyncio.Event()

    def send(self, frame: bytes, about: bytes = b"") -> None:
        assert frame.endswith(b"\n")
        assert frame.count(b"\n") == 1
        self.frames.append(frame)
        self.more.set()

    def take(self) -> list[bytes]:
        """What has come since the last time."""
        taken, self.frames = self.frames, []
        return taken

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(frame) for frame in self.frames]

    async def answer(self, id: Any) -> dict[str, Any]:
        while True:
            self.more.clear()
            for message in self.messages:
                if message.get("id") == id and "method" not in message:
                    return message
            await self.more.wait()
