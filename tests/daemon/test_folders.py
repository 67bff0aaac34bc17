"""A server that depends on the folder of its host runs in that folder, shared workbench or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.clock import eventually
from tests.kit.config import config_file, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import json_text, text
from tests.kit.shared import Shared, shared

pytestmark = pytest.mark.usefixtures("forked_commands")


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """The folder of the configuration, and those of two projects."""
    folders = [tmp_path / name for name in ("config", "one", "two ${HOME}")]
    for folder in folders:
        folder.mkdir()
    return folders


def server(*more: str, **keys: Any) -> dict[str, Any]:
    return entry(*more, **keys)


def in_folder(bench: Shared, folder: Path, **more: Any) -> PipeHost:
    return PipeHost(bench.config, env=bench.env, cwd=folder, **more)


def where(host: PipeHost, name: str) -> tuple[str, int]:
    seen = json_text(host.use(name, "env"))
    return seen["cwd"], seen["pid"]


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(
    "keys", [{"args": ["."]}, {"args": ["--root=./src"]}, {"scope": "folder"}], ids=str
)
def test_each_host_has_its_own_in_its_folder(
    folders: list[Path], keys: dict[str, Any], *, modern: bool
) -> None:
    config, one, two = folders
    local = server(**{key: value for key, value in keys.items() if key != "args"})
    local["args"] = [*local["args"], *keys.get("args", [])]
    with (
        shared(config_file(config, {"local": local, "common": server()})) as bench,
        in_folder(bench, config, modern=modern) as at_home,
        in_folder(bench, one, modern=modern) as first,
        in_folder(bench, two, modern=modern) as second,
    ):
        hosts = (at_home, first, second)
        for host in hosts:
            host.handshake()
        local_places = [where(host, "local") for host in hosts]
        common_places = [where(host, "common") for host in hosts]
        status = {line["server"]: line for line in bench.status()["servers"]}

    assert [folder for folder, _ in local_places] == [str(config), str(one), str(two)]
    assert len({pid for _, pid in local_places}) == 3
    assert {folder for folder, _ in common_places} == {str(config)}
    assert len({pid for _, pid in common_places}) == 1
    assert (status["local"]["scope"], status["local"]["connections"]) == ("folder", 3)
    assert (status["common"]["scope"], status["common"]["connections"]) == ("shared", 1)


@pytest.mark.parametrize("keys", [{"scope": "shared"}, {"cwd": "."}], ids=str)
def test_who_wants_to_share_it_can(folders: list[Path], keys: dict[str, Any]) -> None:
    config, one, two = folders
    local = server(**keys)
    local["args"] = [*local["args"], "."]
    with (
        shared(config_file(config, {"local": local})) as bench,
        in_folder(bench, one) as first,
        in_folder(bench, two) as second,
    ):
        places = [where(host.handshake(), "local") for host in (first, second)]

    assert {folder for folder, _ in places} == {str(config)}
    assert len({pid for _, pid in places}) == 1


def test_a_folder_in_which_it_fails_does_not_keep_it_from_others(folders: list[Path]) -> None:
    config, one, two = folders
    (two / "wanted").touch()
    script = 'test -e wanted || { echo "no wanted here" >&2; exit 1; }; exec "$0" "$@"'
    plain = server()
    local = {
        "command": "sh",
        "args": ["-c", script, plain["command"], *plain["args"], "."],
        "env": plain.get("env", {}),
    }
    with (
        shared(config_file(config, {"local": local})) as bench,
        in_folder(bench, one) as first,
        in_folder(bench, two) as second,
    ):
        first.handshake()
        second.handshake()
        for _ in range(4):  # enough to be refused at once
            assert "no wanted here" in text(first.use("local", "env"))
        folder, _ = where(second, "local")

    assert folder == str(two)


def test_a_host_that_leaves_takes_its_own_with_it(folders: list[Path]) -> None:
    config, one, _ = folders
    local = server()
    local["args"] = [*local["args"], "."]
    with shared(config_file(config, {"local": local})) as bench:
        with in_folder(bench, one) as host:
            where(host.handshake(), "local")
            assert bench.status()["servers"][0]["connections"] == 1
        eventually(lambda: bench.status()["servers"][0]["connections"] == 0, "its server has ended")


def test_up_and_status_say_so_and_how_to_choose(folders: list[Path]) -> None:
    config, *_ = folders
    local = server()
    local["args"] = [*local["args"], "."]
    bench = Shared(config_file(config, {"local": local, "common": server()}))
    try:
        printed = bench.done("up")
        status = bench.done("status")
    finally:
        bench.done("down")

    note = "each host has its own, in the host's folder"
    choice = 'a "cwd" or "scope": "shared" in its entry shares it'
    assert f"dev/local is not shared: {note} ('.' in its args); {choice}\n" in printed
    assert "dev/common" not in printed
    assert f"    {note}; {choice}\n" in status
