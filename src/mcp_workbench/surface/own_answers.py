"""The answers of our own tools that ask no server: `search_tools` and `read_result`."""

from __future__ import annotations

from typing import Any

import msgspec

from mcp_workbench.core.spec import Detail
from mcp_workbench.gateway.search import find
from mcp_workbench.gateway.views import View
from mcp_workbench.search.query import Query
from mcp_workbench.surface.detail import in_words
from mcp_workbench.surface.meta_tools import MOST_HITS
from mcp_workbench.surface.parse import NonEmpty, read_last, whole_number, wrong_reading
from mcp_workbench.surface.results import read_result
from mcp_workbench.surface.search_tools import told
from mcp_workbench.surface.texts import text_result

USUAL_HITS = 5


class _Search(msgspec.Struct):
    query: NonEmpty
    toolbox: NonEmpty | None = None
    server: NonEmpty | None = None
    limit: Any = None
    detail: Detail | None = None


_read_search = msgspec.json.Decoder(_Search).decode


async def searched(view: View, arguments: msgspec.Raw) -> bytes:
    """Raises InvalidCall, or NotFound where the toolbox or server is not there."""
    wish = _read(arguments)
    query = Query(wish.query, wish.toolbox or "", wish.server or "", wish.limit or USUAL_HITS)
    found = await find(view, query)
    detail = wish.detail or "signature"
    known = await in_words((one.definition for one in found.tools), detail)
    return text_result(told(found, detail, view.snapshot, known))


def read(view: View, owner: object, arguments: msgspec.Raw) -> bytes:
    """A part of a result that was kept for this owner."""
    return read_result(view.gateway.kept_results, owner, arguments)


def _read(arguments: msgspec.Raw) -> _Search:
    bounds = {"limit": (1, MOST_HITS)}
    try:
        wish = read_last(_read_search, arguments)
    except msgspec.ValidationError:
        raise wrong_reading(arguments, "query", bounds) from None
    if wish.limit is not None:
        wish.limit = whole_number(wish.limit, 1)
        if wish.limit is None or wish.limit > MOST_HITS:
            raise wrong_reading(arguments, "query", bounds)
    return wish
