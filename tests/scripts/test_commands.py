"""`run`: the same scripts for people, with questions on the terminal; and what there is without the extra."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.approvals.scenes import outcomes
from tests.kit.command import run_command
from tests.kit.config import (
    config_file,
    demo_server,
    entry,
    program_entry,
    toolbox,
    write_config,
)
from tests.kit.processes import unmeasured
from tests.kit.results import INITIALIZE
from tests.kit.servers import ASKER
from tests.kit.shared import shared
from tests.scripts.scenes import recorded, scripted

SUMS = 'print("hello")\nr = await asyncio.gather(*[call("dev/a/echo", text=str(i)) for i in range(3)])\nlen(r)\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Scripts in a folder with a space, without `scripts` in the configuration."""
    folder = tmp_path / "my scripts"
    folder.mkdir()
    scripted(folder, scripts=False)
    (folder / "sums.py").write_text(SUMS)
    return folder


def test_a_script_is_run_from_the_command_line(folder: Path) -> None:
    done = run_command("run", "sums.py", "--quiet", cwd=folder)

    assert (done.status, done.out, done.err) == (0, "hello\n3\n", "")
    lines = recorded(folder)
    assert {line["host"] for line in lines} == {"mcp-workbench run"}
    (parent,) = {line["parent"] for line in lines}
    assert parent.startswith("script-")


def test_json_has_the_value_the_output_and_the_calls(folder: Path) -> None:
    report = json.loads(run_command("run", "sums.py", "--json", cwd=folder).out)

    assert (report["ok"], report["value"], report["printed"]) == (True, 3, "hello\n")
    assert report["calls"] == [{"tool": "dev/a/echo", "line": 2, "state": "ok"}] * 3


def test_a_script_that_fails_has_a_status_of_its_own_and_lists_its_calls(folder: Path) -> None:
    (folder / "bad.py").write_text("await call('dev/a/echo')\n1 / 0\n")
    done = run_command("run", "bad.py", "--quiet", cwd=folder)
    report = json.loads(run_command("run", "bad.py", "--json", cwd=folder).out)

    assert done.status == 5
    assert "Line 2" in done.err
    assert "ZeroDivisionError" in done.err
    assert "- line 1: dev/a/echo: ok" in done.err
    assert (report["ok"], report["code"]) == (False, "script_failed")


@pytest.mark.parametrize(
    ("option", "code", "limit"),
    [
        (("--calls", "2"), "for i in range(3): await call('dev/a/echo')", "calls"),
        (("--seconds", "0.2"), "while True: pass", "execution"),
        (("--memory", "10"), "'x' * 20_000_000", "memory"),
        (("--total", "1"), "await call('dev/a/hang')", "total"),
    ],
)
def test_limits_can_be_set(folder: Path, option: tuple[str, str], code: str, limit: str) -> None:
    (folder / "much.py").write_text(code)
    report = json.loads(run_command("run", "much.py", "--json", *option, cwd=folder).out)

    assert report["code"] == "script_limit"
    assert f"limit '{limit}'" in report["error"]


def test_a_higher_limit_allows_more(folder: Path) -> None:
    (folder / "many.py").write_text("for i in range(60): await call('dev/a/echo')\n'done'")
    done = run_command("run", "many.py", "--calls", "60", "--quiet", cwd=folder)

    assert (done.status, done.out) == (0, "done\n")


def test_a_file_that_is_not_there_is_a_usage_error(folder: Path) -> None:
    done = run_command("run", "nothing.py", cwd=folder)

    assert done.status == 2
    assert "can't read nothing.py" in done.err


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals here")
def test_the_person_at_the_terminal_is_asked(tmp_path: Path) -> None:
    from tests.kit.terminal import terminal

    scripted(tmp_path, {"a": entry(approve=["echo"])})
    (tmp_path / "ask.py").write_text(
        "r = await call('dev/a/echo', text='hi')\nr['arguments']['text']"
    )
    with terminal("run", "ask.py", cwd=tmp_path) as screen:
        screen.expect('"mcp-workbench run')
        screen.expect("accept? [y/N]")
        screen.type("y\n")
        screen.expect("hi")
        status = screen.rest()
    without = run_command("run", "ask.py", "--quiet", cwd=tmp_path)

    assert status == 0
    assert without.status == 5
    assert "nobody can be asked: there is no terminal" in without.err
    assert outcomes(tmp_path) == [("echo", "ok"), ("echo", "denied")]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals here")
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_questions_of_servers_are_asked_at_the_terminal(tmp_path: Path, era: str) -> None:
    from tests.kit.terminal import terminal

    scripted(tmp_path, {"a": program_entry(ASKER, era=era)})
    code = "r = await asyncio.gather(call('dev/a/name'), call('dev/a/name'))\nstr(r)"
    (tmp_path / "ask.py").write_text(code)
    with terminal("run", "ask.py", cwd=tmp_path) as screen:
        for name in ("Ada", "Grace"):
            screen.expect("[dev/a] Your name?")
            screen.expect("name: ")
            screen.type(f"{name}\n")
            screen.expect("[Y/n] ")
            screen.type("\n")
        status = screen.rest()

    assert status == 0
    assert "'Ada'" in screen.screen.splitlines()[-1]
    assert "'Grace'" in screen.screen.splitlines()[-1]


def test_the_running_workbench_makes_the_calls(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(SUMS)
    with shared(scripted(tmp_path)) as bench:
        done = bench.run("run", str(tmp_path / "sums.py"), "--quiet")
        connections = bench.server("a")["connections"]

    assert (done.returncode, done.stdout) == (0, "hello\n3\n")
    assert connections == 1
    assert all(line["parent"] for line in recorded(tmp_path))


def test_the_script_of_the_page_runs_against_the_demo(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "scripts.md").read_text("utf-8")
    (code,) = re.findall(r"^```py\n(.*?)^```", page, re.M | re.S)
    write_config(tmp_path, toolbox("demo", basics=demo_server()))
    (tmp_path / "page.py").write_text(code)
    done = run_command("run", "page.py", "--quiet", cwd=tmp_path)

    assert (done.status, done.out) == (0, "0 10\n1 11\n2 12\n8\n")


# Without the extra


WITHOUT = """
import sys
sys.modules["pydantic_monty"] = None
sys.argv = ["mcp-workbench", *sys.argv[1:]]
from mcp_workbench.cli.main import main
status = main()
assert "mcp_workbench.gateway.script_worker" not in sys.modules or "run" in sys.argv
sys.exit(status)
"""


def without_extra(folder: Path, *argv: str, input: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *argv],
        cwd=folder,
        env={**unmeasured(), "MCP_WORKBENCH_HOME": str(folder / "state")},
        input=input,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )


def test_without_the_extra_it_is_not_offered_and_check_says_how_to_get_it(tmp_path: Path) -> None:
    config_file(tmp_path, {"basics": demo_server()}, scripts=True)
    checked = without_extra(tmp_path, "check")
    requests = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
        {
            "jsonrpc": "2.0",
            "id": 3,
            "method": "tools/call",
            "params": {"name": "run_script", "arguments": {"code": "1"}},
        },
    ]
    lines = "".join(f"{json.dumps(request)}\n" for request in requests)
    served = without_extra(tmp_path, "serve", input=lines)
    (tmp_path / "x.py").write_text("1")
    ran = without_extra(tmp_path, "run", "x.py")

    assert checked.returncode == 0, checked.stderr
    assert "WB-CONF-048" in checked.stderr
    assert "pip install 'mcp-workbench-gateway[code]'" in checked.stderr
    answers = {answer["id"]: answer for answer in map(json.loads, served.stdout.splitlines())}
    names = [tool["name"] for tool in answers[2]["result"]["tools"]]
    assert names == ["open_toolbox", "use_tool", "search_tools"]
    assert answers[3]["error"]["message"] == "Unknown tool: run_script"
    assert ran.returncode == 1
    assert "WB-CALL-207" in ran.stderr
    assert "pip install 'mcp-workbench-gateway[code]'" in ran.stderr


def test_with_bare_names_check_says_that_scripts_have_no_effect(tmp_path: Path) -> None:
    config_file(
        tmp_path, {"basics": demo_server()}, scripts=True, toolMode="dynamic", naming="bare"
    )
    done = run_command("check", cwd=tmp_path)

    assert done.status == 0
    assert "has no effect with bare names" in done.err
