"""Arguments of calls on the page: those that the audit keeps, as it has masked them, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mcp_workbench.config.load import load_config
from tests.kit.config import config_file, demo_server, program_entry
from tests.kit.results import Json
from tests.ui.page_server import MARKUP
from tests.ui.scene import Visitor, named, opened_page

SERVER = str(Path(__file__).with_name("page_server.py"))
SECRET = "sk-canary-0123456789"
HOSTILE = {"path": f"{MARKUP}\u202e", "password": SECRET, "note": f"uses {SECRET}"}


def entry(**more: Any) -> Json:
    return program_entry(SERVER, "many", "3", env={"API_KEY": SECRET}, **more)


async def called(visitor: Visitor, arguments: Any = None, tool: str = "tool_0001") -> Json:
    """The row of a call that was made while calls are measured."""
    visitor.gateway.meter.look(calls=True)
    wanted = {"toolbox": "dev", "server": "s", "tool": tool}
    await visitor.act("call", {**wanted, "arguments": arguments or HOSTILE})
    return named(await visitor.api("calls"))[-1]


async def arguments_of(visitor: Visitor, row: Json) -> Json:
    return await visitor.api(f"arguments?number={row['number']}&ended={row['ended']!r}")


async def shown(folder: Path, server: Json, audit: Any, arguments: Any = None) -> Json:
    configuration = load_config(str(config_file(folder, {"s": server}, audit=audit)))
    async with opened_page(configuration) as visitor:
        return await arguments_of(visitor, await called(visitor, arguments))


async def test_arguments_are_shown_exactly_as_the_audit_keeps_them(tmp_path: Path) -> None:
    found = await shown(tmp_path, entry(auditArguments=True), {"file": "calls.jsonl"})

    [line] = (tmp_path / "calls.jsonl").read_text().splitlines()
    assert SECRET not in found["text"]
    assert json.loads(found["text"]) == json.loads(json.loads(line)["arguments"])
    assert json.loads(found["text"])["password"] == "[secret]"
    assert json.loads(found["text"])["note"] == "uses [secret:API_KEY]"
    assert json.loads(found["text"])["path"] == f"{MARKUP}\u202e"
    assert "\u202e" not in found["text"]  # characters that change what one sees are spelled out


async def test_long_arguments_are_cut_to_a_line_of_the_audit(tmp_path: Path) -> None:
    audit = {"file": "calls.jsonl", "arguments": True}
    found = await shown(tmp_path, entry(), audit, {"path": "x" * 20_000})

    assert found["isCut"]
    assert 1000 < len(found["text"]) < 4096


async def test_where_nothing_is_kept_the_page_says_how_to_keep_it(tmp_path: Path) -> None:
    off = await shown(tmp_path, entry(), False)
    without = await shown(tmp_path, entry(), {"file": "calls.jsonl"})

    assert "text" not in off
    assert "text" not in without
    assert (off["reason"][:17], off["key"]) == ("the audit is off,", '"audit": {"arguments": true}')
    assert without["reason"] == "the audit keeps no arguments of this server"
    assert without["key"] == '"auditArguments": true'
    assert "toolboxes.dev.mcpServers.s" in without["place"]


async def test_keys_that_the_page_gives_to_copy_keep_arguments(tmp_path: Path) -> None:
    off = await shown(tmp_path, entry(), False)
    without = await shown(tmp_path, entry(), {"file": "calls.jsonl"})
    audit = json.loads(f"{{{off['key']}}}")["audit"]
    of_server = json.loads(f"{{{without['key']}}}")

    assert "text" in await shown(tmp_path, entry(), audit)
    assert "text" in await shown(tmp_path, entry(**of_server), {"file": "calls.jsonl"})


async def test_a_call_that_is_gone_or_another_ones_number_shows_nothing(tmp_path: Path) -> None:
    audit = {"file": "calls.jsonl", "arguments": True}
    servers = {"s": entry(), "basics": demo_server()}
    configuration = load_config(str(config_file(tmp_path, servers, audit=audit)))
    async with opened_page(configuration) as visitor:
        row = await called(visitor)
        kept = await arguments_of(visitor, row)
        other = await arguments_of(visitor, {**row, "ended": row["ended"] + 0.5})
        none = await visitor.api("arguments?number=99&ended=x")
        (tmp_path / "calls.jsonl").unlink()
        removed = await arguments_of(visitor, row)

    assert "text" in kept
    assert other["reason"] == none["reason"] == "this call is no longer among those that are kept"
    assert removed == {"reason": "the audit has no line of this call, or not any more"}
    assert "text" not in other
