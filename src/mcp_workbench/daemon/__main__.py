"""The background process: `python -m mcp_workbench.daemon [--found] CONFIG LINGER CALLS [HOST PORT]`."""

from __future__ import annotations

import os
import sys

from mcp_workbench.core.errors import WorkbenchError
from mcp_workbench.daemon.folder import place_of
from mcp_workbench.daemon.process import Wish, run_daemon
from mcp_workbench.daemon.start import FIX, FOUND


def main(argv: list[str]) -> int:
    if os.fork():
        os._exit(0)  # whoever started us has no child to wait for, however long it lives
    named = argv[0] != FOUND
    config, linger, log_calls, *address = argv if named else argv[1:]
    place = place_of(config)
    if place is None:
        sys.stderr.write(f"there is no file {config}\n")
        return 2
    place.named = named
    host = (address[0], int(address[1])) if address else None
    try:
        return run_daemon(place, Wish(host, float(linger), log_calls))
    except WorkbenchError as error:
        fix = f"{FIX}{error.hint}" if error.hint else ""
        sys.stderr.write(f"{error.message}{fix}\n")
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        sys.stderr.write(f"{error.strerror or error}{where}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
