# shim: mcp_workbench.downstream.catalogue_files -> mcp_workbench.upstream.cache_files
from mcp_workbench.upstream.cache_files import FOLDER as ROOM, SUFFIX as SUFFIX
