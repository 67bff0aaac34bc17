"""A request on somebody's behalf is written to a server's connection in one place, by its route."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mcp_workbench

pytestmark = pytest.mark.lint
SOURCE = Path(mcp_workbench.__file__).parent
# Who builds the frame of a request. The routes send what is asked on somebody's behalf; all others are
# requests of our own: the handshake, lists, subscriptions, log levels.
BUILDERS = {
    "cluster/placed_process.py": {"PlacedProcess._send_own"},
    "gateway/routes.py": {"Route._frame", "Route.send", "Route.send_on"},
    "upstream/conversation.py": {"Conversation.begin"},
    "upstream/subscriptions.py": {"listen", "ConnectionSubscriptions._send_request"},
    "upstream/http/responses.py": {"Exchange.learn_headers"},
    "upstream/http/link.py": {"SessionOpener.renew"},
}
OF_OTHERS = ("tools/call", "prompts/get", "resources/read", "completion/complete")


def functions(tree: ast.Module) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    found[f"{node.name}.{inner.name}"] = inner
    return found


def builds_a_request(node: ast.AST) -> bool:
    """Does it call `jsonrpc.request`, or write the start of one itself?"""
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and ast.unparse(one.func) == "jsonrpc.request":
            return True
        if (
            isinstance(one, ast.Constant)
            and isinstance(one.value, bytes)
            and b'"id":%d' in one.value
        ):
            return True
    return False


def test_only_the_routes_write_requests_of_others() -> None:
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(("transport/", "demo/")):  # the writer itself, and a server
            continue
        for function, node in functions(ast.parse(path.read_text("utf-8"))).items():
            if builds_a_request(node):
                found.setdefault(name, set()).add(function)

    assert found == BUILDERS


def test_what_is_asked_for_others_stands_nowhere_beside_a_conversation() -> None:
    """Requests of our own have methods of their own."""
    for folder in ("upstream", "protocol"):
        for path in (SOURCE / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                is_ask = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
                    (".ask", ".begin")
                )
                if is_ask and isinstance(node, ast.Call):
                    texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
                    assert not set(texts) & set(OF_OTHERS), path
