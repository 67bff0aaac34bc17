"""The last stretch to a joined host: what is in it when the daemon is killed, its joiner passes on.

A write to the host's own pipe and a note of it would be two steps, and an end between them would have
an answer given twice, or never. Moving bytes from pipe to pipe is one step, in the system.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mcp_workbench.daemon.note import Left

_MOST = 1 << 20


class Basin(NamedTuple):
    """A pipe: frames in at `inlet`, on to the host from `outlet`."""

    outlet: int
    inlet: int

    def close(self) -> None:
        os.close(self.outlet)
        os.close(self.inlet)


def new_basin() -> Basin | None:
    """None where the system can't move bytes from pipe to pipe."""
    if not hasattr(os, "splice"):
        return None  # an end at the wrong moment has an answer given twice there
    basin = Basin(*os.pipe())
    for fd in basin:
        os.set_blocking(fd, False)
    return basin


def drained(outlet: int) -> bytes:
    """All that has not reached the host; nobody writes there any more."""
    pieces: list[bytes] = []
    try:
        while piece := os.read(outlet, _MOST):
            pieces.append(piece)
    except BlockingIOError:
        pass
    return b"".join(pieces)


def on_its_way(data: bytes, left: Left) -> tuple[bytes, bytes | None]:
    """What to send the host of this before anything else, and whose answer is whole with it.

    The answers that `data` holds whole tell their ids themselves. Of one that came here in parts the
    beginning may have left already: its end is here, or it is not to be had any more.
    """
    end = data.rfind(b"\n") + 1
    if end < len(data):  # a beginning, of which no more will come
        return (data[:end] if end else b"\n"), None
    if data:
        return data, left.part
    return (b"" if left.part is None else b"\n"), None
