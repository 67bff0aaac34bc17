"""Where the configuration file is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.config.load import find_config, load_config
from mcp_workbench.core.errors import ConfigError


def test_the_option_comes_first(tmp_path: Path) -> None:
    for name in ("a.json", "b.json", "workbench-config.json"):
        (tmp_path / name).touch()

    assert find_config("a.json", {"WORKBENCH_CONFIG": "b.json"}, tmp_path) == str(
        tmp_path / "a.json"
    )


def test_then_the_variable(tmp_path: Path) -> None:
    for name in ("b.json", "workbench-config.json"):
        (tmp_path / name).touch()

    assert find_config(None, {"WORKBENCH_CONFIG": "b.json"}, tmp_path) == str(tmp_path / "b.json")


def test_then_the_usual_name_in_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "workbench-config.json").touch()

    assert find_config(None, {"WORKBENCH_CONFIG": ""}, tmp_path) == str(
        tmp_path / "workbench-config.json"
    )


def test_nothing_anywhere_means_the_demo(tmp_path: Path) -> None:
    assert find_config(None, {}, tmp_path) is None


@pytest.mark.parametrize(
    ("option", "environ", "source"),
    [("a.json", {}, "--config"), (None, {"WORKBENCH_CONFIG": "a.json/b"}, "$WORKBENCH_CONFIG")],
)
def test_a_given_path_that_does_not_exist_is_an_error(
    tmp_path: Path, option: str | None, environ: dict[str, str], source: str
) -> None:
    (tmp_path / "workbench-config.json").touch()

    with pytest.raises(ConfigError) as caught:
        find_config(option, environ, tmp_path)

    [problem] = caught.value.problems
    assert problem.code == "WB-CONF-001"
    assert source in problem.message


def test_a_path_that_ends_in_a_loop_is_found_and_told_when_it_is_read(tmp_path: Path) -> None:
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)

    assert find_config("loop.json", {}, tmp_path) == str(loop)
    assert find_config("loop.json/x", {}, tmp_path) == str(loop / "x")
    with pytest.raises(ConfigError, match="can't be read"):
        load_config(loop)
