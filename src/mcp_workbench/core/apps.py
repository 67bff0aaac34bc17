"""MCP Apps: which tools are for a model, and under which addresses hosts read the pages of tools.

A tool names its page in `_meta.ui.resourceUri`. Two servers may use the same address, so for hosts that show
apps it becomes `ui://workbench/{toolbox}/{server}/{rest}`, which is read at that server.
"""

from typing import Any, NamedTuple

import msgspec

from mcp_workbench.core.raw_json import changed, read_members, read_short
from mcp_workbench.core.spec import ServerAddress

EXTENSION = "io.modelcontextprotocol/ui"
# What a host declares that shows apps; we declare it to every server, whose list may depend on it.
SETTINGS = msgspec.Raw(b'{"mimeTypes":["text/html;profile=mcp-app"]}')
SCHEME = "ui://"
ADDRESSED = f"{SCHEME}workbench/"

encode = msgspec.json.encode
_NOTHING = msgspec.Raw(b"")


class _Ui(msgspec.Struct, frozen=True):
    resourceUri: msgspec.Raw = _NOTHING  # noqa: N815 - the wire's word
    visibility: msgspec.Raw = _NOTHING


class _ToolMeta(msgspec.Struct, frozen=True):
    ui: _Ui = _Ui()
    flat: msgspec.Raw = msgspec.field(default=_NOTHING, name="ui/resourceUri")  # the older spelling


class _Tool(msgspec.Struct, frozen=True):
    meta: _ToolMeta = msgspec.field(default=_ToolMeta(), name="_meta")


_decode = msgspec.json.Decoder(_Tool).decode


class _Known(NamedTuple):
    """What a definition says of apps; what is very long is not read."""

    uri: Any = None
    visibility: Any = None
    flat: Any = None


def _read(definition: bytes) -> _Known:
    try:
        meta = _decode(definition).meta
    except msgspec.DecodeError:
        return _Known()
    return _Known(*map(read_short, (meta.ui.resourceUri, meta.ui.visibility, meta.flat)))


def is_for_model(definition: bytes) -> bool:
    """Whether a model may see this tool: others are for the app of their server alone."""
    if b'"visibility"' not in definition and b"\\u" not in definition:
        return True
    visibility = _read(definition).visibility
    return not isinstance(visibility, list) or "model" in visibility


def has_page(definition: bytes) -> bool:
    """Whether hosts that show apps show this tool's results in a page."""
    return any(map(_is_page, pages(definition)))


def for_app(definition: bytes) -> bytes | None:
    """The definition of a tool for its server's app alone, so that no model sees it; None: not for apps."""
    visibility = _read(definition).visibility
    if isinstance(visibility, list):
        if "app" not in visibility:
            return None
        if "model" not in visibility:
            return definition
    meta = _object(read_members(definition).get("_meta"))
    ui = changed(_object(read_members(meta).get("ui")), {"visibility": b'["app"]'})
    return changed(definition, {"_meta": changed(meta, {"ui": ui})})


def _object(raw: msgspec.Raw | None) -> bytes:
    return bytes(raw) if raw is not None and bytes(raw).startswith(b"{") else b"{}"


def pages(definition: bytes) -> tuple[str, ...]:
    """The resources that a tool's definition names as its pages."""
    meta = _read(definition)
    return tuple(uri for uri in (meta.uri, meta.flat) if isinstance(uri, str) and uri)


def page_address(owner: ServerAddress, uri: str) -> str:
    """The address of a server's page, if it is one; any other URI unchanged."""
    if not uri.startswith(SCHEME):
        return uri
    return f"{ADDRESSED}{owner.toolbox}/{owner.server}/{uri.removeprefix(SCHEME)}"


def read_page_address(uri: str) -> tuple[ServerAddress, str] | None:
    """The server of such an address, and its own URI; None for any other URI."""
    if not uri.startswith(ADDRESSED):
        return None
    parts = uri.removeprefix(ADDRESSED).split("/", 2)
    if len(parts) < 3 or not all(parts):
        return None
    return ServerAddress(parts[0], parts[1]), SCHEME + parts[2]


def with_page_address(definition: bytes, owner: ServerAddress) -> bytes:
    """The definition with the address of its page, in both spellings; without a page, the same bytes."""
    known = _read(definition)
    wanted: dict[str, bytes] = {}
    if _is_page(known.flat):
        wanted["ui/resourceUri"] = encode(page_address(owner, known.flat))
    if _is_page(uri := known.uri):
        ui = read_members(read_members(definition)["_meta"])["ui"]
        wanted["ui"] = changed(ui, {"resourceUri": encode(page_address(owner, uri))})
    if not wanted:
        return definition
    return changed(definition, {"_meta": changed(read_members(definition)["_meta"], wanted)})


def _is_page(uri: Any) -> bool:
    return isinstance(uri, str) and uri.startswith(SCHEME)
