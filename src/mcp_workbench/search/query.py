# shim: mcp_workbench.search.query -> mcp_workbench.search.queries
# shim: mcp_workbench.search.query -> mcp_workbench.search.index
# ruff: noqa
# fmt: off
from mcp_workbench.search.queries import MOST_NAMED as MOST_NAMED, FoundTool as FoundTool, Query as Query, SearchableServer as SearchableServer, SearchResult as SearchResult, SearchScope as SearchScope, Siblings as Siblings, Unread as Unread
from mcp_workbench.search.index import Search as Search
