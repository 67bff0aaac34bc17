"""`tools` tells what servers offered last time, says so, and starts none of them for it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from tests.kit.command import run_command
from tests.kit.config import entry, toolbox, write_config
from tests.kit.processes import pids_in


def config(folder: Path, *tools: str) -> Path:
    """A server that offers these, and leaves its number when it is started."""
    offered = [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
    (folder / "tools.json").write_text(json.dumps(offered))
    server = entry(f"tools={folder / 'tools.json'}", env={"PIDFILE": str(folder / "pids")})
    return write_config(folder, toolbox("dev", s=server))


def started(folder: Path) -> int:
    return len(pids_in(folder / "pids"))


def test_the_second_time_nobody_is_started_and_the_age_is_told(tmp_path: Path) -> None:
    config(tmp_path, "one", "two")

    first = run_command("tools", cwd=tmp_path)
    second = run_command("tools", cwd=tmp_path)

    assert (first.status, second.status) == (0, 0)
    assert first.out == second.out
    assert "from the cache" not in first.err
    assert "dev/s: from the cache, asked just now" in second.err
    assert "--refresh asks the servers now" in second.err
    assert started(tmp_path) == 1


def test_refresh_asks_them_and_tells_what_has_changed(tmp_path: Path) -> None:
    config(tmp_path, "one", "two")
    run_command("tools", cwd=tmp_path)
    config(tmp_path, "two", "three")

    old = run_command("tools", cwd=tmp_path)
    new = run_command("tools", "--refresh", cwd=tmp_path)
    later = run_command("tools", cwd=tmp_path)

    assert "one()" in old.out
    assert "three()" in new.out
    assert "one()" not in new.out
    for told in (new, later):
        assert "dev/s: tools changed just now: added three; removed one" in told.err
    assert started(tmp_path) == 2


def test_cost_counts_what_is_known_and_starts_nobody_for_it(tmp_path: Path) -> None:
    config(tmp_path, "one", "two")
    run_command("tools", cwd=tmp_path)

    counted = run_command("cost", cwd=tmp_path)

    assert counted.status == 0
    assert "dev/s: from the cache, asked just now" in counted.err
    assert started(tmp_path) == 1
    assert run_command("cost", "--refresh", cwd=tmp_path).out == counted.out
    assert started(tmp_path) == 2


def test_json_says_the_same(tmp_path: Path) -> None:
    config(tmp_path, "one")
    first = run_command("tools", "--json", cwd=tmp_path)
    config(tmp_path, "two")
    run_command("tools", "--refresh", "-q", cwd=tmp_path)

    second = run_command("tools", "--json", cwd=tmp_path)

    assert (first.data["cached"], first.data["changed"]) == ([], [])
    [cached], [changed] = second.data["cached"], second.data["changed"]
    assert cached == {"toolbox": "dev", "server": "s", "seconds": cached["seconds"]}
    assert cached["seconds"] < 600
    assert (changed["toolbox"], changed["server"]) == ("dev", "s")
    assert (changed["added"], changed["removed"], changed["changed"]) == (["two"], ["one"], [])
    assert second.err == ""


def test_check_connect_asks_and_renews(tmp_path: Path) -> None:
    config(tmp_path, "one")
    run_command("tools", cwd=tmp_path)
    config(tmp_path, "two")

    checked = run_command("check", "--connect", cwd=tmp_path)
    shown = run_command("tools", cwd=tmp_path)

    assert checked.status == 0
    assert "dev/s: tools changed since" in checked.err
    assert "two()" in shown.out
    assert started(tmp_path) == 2


def test_what_is_a_day_old_is_asked_again(tmp_path: Path, state_home: Path) -> None:
    config(tmp_path, "one")
    run_command("tools", cwd=tmp_path)
    [kept] = (state_home / "catalogues").glob("*.catalogue")
    aged(kept, 25 * 3600)

    again = run_command("tools", cwd=tmp_path)

    assert "from the cache" not in again.err
    assert started(tmp_path) == 2


def test_of_one_that_can_t_be_reached_the_last_list_is_shown_as_such(
    tmp_path: Path, state_home: Path
) -> None:
    config(tmp_path, "one")
    run_command("tools", cwd=tmp_path)
    [kept] = (state_home / "catalogues").glob("*.catalogue")
    aged(kept, 25 * 3600)
    (tmp_path / "tools.json").unlink()  # it can't start without

    told = run_command("tools", cwd=tmp_path)
    data = run_command("tools", "--json", cwd=tmp_path).data
    asked = run_command("tools", "--refresh", cwd=tmp_path)

    assert (told.status, asked.status) == (4, 4)
    assert "one()" in told.out
    assert "dev/s: not available, listed as it was 25 h ago" in told.err
    assert "WB-CONN-101" in told.err
    assert "--refresh asks" not in told.err, "it was asked just now"
    assert ([one["tool"] for one in data["tools"]], data["servers"][0]["state"]) == (
        ["one"],
        "failed",
    )
    assert data["cached"][0]["seconds"] >= 25 * 3600
    assert data["unavailable"][0]["server"] == "s"
    assert "one()" not in asked.out


def aged(file: Path, seconds: float) -> None:
    """As if it had been written so long ago."""
    from binascii import crc32

    head, body = file.read_bytes().splitlines()
    content: dict[str, Any] = json.loads(body)
    content["at"] = time.time() - seconds
    body = json.dumps(content).encode()
    head = json.dumps({**json.loads(head), "crc32": crc32(body)}).encode()
    file.write_bytes(head + b"\n" + body + b"\n")
    os.utime(file, (content["at"], content["at"]))
