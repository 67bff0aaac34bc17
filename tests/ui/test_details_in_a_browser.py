"""The page in Debian's Chromium: the arguments of a call, and signing in to a server."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from tests.kit.config import program_entry
from tests.kit.sign_in_server import sign_in_server
from tests.ui.browser import CHROMIUM, Chromium
from tests.ui.browser_scene import SERVER, bench, show, started
from tests.ui.page_server import MARKUP

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed"),
]


def test_arguments_are_shown_as_text_where_the_audit_keeps_them(
    chromium: Chromium, tmp_path: Path
) -> None:
    servers = {
        "kept": program_entry(SERVER, "many", "3", auditArguments=True),
        "files": program_entry(SERVER, "many", "3"),
    }
    with bench(tmp_path, servers, audit={"file": "calls.jsonl"}) as (it, address):
        page = chromium.page(1280, 1040)
        page.open(address)
        started(page, "Ready")
        page.go("#/calls")
        page.wait("document.body.innerText.includes('No call yet')")
        it.calls(1, server="kept", path=MARKUP)
        page.wait("document.querySelectorAll('.window tbody tr').length === 1")
        page.click(".window tbody tr")
        page.wait("document.querySelector('.arguments')")
        text = page.text(".arguments")
        show(page, "arguments", tmp_path)
        it.calls(1)
        page.wait("document.querySelectorAll('.window tbody tr').length === 2")
        page.click(".window tbody tr")
        page.wait("document.querySelector('.detail .keep')")
        without = page.text(".detail")
        show(page, "no-arguments", tmp_path)

        assert json.loads(text) == {"path": MARKUP}
        assert "the audit keeps no arguments of this server" in without
        assert '"auditArguments": true' in without
        assert page.evaluate("document.title") == "Calls · MCP Workbench"
        assert page.evaluate("document.querySelectorAll('#app script, #app img').length") == 0
        assert page.complaints() == []


def test_a_person_signs_in_from_the_page(chromium: Chromium, tmp_path: Path) -> None:
    with (
        sign_in_server() as server,
        bench(tmp_path, {"cloud": {"url": server.url}}) as (_, address),
    ):
        page = chromium.page(1280, 1040)
        page.open(address)
        started(page, "1 of 1 server needs attention")
        page.click(".why a")
        page.click(".signing button.main")
        page.wait("document.querySelector('.signing a.button')")
        show(page, "sign-in", tmp_path)
        link = page.evaluate(
            "(({href, rel, target}) => ({href, rel, target}))(document.querySelector('.signing a.button'))"
        )
        text = page.text(".signing")
        authorized = server.count("/authorize")
        with urllib.request.urlopen(link["href"], timeout=30) as opened:  # the tab of the person
            opened.read()
        page.wait("document.body.innerText.includes('Signed in at')")
        page.wait("document.querySelector('h1 .state')?.innerText.trim() === 'Ready'")

        assert authorized == 0  # nothing is opened before the person does
        assert (link["rel"], link["target"]) == ("noopener noreferrer", "_blank")
        assert link["href"] in text
        assert server.origin in text
        assert page.complaints() == []
