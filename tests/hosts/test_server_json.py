"""`add` from a server.json: a file, or the answer of a registry on loopback."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shlex import quote
from threading import Thread
from typing import Any

import pytest

from mcp_workbench.config import jsonc
from mcp_workbench.core.errors import InvalidCall
from mcp_workbench.hosts.read import HostServer
from mcp_workbench.hosts.server_json import ValueSource, from_server_json, is_server_json
from tests.kit.command import Person, newcomer

NPM: dict[str, Any] = {
    "registryType": "npm",
    "identifier": "@example/notes",
    "version": "1.2.3",
    "transport": {"type": "stdio"},
    "packageArguments": [
        {"type": "named", "name": "--region", "isRequired": True, "choices": ["eu", "us"]},
        {"type": "positional", "valueHint": "folder", "default": "/data"},
        {"type": "named", "name": "--read-only"},
    ],
    "environmentVariables": [
        {"name": "NOTES_KEY", "isSecret": True, "isRequired": True},
        {"name": "NOTES_URL", "default": "https://example.com"},
        {"name": "NOTES_MODE", "value": "mcp"},
        {"name": "NOTES_EXTRA"},
    ],
}
NOTES: dict[str, Any] = {"name": "com.example/notes", "version": "1.2.3", "packages": [NPM]}


def never(name: str, about: str) -> str:
    raise InvalidCall(f"asked for {name}")


def added(value: Any, installed: str = "", **given: str) -> HostServer:
    assert is_server_json(value)
    values = ValueSource(given, never)
    return from_server_json("", value, values, lambda program: program == installed)


def packaged(**changes: Any) -> dict[str, Any]:
    package = {"identifier": "a-server", "version": "2", **changes}
    return {"name": "com.example/it", "packages": [package]}


def test_a_package_of_npm() -> None:
    server = added(NOTES, region="eu")

    assert (server.name, server.notes) == (
        "notes",
        (
            "from com.example/notes 1.2.3",
            "optional, and left out: NOTES_EXTRA (--set NOTES_EXTRA=VALUE)",
        ),
    )
    assert server.entry == {
        "command": "npx",
        "args": ["-y", "@example/notes@1.2.3", "--region=eu", "/data", "--read-only"],
        "env": {
            "NOTES_KEY": "${NOTES_KEY}",
            "NOTES_URL": "${NOTES_URL:-https://example.com}",
            "NOTES_MODE": "mcp",
        },
    }


def test_a_package_of_pypi_and_its_earlier_spelling() -> None:
    entry = added(packaged(registry_type="pypi", runtime_arguments=[])).entry

    assert entry == {"command": "uvx", "args": ["a-server@2"]}


def test_an_image_gets_its_variables_by_name() -> None:
    variables = [{"name": "KEY", "isSecret": True}]
    image = "ghcr.io/example/it:2"
    value = packaged(registryType="oci", identifier=image, environmentVariables=variables)

    assert added(value).entry == {
        "command": "docker",
        "args": ["run", "-i", "--rm", "-e", "KEY", image],
        "env": {"KEY": "${KEY:-}"},
    }


def test_a_remote_with_variables_in_its_url_and_its_headers() -> None:
    remote = {
        "type": "streamable-http",
        "url": "https://{tenant}.example.com/mcp",
        "variables": {"tenant": {"default": "www"}},
        "headers": [
            {
                "name": "Authorization",
                "value": "Bearer {token}",
                "variables": {"token": {"isSecret": True}},
            },
            {"name": "X-Key", "isRequired": True},
        ],
    }
    server = added({"name": "com.example/it", "remotes": [remote]})

    assert server.entry == {
        "url": "https://${IT_TENANT:-www}.example.com/mcp",
        "headers": {"Authorization": "Bearer ${IT_TOKEN}", "X-Key": "${IT_X_KEY}"},
    }


def test_variables_have_no_variables_of_their_own() -> None:
    inner: dict[str, Any] = {"value": "end"}
    for _ in range(60):
        inner = {"value": "{v}{v}", "variables": {"v": inner}}
    remote = {"type": "sse", "url": "https://x/{v}", "variables": {"v": inner}}
    long = {"v": {"value": "x" * 4000}}
    endless = {"type": "sse", "url": "https://x/" + "{v}" * 1000, "variables": long}

    assert added({"name": "a/b", "remotes": [remote]}).entry["url"] == "https://x/{v}{v}"
    with pytest.raises(InvalidCall, match="its variables would fill the entry"):
        added({"name": "a/b", "remotes": [endless]})


def test_what_is_installed_comes_first() -> None:
    uvx = {"registryType": "pypi", "identifier": "notes", "version": "1"}
    value = {**NOTES, "packages": [NPM, uvx]}

    assert added(value, installed="uvx").entry["command"] == "uvx"
    assert added(value, installed="npx", region="us").entry["command"] == "npx"


@pytest.mark.parametrize(
    ("value", "given", "reason"),
    [
        (NOTES, {}, "asked for region"),
        (NOTES, {"region": "asia"}, "region can't be 'asia'"),
        (NOTES, {"region": "eu", "nothing": "1"}, "has no value called nothing"),
        (packaged(registryType="nuget"), {}, "kinds that are not supported: nuget"),
        ({"name": "com.example/it", "remotes": []}, {}, "no package and no remote"),
        (
            {
                "server": NOTES,
                "_meta": {"io.modelcontextprotocol.registry/official": {"status": "deleted"}},
            },
            {},
            "the registry has deleted it",
        ),
    ],
)
def test_what_can_not_be_added(value: Any, given: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidCall, match=reason):
        added(value, **given)


# The command


@pytest.fixture
def person(tmp_path: Path) -> Person:
    """Somebody whose `npx` starts the demo, whatever the package."""
    programs = tmp_path / "bin"
    programs.mkdir()
    npx = programs / "npx"
    npx.write_text(f"#!/bin/sh\nexec {quote(sys.executable)} -P -m mcp_workbench.demo basics\n")
    npx.chmod(0o755)
    return newcomer(tmp_path)._replace(path=f"{programs}:/usr/bin:/bin")


def servers(person: Person) -> dict[str, Any]:
    file = person.home / ".config" / "mcp-workbench" / "config.json"
    value: Any = jsonc.parse(file.read_text())
    return value["toolboxes"]["default"]["mcpServers"]


def test_a_file_is_added_and_its_server_tried(person: Person) -> None:
    (person.folder / "server.json").write_text(json.dumps(NOTES))

    lacking = person.types("add", "server.json", "--yes")
    unset = person.types("add", "server.json", "--set", "region=eu", "--yes")
    done = person.types("add", "mine", "server.json", "--set", "region=eu", "--yes", NOTES_KEY="k")

    assert (lacking.status, "fix: --set region=VALUE" in lacking.err) == (2, True)
    assert (unset.status, "NOTES_KEY" in unset.err) == (4, True)
    assert (done.status, list(servers(person))) == (0, ["mine"])
    assert "✔ default/mine: demo-basics 1.0.0, 4 tools" in done.err


def test_a_file_of_a_host_is_added_as_well(person: Person) -> None:
    entry = {"command": "npx", "args": ["it"]}
    (person.folder / "some.json").write_text(json.dumps({"mcpServers": {"it": entry}}))

    assert person.types("add", "some.json", "--yes").status == 0
    assert servers(person) == {"it": entry}
    wrong = person.types("add", "x", "--set", "a=b", "--yes", "--", "npx")
    assert (wrong.status, "--set gives values to a server.json" in wrong.err) == (2, True)


@contextmanager
def registry(answers: dict[str, tuple[int, bytes]]) -> Generator[str]:
    """A registry on loopback that has these answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, data = answers.get(self.path, (404, b"{}"))
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_a_registry_is_asked_for_the_latest_or_a_version(person: Person) -> None:
    base = "/v0.1/servers/com.example%2Fnotes/versions"
    older = {**NOTES, "packages": [{**NPM, "version": "1.0.0"}]}
    answers = {
        f"{base}/latest": (200, json.dumps({"server": NOTES, "_meta": {}}).encode()),
        f"{base}/1.0.0": (200, json.dumps({"server": older}).encode()),
        "/v0.1/servers/com.example%2Fbroken/versions/latest": (200, b"<html>"),
        "/v0.1/servers/com.example%2Fdeep/versions/latest": (200, b"[" * 100_000),
        "/v0.1/servers/com.example%2Fodd/versions/latest": (200, b'{"server":"\xff"}'),
        "/v0.1/servers/com.example%2Fdown/versions/latest": (503, b""),
    }
    more = ("--set", "region=eu", "--yes", "--no-check")
    with registry(answers) as url:
        variable = {"MCP_WORKBENCH_ADD_REGISTRY": url}
        newest = person.types("add", "com.example/notes", "--registry", url, *more)
        named = person.types("add", "old", "com.example/notes@1.0.0", *more, **variable)
        command = person.types("add", "plain", "npx", "--yes", **variable)
        failed = [
            person.types("add", f"com.example/{name}", "--json", *more, **variable).failure["code"]
            for name in ("broken", "deep", "odd", "down", "unknown")
        ]

    assert (newest.status, named.status, command.status) == (0, 0, 0)
    assert [servers(person)[name]["args"][1] for name in ("notes", "old")] == [
        "@example/notes@1.2.3",
        "@example/notes@1.0.0",
    ]
    assert failed == [*["WB-HOST-518"] * 4, "WB-CLI-003"]
    gone = person.types("add", "com.example/notes", "--registry", url, "--json", *more)
    assert gone.failure["code"] == "WB-HOST-518"
