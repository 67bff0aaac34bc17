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
        '`"resultType":"complete"` is added in front; an existing value becomes `"complete"`',
        "modern host, legacy server; or a modern server that omits it",
        "2026-07-28 requires it",
    ),
    "server info": Change(
        '`"io.modelcontextprotocol/serverInfo"` is added at the front of `_meta`, unless it is present or `_meta` is not an object',
        "as above",
        "2026-07-28 says that a result should name the server",
    ),
    "cache": Change(
        '`"ttlMs":0` and `"cacheScope":"private"` are added in front of a `resources/read` result, if missing',
        "as above",
        "2026-07-28 requires them; without the server's word, nothing may be cached",
    ),
    "without": Change(
        "`resultType`, `ttlMs` and `cacheScope` are removed, each with one comma",
        "legacy host, modern server",
        "they belong to 2026-07-28",
    ),
    "words": Change(
        "`structuredContent` that is not an object is removed; its JSON becomes the last text block, unless there is a text block already",
        "legacy host, modern server",
        "legacy hosts reject a result whose structured content is not an object",
    ),
    "address": Change(
        "`uri` in the `contents` of a resource that was requested by an address of ours becomes an address of that form",
        "every pair, `mcp-workbench://…`, `ui://workbench/…` and `skill://{toolbox}/{server}/…` only",
        "the answer names what was requested",
    ),
    "script": Change(
        "a script is added to the text or blob of a page, directly after `<head>`",
        "`resources/read` of `ui://workbench/…` with the type `text/html`, for hosts that declare apps; with bare names only if the host sees several servers",
        "an app calls tools by its server's names, and nothing else says which server it means ([apps](apps.md#pages))",
    ),
    "half": Change(
        r"an escape of half a character (`\ud83d` alone) becomes `\ufffd`",
        "every pair",
        "strict parsers, including the official Python SDK, reject the whole message otherwise",
    ),
    "bad bytes": Change(
        "bytes that are not UTF-8 become U+FFFD",
        "every pair",
        "JSON is UTF-8; a message with other bytes can't be read",
    ),
    "hint_for": Change(
        "a text block is added at the end: what is wrong with the arguments, and the tool's signature",
        "results with `isError` as first member or near the end, if the arguments do not match the tool's schema",
        "the agent can correct the call directly; the server's message comes first",
    ),
    "budget": Change(
        "text beyond `resultBudget` is removed, and `structuredContent` with it; a text block says how to read it",
        "servers with a budget, in proxy mode",
        "the configuration asks for it ([long results](search.md#long-results))",
    ),
    "projection": Change(
        "text other than the part that `use_tool` asks for is removed, and `structuredContent` with it; a text block says how to read it",
        "calls with `lines` or `select`",
        "the agent asks for it ([parts of results](projections.md))",
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
        "except for the codes -32021 and -32042, which are meant for the host itself",
        "calls by flat name (dynamic mode)",
        "models see results; hosts do not show them errors",
    ),
    "hint_for": Change(
        "`message` of -32602 is followed by what is wrong with the arguments and the tool's signature; for calls by flat name, these are a second text block",
        "if they do not match the tool's schema",
        "as above",
    ),
    "visit": Change(
        "-32042 becomes an elicitation, or -32021 if the host did not declare URL elicitation",
        "modern host",
        "2026-07-28 has no such code: servers ask in a result",
    ),
    "hop": Change(
        "-32020 and -32022 become -32603",
        "every pair",
        "they concern the workbench's own request to the server; a host would relate them to its own",
    ),
    "not found": Change(
        "`code` -32002 becomes -32602, or -32602 with the requested `uri` becomes -32002; `data.uri` is the requested one",
        "`resources/read` across eras",
        "each era has its own code for a missing resource",
    ),
    "asked for": Change(
        "`data.uri` of a missing resource is the requested address",
        "`resources/read`, `mcp-workbench://…` and `ui://workbench/…` only",
        "the answer names what was requested",
    ),
}

IN_DEFINITIONS = {
    "compact": Change(
        "white space between tokens is removed", "every pair", "it costs tokens and has no meaning",
    ),
    "tasks": Change(
        '`"taskSupport":"required"` becomes `"optional"`',
        "dynamic mode, and with bare names",
        "the workbench waits for the task if the host does not; some hosts refuse to call the tool otherwise",
    ),
    "output": Change(
        "`outputSchema` without `\"type\":\"object\"` is removed",
        "dynamic mode: legacy host, modern server",
        "legacy hosts reject the whole list otherwise",
    ),
    "app only": Change(
        "tools whose `_meta.ui.visibility` lacks `model` are left out",
        "`open_toolbox`, `search_tools` and every other text for a model; lists of hosts that do not declare apps",
        "they are for the app of their server alone, and in proxy mode the host can't hide them",
    ),
    "page": Change(
        "`ui://{rest}` in `_meta.ui.resourceUri` and `_meta[\"ui/resourceUri\"]`, and as `uri` of a resource, becomes `ui://workbench/{toolbox}/{server}/{rest}`",
        "hosts that declare apps: lists of tools and resources",
        "two servers may use the same address, and each tool has its own page",
    ),
    "for the app": Change(
        "`_meta.ui.visibility` becomes `[\"app\"]`",
        "hosts that declare apps, in proxy mode and for toolboxes that are not opened: tools without a page of servers that have one",
        "the app may call them; a model finds them in `open_toolbox` ([apps](apps.md#what-a-host-lists))",
    ),
    "skill": Change(
        "`uri` of a skill, and of each of its files, becomes `skill://{toolbox}/{server}/{path}`; with another scheme, `mcp-workbench://{toolbox}/{server}/{URI}`",
        "`skills/list`, `skills/get`, `resources/directory/read`",
        "two servers may have the same skill, and an address must not lead to another one later ([skills](skills.md))",
    ),
    "owner": Change(
        "`toolbox_name` and `source_server` are added at the end; if one is present, it gets our value and the other is added in front",
        "`open_toolbox` in proxy mode",
        "the contract",
    ),
    "flat name": Change(
        "`name` is the flat name, `description` begins with `[toolbox/server] `, `_meta` has `source_server`, "
        "`toolbox_name` and `original_name`; existing members keep their place, missing ones are added in front",
        "dynamic mode, prompts in both modes, and tools of apps in both modes",
        "the contract",
    ),
    "hint": Change(
        "`_meta` has `anthropic/searchHint`, with the names of toolbox and server, unless the server has set it",
        "tools in dynamic mode",
        "Claude Code also finds tools by these words",
    ),
}


class Extension(NamedTuple):
    """One line of the list of extensions."""

    name: str
    of_host: str
    of_server: str


EXTENSIONS = (
    Extension(
        "`io.modelcontextprotocol/ui` (apps)",
        "its settings are declared to its servers; definitions change as above",
        "not declared to hosts. Servers are always told that apps are shown, with the settings of the MCP Apps specification if the host has none: what they list is for all hosts",
    ),
    Extension(
        "`io.modelcontextprotocol/tasks`",
        "declared to servers if the host declares it, or if a server requires it for a call of a legacy host "
        "([tasks](tasks.md)); `task` in the parameters of a call is removed unless its server and host have tasks",
        "always declared to modern hosts; `taskId` becomes an id of ours, also in notifications, questions get the server's name; "
        "`task` in a question to the host is removed",
    ),
    Extension(
        "`io.modelcontextprotocol/skills`",
        "not declared to servers",
        "`skills/list`, `skills/get`, `resources/directory/read` and files work for modern hosts ([skills](skills.md)); declared to them once a server is known to have skills",
    ),
    Extension(
        "all others, if the host sees one server and that has the extension, too",
        "declared to the server as received, in every request of the host; a legacy server is told when the connection opens",
        "declared to the host as received, once the server was connected for the first time. Its methods, and results of other types, are passed on",
    ),
    Extension(
        "all others, if the host sees several servers",
        "not declared to servers",
        "not declared to hosts. A request is passed on if `name` in its parameters is a flat name, or `uri` an address of ours: to the server that it names, with the server's own name or URI",
    ),
    Extension(
        "all others, of a server with `approve`",
        "not declared to the server",
        "not declared to hosts, and its methods are -32601: nobody could say what is approved",
    ),
)
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
