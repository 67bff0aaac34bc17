"""Every way in which a host may read something else than its server wrote, each with its reason.

This is the one list: the expectations of the tests are made from it, and docs/fidelity.md shows it.
"""

from __future__ import annotations

from typing import NamedTuple

from mcp_workbench import __version__
from tests.fidelity.corpus import Case, on_one_line
from tests.fidelity.writing import PLACES, Way, around, sent

INFO = b'{"name":"mcp-workbench","version":"%b"}' % __version__.encode()
INFO_KEY = b'"io.modelcontextprotocol/serverInfo"'


class Change(NamedTuple):
    """One line of the list."""

    what: str
    where: str
    why: str


# fmt: off
IN_RESULTS = {
    "complete": Change(
        '`"resultType":"complete"` is put in front; a value that is there already becomes `"complete"`',
        "modern host, legacy server; or a modern server that left it out",
        "2026-07-28 requires it",
    ),
    "server info": Change(
        '`"io.modelcontextprotocol/serverInfo"` is put in front of `_meta`, unless it is there or `_meta` is no object',
        "as above",
        "2026-07-28 says that a result should tell who answers",
    ),
    "cache": Change(
        '`"ttlMs":0` and `"cacheScope":"private"` are put in front of a `resources/read` result, where they are missing',
        "as above",
        "2026-07-28 requires them; what nobody vouches for is not kept",
    ),
    "without": Change(
        "`resultType`, `ttlMs` and `cacheScope` are taken out, each with one comma",
        "legacy host, modern server",
        "they belong to 2026-07-28",
    ),
    "words": Change(
        "`structuredContent` that is no object is taken out; its JSON becomes a text block behind the others, "
        "unless a text block is there",
        "legacy host, modern server",
        "legacy hosts refuse a result whose structured content is no object",
    ),
    "address": Change(
        "`uri` in the `contents` of a resource that was asked for by its address becomes an address",
        "every pair, `mcp-workbench://…` only",
        "the answer names what was asked for",
    ),
    "half": Change(
        r"an escape of half a character (`\ud83d` alone) becomes `\ufffd`",
        "every pair",
        "strict readers, the official Python SDK among them, lose the whole message otherwise",
    ),
    "bad bytes": Change(
        "bytes that are no UTF-8 become U+FFFD",
        "every pair",
        "JSON is UTF-8; a message with other bytes can't be read",
    ),
    "hint_for": Change(
        "a text block is put behind the others: what is wrong with the arguments, and the tool's signature",
        "results whose first member is `isError`, or that end with it or nearly so, where the arguments do not fit the tool's schema",
        "the agent needs no second look; the server's words come first",
    ),
    "budget": Change(
        "text beyond `resultBudget` is left out, and `structuredContent` with it; a text block says how to read it",
        "servers that have a budget, in proxy mode",
        "somebody asked for it in the configuration ([how](search.md#long-results))",
    ),
    "line breaks": Change(
        "a line break between two tokens becomes a space",
        "servers over HTTP; a carriage return on pipes too",
        "on a pipe a line break ends the message",
    ),
}

IN_ERRORS = {
    "flat": Change(
        "an error becomes a result with `isError` and the text `[toolbox/server/tool] Error: {message}`, "
        "except for the codes -32021 and -32042, which speak to the host's machinery",
        "calls by flat name (dynamic mode)",
        "the model reads results, hosts keep errors from it",
    ),
    "hint_for": Change(
        "`message` of -32602 is followed by what is wrong with the arguments, and by the tool's signature; by flat name these are a second text block",
        "where they do not fit the tool's schema",
        "as above",
    ),
    "visit": Change(
        "-32042 becomes a question, or -32021 where the host did not declare that it can be asked to visit an address",
        "modern host",
        "2026-07-28 has no such code: servers ask inside a result",
    ),
    "hop": Change(
        "-32020 and -32022 become -32603",
        "every pair",
        "they speak of our own request to the server, and a host would take them for its own",
    ),
    "not found": Change(
        "`code` -32002 becomes -32602, or -32602 with the `uri` that was asked for becomes -32002; `data.uri` is the one asked for",
        "`resources/read` across eras",
        "each era has its own code for a resource that is not there",
    ),
    "asked for": Change(
        "`data.uri` of a resource that is not there is the address that was asked for",
        "`resources/read`, `mcp-workbench://…` only",
        "the answer names what was asked for",
    ),
}

IN_DEFINITIONS = {
    "compact": Change(
        "space between tokens is left out", "every pair", "models pay for it, and it says nothing",
    ),
    "output": Change(
        "`outputSchema` that does not say `\"type\":\"object\"` is left out",
        "dynamic mode: legacy host, modern server",
        "legacy hosts refuse the whole list otherwise",
    ),
    "owner": Change(
        "`toolbox_name` and `source_server` are put at the end; where one is there already, it gets our value and the other goes in front",
        "`open_toolbox` in proxy mode",
        "the contract",
    ),
    "flat name": Change(
        "`name` is the flat name, `description` begins with `[toolbox/server] `, `_meta` has `source_server`, "
        "`toolbox_name` and `original_name`; each in its place, missing ones in front",
        "dynamic mode, and prompts in both modes",
        "the contract",
    ),
}
# fmt: on


def expected(case: Case, way: Way) -> bytes:
    """What the host reads: the server's bytes, and the listed changes."""
    told = case.told.get(way.pair, b"").replace(b"@INFO@", INFO)
    if not told:
        told = _plain(case, way)
    if way.kind == "read" and way.pair == "modern<-legacy" and case.is_object:
        told = b'{"ttlMs":0,"cacheScope":"private",' + told[1:]
    return on_one_line(told, events=way.events)


def _plain(case: Case, way: Way) -> bytes:
    json = case.told.get("any", case.sent)
    if not case.is_object or way.pair == "legacy<-legacy":
        return json
    if way.pair == "modern<-legacy":
        stamp = b'{"resultType":"complete","_meta":{%b:%b}' % (INFO_KEY, INFO)
        return stamp + (b"," if json[1:-1].strip() else b"") + json[1:]
    mended = case._replace(sent=json)
    if way.pair == "modern<-modern":
        return sent(mended, way)
    _, _, before, after = PLACES[way.place]
    return json if case.verbatim else around(json, before, after, b"")
