"""`cost` says what the toolboxes cost, beside listing every tool."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_scenes import demo_server, toolbox, workbench, write_config


def test_toolboxes_stand_beside_the_direct_way(tmp_path: Path) -> None:
    done = workbench("cost", cwd=tmp_path)
    head, demo, _, every = done.out.splitlines()
    assert done.status == 0
    assert head.split() == ["TOOLBOX", "TOOLS", "DIRECT", "OPENED:", "schema"]
    assert demo.split()[:2] == ["demo", "8"]
    assert every.startswith("in every request: ≈ ")


def test_servers_one_by_one_and_as_json(tmp_path: Path) -> None:
    servers = {"a": demo_server(), "b": demo_server("workshop", toolFilters=["slow"])}
    write_config(tmp_path, toolbox(**servers))
    told = workbench("cost", "dev", cwd=tmp_path)
    assert [line.split()[:2] for line in told.out.splitlines()[1:4]] == [
        ["dev", "5"],
        ["a", "4"],
        ["b", "1"],
    ]
    data = workbench("cost", "--json", cwd=tmp_path).data
    (box,) = data["toolboxes"]
    assert box["direct"] == sum(server["direct"] for server in box["servers"])
    assert data["everyRequest"]["direct"] == box["direct"]
    assert box["opening"]["schema"] > box["direct"] > 100
    assert 100 < data["everyRequest"]["workbench"] < 800


def test_the_workbench_costs_the_same_however_many_tools_there_are(tmp_path: Path) -> None:
    write_config(tmp_path, toolbox(a=demo_server()))
    few = workbench("cost", "--json", cwd=tmp_path).data["everyRequest"]
    write_config(tmp_path, toolbox(**{f"s{n}": demo_server() for n in range(6)}))
    many = workbench("cost", "--json", cwd=tmp_path).data["everyRequest"]
    assert many["direct"] == 6 * few["direct"]
    assert abs(many["workbench"] - few["workbench"]) < 10


def test_dynamic_mode_lists_what_was_opened(tmp_path: Path) -> None:
    write_config(tmp_path, toolbox(a=demo_server()) | {"toolMode": "dynamic"})
    (box,) = workbench("cost", "--json", cwd=tmp_path).data["toolboxes"]
    assert set(box["opening"]) == {"listed"}


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_server_that_is_not_there_is_named_and_not_counted(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    write_config(tmp_path, toolbox(a=demo_server(), gone={"command": "no-such-command"}))
    done = workbench("cost", *flags, cwd=tmp_path)
    assert done.status == 4
    assert "gone" in (done.out if flags else done.err)
    assert workbench("cost", "dve", cwd=tmp_path).status == 2
