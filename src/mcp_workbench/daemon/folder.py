# shim: mcp_workbench.daemon.folder -> mcp_workbench.daemon.paths
from mcp_workbench.daemon.paths import FOLDER as ROOM
from mcp_workbench.daemon.paths import DaemonPaths as Place
from mcp_workbench.daemon.paths import daemon_paths as place_of
from mcp_workbench.daemon.paths import socket_address as socket_address
