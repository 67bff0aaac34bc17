"""The documents are true: versions, the tree, the code blocks, the commands."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench import __version__
from mcp_workbench.config.load import demo_snapshot
from mcp_workbench.core.spec import StdioCommand
from tests.kit import forked
from tests.kit.command import COMMAND
from tests.kit.forked import Streams

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "mcp_workbench"
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "AGENTS.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def demo_file(folder: Path) -> Path:
    """The demo toolbox as a configuration file, for examples that name one."""
    servers = {
        name: {"command": spec.target.command, "args": list(spec.target.args)}
        for name, spec in demo_snapshot().toolboxes["demo"].servers.items()
        if isinstance(spec.target, StdioCommand)
    }
    file = folder / "workbench-config.json"
    file.write_bytes(msgspec.json.encode({"toolboxes": {"demo": {"mcpServers": servers}}}))
    return file


def test_the_version_is_the_same_everywhere() -> None:
    told = subprocess.run([*COMMAND, "version"], capture_output=True, text=True, check=True).stdout

    assert __version__ == "0.11.0"
    assert importlib.metadata.version("mcp-workbench-gateway") == __version__
    assert told == f"mcp-workbench {__version__}\n"
    assert f"## [{__version__}]" in read("CHANGELOG.md")


def test_the_changelog_marks_both_incompatible_changes_with_before_and_after() -> None:
    sections = {
        part.split("]")[0]: part
        for part in read("CHANGELOG.md").split("\n## [")
        if "incompatible" in part
    }

    assert {"0.11.0", "0.5.0"} <= set(sections)
    old_and_new = re.findall(r"\| `\w+__[a-z]+_\w+` \| `\w+__[a-z]+__\w+` \|", sections["0.5.0"])
    assert len(old_and_new) >= 3
    assert '"tool_name"' in sections["0.11.0"]
    assert '{"tool": {"toolbox"' in sections["0.11.0"]


def test_the_naming_convention_stands_where_contributors_look() -> None:
    for name in ("docs/architecture.md", "AGENTS.md"):
        section = read(name).split("## Tool Naming Convention")[1]
        assert "dev__filesystem__read_file" in section
        assert '"toolbox": "dev", "server": "filesystem", "tool": "read_file"' in section
    assert "AGENTS.md" in read("CLAUDE.md")


def test_the_readme_names_tools_by_their_parts() -> None:
    text = read("README.md")

    assert '{"tool": {"toolbox": "dev", "server": "filesystem", "tool": "read_file"}' in text
    assert "tool_name" not in text
    flat = re.findall(r"\w+__\w+__\w+", text)
    assert flat == ["dev__filesystem__read_file"]  # where dynamic mode is explained
    assert text.index(flat[0]) > text.index("**Dynamic mode**")


def test_migration_leads_from_each_of_the_three_places() -> None:
    _, *roads = read("docs/migration.md").split("\n## ")

    assert [road.splitlines()[0] for road in roads] == [
        "From 0.4 names",
        "From flat names",
        "From the TypeScript workbench",
    ]
    for road in roads:
        assert re.findall(r"^\d\. ", road, re.M)[:3] == ["1. ", "2. ", "3. "]


def test_the_search_in_the_migration_finds_the_old_names_and_no_others(tmp_path: Path) -> None:
    [search] = re.findall(r"`(grep [^`]+)`", read("docs/migration.md"))
    old = ["dev__filesystem_read_file", "(prod__memory_store_value)", '"my-box__a_b"']
    new = ["dev__filesystem__read_file", '"test__server__my__special__tool"', "plain_name"]
    (tmp_path / "notes.txt").write_text("\n".join(old + new))

    found = subprocess.run(shlex.split(search), cwd=tmp_path, capture_output=True, text=True)

    assert [line.split(":", 1)[1] for line in found.stdout.splitlines()] == old


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    [built] = folder.glob("*.whl")
    return built


def test_the_wheel_brings_all_that_the_command_needs(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")

    told = subprocess.run(
        [*COMMAND, "explain", "migration"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        encoding="utf-8",
        timeout=30,
    )

    assert wheel.name.startswith(f"mcp_workbench_gateway-{__version__}-")
    assert (tmp_path / "installed" / "mcp_workbench" / "py.typed").exists()
    assert told.stdout.strip() == read("docs/migration.md").strip()


def installed_by(told: Callable[..., str], home: Path) -> dict[str, Any]:
    """Our entry in a host, as this installation of ours writes it."""
    server = {"command": sys.executable, "args": ["-m", "mcp_workbench.demo", "basics"]}
    (home / "workbench-config.json").write_text(json.dumps({"mcpServers": {"basics": server}}))
    (home / "workbench-config.json").chmod(0o600)
    told("install", "cursor", "--yes")
    return json.loads((home / ".cursor" / "mcp.json").read_text())["mcpServers"]["workbench"]


def test_the_wheel_installs_into_a_fresh_environment_and_runs(wheel: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    venv.create(fresh)
    binaries = fresh / ("Scripts" if os.name == "nt" else "bin")
    # Without the network: the wheel is really installed, what it depends on is lent by this environment.
    pip = [sys.executable, "-m", "pip", "--python", str(binaries / "python"), "install"]
    quiet = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, *quiet, str(wheel)], check=True, capture_output=True, timeout=60)
    [site] = fresh.rglob("site-packages")
    (site / "lent.pth").write_text(str(Path(msgspec.__file__).parents[1]))
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    env |= {"MCP_WORKBENCH_HOME": str(tmp_path / "state"), "PYTHONUTF8": "1"}
    env["HOME"] = str(tmp_path)

    def told(*argv: str) -> str:
        return subprocess.run(
            [str(binaries / "mcp-workbench"), *argv],
            cwd=tmp_path,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=True,
        ).stdout

    assert told("version") == f"mcp-workbench {__version__}\n"
    assert told("call", "demo/basics/add", "a:=2", "b:=3") == "5\n"
    assert f'"command": "{binaries / "mcp-workbench"}"' in told("tour")
    entry = installed_by(told, tmp_path)
    assert entry["command"] == str(binaries / "mcp-workbench")
    assert "✔ cursor" in told("doctor")
    where = [str(binaries / "python"), "-c", "import mcp_workbench; print(mcp_workbench.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=env, capture_output=True, text=True).stdout
    assert Path(found.strip()).is_relative_to(site)


def test_the_readme_says_how_to_get_it_from_the_repository_or_the_wheel() -> None:
    lines = [line for _, block in blocks("sh") for line in block.splitlines()]

    for way in ("pipx install .", "uvx --from . mcp-workbench tour", "python -m pip install ."):
        assert any(line.startswith(way) for line in lines)
    assert any("mcp_workbench_gateway-*.whl" in line for line in lines)


def test_the_tree_in_the_architecture_is_the_tree() -> None:
    drawn = read("docs/architecture.md").split("```text\nsrc/mcp_workbench/\n")[1].split("```")[0]
    names: set[str] = set()
    folder = ""
    for line in drawn.splitlines():
        found = re.match(r"(?P<depth>[│ ]*)[├└]── (?P<name>\S+)", line)
        assert found, line
        if not found["depth"]:
            folder = found["name"] if found["name"].endswith("/") else ""
            names.add(found["name"])
        else:
            names.add(folder + found["name"])
    detailed = {name.split("/")[0] for name in names if "/" in name.rstrip("/")}
    real = {file.name for file in SOURCE.glob("*.py")}
    real |= {f"{item.name}/" for item in SOURCE.iterdir() if (item / "__init__.py").exists()}
    for room in detailed:
        real |= {
            f"{room}/{f.name}" for f in (SOURCE / room).glob("*.py") if f.name != "__init__.py"
        }

    assert names == real


def test_every_link_between_the_documents_leads_somewhere() -> None:
    missing = [
        f"{file.name}: {target}"
        for file in DOCUMENTS
        for target in re.findall(r"\]\((?!http|#)([^)#]+)", file.read_text("utf-8"))
        if not (file.parent / target).exists()
    ]

    assert missing == []


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for file in DOCUMENTS:
        text = file.read_text("utf-8")
        for found in re.finditer(rf"^ *```{language}\n(.*?)^ *```", text, re.M | re.S):
            line = text.count("\n", 0, found.start()) + 1
            yield f"{file.relative_to(ROOT)}:{line}", found[1]


@pytest.mark.parametrize("code", [pytest.param(c, id=w) for w, c in blocks("python")])
def test_python_in_the_documents_runs_against_the_demo(code: str, tmp_path: Path) -> None:
    demo_file(tmp_path)

    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=30
    )

    assert ran.stderr == ""
    assert ran.returncode == 0


def commands_shown() -> set[str]:
    """Every `mcp-workbench …` in the documents, in running text and in blocks."""
    whole = "\n".join(re.sub(r"\s*\n\s*", " ", f.read_text("utf-8")) for f in DOCUMENTS)
    shown = re.findall(r"`(mcp-workbench(?: [^`]+)?)`", whole)
    shown += re.findall(r"\$ (mcp-workbench[^\n#]*)", "\n".join(b for _, b in blocks("console")))
    return {" ".join(command.split()) for command in shown}


# What stands for something, and with what a test can fill it.
FILLED = {
    "CODE": "WB-CONF-021",
    " PATH": " workbench-config.json",
    "home/time/get_current_time timezone=Europe/Paris": "demo/basics/add a:=2 b:=3",
    "add time --toolbox home -- uvx": "add time --toolbox home --yes --no-check -- uvx",
    "workbench init": "workbench init --config new.json",
    "new.json --user": "new.json",
    "workbench top URL": "workbench top --help",
    "workbench top": "workbench top --help",  # nothing runs there
    "install HOST": "install cursor --yes",
    "check --host HOST": "check --host cursor",
    "import cursor": "import cursor --yes",
    "workbench undo": "workbench undo --list",
    "login dev/github --principal anna --no-browser": "login --help",  # tests/peers/test_principals.py
    "login TOOLBOX/SERVER": "login",
    "login dev/github": "login",  # with a name in tests/peers/test_sign_in.py
    "logout dev/github": "logout --help",
    "run FILE.py": "run --help",  # with scripts in tests/scripts/test_commands.py
    "secret set NAME": "secret set --help",  # with values in tests/secrets
    "secret remove NAME...": "secret remove --help",
    "lock diff": "lock diff --help",  # and the others with servers in tests/lock
    "lock approve": "lock approve --help",
    "lock reject": "lock reject --help",
    "lock verify": "lock verify --help",
}


@pytest.mark.parametrize("command", sorted(commands_shown() - {"mcp-workbench"}))
def test_a_command_in_the_documents_runs(command: str, tmp_path: Path) -> None:
    demo_file(tmp_path)
    for placeholder, real in FILLED.items():
        command = command.replace(placeholder, real)
    # Nobody's own files are looked at.
    home = {"HOME": str(tmp_path), "MCP_WORKBENCH_HOME": str(tmp_path / "home")}

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **home, "PYTHONUTF8": "1"}
        return forked.run(argv, cwd=tmp_path, env=env, streams=Streams(), timeout=60)

    ran = run(*shlex.split(command)[1:])
    if (tmp_path / "home").exists():  # something may run in the background
        run("down").check_returncode()

    assert (ran.returncode, ran.stderr if ran.returncode else "") == (0, "")


def test_the_steps_of_the_readme_use_names_that_its_earlier_steps_made() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    steps = readme[readme.index("## Use it with your own servers") :]

    ((added, toolbox),) = re.findall(r"`mcp-workbench add (\S+) --toolbox (\S+) -- ", steps)
    (called,) = re.findall(r"`mcp-workbench call ([^/]+/[^/]+)/", steps)

    assert called == f"{toolbox}/{added}"
    assert f"into a toolbox `{toolbox}`" in steps[: steps.index("mcp-workbench call")]


def test_every_target_in_the_documents_is_one_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.M))
    shown = {
        t for f in DOCUMENTS for t in re.findall(r"(?:`|\$ )make ([a-z-]+)", f.read_text("utf-8"))
    }

    assert shown <= targets
    assert {"run", "test"} <= shown


def test_the_pins_are_names_and_versions_only() -> None:
    for line in read("constraints.txt").splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+", line), line
