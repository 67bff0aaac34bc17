"""What the house forbids: slow starts, large files, tasks that nobody owns."""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.processes import unmeasured

pytestmark = pytest.mark.lint
ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "mcp_workbench"
LONGEST = 600  # lines of a file; one subject rarely needs 400

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

# Beside the standard library, serving needs the codec, the loop and ourselves. cython_runtime is a part
# of the loop.
ALLOWED = {"mcp_workbench", "msgspec", "uvloop", "cython_runtime"}
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
    assert not ours & {"mcp_workbench.core.error_codes", "mcp_workbench.config.jsonc"}
    assert not {name for name in ours if name.startswith("mcp_workbench.config.secret_")}
    assert "hashlib" not in loaded  # the files of the cache
    assert not {name for name in ours if name.endswith((".definition_warnings", ".phrases"))}


class Module(NamedTuple):
    """One file of ours, read once for all rules."""

    name: str
    text: str
    tree: ast.Module


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    paths = sorted(SOURCE.rglob("*.py"))
    texts = [(path.relative_to(SOURCE).as_posix(), path.read_text("utf-8")) for path in paths]
    return [Module(name, text, ast.parse(text)) for name, text in texts]


def offenders(modules: list[Module], breaks: Callable[[Module], bool]) -> list[str]:
    """All files that break a rule. There are files: otherwise this shows nothing."""
    assert len(modules) > 100
    return [module.name for module in modules if breaks(module)]


def test_a_file_is_one_idea_and_says_which(modules: list[Module]) -> None:
    def first_line(module: Module) -> str:
        return (ast.get_docstring(module.tree) or "").partition("\n")[0]

    assert offenders(modules, lambda module: not 0 < len(first_line(module)) <= 100) == []


def test_a_file_is_not_long(modules: list[Module]) -> None:
    assert offenders(modules, lambda module: module.text.count("\n") > LONGEST) == []


def starts_a_task(node: ast.AST) -> bool:
    """Is this `….create_task` or `….ensure_future`, other than of an `asyncio.TaskGroup` called group?"""
    if not isinstance(node, ast.Attribute) or node.attr not in ("create_task", "ensure_future"):
        return False
    return not (isinstance(node.value, ast.Name) and node.value.id == "group")


def test_work_is_started_through_a_scope_alone(modules: list[Module]) -> None:
    started = offenders(modules, lambda module: any(map(starts_a_task, ast.walk(module.tree))))

    assert started == ["transport/tasks.py"]


def enters_by_hand(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("__aenter__", "__aexit__", "__enter__", "__exit__")
    )


def test_a_lifetime_is_entered_by_its_block_alone(modules: list[Module]) -> None:
    entered = offenders(modules, lambda module: any(map(enters_by_hand, ast.walk(module.tree))))

    assert entered in ([], ["transport/tasks.py"])


def is_broad(node: ast.AST) -> bool:
    if not isinstance(node, ast.ExceptHandler):
        return False
    return node.type is None or (
        isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
    )


def test_a_broad_except_stands_only_at_the_borders(modules: list[Module]) -> None:
    found = offenders(modules, lambda module: any(map(is_broad, ast.walk(module.tree))))

    assert (
        set(found)
        <= {
            "transport/process.py",  # a child is ended whatever happens
            "transport/http/server.py",  # a fault while answering costs one request
            "transport/stdio.py",  # a descriptor is closed whatever happens
            "upstream/connection.py",  # any failure becomes a state
            "upstream/conversation.py",  # nothing that a server says may raise
            "gateway/interceptors.py",  # an interceptor may be anybody's code
            "server/session.py",  # nothing that a host says may raise, and a fault of ours costs one request
            "server/stdio_front.py",  # the same for a message that is read in steps
        }
    )


def test_nothing_is_left_to_do(modules: list[Module]) -> None:
    def is_unfinished(module: Module) -> bool:
        tokens = tokenize.generate_tokens(io.StringIO(module.text).readline)
        comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
        return any(word in text for text in comments for word in ("TODO", "FIXME", "XXX"))

    assert offenders(modules, is_unfinished) == []


POSSESSIVE = re.compile(r"[)\]][*+?]\+|[)\]]\{[0-9,]+\}\+|\(\?>")


def test_no_expression_is_possessive(modules: list[Module]) -> None:
    """Python 3.11.2, which is Debian's, passes over comments wrongly with a possessive group."""

    def is_possessive(node: ast.AST) -> bool:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str | bytes):
            return False
        value = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
        return bool(POSSESSIVE.search(value))

    assert POSSESSIVE.search(r"(?:/\*.*?\*/)*+")
    assert offenders(modules, lambda module: any(map(is_possessive, ast.walk(module.tree)))) == []


def test_no_two_classes_share_a_name(modules: list[Module]) -> None:
    homes: dict[str, list[str]] = {}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module.name)

    assert {name: found for name, found in homes.items() if len(found) > 1} == {}
