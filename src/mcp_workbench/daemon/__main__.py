"""The daemon process: `python -P -m mcp_workbench.daemon [--found] CONFIG LINGER CALLS [HOST PORT]`."""

import sys

from mcp_workbench.daemon.lifecycle import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
