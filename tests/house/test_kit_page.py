"""The page of the kit names what there is, and what there is says what it is for."""

import ast
import re
from pathlib import Path

KIT = Path(__file__).parents[1] / "kit"
PAGE = (KIT / "README.md").read_text("utf-8")
MODULES = sorted(path for path in KIT.glob("*.py") if path.name != "__init__.py")


def public(file: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    nodes = ast.parse(file.read_text("utf-8")).body
    return [
        node
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
    ]


def test_the_page_has_every_module_and_server() -> None:
    servers = [
        path.relative_to(KIT / "servers")
        for path in (KIT / "servers").rglob("*.py")
        if path.parent.name != "everything" and path.name != "__init__.py"
    ]
    missing = [path.name for path in MODULES if f"`{path.name}`" not in PAGE]
    assert missing == []
    assert [str(path) for path in servers if f"`{path.name}`" not in PAGE] == []


def test_what_the_page_names_is_there() -> None:
    for line in re.findall(r"^\| .* \| `\w+\.py` \|$", PAGE, re.M):
        _, _, names, file, _ = line.split("|")
        text = (KIT / file.strip().strip("`")).read_text("utf-8")
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^(?:async )?(?:def|class) {name}\b|^{name}\b.*=", text, re.M), name


def test_everything_says_what_it_is_for() -> None:
    silent = [
        f"{path.name}: {node.name}"
        for path in MODULES
        for node in public(path)
        if not ast.get_docstring(node)
    ]
    assert silent == []
