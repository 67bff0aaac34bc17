# shim: mcp_workbench.surface.primitives -> mcp_workbench.server.primitive_requests
from mcp_workbench.server.primitive_requests import _readdressed as _readdressed
