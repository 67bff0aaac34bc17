# shim: mcp_workbench.upstream.cache_files -> mcp_workbench.upstream.cache
# ruff: noqa
# fmt: off
from mcp_workbench.upstream.cache import ABANDONED as ABANDONED, EXPIRY as EXPIRY, FOLDER as FOLDER, SUFFIX as SUFFIX, CacheLimits as CacheLimits, CatalogueFiles as CatalogueFiles, CorruptFile as CorruptFile, NotCached as NotCached
