"""The page in Debian's Chromium: what each view says and does."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.config import demo_server, program_entry
from tests.ui.browser import CHROMIUM, Chromium, Page
from tests.ui.browser_scene import SERVER, bench, started
from tests.ui.page_server import MARKUP

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed"),
]
SECRET = "sk-canary-0123456789"
BIG = 12345678901234567890  # a number of a browser has fewer digits


def choose(page: Page, selector: str, value: str) -> None:
    """Choose from a list."""
    page.evaluate(
        f"(one => {{ one.value = {json.dumps(value)}; one.dispatchEvent(new Event('change', {{bubbles: true}})); }})"
        f"(document.querySelector({json.dumps(selector)}))"
    )


def copied(page: Page, selector: str) -> str:
    """What a button puts into the clipboard."""
    page.evaluate("void (navigator.clipboard.writeText = async text => { window.taken = text; })")
    page.click(selector)
    return str(page.wait("window.taken"))


def status_is(page: Page, text: str) -> None:
    page.wait(f"document.querySelector('.tools [role=status]').innerText === {json.dumps(text)}")


def table(page: Page, name: str) -> list[list[str]]:
    """The cells of a table with this label."""
    rows = f"[...document.querySelectorAll(`[aria-label='{name}'] tbody tr`)]"
    return page.evaluate(f"{rows}.map(row => [...row.cells].map(cell => cell.innerText.trim()))")


def test_home_counts_calls_per_minute_and_gives_the_command_that_connects_a_host(
    chromium: Chromium, tmp_path: Path
) -> None:
    with bench(tmp_path, {"files": program_entry(SERVER, "many", "60")}) as (it, address):
        page = chromium.page()
        page.open(address)
        started(page, "Ready")
        it.calls(12)
        it.calls(2, tool="none")
        page.wait("document.body.innerText.includes('14 calls in the last hour')")
        page.wait("document.body.innerText.includes('fewer than with every tool listed')")
        text, servers = page.text("main"), table(page, "Servers")
        page.evaluate("document.querySelector('.connect select').focus()")
        page.wait("document.querySelectorAll('.connect option').length > 5")
        choose(page, ".connect select", "cursor")
        command = copied(page, ".connect .copy button")

        assert "14 in the last minute" in text
        assert "2 errors" in text
        direct, shown = (
            int(found.replace(",", ""))
            for found in re.findall(r"(?:Listed directly|Through the workbench)\s+([\d,]+)", text)
        )
        assert direct > 2 * shown
        assert [row[:3] for row in servers] == [["Ready", "dev/files", "60"]]
        assert command == f"mcp-workbench install cursor --config {it.config}"
        assert page.complaints() == []


def test_a_server_that_starts_is_not_said_to_be_fine(chromium: Chromium, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    late = (
        "import sys, runpy; open(sys.argv.pop(1)).close(); file = sys.argv.pop(1); "
        "runpy.run_path(file, run_name='__main__')"
    )
    servers = {
        "files": program_entry(SERVER, "many", "3"),
        "late": {"command": sys.executable, "args": ["-c", late, str(gate), SERVER, "many", "3"]},
    }
    with bench(tmp_path, servers) as (_, address):
        page = chromium.page()
        page.open(address)
        started(page, "Ready", "1 of 2 servers is starting")
        gate.open("w").close()  # now it can go on
        page.wait("document.querySelector('h1').innerText.includes('All 2 servers are fine')")

        assert page.complaints() == []


def test_a_server_is_shown_whole_without_its_secrets_and_is_restarted(
    chromium: Chromium, tmp_path: Path
) -> None:
    boxed = {"sandbox": "process"} if shutil.which("bwrap") else {}
    entry = program_entry(SERVER, "many", "7", env={"A_TOKEN": SECRET}, **boxed)
    entry["args"] = [*entry["args"], "--password", SECRET]
    with bench(tmp_path, {"files": entry}) as (_, address):
        page = chromium.page(1280, 1040)
        page.open(address)
        started(page, "Ready")
        page.go("#/server/dev/files")
        page.wait("document.querySelector('.log')?.innerText.includes('ready, with 7 tools')")
        page.wait("document.querySelector('.times')?.innerText.includes('Ready')")
        before = page.text("main")
        pid = page.wait("document.querySelector('.facts').innerText.match(/pid \\d+/)?.[0]")
        page.click("h1 .end button")
        page.wait(
            f"document.querySelector('.facts').innerText.match(/pid \\d+/) && !document.querySelector('.facts').innerText.includes('{pid}')"
        )
        page.wait("document.querySelector('.log').innerText.split('ready, with').length === 3")

        assert SECRET not in page.evaluate("document.documentElement.outerHTML")
        assert re.search(r'"A_TOKEN": "•••"', before)
        assert re.search(r"Protocol\s+2025-06-18 \(legacy\)", before)
        assert re.search(r"Capabilities\s+tools", before)
        assert re.search(rf"Sandbox\s+{'process' if boxed else 'none'}", before)
        assert "toolboxes.dev.mcpServers.files in the configuration file" in before
        assert page.evaluate("document.querySelectorAll('main input, main textarea').length") == 0
        assert page.complaints() == []


def test_tools_have_their_weight_and_search_has_the_order_of_agents(
    chromium: Chromium, tmp_path: Path
) -> None:
    words = "part 77 of a file"
    with bench(tmp_path, {"files": program_entry(SERVER, "many", "90")}) as (it, address):
        page = chromium.page()
        page.open(address)
        started(page, "Ready")
        page.go("#/toolboxes/dev")
        page.wait("document.querySelectorAll('tbody tr').length === 90")
        weights = [int(row[3]) for row in table(page, "Tools")]
        page.press("/")
        page.type(words)
        page.wait("document.querySelector('tbody a')?.innerText === 'tool_0077'")
        found = [row[1].split()[0] for row in table(page, "Tools")]
        (answer,) = it.host([("search_tools", {"query": words})])
        agent = re.findall(r"tool_\d{4}", answer["result"]["content"][0]["text"])

        assert min(weights) > 50
        assert len(found) > 1
        assert found[: len(agent)] == list(dict.fromkeys(agent))
        assert page.complaints() == []


def test_a_result_is_shown_as_text_structured_and_raw(chromium: Chromium, tmp_path: Path) -> None:
    with bench(tmp_path, {"evil": program_entry(SERVER, "hostile")}) as (_, address):
        page = chromium.page()
        page.open(address)
        started(page, "Ready")
        page.go("#/try/dev/evil/structured")
        page.click("button[type=submit]")
        page.wait("document.querySelector('.result pre')")
        shown: dict[str, str] = {}
        for tab in ("text", "structured", "raw"):
            page.click(f".result [data-key={tab}]")
            shown[tab] = page.text(".result pre")

        assert shown["text"] == "see below"
        assert f'"number": {BIG}' in shown["structured"]
        assert MARKUP in json.loads(shown["structured"])["title"]
        assert json.loads(shown["raw"])["structuredContent"]["number"] == BIG
        assert page.complaints() == []


def test_the_command_that_is_copied_makes_the_same_call(chromium: Chromium, tmp_path: Path) -> None:
    arguments = {"text": 'a "b"  c', "count": 3, "where": {"x": 1, "y": BIG}}
    with bench(tmp_path, {"evil": program_entry(SERVER, "hostile")}) as (it, address):
        page = chromium.page()
        page.open(address)
        started(page, "Ready")
        page.go("#/try/dev/evil/shapes")
        page.click("[data-key=json]")
        page.click("#json")
        page.evaluate("document.querySelector('#json').select()")
        page.type(json.dumps(arguments, indent=1))
        command = copied(page, "section[aria-label='The tool'] .copy button")
        page.click("button[type=submit]")
        page.wait("document.querySelector('.result pre')")
        called = page.text(".result pre")
        argv = [sys.executable, "-m", "mcp_workbench", *shlex.split(command)[1:]]
        run = subprocess.run(
            argv, cwd=it.config.parent, env=it.env, capture_output=True, text=True, timeout=60
        )

        assert json.loads(called) == arguments
        assert (run.stdout.strip(), run.returncode) == (called, 0), run.stderr
        assert page.complaints() == []


def test_calls_are_filtered_by_tool_server_host_error_and_slowness(
    chromium: Chromium, tmp_path: Path
) -> None:
    servers = {
        "files": program_entry(SERVER, "many", "3"),
        "slow": program_entry(SERVER, "slow", "1.1"),
    }
    with bench(tmp_path, servers) as (it, address):
        page = chromium.page(1280, 1040)
        page.open(address)
        started(page, "2 servers are fine")
        page.go("#/calls")
        page.wait("document.body.innerText.includes('No call yet')")
        it.calls(4)
        it.calls(2, tool="tool_0002", host="cursor-vscode")
        it.calls(3, tool="none")
        it.calls(1, server="slow", tool="wait")
        status_is(page, "10 calls")
        for words, count in (
            ("tool_0002", "2 calls"),
            ("dev/slow/", "1 call"),
            ("cursor-vscode", "2 calls"),
            ("unknown_tool", "3 calls"),
        ):
            page.click("input[type=search]")
            page.evaluate("document.querySelector('input[type=search]').select()")
            page.type(words)
            status_is(page, count)
        choose(page, ".tools select", "slow")
        status_is(page, "0 calls")
        page.evaluate("document.querySelector('input[type=search]').select()")
        page.type("dev/")  # all
        page.wait("document.querySelector('.window tbody tr')?.innerText.includes('dev/slow/wait')")
        choose(page, ".tools select", "errors")
        status_is(page, "3 calls")

        assert page.complaints() == []


def test_the_time_of_a_call_is_split(chromium: Chromium, tmp_path: Path) -> None:
    with bench(tmp_path, {"slow": program_entry(SERVER, "slow", "0.2")}) as (it, address):
        page = chromium.page(1280, 1040)
        page.open(address)
        page.wait("document.body.innerText.includes('Live')")
        page.go("#/calls")
        page.wait("document.body.innerText.includes('No call yet')")
        it.calls(2, server="slow", tool="wait")
        status_is(page, "2 calls")
        splits: list[str] = []
        for row in (2, 1):
            page.click(f".window tbody tr:nth-child({row})")
            page.wait(
                f"document.querySelector('.window tbody tr:nth-child({row})').className === 'chosen'"
            )
            splits.append(page.text(".detail .legend"))

        times = r"Queue (\S+) m?s\s+Start of the server (\S+) m?s\s+Server (\S+) m?s\s+Workbench (\S+) m?s"
        first, second = (re.fullmatch(times, split.strip()) for split in splits)
        assert first, splits
        assert second, splits
        assert float(first[2]) > 0  # its server was started for it
        assert float(second[2]) == 0
        assert float(second[3]) >= 200
        assert page.complaints() == []


def test_calls_are_held_and_go_on(chromium: Chromium, tmp_path: Path) -> None:
    with bench(tmp_path, {"files": program_entry(SERVER, "many", "3")}) as (it, address):
        page = chromium.page()
        page.open(address)
        started(page, "Ready")
        page.go("#/calls")
        page.wait("document.body.innerText.includes('No call yet')")
        it.calls(2)
        status_is(page, "2 calls")
        page.click(".tools button[aria-pressed]")
        it.calls(3)
        status_is(page, "2 calls, 3 new")
        page.click(".tools button[aria-pressed]")
        status_is(page, "5 calls")

        assert page.complaints() == []


CHART_HEIGHTS = """(() => {
  const chart = document.querySelector(".chart"), empty = chart.cloneNode(false);
  chart.after(empty);
  const heights = [empty.offsetHeight, chart.offsetHeight];
  empty.remove();
  return heights;
})()"""


def test_numbers_have_quantiles_errors_tokens_and_tools_used_most_and_never(
    chromium: Chromium, tmp_path: Path
) -> None:
    servers = {"files": program_entry(SERVER, "many", "4"), "clock": demo_server()}
    with bench(tmp_path, servers) as (it, address):
        page = chromium.page()
        page.open(address)
        started(page, "2 servers are fine")
        it.calls(15)
        it.calls(3, tool="tool_0002")
        it.calls(2, tool="none")
        page.go("#/numbers")
        page.wait("document.querySelector('.figure')?.innerText === '20'")
        page.wait("document.querySelector('.chart canvas')")
        heights = page.evaluate(CHART_HEIGHTS)
        text, times = page.text("main"), table(page, "Time")
        used, measured = table(page, "Most used tools"), table(page, "Servers")
        page.click("details summary")
        never = {row[0] for row in table(page, "Tools that were never used")}

        assert "10.0 % 2 calls" in " ".join(text.split())
        assert "ok 18, unknown_tool 2" in text
        assert [row[0] for row in times] == [
            "Whole call",
            "Queue",
            "Start of the server",
            "Server",
            "Workbench",
        ]
        assert all(re.fullmatch(r"[\d.]+ m?s", cell) for row in times for cell in row[1:])
        assert [row[:3] for row in used] == [
            ["dev/files/tool_0001", "15", "0"],
            ["dev/files/tool_0002", "3", "0"],
        ]
        assert measured[0][:3] == ["dev/files", "20", "2"]
        assert int(measured[0][6].replace(",", "")) > 20  # tokens
        assert "dev/files/tool_0000" in never
        assert len(set(heights)) == 1, "nothing moves when the chart is loaded"
        assert "dev/clock/add" in never
        assert not never & {"dev/files/tool_0001", "dev/files/tool_0002"}
        assert page.complaints() == []
