"""Signing in from the web page, at a real authorization server, in a real browser's steps."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from mcp_workbench.config.load import load_config
from tests.kit.authorization_server import authorization_server, protected_server
from tests.kit.authorization_server.person import sign_in
from tests.kit.results import Json
from tests.kit.sign_in_server import SIGN_INS
from tests.ui.scene import Visitor, eventually_read, opened_page

pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("workplace")]


async def signed_in(visitor: Visitor) -> bool:
    page = await visitor.api("server?toolbox=dev&server=p")
    assert page["signingIn"]["state"] != "failed", page["signingIn"]
    return page["signingIn"]["state"] == "done" and page["line"]["state"] == "ready"


def kept() -> Json:
    """The sign-in in the state folder."""
    [file] = Path(os.environ["MCP_WORKBENCH_HOME"]).glob(SIGN_INS)
    return json.loads(file.read_text())


async def test_a_person_signs_in_at_the_page_and_calls_as_themselves(tmp_path: Path) -> None:
    with authorization_server() as issuer, protected_server(issuer.issuer, "mcp") as server:
        entry = {"url": server.url, "auth": {"allowedOrigins": [issuer.origin]}}
        file = tmp_path / "workbench-config.json"
        file.write_text(json.dumps({"toolboxes": {"dev": {"mcpServers": {"p": entry}}}}))
        file.chmod(0o600)
        async with opened_page(load_config(str(file))) as visitor:
            place = {"toolbox": "dev", "server": "p"}
            refused = await visitor.act("call", {**place, "tool": "whoami"})
            begun = await visitor.act("sign-in", place)
            await asyncio.to_thread(sign_in, begun["url"], "bob")
            await eventually_read(lambda: signed_in(visitor))
            who = await visitor.act("call", {**place, "tool": "whoami"})
            stored = kept()
            shown = await visitor.api("server?toolbox=dev&server=p")

    assert refused["code"] == "needs_login"
    assert begun["issuer"] == issuer.issuer
    assert json.loads(who["result"]["content"][0]["text"])["sub"] == "bob"
    assert stored["access_token"]
    for name in ("access_token", "refresh_token"):
        assert stored.get(name, "none") not in json.dumps([shown, begun, who])
