"""The file itself: its text, its owner, its problems."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.config import findings
from mcp_workbench.config.file_access import check_ownership
from mcp_workbench.config.load import MOST_BYTES, load_config
from mcp_workbench.config.validate import validate
from mcp_workbench.core.errors import ConfigError
from mcp_workbench.core.spec import Snapshot
from mcp_workbench.hosts.read import text_of
from tests.config.scenes import CONTRACT, load, problems


def test_every_problem_is_reported_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """{
  "toolMode": "x",
  "toolboxes": {
    "a b": {"mcpServers": {"s": {}}},
    "c": {"description": 1, "mcpServers": {"t": {"command": "x", "timeout": -1}}}
  }
}""",
    )

    assert [(p.line, p.column, p.path) for p in found] == [
        (2, 3, "toolMode"),
        (4, 5, 'toolboxes["a b"]'),
        (4, 28, 'toolboxes["a b"].mcpServers.s'),
        (5, 11, "toolboxes.c.description"),
        (5, 66, "toolboxes.c.mcpServers.t.timeout"),
    ]
    assert all(p.fix and p.code for p in found)


CMD = "'cmd' (Goose's spelling) is 'command' here"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (1, "1 more warning, which is not listed"),
        (3, "3 more warnings, which are not listed"),
    ],
)
def test_how_many_problems_are_not_listed_is_told_last_and_without_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, told: str
) -> None:
    most = 20
    monkeypatch.setattr(findings, "MOST", most)
    keys = "".join(f'"k{n}": 1,\n' for n in range(most + more))
    file = tmp_path / "workbench-config.json"
    server = '{"a": {"command": "x"}}'
    file.write_text(f'{{\n{keys}"mcpServers": {server}, "mcpServers": {server}}}')

    *listed, twice, last = load_config(file).warnings

    assert [one.line for one in listed] == list(range(2, most + 2))
    assert twice.code == "WB-CONF-024"
    assert (last.message, last.line, last.column, last.count) == (told, 0, 0, more)


def test_the_error_text_has_a_line_for_each_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {"toolMode": "x", "mcpServers": {"s": {"cmd": "x"}}})

    assert str(caught.value).splitlines()[1:] == [
        '  :1:2 toolMode: must be "proxy" or "dynamic" (fix: write one of them)',
        "  :1:31 mcpServers.s: neither 'command' nor 'url' (fix: " + CMD + ")",
    ]
    assert [w.path for w in caught.value.warnings] == ["mcpServers.s.cmd"]


def test_comments_and_trailing_commas_are_fine(tmp_path: Path) -> None:
    snapshot = load(tmp_path, '\ufeff{ // servers\n "mcpServers": {"s": {"command": "x",},},}')

    assert list(snapshot.toolbox("default").servers) == ["s"]


TWICE = '{"mcpServers": {"s": {"command": "a"},\n "s": {"command": "b"%s}}}'


def test_a_key_that_stands_twice_is_a_warning_with_both_places(tmp_path: Path) -> None:
    [warning, _] = load(tmp_path, TWICE % ', "zzz": 1').warnings

    assert (warning.path, warning.line, warning.column) == ("mcpServers.s", 2, 2)
    assert warning.message == "duplicate key; this one counts, the one at 1:17 does not"


def test_the_quick_reading_does_not_look_for_such_keys_but_the_careful_one_does(
    tmp_path: Path,
) -> None:
    snapshot = load(tmp_path, TWICE % "")

    assert snapshot.warnings == ()
    assert [w.code for w in load_config(snapshot.origin, {}, careful=True).warnings] == [
        "WB-CONF-024"
    ]


@pytest.mark.parametrize(
    ("raw", "code", "line"),
    [
        (b"", "WB-CONF-004", 0),
        (b" \n\t", "WB-CONF-004", 0),
        (b"[]", "WB-CONF-010", 1),
        (b"null", "WB-CONF-010", 1),
        (b'{"mcpServers": {}', "WB-CONF-007", 1),
        (b'{\n "mcpServers": {},\n x}', "WB-CONF-007", 3),
        (b'{\n "a": "\xff"}', "WB-CONF-003", 2),
        ('{"mcpServers": {}}'.encode("utf-16"), "WB-CONF-003", 1),
        (b'{"a":' * 5000, "WB-CONF-007", 1),
        (b" " * (MOST_BYTES + 1), "WB-CONF-005", 0),
    ],
    ids=["empty", "blank", "list", "null", "open", "word", "latin", "utf-16", "deep", "huge"],
)
def test_a_file_that_is_no_configuration_is_told_clearly(
    tmp_path: Path, raw: bytes, code: str, line: int
) -> None:
    file = tmp_path / "c.json"
    file.write_bytes(raw)
    file.chmod(0o600)

    with pytest.raises(ConfigError) as caught:
        load_config(str(file), {})

    [problem] = caught.value.problems
    assert (problem.code, problem.line) == (code, line)
    assert problem.fix


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (b"\xff", (1, 1)),
        (b'{\n "a": "\xff"}', (2, 8)),
        ('{"äö": "'.encode() + b'\xff"}', (1, 9)),
        (b'\xef\xbb\xbf{"a": "\xff"}', (1, 8)),
        (b'{"a": "\xc3', (1, 8)),
        (b'{\r\n "a": "\xff"}', (2, 8)),
    ],
    ids=["first", "second line", "umlauts", "mark", "cut", "crlf"],
)
def test_a_byte_that_is_no_utf_8_has_its_column(
    tmp_path: Path, raw: bytes, place: tuple[int, int]
) -> None:
    file = tmp_path / "c.json"
    file.write_bytes(raw)
    file.chmod(0o600)

    with pytest.raises(ConfigError) as caught:
        load_config(str(file), {})
    with pytest.raises(ConfigError) as of_host:
        text_of(file)

    for error in (caught, of_host):
        [problem] = error.value.problems
        assert problem.message == "the file is not UTF-8 text"
        assert (problem.line, problem.column) == place


def test_a_finding_below_the_scanners_depth_is_known_by_its_path(tmp_path: Path) -> None:
    deep = "[" * 200 + "]" * 200
    [warning] = load(
        tmp_path, f'{{"mcpServers": {{"s": {{"command": "x", "deep": {deep}}}}}}}'
    ).warnings

    assert (warning.path, warning.line) == ("mcpServers.s.deep", 0)


@pytest.mark.parametrize(
    ("name", "code"), [(".", "WB-CONF-002"), ("none.json", "WB-CONF-001"), ("a\0b", "WB-CONF-002")]
)
def test_a_path_that_is_no_file_is_told_clearly(tmp_path: Path, name: str, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(f"{tmp_path}/{name}", {})

    assert [p.code for p in caught.value.problems] == [code]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_file_that_everybody_can_change_is_refused_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text('{"mcpServers": {}}')
    file.chmod(0o666)

    with pytest.raises(ConfigError) as caught:
        load_config(file, {})

    [problem] = caught.value.problems
    assert (problem.code, problem.fix) == ("WB-CONF-006", f"chmod o-w {file}")


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_file_of_another_user_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text('{"mcpServers": {"s": {"command": "x"}}}')
    file.chmod(0o644)
    of_another = [*file.stat()]
    of_another[stat.ST_UID] = 12345

    assert load_config(file, {}).warnings == ()
    assert [doubt.code for doubt in check_ownership(str(file), os.stat_result(of_another))] == [
        "WB-CONF-008"
    ]
    if os.geteuid() == 0:  # who alone can give a file away
        os.chown(file, 12345, -1)
        assert [w.code for w in load_config(file, {}).warnings] == ["WB-CONF-008"]


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="pipes that have a path")
def test_a_configuration_may_come_through_a_pipe() -> None:
    reader, writer = os.pipe()
    os.write(writer, b'{"mcpServers": {"s": {"command": "x"}}}')
    os.close(writer)

    snapshot = load_config(f"/dev/fd/{reader}", {})

    os.close(reader)
    assert list(snapshot.toolbox("default").servers) == ["s"]


def test_the_process_environment_is_used_unless_another_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISSUES_TOKEN", "t")
    file = load(tmp_path, CONTRACT).origin

    assert load_config(file).warnings == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just("${X}"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["toolboxes", "mcpServers", "a", "command", "url", "args", "env", "type"]
            )
            | st.sampled_from(
                ["headers", "limits", "toolFilters", "timeout", "disabled", "openWait"]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_value_is_understood_or_reported_and_never_a_surprise(value: Any) -> None:
    snapshot, found = validate(value, {})

    assert isinstance(snapshot, Snapshot)
    assert all(f.message and f.fix and f.code for f in found)


def test_loading_imports_nothing_heavy(tmp_path: Path) -> None:
    file = load(tmp_path, CONTRACT).origin
    script = f"""
import sys, msgspec
before = set(sys.modules)
from mcp_workbench.config.load import load_config
load_config({file!r}, {{"ISSUES_TOKEN": "t"}})
heavy = {{"json", "dataclasses", "inspect", "pathlib", "difflib", "urllib.parse", "asyncio",
         "mcp_workbench.core.error_codes", "mcp_workbench.config.jsonc"}}
print(sorted(heavy & (set(sys.modules) - before)))
"""
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30
    )

    assert (shown.stdout.strip(), shown.stderr) == ("[]", "")
