"""Where the sandbox of a server is shown: `check`, `doctor`, `status`, the audit, the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import run_command
from tests.kit.config import config_file, entry, url_entry
from tests.kit.pipe_host import PipeHost
from tests.kit.shared import shared
from tests.sandbox.scenes import files, needs_bubblewrap, spy

pytestmark = pytest.mark.usefixtures("forked_commands")


def servers() -> dict[str, Any]:
    limits = {"openFiles": 99}
    return {
        "plain": entry(),
        "process": entry(sandbox="process"),
        "files": spy(sandbox=files(network=True), resourceLimits=limits),
        "auto": entry(sandbox="auto"),
    }


@needs_bubblewrap
def test_check_shows_every_sandbox_without_starting_a_server(tmp_path: Path) -> None:
    config_file(tmp_path, servers())
    count = len(files()["read"])

    plain = run_command("check", cwd=tmp_path)
    document = run_command("check", "--json", cwd=tmp_path).data

    assert plain.status == 0
    wide = f"files, {count} to read, 0 to write, network, with limits"
    assert f"sandboxes: dev/process process; dev/files {wide}; dev/auto auto: process" in plain.out
    boxes = document["sandboxes"]
    assert [(b["server"], b["sandbox"], b["box"]) for b in boxes] == [
        ("dev/process", "process", "process"),
        ("dev/files", "files", "files"),
        ("dev/auto", "auto", "process"),
    ]
    assert boxes[1]["openFiles"] == 99
    assert boxes[1]["network"] is True


def test_check_and_doctor_say_what_is_missing(tmp_path: Path) -> None:
    config_file(tmp_path, {"process": entry(sandbox="process"), "auto": entry(sandbox="auto")})
    nowhere = {"PATH": str(tmp_path), "HOME": str(tmp_path)}

    document = run_command("check", "--json", cwd=tmp_path, **nowhere).data
    lines = run_command("doctor", "--json", cwd=tmp_path, **nowhere).data["lines"]

    (problem,) = document["problems"]
    assert (problem["code"], problem["path"]) == (
        "WB-BOX-701",
        "toolboxes.dev.mcpServers.process.sandbox",
    )
    assert problem["fix"].startswith("install bubblewrap")
    assert [box["box"] for box in document["sandboxes"]] == ["", "none"]
    found = [line for line in lines if line["code"] == "WB-BOX-701"]
    assert [(line["state"], line["subject"]) for line in found] == [
        ("doubtful", "sandbox"),
        ("bad", "dev/process"),
    ]
    assert {line["fix"] for line in found} == {problem["fix"]}
    (shown,) = [line for line in lines if (line["subject"], line["state"]) == ("sandbox", "good")]
    assert shown["message"] == "dev/process process (can't be made); dev/auto auto: none"


@needs_bubblewrap
def test_doctor_shows_them(tmp_path: Path) -> None:
    config_file(tmp_path, {"a": entry(sandbox="process"), "plain": entry()})

    lines = run_command("doctor", "--json", cwd=tmp_path, HOME=str(tmp_path)).data["lines"]

    found = [(line["state"], line["message"]) for line in lines if line["subject"] == "sandbox"]
    assert found == [("good", "dev/a process")]


def test_nothing_is_said_of_sandboxes_where_there_are_none(tmp_path: Path) -> None:
    config_file(tmp_path, {"plain": entry()})

    assert "sandbox" not in run_command("check", cwd=tmp_path).out
    assert run_command("check", "--json", cwd=tmp_path).data["sandboxes"] == []


@needs_bubblewrap
def test_check_names_paths_that_do_not_exist(tmp_path: Path) -> None:
    config_file(tmp_path, {"a": spy(sandbox=files(write=["./gone"]))})

    (problem,) = run_command("check", "--json", cwd=tmp_path).data["problems"]

    assert (problem["code"], problem["path"]) == (
        "WB-BOX-702",
        "toolboxes.dev.mcpServers.a.sandbox.write[0]",
    )
    assert problem["message"] == "'./gone' does not exist and is left out"


@needs_bubblewrap
def test_status_shows_what_the_process_has(tmp_path: Path) -> None:
    with shared(config_file(tmp_path, servers())) as bench:
        bench.run("check", "--connect")
        lines = bench.json("status")
        text = bench.done("status")

    assert {line["server"]: line["box"] for line in lines["servers"]} == {
        "plain": "none",
        "process": "process",
        "files": "files",
        "auto": "process",
    }
    assert text.count("    sandbox: process\n") == 2
    assert text.count("    sandbox: files\n") == 1


@needs_bubblewrap
def test_the_audit_has_it_in_every_line(tmp_path: Path) -> None:
    calls = tmp_path / "calls.jsonl"
    some = {**servers(), "remote": url_entry("http://127.0.0.1:9/mcp")}
    with PipeHost(config_file(tmp_path, some), "--log-calls", str(calls)) as host:
        host.initialize()
        for sent in [host.begin_use(server, "attempt", {"attempts": []}) for server in some]:
            host.answer(sent)

    lines = [json.loads(line) for line in calls.read_text().splitlines()]
    assert {line["server"]: line["box"] for line in lines} == {
        "plain": "none",
        "process": "process",
        "files": "files",
        "auto": "process",
        "remote": "",
    }


@needs_bubblewrap
def test_check_warns_if_the_configuration_can_be_written(tmp_path: Path) -> None:
    lists = files(write=["."], hide=["./gone"])
    config_file(tmp_path, {"a": spy(sandbox=lists), "b": spy(sandbox=files(["."]))})

    problems = run_command("check", "--json", cwd=tmp_path).data["problems"]

    assert [(p["code"], p["path"].partition("mcpServers.")[2]) for p in problems] == [
        ("WB-BOX-702", "a.sandbox.hide[0]"),
        ("WB-BOX-704", "a.sandbox.write"),
    ]


@needs_bubblewrap
def test_check_makes_no_folder_that_a_start_would_hide(tmp_path: Path) -> None:
    config_file(tmp_path, {"a": spy(sandbox=files(write=["."]))})
    state = tmp_path / "state"

    document = run_command("check", "--json", cwd=tmp_path, MCP_WORKBENCH_HOME=str(state)).data

    assert [box["box"] for box in document["sandboxes"]] == ["files"]
    assert not state.exists()


@needs_bubblewrap
def test_values_of_variables_in_paths_are_not_shown(tmp_path: Path) -> None:
    value = "canary-4711-canary"
    (tmp_path / value).mkdir()
    (tmp_path / value / "link").symlink_to("/")
    lists = files(["${NAME}/gone"], write=["${NAME}", "${NAME}/link"], hide=["${NAME}/gone"])
    config_file(tmp_path, {"a": spy(sandbox=lists)})

    shown = [run_command(*argv, cwd=tmp_path, NAME=value) for argv in (["check"], ["check", "--json"], ["doctor"])]  # fmt: skip

    for done in shown:
        assert value not in done.out + done.err
        assert "depends on the link" in done.out + done.err
