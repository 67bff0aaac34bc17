"""Every reader of outside text or JSON, fed with every kind of text that has ever been somebody's worst case.

`test_steps.py` has the worst cases of single readers; here each meets those of all others. A new reader of what hosts,
servers, issuers, registries or files say gets a line here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import clear_cache  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]

import msgspec
import pytest

from mcp_workbench.cli.terminal import plain
from mcp_workbench.config import expand, jsonc
from mcp_workbench.core import (
    app_pages,
    apps,
    catalogue,
    definition_hash,
    hidden_text,
    lock_report,
    phrases,
    primitive_names,
    script_source,
    script_texts,
    skills,
)
from mcp_workbench.core.definition_warnings import definition_warnings
from mcp_workbench.core.redact import redact, redact_cut
from mcp_workbench.core.spec import ServerAddress, ServerSpec, StdioCommand
from mcp_workbench.gateway import approval_text, remedies
from mcp_workbench.gateway.tracing import read_headers
from mcp_workbench.protocol import (
    extensions,
    oauth,
    oauth_tokens,
    primitive_messages,
    task_messages,
)
from mcp_workbench.schema import document, form_fields
from mcp_workbench.search import queries
from mcp_workbench.server.http import signing_keys
from mcp_workbench.transport.http import urls
from mcp_workbench.ui.page_sessions import PageKey
from mcp_workbench.upstream.crash_output import reason_lines
from tests.threats.growth import NOISE, SLACK, cost

pytestmark = pytest.mark.cost

SMALL, LARGE = 8 << 10, 32 << 10  # bytes
AT = ServerAddress("dev", "a")
SPEC = ServerSpec(AT, StdioCommand("x"))
SECRETS = {
    **{f"secretvalue{n}": f"N{n}" for n in range(50)},
    "s" * 7 + "\n" + "s" * 9: "M",
    "\n".join(f"line number {n}" for n in range(200)): "B",
}
PAGE = PageKey(b"x" * 32, "c")
PARENT = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"

# Repeated until the text is long enough
PARTS = [
    *'a "\n\\,<$/.%:@[{`|1=;', '\\"', 'a="b",', 'a="', "a=", "<!--", "<html ", "<head>", "${", "${a:-", "${a}", "../",
    "%41", "/*", "//\n", "Traceback (most recent call last):\n", '  File "x", line 1\n', "    ^^^^\n", "Error: ",
    "Error: x\n", "    at x (y:1:1)\n", "Bearer ", "Bearer a=b, ", "a\u200b", "\U000e0041", "a\u0430", "\u202e",
    "you must call this tool first ", "ignore previous ", "\x1b[", '{"a":', "  + Exception Group\n", "| ", "+-+-",
    "ssssss\n", "secretvalu", "\u0301\u0323", "`mcp-workbench ", " (WB-BOX-1; fix: ", "f()\n", "async def f(): pass\n",
]  # fmt: skip

HERE = urls.parse_url("https://x/y")


def anew(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Without what Python remembers of addresses that it has read before."""

    def reading(text: str) -> Any:
        clear_cache()
        return read(text)

    return reading


TEXT_READERS: dict[str, Callable[[str], Any]] = {
    "secrets": lambda text: redact(text, SECRETS),
    "secrets in a cut text": lambda text: redact_cut(text, SECRETS),
    "output of a crash": reason_lines,
    "WWW-Authenticate": oauth.read_challenge,
    "scopes": oauth.split_scopes,
    "origin": oauth.origin_of,
    "issuer": oauth.require_issuer,
    "addresses of metadata": oauth.server_metadata_urls,
    "resource of a sign-in": lambda text: oauth.covers(text, "https://x/" + text),
    "host of a resource": anew(lambda text: oauth.covers("https://" + text, "https://x")),
    "address for people": oauth.shown,
    "page of an app": lambda text: app_pages.inserted(text, "<script>"),
    "address of a page": lambda text: apps.read_page_address("ui://" + text),
    "address of a skill": lambda text: skills.read_skill_address("skill://" + text),
    "lock report": lock_report.escaped,
    "question of an approval": approval_text.visible,
    "hidden text": lambda text: list(hidden_text.hidden_text(text)),
    "hidden text spelled out": hidden_text.spelled_out,
    "phrases": phrases.readable,
    "suspicious definition": lambda text: definition_warnings({"name": "a", "description": text}),
    "URL": anew(lambda text: urls.parse_url("https://" + text)),
    "redirect": anew(lambda text: HERE.joined("//" + text)),
    "variables": lambda text: expand.expand(text, {"a": "b"}),
    "references": expand.references,
    "words of a search": lambda text: list(queries.parts(text)),
    "words that are searched for": lambda text: queries.Words().asked(text),
    "configuration": jsonc.parse,
    "string in a configuration": lambda text: jsonc.read('{"a":"' + text),
    "traceback of a script": script_texts.traceback_text,
    "advice to a script": lambda text: script_texts.advice("TypeError", text, text),
    "output of a script": script_texts.printed_text,
    "source of a script": script_source.unawaited_functions,
    "cause of a failure": remedies.cause,
    "remedy": remedies.remedy,
    "fix": lambda text: remedies.fix_of(SPEC, text, {}),
    "access token": lambda text: signing_keys.read_header(f"{text}.{text}.{text}"),
    "URI with its server": primitive_names.read_addressed,
    "flat name": lambda text: primitive_names.owners_of_flat_name(text, [AT] * 50),
    "URI of a template": lambda text: primitive_names.matches("x://{a}/{b}{c}", text),
    "URI template": lambda text: primitive_names.matches(text, "x" * 200),
    "email of a form": lambda text: form_fields.fits_format(text, "email"),
    "URI of a form": lambda text: form_fields.fits_format(text, "uri"),
    "time of a form": lambda text: form_fields.fits_format(text, "date-time"),
    "text for a terminal": plain,
    "text for a page": document.printable,
    "cookies": lambda text: PAGE.admits(text.encode("latin-1", "replace"), 1e9),
    "trace": lambda text: read_headers(
        {b"traceparent": PARENT, b"tracestate": text.encode(), b"baggage": text.encode()}
    ),
}


def objects(part: bytes, size: int) -> bytes:
    count = size // (len(part) + 8)
    return b"{%b}" % b",".join(b'"%x":%b' % (number, part) for number in range(count))


VALUES: dict[str, Callable[[int], bytes]] = {
    "members": partial(objects, b"0"),
    "members of one name": lambda size: b"{%b}" % b",".join([b'"a":{"a":1}'] * (size // 12)),
    "objects": partial(objects, b'{"a":[{"b":1}]}'),
    "elements": lambda size: b"[%b]" % b",".join([b"1"] * (size // 2)),
    "levels": lambda size: b'{"a":' * 900 + b'"%b"' % (b"x" * size) + b"}" * 900,
    "a text": lambda size: b'"%b"' % (b"a" * size),
    "escapes": lambda size: b'"%b"' % (b"\\u0041" * (size // 6)),
    "hidden text": lambda size: json.dumps({"a": "\u200b" * (size // 6)}).encode(),
}
PLACES = [
    b"%b", b'{"_meta":%b}', b'{"content":%b}', b'{"task":{"taskId":"x","status":"working","x":%b}}', b'{"tasks":%b}',
    b'{"name":"a","annotations":%b,"inputSchema":%b}', b'{"name":"a","_meta":{"ui":%b,"ui/resourceUri":%b}}',
    b'{"name":"a","execution":%b}', b'{"contents":[{"uri":"ui://x","mimeType":"text/html;profile=mcp-app","text":%b}]}',
    b'{"extensions":%b,"tasks":%b}', b'{"keys":%b}', b'{"inputRequests":%b,"taskId":"a","status":"input_required"}',
    b'{"code":-1,"message":"x","data":%b}', b'{"uri":"skill://a","_meta":{"files":%b},"files":%b}',
]  # fmt: skip

JSON_READERS: dict[str, Callable[[msgspec.Raw], Any]] = {
    "task support": lambda raw: task_messages.task_support(bytes(raw)),
    "optional task": lambda raw: task_messages.optional_task(bytes(raw)),
    "declared tasks": task_messages.declares_tasks,
    "with tasks": task_messages.with_tasks,
    "error about tasks": task_messages.requires_tasks,
    "created task": task_messages.created_task,
    "task": task_messages.read_task,
    "modern task": task_messages.read_modern_task,
    "announced task": task_messages.noticed_task,
    "acknowledged tasks": task_messages.acknowledged_tasks,
    "state of a task": task_messages.detailed_task,
    "related task": task_messages.related_task,
    "with related task": task_messages.with_related,
    "result of a task": task_messages.inlined_result,
    "questions of a task": lambda raw: task_messages.task_questions(AT, raw),
    "for models": lambda raw: apps.is_for_model(bytes(raw)),
    "for an app": lambda raw: apps.for_app(bytes(raw)),
    "pages of a tool": lambda raw: apps.pages(bytes(raw)),
    "tool with its page": lambda raw: apps.with_page_address(bytes(raw), AT),
    "page with a script": lambda raw: app_pages.with_script(raw, "<script>"),
    "skill": lambda raw: skills.addressed_skill(bytes(raw), AT),
    "files of a skill": lambda raw: skills.addressed_files(raw, AT),
    "description of a skill": lambda raw: skills.read_skill(bytes(raw)),
    "canonical form": lambda raw: definition_hash.canonical_form(bytes(raw)),
    "difference": lambda raw: lock_report.text_diff(bytes(raw), b"[%b]" % bytes(raw)),
    "arguments of an approval": approval_text.arguments_text,
    "keys of an issuer": lambda raw: signing_keys.read_keys(bytes(raw)),
    "extensions": extensions.declares_others,
    "capabilities without tasks": extensions.without_tasks,
    "result with its lifetime": primitive_messages.with_cache,
    "URI": primitive_messages.check_uri,
    "subscription": primitive_messages.subscription_of,
    "notification": lambda raw: primitive_messages.tagged(raw, b"1"),
    "log message": primitive_messages.level_of,
    "tokens of a definition": lambda raw: catalogue.definition_tokens(bytes(raw)),
    "metadata of a resource": lambda raw: oauth.read_resource(bytes(raw), "https://x", "s"),
    "metadata of an issuer": lambda raw: oauth.read_server(bytes(raw), "https://x", "s"),
    "tokens": lambda raw: oauth_tokens.read_tokens(bytes(raw), "s"),
    "refusal of an issuer": lambda raw: oauth_tokens.read_error(bytes(raw)),
    "device code": lambda raw: oauth_tokens.read_device_code(bytes(raw), "s"),
}


def check(read: Callable[[Any], Any], small: Any, large: Any, what: str) -> None:
    def run(value: Any) -> None:
        with suppress(Exception):  # refused is as good as read
            read(value)

    allowed = SLACK * (LARGE // SMALL) * max(cost(partial(run, small), enough=NOISE), NOISE)
    spent = cost(partial(run, large), enough=allowed)
    assert spent <= allowed, f"{what}: {spent:.3f} s of CPU for {LARGE} bytes"


@pytest.mark.parametrize("reader", TEXT_READERS)
def test_no_text_is_more_than_a_reader_of_texts_can_take(reader: str) -> None:
    for part in PARTS:
        small, large = (part * (size // len(part)) for size in (SMALL, LARGE))
        check(TEXT_READERS[reader], small, large, repr(part))


@pytest.mark.parametrize("reader", JSON_READERS)
def test_no_value_is_more_than_a_reader_of_json_can_take(reader: str) -> None:
    for name, value in VALUES.items():
        small, large = value(SMALL), value(LARGE)
        for place in PLACES:
            texts = [msgspec.Raw(place.replace(b"%b", inside)) for inside in (small, large)]
            check(JSON_READERS[reader], *texts, what=f"{name} in {place.decode()}")
