"""Who we say we are, to servers and to hosts."""

from mcp_workbench import __version__
from mcp_workbench.era.translate import stamps

OURSELVES = {"name": "mcp-workbench", "version": __version__}
STAMPS = stamps(OURSELVES)
