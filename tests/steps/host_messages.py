"""Where a host can put a value of any size."""

from __future__ import annotations

from tests.steps.fillings import Made

TOOL = b'{"toolbox":"dev","server":"a","tool":"t"}'
MODERN = (
    b'"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},'
    b'"io.modelcontextprotocol/clientCapabilities":{}'
)


def message(members: bytes) -> Made:
    return lambda x: b'{"jsonrpc":"2.0",' + members.replace(b"X", x, 1) + b"}"


def request(method: bytes, params: bytes) -> Made:
    return message(b'"id":1,"method":"%b","params":%b' % (method, params))


def tool(name: bytes, arguments: bytes) -> Made:
    return request(b"tools/call", b'{"name":"%b","arguments":%b}' % (name, arguments))


def in_meta(member: bytes) -> Made:
    arguments = b'{"tool":%b,"arguments":{}}' % TOOL
    params = b'{"_meta":{"%b":X},"name":"use_tool","arguments":%b}' % (member, arguments)
    return request(b"tools/call", params)


# Each says where X is. An answer is expected to those with an id.
HOST: dict[str, Made] = {
    "arguments": tool(b"use_tool", b'{"tool":%b,"arguments":{"a":X}}' % TOOL),
    "the arguments": tool(b"use_tool", b'{"tool":%b,"arguments":X}' % TOOL),
    "an unknown argument": tool(b"use_tool", b'{"tool":%b,"x":X}' % TOOL),
    "the name of a tool": tool(
        b"use_tool", b'{"tool":{"toolbox":"dev","server":"a","tool":X},"arguments":{}}'
    ),
    "the tool": tool(b"use_tool", b'{"tool":X,"arguments":{}}'),
    "the name of a toolbox": tool(b"open_toolbox", b'{"toolbox_name":X}'),
    "a query": tool(b"search_tools", b'{"query":X}'),
    "the arguments of a search": tool(b"search_tools", b"X"),
    "the name of our tool": request(b"tools/call", b'{"name":X,"arguments":{}}'),
    "params": request(b"tools/call", b"X"),
    "a member of params": request(b"tools/call", b'{"name":"use_tool","x":X}'),
    "traceparent": in_meta(b"traceparent"),
    "a progress token": in_meta(b"progressToken"),
    "a member of _meta": in_meta(b"x"),
    "a cursor": request(b"tools/list", b'{"cursor":X}'),
    "the name of a prompt": request(b"prompts/get", b'{"name":X}'),
    "arguments of a prompt": request(b"prompts/get", b'{"name":"p","arguments":X}'),
    "the URI of a resource": request(b"resources/read", b'{"uri":X}'),
    "a subscription": request(b"resources/subscribe", b'{"uri":X}'),
    "a completion": request(
        b"completion/complete",
        b'{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":X}}',
    ),
    "a completion's reference": request(b"completion/complete", b'{"ref":X,"argument":{}}'),
    "a level": request(b"logging/setLevel", b'{"level":X}'),
    "a task": request(b"tasks/get", b'{"taskId":X}'),
    "the result of a task": request(b"tasks/result", b'{"taskId":X}'),
    "an unknown method": request(b"a/b", b"X"),
    "a method": message(b'"id":1,"method":X'),
    "an id": message(b'"id":X,"method":"ping"'),
    "an unknown member": message(b'"id":1,"method":"ping","x":X'),
    "who it is": request(
        b"initialize",
        b'{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":X,"version":"1"}}',
    ),
    "what it can": request(
        b"initialize",
        b'{"protocolVersion":"2025-06-18","capabilities":X,"clientInfo":{"name":"a","version":"1"}}',
    ),
    "its revision": request(b"initialize", b'{"protocolVersion":X,"capabilities":{}}'),
}
TOLD: dict[str, Made] = {
    "a cancelled request": message(b'"method":"notifications/cancelled","params":{"requestId":X}'),
    "why it is cancelled": message(
        b'"method":"notifications/cancelled","params":{"requestId":7,"reason":X}'
    ),
    "progress": message(
        b'"method":"notifications/progress","params":{"progressToken":X,"progress":1}'
    ),
    "an unknown notification": message(b'"method":"notifications/x","params":X'),
    "an answer": message(b'"id":7,"result":X'),
    "an error": message(b'"id":7,"error":{"code":1,"message":X}'),
}


def modern(method: bytes, params: bytes, meta: bytes = b"") -> Made:
    return request(method, b'{%b,"_meta":{%b%b}}' % (params, MODERN, meta))


_USE = b'"name":"use_tool","arguments":{"tool":%b,"arguments":{}}' % TOOL
MODERN_HOST: dict[str, tuple[str, str, Made]] = {
    "arguments": (
        "tools/call",
        "use_tool",
        modern(
            b"tools/call", b'"name":"use_tool","arguments":{"tool":%b,"arguments":{"a":X}}' % TOOL
        ),
    ),
    "a state": ("tools/call", "use_tool", modern(b"tools/call", b'"requestState":X,' + _USE)),
    "responses": ("tools/call", "use_tool", modern(b"tools/call", b'"inputResponses":X,' + _USE)),
    "traceparent": ("tools/call", "use_tool", modern(b"tools/call", _USE, b',"traceparent":X')),
    "what it can": (
        "tools/call",
        "use_tool",
        request(b"tools/call", b'{%b,"_meta":{%b}}' % (_USE, MODERN[:-2] + b"X")),
    ),
    "a URI": ("resources/read", "", modern(b"resources/read", b'"uri":X')),
    "what is listened to": (
        "subscriptions/listen",
        "",
        modern(b"subscriptions/listen", b'"notifications":{"resourceSubscriptions":X}'),
    ),
    "notifications": (
        "subscriptions/listen",
        "",
        modern(b"subscriptions/listen", b'"notifications":X'),
    ),
    "tasks": (
        "subscriptions/listen",
        "",
        modern(b"subscriptions/listen", b'"notifications":{"taskIds":X}'),
    ),
    "a task": ("tasks/get", "", modern(b"tasks/get", b'"taskId":X')),
}
