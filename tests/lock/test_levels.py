"""What hosts see of definitions that are not in the lock file, at each level and through every door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clock import eventually
from tests.kit.pipe_host import PipeHost
from tests.kit.results import Message, error_code, texts
from tests.lock.scenes import ADD, ANNOUNCE, POISON, Scene, opened, tool_names

CHANGED: Message = {**ADD, "description": POISON}
NEW: Message = {"name": "sub", "description": POISON, "inputSchema": {"type": "object"}}
# What hosts can be asked for, one after the other.
HOSTS: tuple[Message, ...] = ({}, {"elicitation": {}}, {})


def is_quarantined(result: Message, command: str = "mcp-workbench lock diff dev/s") -> bool:
    """Does the call name the command to run, and nothing of the definition?"""
    told = " ".join(texts(result))
    assert result["isError"], result
    assert error_code(result) == "quarantined", result
    assert command in told
    return "id_rsa" not in told


def seen(host: PipeHost) -> bytes:
    """Every byte that the host received."""
    return b"\n".join(host.lines)


@pytest.mark.parametrize("level", [None, "record", "off"])
def test_record_shows_everything_and_writes_nothing(tmp_path: Path, level: str | None) -> None:
    scene = Scene(tmp_path, level)
    with scene.host() as host:
        opened(host)
        names = tool_names(host)
        scene.define(tools=[CHANGED, ANNOUNCE, NEW])
        host.use("s", "announce")
        result = host.use("s", "sub")

    assert names == ["add", "announce"]
    assert texts(result) == ["ran sub"]
    assert not scene.lock.exists()


def test_record_logs_a_change_and_doctor_warns_of_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.run("lock").status == 0
    scene.define(tools=[CHANGED, ANNOUNCE])
    before = scene.lock.read_bytes()
    with scene.host() as host:
        opened(host)
        result = host.use("s", "add")
    log = host.stderr

    report = scene.run("doctor", "dev/s", "--json")
    warnings = [line for line in report.data["lines"] if line["code"] == "WB-LOCK-003"]
    assert texts(result) == ["ran add"]
    assert "tools 'add': changed since it was recorded, shown" in log
    assert report.status == 0
    assert [line["state"] for line in warnings] == ["doubtful"]
    assert warnings[0]["fix"] == "mcp-workbench lock diff dev/s"
    assert scene.lock.read_bytes() == before


def test_pin_records_the_first_sight_and_blocks_what_comes_later(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "pin")
    with scene.host() as host:
        opened(host)
        first = tool_names(host)
        recorded = scene.locked()
        scene.define(tools=[CHANGED, ANNOUNCE, NEW])
        host.use("s", "announce")
        new = host.use("s", "sub")  # an unknown tool is looked up in a fresh list
        assert is_quarantined(new, "mcp-workbench lock diff dev/s/sub")
        assert is_quarantined(host.use("s", "add"), "mcp-workbench lock diff dev/s/add")
        after = tool_names(host)

    assert first == ["add", "announce"]
    assert set(recorded["tools"]) == {"add", "announce"}
    assert recorded["prompts"] == {}
    assert recorded["templates"] == {}
    assert after == ["announce"]
    assert b"id_rsa" not in seen(host)
    assert '- description: "Adds two numbers"' in scene.run("lock", "diff").out


def test_a_change_between_two_runs_is_blocked_from_the_first_list_on(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "pin")
    with scene.host() as host:
        assert tool_names(opened(host)) == ["add", "announce"]
    scene.define(tools=[CHANGED, ANNOUNCE, NEW])

    for modern in (False, True):
        with scene.host(modern=modern) as host:
            host.handshake()
            assert tool_names(host) == ["announce"]
            found = " ".join(texts(host.call("search_tools", {"query": "adds numbers announce"})))
            assert is_quarantined(host.use("s", "add"), "lock diff dev/s/add")
        assert "announce" in found
        assert "dev/s/add" not in found
        assert '"add"' not in found
        assert b"id_rsa" not in seen(host)


def test_dynamic_mode_neither_lists_nor_calls_a_blocked_tool(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "pin", toolMode="dynamic")
    assert scene.run("lock").status == 0
    scene.define(tools=[CHANGED, ANNOUNCE, NEW])

    with scene.host("--toolbox", "dev") as host:
        opened(host)
        names = [tool["name"] for tool in host.result("tools/list")["tools"]]
        changed = host.call("dev__s__add", {})
        new = host.call("dev__s__sub", {})
        works = host.call("dev__s__announce", {})

    assert "dev__s__announce" in names
    assert not {"dev__s__add", "dev__s__sub"} & set(names)
    assert is_quarantined(changed, "lock diff dev/s/add")
    assert is_quarantined(new, "lock diff dev/s/sub")
    assert texts(works) == ["ran announce"]
    assert b"id_rsa" not in seen(host)


def test_review_starts_no_server_that_nobody_approved(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "review")
    scene.define(tools=[CHANGED], instructions=POISON)
    with scene.host() as host:
        opened(host)
        refused = host.call("open_toolbox", {"toolbox_name": "dev"})
        result = host.use("s", "add")

    assert refused["isError"]
    assert is_quarantined(result)
    assert b"id_rsa" not in seen(host)
    assert not scene.lock.exists()


def test_an_approved_server_appears_in_a_running_workbench(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "review")
    with scene.host() as host:
        opened(host)
        assert is_quarantined(host.use("s", "add"))
        assert scene.decide("approve", "dev/s", scene.shown_hash()) == 0
        eventually(lambda: "isError" not in host.use("s", "add"), "the approval is noticed")
        assert tool_names(host) == ["add", "announce"]
        scene.define(tools=[CHANGED, ANNOUNCE, NEW])
        host.use("s", "announce")
        assert is_quarantined(host.use("s", "sub"), "lock diff dev/s/sub")
        assert is_quarantined(host.use("s", "add"), "lock diff dev/s/add")

    assert scene.differences() == [("tools", "add", "changed"), ("tools", "sub", "new")]
    assert b"id_rsa" not in seen(host)


def test_a_changed_launch_line_is_not_started_until_it_is_approved(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "pin")
    assert scene.run("lock").status == 0
    marker = tmp_path / "started"
    scene.write_config(
        args=["-c", f"open({str(marker)!r}, 'w')"],
    )
    with scene.host() as host:
        opened(host)
        result = host.use("s", "add")
        box = host.call("open_toolbox", {"toolbox_name": "dev"})

    assert is_quarantined(result)
    assert box["isError"]
    assert not marker.exists()
    verified = scene.run("lock", "verify", "--json")
    assert verified.status == 1
    assert [d["kind"] for d in verified.data["servers"][0]["differences"]] == ["launch"]
    assert not marker.exists(), "verify starts nothing new"


def test_prompts_templates_and_instructions_are_locked_too(tmp_path: Path) -> None:
    good: dict[str, Any] = {
        "tools": [ANNOUNCE],
        "prompts": [{"name": "greet", "description": "Greets"}, {"name": "part"}],
        "templates": [{"uriTemplate": "note://{id}", "name": "notes"}],
        "resources": [{"uri": "note://1", "name": "one"}],
        "instructions": "Use it well",
    }
    scene = Scene(tmp_path, "pin")
    scene.define(**good)
    assert scene.run("lock").status == 0
    scene.define(
        **{
            **good,
            "prompts": [{"name": "greet", "description": POISON}, {"name": "part"}],
            "templates": [{"uriTemplate": "note://{id}", "name": "notes", "description": POISON}],
            "instructions": POISON,
        }
    )
    with scene.host() as host:
        assert tool_names(opened(host)) == ["announce"]
        prompts = [one["name"] for one in host.result("prompts/list")["prompts"]]
        templates = host.result("resources/templates/list")["resourceTemplates"]
        resources = [one["uri"] for one in host.result("resources/list")["resources"]]
        blocked = host.error("prompts/get", {"name": "dev__s__greet"})
        works = host.result("prompts/get", {"name": "dev__s__part"})
        host.call("search_tools", {"query": "ssh id_rsa announce"})

    assert prompts == ["dev__s__part"]
    assert templates == []
    assert resources == ["note://1"]
    assert "quarantined" in blocked["message"]
    assert "mcp-workbench lock diff dev/s" in blocked["message"]
    assert works["messages"]
    assert b"id_rsa" not in seen(host)
    assert scene.differences() == [
        ("instructions", "", "changed"),
        ("prompts", "greet", "changed"),
        ("templates", "note://{id}", "changed"),
    ]


def test_a_prompt_that_was_never_listed_is_compared_before_it_is_requested(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "pin")
    scene.define(tools=[ANNOUNCE], prompts=[{"name": "greet"}])
    assert scene.run("lock").status == 0
    scene.define(tools=[ANNOUNCE], prompts=[{"name": "greet", "description": POISON}])

    with scene.host() as host:
        opened(host)
        blocked = host.error("prompts/get", {"name": "dev__s__greet"})

    assert "quarantined" in blocked["message"]


def test_a_server_that_offers_more_to_hosts_that_can_be_asked_is_no_alarm(tmp_path: Path) -> None:
    more: Message = {"name": "ask", "inputSchema": {"type": "object"}}
    scene = Scene(tmp_path, "pin")
    scene.define(tools=[ADD, ANNOUNCE], asked=[more])
    for capabilities in HOSTS:
        with scene.host() as host:
            names = tool_names(opened(host, **capabilities))
        assert names == ["add", "announce", *(["ask"] if capabilities else [])]
        assert "since it was recorded" not in host.stderr
    assert set(scene.locked()["tools"]) == {"add", "announce", "ask"}

    scene.define(tools=[ADD, ANNOUNCE], asked=[more, NEW])
    with scene.host() as host:
        names = tool_names(opened(host, elicitation={}))
    assert names == ["add", "announce", "ask"]
    assert scene.run("lock").status == 1


def test_a_tool_that_comes_later_is_new_to_every_host_that_was_there_before(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "pin")
    for capabilities in HOSTS[:2]:  # the second one is offered nothing more
        with scene.host() as host:
            assert tool_names(opened(host, **capabilities)) == ["add", "announce"]
    scene.define(tools=[ADD, ANNOUNCE], asked=[NEW])

    with scene.host() as host:
        assert tool_names(opened(host, elicitation={})) == ["add", "announce"]
        [warning] = host.open("dev")["warnings"]

    assert warning == "dev/s: 1 tool is hidden: a person can run `mcp-workbench lock diff dev/s`"
    assert b"id_rsa" not in seen(host)


def test_the_audit_says_what_the_lock_file_knew_of_a_call(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "pin", audit={"file": "calls.jsonl"})
    with scene.host() as host:
        opened(host)
        host.use("s", "add")
        scene.define(tools=[CHANGED, ANNOUNCE, NEW])
        host.use("s", "announce")
        host.use("s", "sub")
        host.use("s", "add")

    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert [(line["tool"], line["outcome"], line.get("pin_state")) for line in lines] == [
        ("add", "ok", "recorded"),
        ("announce", "ok", "recorded"),
        ("sub", "quarantined", "new"),
        ("add", "quarantined", "changed"),
    ]


@pytest.mark.parametrize("place", ["top", "toolbox", "server"])
def test_a_level_is_set_for_the_file_a_toolbox_or_a_server(tmp_path: Path, place: str) -> None:
    scene = Scene(tmp_path, "review" if place == "server" else None)
    config = json.loads(scene.config.read_text())
    if place == "top":
        config["lock"] = "review"
    elif place == "toolbox":
        config |= {"lock": "off"}
        config["toolboxes"]["dev"]["lock"] = "review"
    else:
        config |= {"lock": "off"}
    scene.config.write_text(json.dumps(config))

    with scene.host() as host:
        opened(host)
        assert is_quarantined(host.use("s", "add"))
