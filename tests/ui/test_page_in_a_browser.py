"""The page in Debian's Chromium: every view, hostile servers, restarts, keyboard, themes and sizes. `make ui-test` runs it.

UI_SCREENSHOTS names a folder for the screenshots that the documents show (`ui-*.png`), UI_ALL_SCREENSHOTS one for those of
every view in every size and theme.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.config import config_file, demo_server, program_entry
from tests.kit.results import Json
from tests.ui.browser import CHROMIUM, Chromium, Page
from tests.ui.browser_scene import SERVER, Bench, bench, show, started
from tests.ui.page_server import MARKUP

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),  # a browser, and ten thousand calls
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed"),
]
ROOT = Path(__file__).parents[2]
AXE = ROOT / ".node-ui/node_modules/axe-core/axe.min.js"
VIEWS = {
    "#/": "Servers",
    "#/server/dev/files": "What happened",
    "#/toolboxes/dev": "Switch off",
    "#/try/dev/files/tool_0001": "the same as a command",
    "#/calls": "Calls",
    "#/numbers": "Numbers",
}
MISSING = {"command": "no-such-program", "args": ["--stdio"]}
CRASHES = {"command": "sh", "args": ["-c", "echo 'KeyError: DATABASE_URL is not set' >&2; exit 3"]}


def servers() -> Json:
    return {
        "files": program_entry(SERVER, "many", "60"),
        "clock": demo_server(),
        "search": MISSING,
        "database": CRASHES,
    }


def test_a_person_finds_what_is_broken_why_and_what_to_do(
    chromium: Chromium, tmp_path: Path
) -> None:
    with bench(tmp_path, servers()) as (it, address):
        page = chromium.page(1280, 960)
        page.open(address)
        page.wait("document.body.innerText.includes('Connect a host')")
        before = page.text("main")
        started(page, "2 of 4 servers need attention", "command not found", "exit status 3")
        text = page.text(".ills")
        page.wait("document.body.innerText.includes('fewer than')")
        it.calls(30)
        page.wait("document.body.innerText.includes('30 calls in the last hour')")
        show(page, "ui-home", tmp_path)

        assert "not known yet whether they work. Start all and check finds out" in before
        assert "not known before the servers were started" in before
        assert "dev/search" in text
        assert "install no-such-program, or write its absolute path" in text
        assert "DATABASE_URL is not set here" in text
        assert "mcp-workbench doctor dev/search" in text
        entry = "toolboxes.dev.mcpServers.search in the configuration file"
        assert f"Its entry is {entry} ~/workbench-config.json" in text
        advice = "start it again in the terminal in which you typed export"
        assert advice in page.text("main")
        assert "not known yet whether" not in page.text("main")
        assert page.complaints() == []


def test_the_first_view_is_small(chromium: Chromium, tmp_path: Path) -> None:
    with bench(tmp_path, servers()) as (_, address):
        page = chromium.page()
        page.open(address)
        page.wait("document.body.innerText.includes('Connect a host')")
        inside = [url for url in page.requests if "/ui/open/" not in url]
        size = sum(page.bytes.values())
        print(f"first view: {len(inside)} requests, {size} bytes with headers")

        assert len(inside) <= 5, inside
        assert size <= 40_000


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_view_works_in_every_size_and_theme(
    theme: str, width: int, chromium: Chromium, tmp_path: Path
) -> None:
    with bench(tmp_path, servers()) as (it, address):
        page = chromium.page(width, 844, prefers_color_scheme=theme)
        page.open(address)
        started(page, "command not found")
        page.wait("document.body.innerText.includes('Live')")
        it.calls(40)
        it.calls(3, tool="none")
        for route, words in VIEWS.items():
            page.go(route)
            page.wait(
                f"document.querySelector('h1') && !document.querySelector('.boot') && document.body.textContent.includes({json.dumps(words)})"
            )
            page.wait("!document.querySelector('.problem.bad')")
            name = route.split("/")[1] or "home"
            show(page, f"{name}-{theme}-{width}", tmp_path)
            # Nothing hangs out at the side.
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), route
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")

        assert (ground == "rgb(250, 250, 249)") == (theme == "light")
        assert page.complaints() == []


def test_text_of_servers_is_never_markup(chromium: Chromium, tmp_path: Path) -> None:
    with bench(tmp_path, {"evil": program_entry(SERVER, "hostile")}) as (it, address):
        page = chromium.page()
        page.open(address)
        started(page, "Ready")
        quoted = json.dumps(MARKUP)
        page.go("#/server/dev/evil")
        page.wait(f"document.querySelector('.log')?.innerText.includes({quoted})")
        page.go("#/toolboxes/dev")
        page.wait(f"document.querySelector('table')?.innerText.includes({quoted})")
        page.evaluate("document.querySelector('a[href*=\"%3Cimg\"]').click()")
        page.wait(f"document.querySelector('h2.mono')?.innerText.includes({quoted})")
        for tool in ("text", "image", "structured", "wrong"):
            page.go(f"#/try/dev/evil/{tool}")
            page.wait(f"document.querySelector('h2.mono')?.innerText === 'dev/evil/{tool}'")
            page.click("button[type=submit]")
            page.wait("document.querySelector('.result')")
            for tab in page.evaluate(
                "[...document.querySelectorAll('.result [role=tab]')].map(one => one.dataset.key)"
            ):
                page.click(f".result [data-key={tab}]")
        it.calls(3, server="evil", tool=MARKUP)
        page.go("#/calls")
        page.wait(f"document.querySelector('.window')?.innerText.includes({quoted})")
        page.go("#/numbers")
        page.wait(f"document.body.innerText.includes({quoted})")

        assert page.evaluate("document.title") == "Numbers · MCP Workbench"
        assert page.evaluate("document.querySelectorAll('#app script, #app img').length") == 0
        assert page.complaints() == []


def test_an_image_of_a_result_is_shown_and_no_other_is_fetched(
    chromium: Chromium, tmp_path: Path
) -> None:
    with bench(tmp_path, {"evil": program_entry(SERVER, "hostile")}) as (_, address):
        page = chromium.page()
        page.open(address)
        started(page, "Ready")
        page.go("#/try/dev/evil/image")
        page.click("button[type=submit]")
        page.click(".result [data-key=image]")
        page.wait("document.querySelector('.result img')?.naturalWidth === 1")

        assert page.evaluate("document.querySelectorAll('.result img').length") == 1
        assert page.complaints() == []


def test_a_form_has_the_shapes_of_a_schema_and_stays_in_step_with_its_json(
    chromium: Chromium, tmp_path: Path
) -> None:
    with bench(tmp_path, {"evil": program_entry(SERVER, "hostile")}) as (_, address):
        page = chromium.page()
        page.open(address)
        started(page, "Ready")
        page.go("#/try/dev/evil/shapes")
        page.wait("document.querySelector('.form')")
        kinds = page.evaluate(
            "[...document.querySelectorAll('.form > .field, .form > fieldset')].map(one => "
            "`${(one.querySelector('label, legend')).firstChild.textContent.trim()} ${one.querySelector('input, select, textarea, button')?.tagName} ${one.querySelector('input, select, textarea, button')?.type}`)"
        )
        field = ".form .field input"
        page.click(field)
        page.type('a "text"')
        page.click("[data-key=json]")
        shown = json.loads(page.evaluate("document.querySelector('#json').value"))
        number = '{"text": "x", "count": 3, "where": {"x": 1, "y": 12345678901234567890}}'
        page.evaluate("document.querySelector('#json').select()")
        page.click("#json")
        page.evaluate("document.querySelector('#json').select()")
        page.type(number)
        page.click("[data-key=form]")
        typed = page.evaluate(f"document.querySelector('{field}').value")
        page.click("button[type=submit]")
        page.wait("document.querySelector('.result pre')")
        result = page.text(".result pre")

        assert kinds == [
            "text INPUT text",
            "count INPUT number",
            "flag INPUT checkbox",
            "kind SELECT select-one",
            "maybe INPUT text",
            "either TEXTAREA textarea",
            "where INPUT number",
            "tree BUTTON button",
            "loop TEXTAREA textarea",
            "far TEXTAREA textarea",
            "names BUTTON button",
            "constructor INPUT text",
            "__proto__x INPUT text",
        ]
        assert shown == {"text": 'a "text"', "count": 1, "flag": True, "where": {"x": 0, "y": 0}}
        assert typed == "x"
        assert "12345678901234567890" in result  # as typed, not rounded
        assert "mcp-workbench call dev/evil/shapes --input" in page.text()
        assert page.complaints() == []


def test_tools_are_switched_off_in_bulk_and_on_again(chromium: Chromium, tmp_path: Path) -> None:
    with bench(tmp_path, {"files": program_entry(SERVER, "many", "20")}) as (it, address):
        before = it.config.read_text()
        page = chromium.page()
        page.open(address)
        started(page, "Ready")
        page.go("#/toolboxes/dev")
        page.click("tbody tr:nth-child(2) input")
        page.click("tbody tr:nth-child(6) input", shift=True)
        page.click(".tools button:not(:disabled)")
        page.wait("document.querySelector('dialog[open] .diff')")
        show(page, "switch", tmp_path)
        diff = page.text("dialog .diff")
        page.click("dialog button.main")
        page.wait("document.querySelector('dialog')?.innerText.includes('mcp-workbench undo 1')")
        written = json.loads(it.config.read_text())
        page.click("dialog button.main")
        page.wait("!document.querySelector('dialog')")
        page.wait("document.querySelectorAll('tr.dim').length === 5")
        page.click("thead input")
        page.evaluate("[...document.querySelectorAll('.tools button')].at(-1).click()")
        page.click("dialog button.main")
        page.wait("document.querySelector('dialog')?.innerText.includes('mcp-workbench undo 2')")
        page.click("dialog button.main")
        page.wait("document.querySelectorAll('tr.dim').length === 0")

        assert '"!tool_0001"' in diff
        filters = written["toolboxes"]["dev"]["mcpServers"]["files"]["toolFilters"]
        assert filters == [f"!tool_000{n}" for n in range(1, 6)]
        assert json.loads(it.config.read_text()) == json.loads(before)
        assert page.complaints() == []


def test_what_differs_from_the_lock_file_is_shown_and_approved_elsewhere(
    chromium: Chromium, tmp_path: Path
) -> None:
    entry = program_entry(SERVER, "many", "3", lock="pin")
    config = config_file(tmp_path, {"files": entry})
    state = {**os.environ, "MCP_WORKBENCH_HOME": str(tmp_path / "state")}
    lock = [sys.executable, "-m", "mcp_workbench", "lock", "--config", str(config)]
    subprocess.run(lock, env=state, check=True, capture_output=True)
    file = tmp_path / "mcp-workbench.lock"
    file.write_text(re.sub(r'("tool_0002":\s*"sha256:)....', r"\g<1>0000", file.read_text()))
    it = Bench(config)
    try:
        page = chromium.page()
        page.open(it.start())
        started(page, "Ready")
        page.go("#/toolboxes/dev")
        page.wait("document.querySelector('.ill summary')")
        page.click(".ill summary")
        text = page.text(".ill")

        assert "Hidden until approved" in text
        assert "tool 'tool_0002': changed" in text
        assert "mcp-workbench lock diff dev/files" in text
        assert page.evaluate("[...document.querySelectorAll('.ill button')].length") == 1  # copies
        assert page.complaints() == []
    finally:
        it.stop()


def test_an_open_page_finds_the_workbench_again(chromium: Chromium, tmp_path: Path) -> None:
    with bench(tmp_path, {"clock": demo_server()}) as (it, address):
        page = chromium.page()
        page.open(address)
        started(page, "Ready")
        it.stop()
        page.wait("document.querySelector('.link').innerText === 'Reconnecting'")
        it.start()
        page.wait("document.querySelector('.link').innerText === 'Live'")
        page.wait("document.body.innerText.includes('not started yet')")  # of the new process

        assert page.complaints(but="ERR_CONNECTION_REFUSED") == []


def test_calls_after_a_restart_join_those_from_before(chromium: Chromium, tmp_path: Path) -> None:
    with bench(tmp_path, {"files": program_entry(SERVER, "many", "3")}) as (it, address):
        page = chromium.page()
        page.open(address)
        started(page, "Ready")
        page.go("#/calls")
        page.wait("document.body.innerText.includes('No call yet')")
        it.calls(5)
        page.wait("document.querySelector('.tools [role=status]').innerText === '5 calls'")
        it.stop()
        page.wait("document.querySelector('.link').innerText === 'Reconnecting'")
        it.start()
        page.wait("document.querySelector('.link').innerText === 'Live'")
        it.calls(2)  # numbers that the page has seen before
        page.wait("document.querySelector('.tools [role=status]').innerText === '7 calls'")
        page.click(".window tbody tr:last-child")
        page.wait("document.querySelector('.detail')?.innerText.includes('no longer among')")

        assert page.complaints(but="ERR_CONNECTION_REFUSED") == []


def test_a_page_whose_key_is_gone_says_how_to_open_it(chromium: Chromium, tmp_path: Path) -> None:
    with bench(tmp_path, {"clock": demo_server()}) as (it, address):
        page = chromium.page()
        page.open(address)
        page.wait("document.body.innerText.includes('Live')")
        it.stop()
        (tmp_path / "state/ui/key").unlink()
        it.start()
        page.wait("document.querySelector('.link').innerText === 'Closed'")

        assert "mcp-workbench ui" in page.text(".shut")


def test_another_browser_sees_nothing_without_an_address_of_its_own(
    chromium: Chromium, tmp_path: Path
) -> None:
    with bench(tmp_path, {"clock": demo_server()}) as (_, address):
        page = chromium.page()
        page.open(address)
        place = str(page.evaluate("location.href")).partition("#")[0]
        other = chromium.page()
        other.call("Page.navigate", url=place)
        other.wait("document.body?.innerText.includes('This page is closed')")
        other.call("Page.navigate", url=address)
        other.wait("document.body?.innerText.includes('opens nothing any more')")


def test_ten_thousand_calls_scroll(chromium: Chromium, tmp_path: Path) -> None:
    with bench(tmp_path, {"files": program_entry(SERVER, "many", "3")}) as (it, address):
        page = chromium.page()
        page.open(address)
        started(page, "Ready")
        it.calls(10_050)
        page.go("#/calls")
        page.wait("document.querySelector('.tools [role=status]')?.innerText === '10,000 calls'")
        scrolled = page.evaluate(
            """(async () => {
              const box = document.querySelector(".window");
              const frames = [];
              let last = performance.now();
              for (let at = 0; at <= 1; at += 0.01) {
                box.scrollTop = box.scrollHeight * at;
                await new Promise(requestAnimationFrame);
                const now = performance.now();
                frames.push(now - last);
                last = now;
              }
              frames.sort((one, other) => one - other);
              return [frames[50], box.scrollHeight, document.querySelectorAll(".window tr").length];
            })()"""
        )
        print(
            f"10,000 calls: median frame {scrolled[0]:.0f} ms, {scrolled[2]} rows in the document"
        )
        page.click("input[type=search]")
        page.type("nothing like this")
        page.wait("document.body.innerText.includes('No call fits')")

        assert scrolled[1] > 10_000 * 38
        assert scrolled[2] < 120
        assert page.complaints() == []


def test_calls_appear_as_they_end(chromium: Chromium, tmp_path: Path) -> None:
    with bench(tmp_path, {"files": program_entry(SERVER, "many", "3")}) as (it, address):
        page = chromium.page(1280, 1040)
        page.open(address)
        started(page, "Ready")
        page.go("#/calls")
        page.wait("document.body.innerText.includes('No call yet')")
        it.calls(12)
        page.wait("document.querySelectorAll('.window tbody tr').length === 12")
        it.calls(1, tool="none")
        page.wait(
            "document.querySelector('.window tbody .bad')?.innerText.trim() === 'unknown_tool'"
        )
        page.click(".window")
        page.press("ArrowDown")
        page.wait("document.querySelector('.detail')")
        show(page, "ui-calls", tmp_path)

        assert "claude-code" in page.text(".detail")
        assert page.complaints() == []


def test_the_page_is_used_with_the_keyboard_alone(chromium: Chromium, tmp_path: Path) -> None:
    with bench(tmp_path, {"clock": demo_server()}) as (_, address):
        page = chromium.page()
        page.open(address)
        page.wait("document.querySelector('h1 button.main')")
        seen: list[str] = []
        for _ in range(12):
            page.press("Tab")
            seen.append(page.focused())
            if "Start all" in seen[-1]:
                break
        page.press("Enter")
        page.wait("document.body.innerText.includes('Ready')")
        page.go("#/toolboxes/dev")
        page.wait("document.querySelector('tbody')")
        page.press("/")
        page.type("add two numbers")
        page.wait("document.querySelector('tbody a').innerText === 'add'")
        page.evaluate("document.querySelector('tbody a').focus()")
        page.press("Enter")
        page.wait("document.querySelector('.form')")
        page.evaluate("document.querySelector('[data-key=form]').focus()")
        page.press("ArrowRight")
        page.wait("document.querySelector('#json')")

        assert "Skip to content" in seen[0]
        assert any("Toolboxes" in one for one in seen)
        assert "Start all" in seen[-1]
        assert page.evaluate(
            "getComputedStyle(document.activeElement).outlineStyle !== 'none' || document.activeElement.id === 'json'"
        )
        assert page.complaints() == []


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (make ui-test does)")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(theme: str, chromium: Chromium, tmp_path: Path) -> None:
    found: dict[str, list[str]] = {}
    with bench(tmp_path, servers()) as (it, address):
        page = chromium.page(prefers_color_scheme=theme)
        page.open(address)
        started(page, "command not found")
        page.wait("document.body.innerText.includes('Live')")
        it.calls(20)
        page.evaluate(AXE.read_text("utf-8") + ";undefined")
        for route, words in VIEWS.items():
            page.go(route)
            page.wait(
                f"!document.querySelector('.boot') && document.body.textContent.includes({json.dumps(words)})"
            )
            if route == "#/toolboxes/dev":
                page.click("tbody tr:nth-child(2) input")
                page.click(".tools button:not(:disabled)")
                page.wait("document.querySelector('dialog[open]')")
                found["dialog"] = serious(page)
                page.press("Escape")
                page.wait("!document.querySelector('dialog')")
            found[route] = serious(page)

    assert {route: some for route, some in found.items() if some} == {}


def serious(page: Page) -> list[str]:
    """What axe finds on the page as it is, but for the minor findings."""
    return page.evaluate(
        """axe.run(document, {resultTypes: ["violations"]}).then(result => result.violations
          .filter(one => ["serious", "critical"].includes(one.impact))
          .map(one => `${one.id}: ${one.nodes.slice(0, 3).map(node => node.html.slice(0, 150)).join(" | ")}`))"""
    )
