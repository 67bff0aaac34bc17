"""Pages of apps: each gets a script that names its server in what the app asks of its host.

An app calls a tool of its server by the server's name for it, and its host passes that name on as it is. Behind us
the tool has another name, and several servers may have the same one. Nothing in the call says which page sent it,
so the page has to: the script is the first in it, and takes the place of `window.parent`, to which apps write.
"""

import base64
import binascii
import re
from collections.abc import Iterable

import msgspec

from mcp_workbench.core.apps import ADDRESSED, SCHEME
from mcp_workbench.core.primitive_names import SCHEME as RESOURCES
from mcp_workbench.core.raw_json import changed, each, read_members
from mcp_workbench.core.spec import SEPARATOR, ServerAddress

_HTML = "text/html"
# What may come before the content of a page: the script is put behind it.
_BEFORE = re.compile(
    r"(?:\ufeff|\s+|<!--.*?-->|<!doctype[^>]*>)*"
    r"""(?:<html(?=[\s/>])(?:[^>"']|"[^"]*"|'[^']*')*>(?:\s+|<!--.*?-->)*)?"""
    r"""(?:<head(?=[\s/>])(?:[^>"']|"[^"]*"|'[^']*')*>)?""",
    re.IGNORECASE | re.DOTALL,
)
MOST_BEFORE = 64 << 10  # characters in which that is looked for

_SCRIPT = """<script>(({tools,names,pages,resources,ui})=>{
const host=window.parent;if(host===window)return;
const tool=name=>typeof name!="string"||names&&!names.includes(name)||name.startsWith(tools)?name:tools+name;
const address=uri=>typeof uri!="string"||uri.startsWith(pages)||uri.startsWith(resources)?uri
:uri.startsWith(ui)?pages+uri.slice(ui.length):resources+uri;
const named=message=>{const params=message?.params;
if(message?.jsonrpc!="2.0"||!params)return message;
if(message.method=="tools/call")return{...message,params:{...params,name:tool(params.name)}};
if(message.method=="resources/read")return{...message,params:{...params,uri:address(params.uri)}};
return message};
const send=(message,...rest)=>host.postMessage(named(message),...rest);
const own=new Proxy({},{get:(_,key)=>{if(key=="postMessage")return send;
const value=host[key];return typeof value=="function"?value.bind(host):value},
set:(_,key,value)=>Reflect.set(host,key,value)});
Object.defineProperty(window,"parent",{configurable:true,enumerable:true,value:own});
const {get}=Object.getOwnPropertyDescriptor(MessageEvent.prototype,"source");
Object.defineProperty(MessageEvent.prototype,"source",{configurable:true,enumerable:true,
get(){const source=get.call(this);return source===host?own:source}});
})(%s)</script>"""


def page_script(owner: ServerAddress, names: Iterable[str] | None = None) -> str:
    """The script for the pages of a server. `names` are the tools that have a flat name; None: all."""
    settings = {
        "tools": f"{owner.toolbox}{SEPARATOR}{owner.server}{SEPARATOR}",
        "names": None if names is None else sorted(names),
        "pages": f"{ADDRESSED}{owner.toolbox}/{owner.server}/",
        "resources": f"{RESOURCES}{owner.toolbox}/{owner.server}/",
        "ui": SCHEME,
    }
    written = msgspec.json.encode(settings).decode()
    for character in "<\u2028\u2029":  # that would end the script, or a string in it
        written = written.replace(character, f"\\u{ord(character):04x}")
    return _SCRIPT.replace("\n", "") % written


def with_script(result: msgspec.Raw | bytes, script: str) -> msgspec.Raw | bytes:
    """The result of `resources/read` with this script in its pages; anything else in it is unchanged."""
    try:
        return changed(
            result, {"contents": each(read_members(result)["contents"], lambda c: _page(c, script))}
        )
    except (KeyError, msgspec.DecodeError):
        return result


class _Content(msgspec.Struct, frozen=True):
    mimeType: str = ""  # noqa: N815 - the wire's word
    text: str | None = None
    blob: str | None = None


def _page(content: bytes, script: str) -> bytes:
    try:
        known = msgspec.json.decode(content, type=_Content)
        if not known.mimeType.lower().startswith(_HTML):
            return content
        if known.text is not None:
            return changed(content, {"text": msgspec.json.encode(inserted(known.text, script))})
        if known.blob is not None:
            page = base64.b64decode(known.blob, validate=True).decode()
            blob = base64.b64encode(inserted(page, script).encode())
            return changed(content, {"blob": b'"%b"' % blob})
    except (msgspec.DecodeError, binascii.Error, UnicodeDecodeError):
        return content  # of no known form: the host decides
    return content


def inserted(page: str, script: str) -> str:
    """The page with the script as the first of its head, or in front if it has no head."""
    before = _BEFORE.match(page, 0, MOST_BEFORE)
    end = 0 if before is None else before.end()
    return page[:end] + script + page[end:]
