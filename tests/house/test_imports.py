"""What the house forbids: slow starts, large files, tasks that nobody owns."""

import ast
import json
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

from tests.makers import unmeasured

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "mcp_workbench"
MODULES = sorted(SOURCE.rglob("*.py"))

SERVE = """
import sys
sys.argv = ["mcp-workbench", "serve", "--config", sys.argv[1]]
before = set(sys.modules)
import os, atexit
def tell():
    loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
    ours = {name for name in sys.modules if name.startswith("mcp_workbench")}
    os.write(2, ("MODULES " + " ".join(sorted(loaded | ours)) + "\\n").encode())
atexit.register(tell)
from mcp_workbench.cli.main import main
main()
"""
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    },
}

# Beside the standard library, serving needs the codec, the loop and ourselves. The codec takes
# typing_extensions where they are installed; cython_runtime is a part of the loop.
ALLOWED = {"mcp_workbench", "msgspec", "uvloop", "typing_extensions", "cython_runtime"}
# Of the standard library, what is slow to load and not needed to serve (the codec takes decimal and uuid).
TOO_SLOW = {
    "argparse", "csv", "dataclasses", "difflib", "email", "html", "http", "importlib_metadata",
    "json", "multiprocessing", "pdb", "pkgutil", "pydoc", "sqlite3", "statistics", "tempfile", "tomllib",
    "unittest", "urllib", "xml", "zipfile",
}  # fmt: skip


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The modules that `serve` has loaded by the time that its host leaves, right after initialize."""
    config = tmp_path_factory.mktemp("imports") / "workbench-config.json"
    config.write_text(json.dumps({"mcpServers": {"a": {"command": "true"}}}))
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(config)],
        input=json.dumps(INITIALIZE).encode() + b"\n",
        capture_output=True,
        timeout=30,
        env=unmeasured(),
    )
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "mcp-workbench"
    told = next(line for line in done.stderr.decode().splitlines() if line.startswith("MODULES "))
    return set(told.split()[1:])


def test_serving_loads_only_what_it_needs(loaded: set[str]) -> None:
    tops = {name.partition(".")[0] for name in loaded}
    foreign = {
        name for name in tops - sys.stdlib_module_names - ALLOWED if not name.startswith("_")
    }

    assert foreign == set()
    assert tops & TOO_SLOW == set()
    assert tops >= {"asyncio", "msgspec", "mcp_workbench"}  # otherwise this measures nothing


def test_serving_loads_neither_commands_nor_the_demo(loaded: set[str]) -> None:
    ours = {name for name in loaded if name.startswith("mcp_workbench.")}

    assert not {name for name in ours if name.startswith("mcp_workbench.demo")}
    assert {name for name in ours if name.startswith("mcp_workbench.cli.")} == {
        "mcp_workbench.cli.main"
    }
    assert not ours & {
        "mcp_workbench.core.codes",
        "mcp_workbench.core.jsonc",
        "mcp_workbench.config.places",
        "mcp_workbench.config.embedded",
        "mcp_workbench.config.likeness",
        "mcp_workbench.config.state_folder",
        "mcp_workbench.downstream.catalogue_files",
    }


def short(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("module", MODULES, ids=short)
def test_a_file_is_one_idea_says_which_and_is_not_long(module: Path) -> None:
    text = module.read_text()
    docstring = ast.get_docstring(ast.parse(text))

    assert docstring
    assert len(docstring.splitlines()[0]) <= 100
    assert text.count("\n") <= 300


def starts_a_task(node: ast.AST) -> bool:
    """Is this `….create_task` or `….ensure_future`, other than of an `asyncio.TaskGroup` called group?"""
    if not isinstance(node, ast.Attribute) or node.attr not in ("create_task", "ensure_future"):
        return False
    return not (isinstance(node.value, ast.Name) and node.value.id == "group")


@pytest.mark.parametrize("module", MODULES, ids=short)
def test_work_is_started_through_a_scope_alone(module: Path) -> None:
    starts = any(map(starts_a_task, ast.walk(ast.parse(module.read_text()))))

    assert starts == (short(module) == "wire/tasks.py")


@pytest.mark.parametrize("module", MODULES, ids=short)
def test_a_lifetime_is_entered_by_its_block_alone(module: Path) -> None:
    calls = [
        node
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("__aenter__", "__aexit__", "__enter__", "__exit__")
    ]

    assert calls == [] or short(module) == "wire/tasks.py"


def broad_excepts(module: Path) -> int:
    handlers = [
        n for n in ast.walk(ast.parse(module.read_text())) if isinstance(n, ast.ExceptHandler)
    ]
    return sum(
        handler.type is None
        or (
            isinstance(handler.type, ast.Name) and handler.type.id in ("Exception", "BaseException")
        )
        for handler in handlers
    )


def test_a_broad_except_stands_only_at_the_borders() -> None:
    found = {short(module) for module in MODULES if broad_excepts(module)}

    assert found <= {
        "wire/child.py",  # a child is ended whatever happens
        "wire/http_connection.py",  # a fault while answering costs one request
        "wire/stdio.py",  # a descriptor is closed whatever happens
        "downstream/connection.py",  # any failure becomes a state
        "downstream/conversation.py",  # nothing that a server says may raise
        "surface/errands.py",  # a fault of ours costs one request
        "surface/session.py",  # nothing that a host says may raise
    }


@pytest.mark.parametrize("module", MODULES, ids=short)
def test_nothing_is_left_to_do(module: Path) -> None:
    with tokenize.open(module) as file:
        comments = [
            token.string
            for token in tokenize.generate_tokens(file.readline)
            if token.type == tokenize.COMMENT
        ]

    assert not [text for text in comments if any(w in text for w in ("TODO", "FIXME", "XXX"))]
