# shim: mcp_workbench.daemon.control_protocol -> mcp_workbench.daemon.control
"""Moved."""

from mcp_workbench.daemon.control import ASKED as ASKED
from mcp_workbench.daemon.control import DOWN as DOWN
from mcp_workbench.daemon.control import ENDED as ENDED
from mcp_workbench.daemon.control import FORMAT as FORMAT
from mcp_workbench.daemon.control import GOING as GOING
from mcp_workbench.daemon.control import INTERRUPTED as INTERRUPTED
from mcp_workbench.daemon.control import JOIN as JOIN
from mcp_workbench.daemon.control import KEEP as KEEP
from mcp_workbench.daemon.control import LOUDLY as LOUDLY
from mcp_workbench.daemon.control import MODERN as MODERN
from mcp_workbench.daemon.control import MOST as MOST
from mcp_workbench.daemon.control import OPENED as OPENED
from mcp_workbench.daemon.control import PING as PING
from mcp_workbench.daemon.control import PIPES as PIPES
from mcp_workbench.daemon.control import PONG as PONG
from mcp_workbench.daemon.control import QUIETLY as QUIETLY
from mcp_workbench.daemon.control import REFUSED as REFUSED
from mcp_workbench.daemon.control import RELOAD as RELOAD
from mcp_workbench.daemon.control import REPORT as REPORT
from mcp_workbench.daemon.control import STATUS as STATUS
from mcp_workbench.daemon.control import WELCOME as WELCOME
from mcp_workbench.daemon.control import BadFrame as BadFrame
from mcp_workbench.daemon.control import FrameReader as FrameReader
from mcp_workbench.daemon.control import pack as pack
