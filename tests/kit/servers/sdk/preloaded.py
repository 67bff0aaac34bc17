"""The servers of this folder without the second that importing the SDK takes: each is a fork.

preloaded.py SOCKET
"""

# pyright: basic
import sys
from pathlib import Path

import anyio
import anyio._backends._asyncio  # otherwise each fork would
import asks_back
import library
import workshop

sys.path.insert(0, str(Path(__file__).parents[4]))
from tests.kit.fork_server import leave_after, serve

if __name__ == "__main__":
    leave_after(
        serve(
            sys.argv[1],
            {
                "asks_back.py": asks_back.main,
                "library.py": lambda: anyio.run(library.main),
                "workshop.py": lambda: anyio.run(workshop.main),
            },
        )
    )
