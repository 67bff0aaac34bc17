"""`cost` says what the toolboxes cost, beside listing every tool."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mcp_workbench.core.catalogue import estimate_tokens
from tests.kit.command import run_command
from tests.kit.config import demo_server, toolbox, write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.results import texts


def test_toolboxes_stand_beside_the_direct_way(tmp_path: Path) -> None:
    done = run_command("cost", cwd=tmp_path)
    head, demo, _, every = done.out.splitlines()
    assert done.status == 0
    assert head.split() == [
        *("TOOLBOX", "TOOLS", "DIRECT", "OPENED:", "names", "signature", "full", "schema"),
        "SEARCHED",
    ]
    assert demo.split()[:2] == ["demo", "8"]
    assert len(demo.replace("≈ ", "").split()) == 8
    assert every.startswith("in every request: ≈ ")
    assert " with the workbench (menu ≈ " in every


def test_the_figures_are_those_of_what_a_host_is_told(tmp_path: Path) -> None:
    path = write_config(tmp_path, toolbox(a=demo_server(), b=demo_server("workshop")))
    document = run_command("cost", "--json", cwd=tmp_path).data
    (box,) = document["toolboxes"]
    with PipeHost(path, cwd=tmp_path) as host:
        opening = host.initialize()
        menu = host.result("tools/list")["tools"]
        levels = {
            detail: estimate_tokens(texts(host.call("open_toolbox", {"toolbox_name": "dev", "detail": detail}))[0])
            for detail in ("names", "signature", "full", "schema")
        }  # fmt: skip
        wishes = [tool["description"] for tool in host.open("dev")["tools"]]
        answers = [
            estimate_tokens(texts(host.call("search_tools", {"query": wish.partition(". ")[0]}))[0])
            for wish in wishes
        ]

    assert box["opening"] == levels
    assert list(levels.values()) == sorted(levels.values())
    assert box["searching"] == {"answers": 8, "mean": round(sum(answers) / 8), "most": max(answers)}
    assert document["everyRequest"]["instructions"] == estimate_tokens(opening["instructions"])
    keys = ("name", "description", "inputSchema")
    shown = [{key: tool[key] for key in keys} for tool in menu]
    assert document["everyRequest"]["menu"] == sum(
        estimate_tokens(json.dumps(tool, separators=(",", ":"))) for tool in shown
    )


def test_a_toolbox_without_a_tool_is_searched_in_vain(tmp_path: Path) -> None:
    write_config(tmp_path, toolbox(a=demo_server(toolFilters=["none"])))
    told = run_command("cost", cwd=tmp_path)
    (box,) = run_command("cost", "--json", cwd=tmp_path).data["toolboxes"]
    assert told.out.splitlines()[1].split()[-1] == "-"
    assert (box["tools"], box["searching"]) == (0, None)


def test_servers_one_by_one_and_as_json(tmp_path: Path) -> None:
    servers = {"a": demo_server(), "b": demo_server("workshop", toolFilters=["slow"])}
    write_config(tmp_path, toolbox(**servers))
    told = run_command("cost", "dev", cwd=tmp_path)
    assert [line.split()[:2] for line in told.out.splitlines()[1:4]] == [
        ["dev", "5"],
        ["a", "4"],
        ["b", "1"],
    ]
    data = run_command("cost", "--json", cwd=tmp_path).data
    (box,) = data["toolboxes"]
    assert box["direct"] == sum(server["direct"] for server in box["servers"])
    assert data["everyRequest"]["direct"] == box["direct"]
    assert box["opening"]["schema"] > box["direct"] > 100
    assert 100 < data["everyRequest"]["workbench"] < 800


def test_the_workbench_costs_the_same_however_many_tools_there_are(tmp_path: Path) -> None:
    write_config(tmp_path, toolbox(a=demo_server()))
    few = run_command("cost", "--json", cwd=tmp_path).data["everyRequest"]
    names = [f"s{n}" for n in range(6)]
    write_config(tmp_path, toolbox(**{name: demo_server() for name in names}))
    many = run_command("cost", "--json", cwd=tmp_path).data["everyRequest"]
    assert many["direct"] == 6 * few["direct"]
    # The instructions list the names of servers, and nothing else grows.
    more = many["workbench"] - few["workbench"] - estimate_tokens(", ".join(names))
    assert abs(more) < 10


def test_dynamic_mode_lists_what_was_opened(tmp_path: Path) -> None:
    write_config(tmp_path, toolbox(a=demo_server()) | {"toolMode": "dynamic"})
    (box,) = run_command("cost", "--json", cwd=tmp_path).data["toolboxes"]
    assert set(box["opening"]) == {"listed"}
    assert box["searching"] is None
    assert "SEARCHED" not in run_command("cost", cwd=tmp_path).out


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_server_that_is_not_there_is_named_and_not_counted(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    write_config(tmp_path, toolbox(a=demo_server(), gone={"command": "no-such-command"}))
    done = run_command("cost", *flags, cwd=tmp_path)
    assert done.status == 4
    assert "gone" in (done.out if flags else done.err)
    assert run_command("cost", "dve", cwd=tmp_path).status == 2


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "commands" / "cost.md").read_text("utf-8")
    assert f"```text\n{run_command('cost', cwd=tmp_path).out}```\n" in page
