"""Where a server can put a value of any size, and what a host asks so that it is read."""

from __future__ import annotations

from typing import Any

from tests.steps.fillings import Made


def result(members: bytes) -> Made:
    return lambda x: b'"result":' + members.replace(b"X", x, 1)


def error(members: bytes) -> Made:
    return lambda x: b'"error":' + members.replace(b"X", x, 1)


def told(members: bytes) -> Made:
    return lambda x: b'{"jsonrpc":"2.0",' + members.replace(b"X", x, 1) + b"}\n"


Asked = tuple[str, dict[str, Any]]  # a method and its parameters

_CAN = b'"capabilities":{"tools":{}},"serverInfo":{"name":"a","version":"1"}'
_TOOL = b'"inputSchema":{"type":"object"}'
OPEN: Asked = ("tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}})
SIGNATURES: Asked = (
    "tools/call",
    {"name": "open_toolbox", "arguments": {"toolbox_name": "dev", "detail": "signature"}},
)
SEARCH: Asked = ("tools/call", {"name": "search_tools", "arguments": {"query": "some tool"}})
CALL: Asked = (
    "tools/call",
    {
        "name": "use_tool",
        "arguments": {"tool": {"toolbox": "dev", "server": "a", "tool": "t"}, "arguments": {}},
    },
)
WRONG: Asked = (
    "tools/call",
    {
        "name": "use_tool",
        "arguments": {
            "tool": {"toolbox": "dev", "server": "a", "tool": "t"},
            "arguments": {"a": 5},
        },
    },
)
PROMPT: Asked = ("prompts/get", {"name": "dev__a__p"})
READ: Asked = ("resources/read", {"uri": "a:b"})
COMPLETE: Asked = (
    "completion/complete",
    {"ref": {"type": "ref/prompt", "name": "dev__a__p"}, "argument": {"name": "a", "value": "b"}},
)
SUBSCRIBE: Asked = ("resources/subscribe", {"uri": "a:b"})

# The method whose answer it is, the answer, and what a host asks afterwards.
SERVER: dict[str, tuple[str, Made, list[Asked]]] = {
    "instructions": (
        "initialize",
        result(b'{"protocolVersion":"2025-06-18",%b,"instructions":X}' % _CAN),
        [OPEN],
    ),
    "what it can": (
        "initialize",
        result(
            b'{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"experimental":X},'
            b'"serverInfo":{"name":"a","version":"1"}}'
        ),
        [OPEN],
    ),
    "extensions": (
        "initialize",
        result(
            b'{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"extensions":X},'
            b'"serverInfo":{"name":"a","version":"1"}}'
        ),
        [OPEN],
    ),
    "its name": (
        "initialize",
        result(
            b'{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":X,"version":"1"}}'
        ),
        [OPEN],
    ),
    "why it refuses": ("initialize", error(b'{"code":-32602,"message":X}'), [OPEN]),
    "its revision": ("initialize", result(b'{"protocolVersion":X,%b}' % _CAN), [OPEN]),
    "its tools": ("tools/list", result(b'{"tools":X}'), [OPEN, SIGNATURES, SEARCH]),
    "why it lists nothing": ("tools/list", error(b'{"code":-32603,"message":X}'), [OPEN]),
    "a cursor": ("tools/list", result(b'{"tools":[],"nextCursor":X}'), [OPEN]),
    "the name of a tool": (
        "tools/list",
        result(b'{"tools":[{"name":X,%b}]}' % _TOOL),
        [OPEN, SIGNATURES, SEARCH, CALL],
    ),
    "a description": (
        "tools/list",
        result(b'{"tools":[{"name":"t","description":X,%b}]}' % _TOOL),
        [OPEN, SIGNATURES, SEARCH, CALL],
    ),
    "a schema": (
        "tools/list",
        result(b'{"tools":[{"name":"t","inputSchema":X}]}'),
        [OPEN, SIGNATURES, SEARCH, WRONG],
    ),
    "a member of a tool": (
        "tools/list",
        result(b'{"tools":[{"name":"t",%b,"_meta":X}]}' % _TOOL),
        [OPEN, SIGNATURES, SEARCH, CALL],
    ),
    "annotations": (
        "tools/list",
        result(b'{"tools":[{"name":"t",%b,"annotations":X}]}' % _TOOL),
        [OPEN, SIGNATURES, SEARCH, CALL],
    ),
    "prompts": ("prompts/list", result(b'{"prompts":X}'), [("prompts/list", {}), PROMPT]),
    "a prompt": (
        "prompts/list",
        result(b'{"prompts":[{"name":"p","description":X}]}'),
        [("prompts/list", {}), PROMPT],
    ),
    "the cursor of prompts": (
        "prompts/list",
        result(b'{"prompts":[],"nextCursor":X}'),
        [("prompts/list", {}), PROMPT],
    ),
    "the scope of a list": (
        "prompts/list",
        result(b'{"prompts":[],"cacheScope":X}'),
        [("prompts/list", {}), PROMPT],
    ),
    "how long a list lasts": (
        "prompts/list",
        result(b'{"prompts":[],"ttlMs":X}'),
        [("prompts/list", {}), PROMPT],
    ),
    "resources": ("resources/list", result(b'{"resources":X}'), [("resources/list", {}), READ]),
    "a resource": (
        "resources/list",
        result(b'{"resources":[{"uri":"a:b","name":X}]}'),
        [("resources/list", {}), READ],
    ),
    "a URI": (
        "resources/list",
        result(b'{"resources":[{"uri":X,"name":"b"}]}'),
        [("resources/list", {}), READ],
    ),
    "templates": (
        "resources/templates/list",
        result(b'{"resourceTemplates":X}'),
        [("resources/templates/list", {}), READ],
    ),
    "a template": (
        "resources/templates/list",
        result(b'{"resourceTemplates":[{"uriTemplate":X,"name":"b"}]}'),
        [("resources/templates/list", {}), READ],
    ),
    "messages of a prompt": ("prompts/get", result(b'{"messages":X}'), [PROMPT]),
    "contents": ("resources/read", result(b'{"contents":X}'), [READ]),
    "a page of an app": (
        "resources/read",
        result(b'{"contents":[{"uri":"a:b","mimeType":"text/html;profile=mcp-app","text":X}]}'),
        [READ],
    ),
    "a completion": (
        "completion/complete",
        result(b'{"completion":{"values":X}}'),
        [COMPLETE],
    ),
    "content": ("tools/call", result(b'{"content":X}'), [CALL]),
    "a text": ("tools/call", result(b'{"content":[{"type":"text","text":X}]}'), [CALL]),
    "content after it": ("tools/call", result(b'{"structuredContent":X,"content":[]}'), [CALL]),
    "a member of _meta": ("tools/call", result(b'{"content":[],"_meta":{"a":X}}'), [CALL]),
    "a failure": ("tools/call", result(b'{"content":X,"isError":true}'), [CALL, WRONG]),
    "a task": ("tools/call", result(b'{"task":X}'), [CALL]),
    "the result": ("tools/call", result(b"X"), [CALL]),
    "an error's message": ("tools/call", error(b'{"code":-32602,"message":X}'), [CALL, WRONG]),
    "an error's data": ("tools/call", error(b'{"code":-32042,"message":"m","data":X}'), [CALL]),
    "an error": ("tools/call", error(b"X"), [CALL]),
    "progress": (
        "told",
        told(b'"method":"notifications/progress","params":{"progressToken":1,"message":X}'),
        [CALL],
    ),
    "a log message": (
        "told",
        told(b'"method":"notifications/message","params":{"level":"error","data":X}'),
        [CALL],
    ),
    "a log message before its level": (
        "told",
        told(b'"method":"notifications/message","params":{"data":X,"level":"error"}'),
        [CALL],
    ),
    "an update": (
        "told",
        told(b'"method":"notifications/resources/updated","params":{"uri":X}'),
        [SUBSCRIBE, CALL],
    ),
    "a changed list": (
        "told",
        told(b'"method":"notifications/tools/list_changed","params":X'),
        [CALL],
    ),
    "a cancelled request": (
        "told",
        told(b'"method":"notifications/cancelled","params":{"requestId":X}'),
        [CALL],
    ),
    "the status of a task": (
        "told",
        told(b'"method":"notifications/tasks/status","params":{"taskId":X,"status":"working"}'),
        [CALL],
    ),
    "an unknown notification": ("told", told(b'"method":"notifications/x","params":X'), [CALL]),
    "a question": (
        "told",
        told(b'"id":"q","method":"elicitation/create","params":{"message":X,"requestedSchema":{}}'),
        [CALL],
    ),
    "the form of a question": (
        "told",
        told(
            b'"id":"q","method":"elicitation/create","params":{"message":"m","requestedSchema":X}'
        ),
        [CALL],
    ),
    "a sampling request": (
        "told",
        told(b'"id":"q","method":"sampling/createMessage","params":{"messages":X}'),
        [CALL],
    ),
    "an unknown request": ("told", told(b'"id":"q","method":"a/b","params":X'), [CALL]),
    "the id of a request": ("told", told(b'"id":X,"method":"ping"'), [CALL]),
    "the id of an answer": ("told", told(b'"id":X,"result":{}'), [CALL]),
}
