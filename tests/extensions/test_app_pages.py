"""Pages of apps: a script in each makes the app call the tools and read the resources of its own server."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from mcp_workbench.core.app_pages import inserted, page_script, with_script
from mcp_workbench.core.spec import ServerAddress
from tests.extensions.scenes import PAGE, WAYS, Host, bench, shows_apps
from tests.kit.pipe_host import PipeHost
from tests.kit.results import Json

OWNER = ServerAddress("dev", "one")
SCRIPT = "<script>1</script>"


def address(server: str, rest: str = "monitor/page") -> str:
    return f"ui://workbench/dev/{server}/{rest}"


def document(server: str, script: str = "") -> str:
    return f"<!doctype html>\n<html><head>{script}<title>{server}</title></head></html>"


@pytest.mark.usefixtures("forked_commands")
@pytest.mark.parametrize("form", ["html", "blob"])
@pytest.mark.parametrize("mode", ["proxy", "dynamic"])
@pytest.mark.parametrize("way", WAYS)
def test_each_page_names_its_server(tmp_path: Path, way: str, mode: str, form: str) -> None:
    config = bench(tmp_path, way.split()[1], "one", "two", flags=(form,), toolMode=mode)
    with shows_apps(config, way) as host:
        pages = {name: host.read(address(name)) for name in ("one", "two")}
        note = host.read(address("one", "monitor/note"))

    for name, page in pages.items():
        body = page["text"] if form == "html" else base64.b64decode(page["blob"]).decode()
        assert body == document(name, page_script(ServerAddress("dev", name)))
        assert page["uri"] == address(name)
    assert note["text"] == "one"  # no page


@pytest.mark.usefixtures("forked_commands")
def test_a_host_without_apps_reads_the_page_as_it_is(tmp_path: Path) -> None:
    with PipeHost(bench(tmp_path, "legacy", "one", flags=("html",))) as pipe:
        host = Host(pipe)
        pipe.open()
        read = [host.read(uri)["text"] for uri in (PAGE, address("one"))]

    assert read == [document("one")] * 2


@pytest.mark.usefixtures("forked_commands")
def test_with_bare_names_a_page_changes_only_if_a_name_has_to(tmp_path: Path) -> None:
    settings: Json = {"toolMode": "dynamic", "naming": "bare"}
    alone = bench(tmp_path, "legacy", "one", flags=("html",), **settings)
    with shows_apps(alone, "stdio legacy") as host:
        as_it_is = host.read(address("one"))["text"]
    both = bench(tmp_path, "legacy", "one", "two", flags=("html",), **settings)
    with shows_apps(both, "stdio modern") as host:
        changed = host.read(address("two"))["text"]

    assert as_it_is == document("one")
    names = ["seen", "kind", "show", "poll"]
    assert changed == document("two", page_script(ServerAddress("dev", "two"), names))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<!DOCTYPE html>\n<html lang='a>b'>\n<head>", "<title>x"),
        ('\ufeff<!-- <head> --><!doctype html><HTML><!-- > --><HEAD data-x=">">', "<p>"),
        ("<html>\n", "<body><head>"),
        ("<html>", "<header>a</header>"),
        ("<head>", ""),
        ("", "<header>a</header>"),
        ("", "<p>a<head>"),
        ("", "<html-page>"),
        ("", '<html lang="unfinished'),
        ("", "<!-- unfinished"),
        ("", ""),
    ],
)
def test_the_script_is_the_first_of_the_page(before: str, after: str) -> None:
    assert inserted(before + after, SCRIPT) == before + SCRIPT + after


def test_a_page_of_any_size_is_read_in_one_pass() -> None:
    for page in (
        "<!--" * 200_000,
        "<html " + 'a="' * 200_000,
        " " * 2_000_000,
        "<html a='" * 100_000,
    ):
        assert SCRIPT in inserted(page, SCRIPT)


@pytest.mark.parametrize(
    "content",
    [
        b'{"uri":"ui://a","mimeType":"text/plain","text":"<p>"}',
        b'{"uri":"ui://a","text":"<p>"}',
        b'{"uri":"ui://a","mimeType":"text/html","blob":"no base64"}',
        b'{"uri":"ui://a","mimeType":"text/html","blob":"/w=="}',
        b'{"uri":"ui://a","mimeType":"text/html"}',
        b'{"uri":"ui://a","mimeType":5,"text":"<p>"}',
    ],
)
def test_what_is_no_page_keeps_its_bytes(content: bytes) -> None:
    result = b'{ "contents": [%b], "x": 1.0 }' % content

    assert with_script(result, SCRIPT) == result
    assert with_script(b'{"contents":5}', SCRIPT) == b'{"contents":5}'
    assert with_script(b"{}", SCRIPT) == b"{}"


def test_the_rest_of_a_page_keeps_its_bytes() -> None:
    result = (
        b'{"contents":[{"mimeType":"Text/HTML;x","text":"a\\u0062","_meta":{"n":1.0}}], "y":1e400}'
    )

    changed = with_script(result, SCRIPT)

    assert changed == result.replace(b'"a\\u0062"', b'"<script>1</script>ab"')


def test_no_name_can_end_the_script() -> None:
    written = page_script(OWNER, ["</script><script>alert(1)", "\u2028"])

    assert written.count("<") == 2
    assert "\u2028" not in written


HARNESS = """
const sent = [], host = {postMessage: (...given) => sent.push(given), closed: false};
class MessageEvent { constructor(from) { this.from = from } get source() { return this.from } }
const window = {parent: host};
const [script, messages] = JSON.parse(require("fs").readFileSync(0, "utf8"));
new Function("window", "MessageEvent", script)(window, MessageEvent);
for (const message of messages) window.parent.postMessage(message, "*");
const alone = {}; alone.parent = alone;
new Function("window", "MessageEvent", script)(alone, MessageEvent);
console.log(JSON.stringify({sent, closed: window.parent.closed, replaced: window.parent !== host,
  source: new MessageEvent(host).source === window.parent, other: new MessageEvent(5).source,
  alone: alone.parent === alone}));
"""


def in_node(script: str, messages: list[Json]) -> Json:
    if (node := shutil.which("node")) is None:
        pytest.skip("Node is not installed")
    body = script.removeprefix("<script>").removesuffix("</script>")
    given = json.dumps([body, messages])
    done = subprocess.run(
        [node, "-e", HARNESS], input=given, capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(done.stdout)


def message(method: str, **params: object) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def test_an_app_calls_tools_and_reads_resources_of_its_server() -> None:
    unchanged: list[Json] = [
        message("ui/message", name="poll"),
        message("tools/call", name="dev__one__poll"),
        message("resources/read", uri=address("one")),
        message("resources/read", uri="mcp-workbench://dev/one/note://a"),
        {"method": "tools/call", "params": {"name": "poll"}},
        {"jsonrpc": "2.0", "id": 2, "result": {}},
        message("tools/call", name=5),
    ]
    changed = [
        message("tools/call", name="poll", arguments={"a": 1}),
        message("tools/call", name="dev__two__poll"),
        message("resources/read", uri=PAGE),
        message("resources/read", uri="note://a"),
    ]

    seen = in_node(page_script(OWNER), [*unchanged, *changed])

    assert seen.pop("sent") == [
        *([one, "*"] for one in unchanged),
        [message("tools/call", name="dev__one__poll", arguments={"a": 1}), "*"],
        [message("tools/call", name="dev__one__dev__two__poll"), "*"],
        [message("resources/read", uri=address("one")), "*"],
        [message("resources/read", uri="mcp-workbench://dev/one/note://a"), "*"],
    ]
    assert seen == {"closed": False, "replaced": True, "source": True, "other": 5, "alone": True}


def test_with_bare_names_only_shared_tools_are_renamed() -> None:
    calls = [message("tools/call", name=name) for name in ("poll", "own")]

    sent = in_node(page_script(OWNER, ["poll"]), calls)["sent"]

    assert [one["params"]["name"] for one, _ in sent] == ["dev__one__poll", "own"]
