"""What each command loads: the budget of its start, as a list of modules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.kit.command import serving, stopped
from tests.kit.config import config_file
from tests.kit.processes import unmeasured

TELL = """
import sys
before = set(sys.modules)
import atexit, os
def tell():
    loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
    os.write(2, ("MODULES " + " ".join(sorted(loaded)) + "\\n").encode())
atexit.register(tell)
sys.argv = ["mcp-workbench", *sys.argv[1:]]
from mcp_workbench.cli.main import main
main()
"""
# The codec takes typing_extensions where they are installed; cython_runtime is a part of the loop.
CODEC = {"msgspec", "typing_extensions"}
LOOP = {"uvloop", "cython_runtime"}
# Of the standard library, what is slow to load and needed by none of them.
TOO_SLOW = {
    "argparse", "csv", "dataclasses", "email", "html", "http", "json", "multiprocessing", "pdb", "pkgutil",
    "pydoc", "sqlite3", "statistics", "tomllib", "unittest", "xml", "zipfile",
}  # fmt: skip
NO_LOOP = {"asyncio", "ssl", "subprocess"}
WHAT_IT_LOADS = """
import sys
before = set(sys.modules)
exec(sys.argv[1])
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""


@cache
def too_slow(code: str) -> frozenset[str]:
    """`TOO_SLOW`, but for what this code loads by itself: newer versions of Python have `dataclasses` in some."""
    printed = subprocess.run(
        [sys.executable, "-c", WHAT_IT_LOADS, code],
        env=unmeasured(),
        capture_output=True,
        text=True,
        check=True,
    )
    return frozenset(TOO_SLOW - set(printed.stdout.split()))


def loaded(folder: Path, *argv: str, terminal: bool = False, **variables: str) -> set[str]:
    """The modules that a command has loaded at its end, in a home of its own."""
    ours, theirs = os.openpty() if terminal else (-1, -1)
    home = {"HOME": str(folder), "MCP_WORKBENCH_HOME": str(folder / "state")}
    done = subprocess.run(
        [sys.executable, "-c", TELL, *argv],
        cwd=folder,
        env={**unmeasured(), **home, **variables},
        stdin=theirs if terminal else subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )
    for end in (ours, theirs) if terminal else ():
        os.close(end)
    assert done.returncode == 0, done.stderr
    told = next(line for line in done.stderr.splitlines() if line.startswith("MODULES "))
    return set(told.split()[1:])


def foreign(modules: set[str]) -> set[str]:
    """Those of others, without what begins with an underscore: parts of C."""
    ours = {"mcp_workbench", *sys.stdlib_module_names}
    return {name for name in modules - ours if not name.startswith("_")}


@pytest.mark.parametrize("argv", [["version"], ["completion", "bash"], ["completion", "fish"]])
def test_what_only_prints_needs_nobody(argv: list[str], tmp_path: Path) -> None:
    modules = loaded(tmp_path, *argv)
    assert foreign(modules) == set()
    assert not modules & (TOO_SLOW | NO_LOOP | {"typing", "re", "inspect"})


@pytest.mark.parametrize("argv", [["--help"], ["version", "--help"], ["completion", "--help"]])
def test_help_needs_click(argv: list[str], tmp_path: Path) -> None:
    modules = loaded(tmp_path, *argv)
    assert foreign(modules) == {"click"}
    assert not modules & (TOO_SLOW | NO_LOOP)


@pytest.mark.parametrize("argv", [["check"], ["explain"], ["explain", "WB-CONF-021"], ["schema"]])
def test_looking_at_files_needs_the_codec_and_no_loop(argv: list[str], tmp_path: Path) -> None:
    modules = loaded(tmp_path, *argv)
    assert foreign(modules) <= {"click"} | CODEC
    assert not modules & (too_slow("import logging") | NO_LOOP)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals here")
def test_the_overview_on_a_terminal_needs_no_loop(tmp_path: Path) -> None:
    modules = loaded(tmp_path, terminal=True)
    assert foreign(modules) <= {"click"} | CODEC
    assert not modules & (too_slow("import logging") | NO_LOOP)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of somebody whose servers were asked for their tools."""
    folder = tmp_path_factory.mktemp("known")
    assert "asyncio" in loaded(folder, "tools")
    return folder


def test_tools_that_are_known_need_no_loop_and_no_server(known: Path) -> None:
    modules = loaded(known, "tools")
    assert foreign(modules) <= {"click"} | CODEC
    assert not modules & (too_slow("import logging") | NO_LOOP)


@pytest.mark.parametrize(
    "argv",
    [
        ["undo", "--list"],
        ["import", "--dry-run"],
        ["install", "cursor", "--dry-run"],
        ["uninstall", "cursor", "--dry-run"],
    ],
)
def test_files_of_hosts_need_the_codec_and_no_loop(argv: list[str], tmp_path: Path) -> None:
    """A host's own command may have to be run, which is what `subprocess` is loaded for."""
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text('{"mcpServers": {"a": {"command": "b"}}}')
    (tmp_path / "workbench-config.json").write_text('{"mcpServers": {"a": {"command": "b"}}}')
    modules = loaded(tmp_path, *argv)
    assert foreign(modules) <= {"click"} | CODEC
    assert not modules & (
        too_slow("from difflib import *; list(unified_diff(['a'], ['b']))")
        | {"asyncio", "ssl", "logging"}
    )


def test_a_file_in_toml_is_read_by_the_standard_library(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text("[mcp_servers.a]\ncommand = 'b'\n")
    modules = loaded(tmp_path, "import", "--dry-run")
    assert "tomllib" in modules
    assert foreign(modules) <= {"click"} | CODEC


@pytest.mark.parametrize(
    "argv",
    [
        ["tools"],
        ["check", "--connect"],
        ["call", "demo/basics/echo", "text=x"],
        ["doctor"],
    ],
)
def test_starting_servers_needs_the_loop_and_nothing_more(argv: list[str], tmp_path: Path) -> None:
    modules = loaded(tmp_path, *argv)
    assert foreign(modules) <= {"click"} | CODEC | LOOP
    assert not modules & (too_slow("import asyncio") | {"httptools"})


@pytest.mark.parametrize("argv", [["search", "add"], ["cost"]])
def test_searching_needs_the_stems_of_words_beside_that(argv: list[str], tmp_path: Path) -> None:
    modules = loaded(tmp_path, *argv)
    assert foreign(modules) <= {"click", "snowballstemmer"} | CODEC | LOOP
    assert not modules & (too_slow("import asyncio") | {"httptools"})


def test_counting_what_is_known_needs_no_loop(known: Path) -> None:
    modules = loaded(known, "cost")
    assert foreign(modules) <= {"click", "snowballstemmer"} | CODEC
    assert not modules & (too_slow("import logging") | {"asyncio", "ssl", "uvloop"})


@pytest.mark.parametrize(
    "words",
    ["", "che", "tools\n", "call\ndemo/", "call\ndemo/basics/", "doctor\n", "serve\n--toolbox\n"],
)
def test_the_tab_key_loads_no_loop(words: str, known: Path) -> None:
    modules = loaded(known, _MCP_WORKBENCH_COMPLETE=words)
    assert foreign(modules) <= {"click"} | CODEC
    assert not modules & {"asyncio", "ssl", "uvloop"}
    if "\n" not in words:
        assert not modules & ({"msgspec"} | NO_LOOP)


@pytest.mark.parametrize("issuer", [False, True])
def test_a_port_loads_what_checks_signatures_for_an_issuer_only(
    tmp_path: Path, issuer: bool
) -> None:
    auth = {"issuer": "http://127.0.0.1:9", "audience": "http://127.0.0.1:7411/mcp"}
    http = {"auth": auth} if issuer else {"tokens": {"a": {"token": "${A_TOKEN}"}}}
    config = config_file(tmp_path, {}, http=http)
    command = [sys.executable, "-c", TELL]
    with serving(config, "0", {**unmeasured(), "A_TOKEN": "t" * 32}, command=command) as port:
        code, _, err = stopped(port, signal.SIGTERM)
    modules = set(err.partition("MODULES ")[2].split())

    assert code == 0
    if issuer:
        assert {"jwt", "cryptography"} <= modules
    else:
        assert foreign(modules) <= CODEC | LOOP | {"httptools", "click"}


def test_the_list_of_servers_variables_is_the_one_of_the_command() -> None:
    from mcp_workbench.cli.completion_scripts import ASKED
    from mcp_workbench.cli.main import COMPLETE, SERVE_VARIABLES
    from mcp_workbench.cli.serve import serve
    from mcp_workbench.daemon.attach import VARIABLE as ATTACH

    named = {str(p.envvar) for p in serve.params if p.envvar}
    harmless = {f"MCP_WORKBENCH_{n}" for n in ("JSON", "QUIET", "NO_INPUT", "NO_COLOR")}
    assert set(SERVE_VARIABLES) == named - harmless - {ATTACH}
    assert ATTACH in named
    assert COMPLETE == ASKED
    assert os.environ.get(COMPLETE) is None
