"""Each source gives its value to the servers that refer to it, at their launch; one that fails costs those alone."""

from __future__ import annotations

import asyncio
import http.server
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config.expand import (
    Environment,
    expand_target,
    resolve_server,
    secrets_of,
    server_identity,
)
from mcp_workbench.config.load import load_config
from mcp_workbench.config.secret_sources import LONGEST
from mcp_workbench.core.spec import HttpEndpoint, SecretSource, ServerAddress
from tests.kit.clock import PATIENCE, until
from tests.kit.config import entry, tool
from tests.secrets.scenes import (
    PLAINTEXT,
    ROOT,
    bench,
    configured,
    given,
    in_keyring,
    needing,
    private,
    store,
    unavailable,
    variables,
)

VALUE = "a-value-of-some-length"


def prepared(kind: str, folder: Path) -> tuple[Any, dict[str, str]]:
    """A source that has the value, and the environment in which it does."""
    environ = variables(folder, PYTHON_KEYRING_BACKEND=PLAINTEXT)
    if kind == "store":
        store(environ, MY_TOKEN=VALUE)
        return "store", environ
    if kind == "keyring":
        in_keyring(environ, "mcp-workbench", "MY_TOKEN", VALUE)
        return "keyring", environ
    if kind == "named keyring":
        in_keyring(environ, "github", "alice", VALUE)
        return {"keyring": "github", "username": "alice"}, environ
    if kind == "command":
        return {"command": ["printf", f"{VALUE}\\n"]}, environ
    if kind == "own command":
        private(folder / "give", f"#!/bin/sh\necho {VALUE}\n").chmod(0o700)
        return {"command": ["./give"]}, environ
    private(folder / "secret.txt", f"{VALUE}\n")
    return {"file": "secret.txt"}, environ


@pytest.mark.parametrize(
    "kind", ["store", "keyring", "named keyring", "command", "own command", "file"]
)
async def test_a_server_gets_the_value_of_its_secret(kind: str, tmp_path: Path) -> None:
    source, environ = prepared(kind, tmp_path)
    config = configured(tmp_path, {"MY_TOKEN": source}, a=needing("MY_TOKEN"))

    async with asyncio.timeout(PATIENCE), bench(config, environ) as workbench:
        assert (await given(workbench, "a"))["MY_TOKEN"] == VALUE


async def test_a_name_has_one_source_and_the_environment_is_not_it(tmp_path: Path) -> None:
    environ = variables(tmp_path, MY_TOKEN="of-the-environment", OTHER="of-the-environment")
    secrets = {"MY_TOKEN": {"command": ["printf", VALUE]}, "GONE": {"command": ["false"]}}
    environ["GONE"] = "of-the-environment"
    config = configured(
        tmp_path, secrets, a=needing("MY_TOKEN", "OTHER"), b=needing("GONE", inheritEnv=False)
    )

    async with asyncio.timeout(PATIENCE), bench(config, environ) as workbench:
        got = await given(workbench, "a")
        reason = await unavailable(workbench, "b")

    assert (got["MY_TOKEN"], got["OTHER"]) == (VALUE, "of-the-environment")
    assert "WB-SEC-602" in reason


async def test_a_secret_goes_to_the_servers_that_refer_to_it_and_to_no_other(
    tmp_path: Path,
) -> None:
    secrets = {"ONE": {"command": ["printf", VALUE]}, "TWO": {"command": ["printf", f"2{VALUE}"]}}
    config = configured(
        tmp_path, secrets, a=needing("ONE"), b=entry(inheritEnv=True), c=needing("TWO")
    )

    async with asyncio.timeout(PATIENCE), bench(config, variables(tmp_path)) as workbench:
        got = {server: await given(workbench, server) for server in ("a", "c", "b")}

    assert VALUE in got["a"].values()
    assert not {"ONE", "TWO"} & set(got["b"])
    assert not {VALUE, f"2{VALUE}"} & set(got["b"].values())


async def test_a_command_gets_our_environment_but_not_our_settings(tmp_path: Path) -> None:
    environ = variables(
        tmp_path, VAULT_ADDR="https://vault", MCP_WORKBENCH_HTTP_TOKEN="ours", GPG_TTY="/dev/pts/0"
    )
    show = 'echo "$VAULT_ADDR,$MCP_WORKBENCH_HTTP_TOKEN,$GPG_TTY,$(cat)"'
    config = configured(tmp_path, {"IT": {"command": ["sh", "-c", show]}}, a=needing("IT"))

    async with asyncio.timeout(PATIENCE), bench(config, environ) as workbench:
        assert (await given(workbench, "a"))["IT"] == "https://vault,,,"


BROKEN: dict[str, tuple[Any, str, str]] = {
    "no such program": ({"command": ["no-such-program"]}, "WB-SEC-602", "command not found"),
    "a failing program": ({"command": ["false"]}, "WB-SEC-602", "exit status 1"),
    "no output": ({"command": ["true"]}, "WB-SEC-602", "empty"),
    "endless output": ({"command": ["yes"]}, "WB-SEC-602", "printed more than"),
    "too long": (
        {"command": [sys.executable, "-c", f"print('x' * {LONGEST + 1})"]},
        "WB-SEC-602",
        "too long",
    ),
    "no text": ({"command": ["printf", "\\377\\376"]}, "WB-SEC-602", "not UTF-8"),
    "a slow program": ({"command": ["sleep", "60"], "timeout": 0.5}, "WB-SEC-602", "within 0.5 s"),
    "a shell's line": ({"command": ["echo hi"]}, "WB-SEC-602", "command not found"),
    "no file": ({"file": "none"}, "WB-SEC-603", "No such file"),
    "a folder": ({"file": "."}, "WB-SEC-603", "is not a file"),
    "a file for all": ({"file": "open.txt"}, "WB-SEC-603", "chmod 600"),
    "an empty store": ("store", "WB-SEC-604", "secret set BAD"),
    "an empty keyring": ("keyring", "WB-SEC-601", "keyring set mcp-workbench BAD"),
}


async def test_a_folder_of_the_path_may_be_closed(tmp_path: Path) -> None:
    """As a PATH that was taken over from another user has it; root may enter every folder."""
    (tmp_path / "closed").mkdir(mode=0)
    path = f"{tmp_path / 'closed'}{os.pathsep}{os.environ['PATH']}"
    config = configured(tmp_path, {"BAD": {"command": ["no-such-program"]}}, bad=needing("BAD"))

    async with (
        asyncio.timeout(PATIENCE),
        bench(config, variables(tmp_path, PATH=path)) as workbench,
    ):
        assert "command not found: no-such-program" in await unavailable(workbench, "bad")


@pytest.mark.parametrize("case", BROKEN)
async def test_a_source_that_fails_costs_its_server_alone(case: str, tmp_path: Path) -> None:
    source, code, words = BROKEN[case]
    (tmp_path / "open.txt").write_text(VALUE)
    (tmp_path / "open.txt").chmod(0o640)
    environ = variables(tmp_path, PYTHON_KEYRING_BACKEND=PLAINTEXT)
    secrets = {"BAD": source, "GOOD": {"command": ["printf", VALUE]}}
    config = configured(tmp_path, secrets, bad=needing("BAD"), good=needing("GOOD"), plain=entry())

    async with asyncio.timeout(PATIENCE), bench(config, environ) as workbench:
        reason = await unavailable(workbench, "bad")
        assert (await given(workbench, "good"))["GOOD"] == VALUE
        await workbench.use_tool(tool("plain", "echo"), {"text": "hi"})

    assert reason.startswith("secret BAD: ")
    assert code in reason
    assert words in reason
    assert "toolboxes.dev.mcpServers.bad.env.BAD; fix: " in reason
    assert VALUE not in reason


KEYRINGS = {
    "keyring.backends.fail.Keyring": "no keyring here",
    "tests.secrets.keyrings.Locked": "the keyring is locked",
    "tests.secrets.keyrings.Asking": "gives no value",
    "tests.secrets.keyrings.Hanging": "has not answered within",
    "no.such.Keyring": "has failed",
}


@pytest.mark.parametrize("backend", KEYRINGS)
async def test_a_keyring_that_is_missing_locked_or_waits_costs_its_server(
    backend: str, tmp_path: Path
) -> None:
    environ = variables(tmp_path, PYTHON_KEYRING_BACKEND=backend, PYTHONPATH=str(ROOT))
    timeout = 1 if "Hanging" in backend else 30
    secrets = {"BAD": {"keyring": "it", "timeout": timeout}}
    config = configured(tmp_path, secrets, bad=needing("BAD"), plain=entry())

    async with asyncio.timeout(PATIENCE), bench(config, environ) as workbench:
        reason = await unavailable(workbench, "bad")
        await workbench.use_tool(tool("plain", "echo"), {"text": "hi"})

    assert KEYRINGS[backend] in reason
    assert "WB-SEC-601" in reason
    assert "secret-of-the-keyring" not in reason


# Beside the loop


def gated(folder: Path, gate: str) -> list[str]:
    """A command that notes its start, and ends when this file is there."""
    script = (
        'echo started >> "$1.starts"; while [ ! -e "$1" ]; do sleep 0.02; done; echo a-gated-value'
    )
    return ["sh", "-c", script, "sh", str(folder / gate)]


async def test_others_are_served_while_a_secret_is_being_read(tmp_path: Path) -> None:
    secrets = {"SLOW": {"command": gated(tmp_path, "gate")}}
    config = configured(tmp_path, secrets, slow=needing("SLOW"), plain=entry())

    async with asyncio.timeout(PATIENCE), bench(config, variables(tmp_path)) as workbench:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(given(workbench, "slow"))
            await workbench.use_tool(tool("plain", "echo"), {"text": "hi"})
            assert not waiting.done()
            (tmp_path / "gate").touch()
        assert waiting.result()["SLOW"] == "a-gated-value"


async def test_servers_that_start_together_read_a_secret_once(tmp_path: Path) -> None:
    secrets = {"SLOW": {"command": gated(tmp_path, "gate")}}
    names = [f"s{n}" for n in range(5)]
    config = configured(tmp_path, secrets, **{name: needing("SLOW") for name in names})

    async with asyncio.timeout(PATIENCE), bench(config, variables(tmp_path)) as workbench:
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(given(workbench, name)) for name in names]
            await until((tmp_path / "gate.starts").exists)
            (tmp_path / "gate").touch()
        assert {task.result()["SLOW"] for task in waiting} == {"a-gated-value"}

    assert (tmp_path / "gate.starts").read_text() == "started\n"


async def test_nothing_is_read_before_a_server_starts(tmp_path: Path) -> None:
    secrets = {"SLOW": {"command": gated(tmp_path, "gate")}}
    config = configured(tmp_path, secrets, slow=needing("SLOW"), plain=entry())

    async with asyncio.timeout(PATIENCE), bench(config, variables(tmp_path)) as workbench:
        await workbench.use_tool(tool("plain", "echo"), {"text": "hi"})
        workbench.health()
        workbench.reload(workbench.snapshot)

    assert not (tmp_path / "gate.starts").exists()


# What follows from secrets


async def test_a_reload_keeps_a_server_until_the_source_of_its_secret_changes(
    tmp_path: Path,
) -> None:
    environ = variables(tmp_path)
    config = configured(tmp_path, {"IT": {"command": ["printf", VALUE]}}, a=needing("IT"))
    other = tmp_path / "other"
    other.mkdir()
    changed = configured(other, {"IT": {"command": ["printf", f"2{VALUE}"]}}, a=needing("IT"))

    async with asyncio.timeout(PATIENCE), bench(config, environ) as workbench:
        before = await given(workbench, "a")
        same = workbench.reload(load_config(config, environ))
        second = workbench.reload(load_config(changed, environ))
        after = await given(workbench, "a")

    assert same.plan.changed == ()
    assert [str(address) for address in second.plan.changed] == ["dev/a"]
    assert (before["IT"], after["IT"]) == (VALUE, f"2{VALUE}")


async def test_what_identifies_a_server_has_no_value_of_a_secret(tmp_path: Path) -> None:
    environ = Environment(variables(tmp_path, PLAIN="plain-value"))
    secrets = {"IT": {"command": ["printf", VALUE]}}
    server = entry("--root", "${IT}/${PLAIN}", env={"IT": "${IT}"})
    config = configured(tmp_path, secrets, a=server)
    spec = load_config(config, environ).toolbox("dev").server("a")
    unread = (server_identity(spec, environ, ""), resolve_server(spec, environ))

    await environ.prepare(spec)

    assert expand_target(spec, environ).args[-1] == f"{VALUE}/plain-value"  # type: ignore[union-attr]
    assert (server_identity(spec, environ, ""), resolve_server(spec, environ)) == unread
    target = resolve_server(spec, environ)[0]
    assert target.args[-1] == "${IT}/plain-value"  # type: ignore[union-attr]
    assert VALUE not in repr((spec, environ, spec.secrets))


async def test_a_value_that_was_replaced_is_still_masked(tmp_path: Path) -> None:
    environ = Environment(variables(tmp_path))
    source = SecretSource("command", ("printf", VALUE))
    config = configured(tmp_path, {"IT": {"command": ["printf", VALUE]}}, a=needing("IT"))
    spec = load_config(config, environ).toolbox("dev").server("a")
    await environ.prepare(spec)

    environ.keep("IT", dict(spec.secrets)["IT"], "a-renewed-value")

    assert dict(spec.secrets)["IT"] == source
    assert {VALUE, "a-renewed-value"} <= set(secrets_of(spec, environ))


@contextmanager
def recorder() -> Generator[tuple[str, list[str]]]:
    """A URL, and the `Authorization` of every request to it."""
    seen: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers.get("Authorization", ""))
            self.send_response(403)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - of the library

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on stderr."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp", seen
        server.shutdown()


async def test_a_header_gets_the_value_of_its_secret(tmp_path: Path) -> None:
    with recorder() as (url, seen):
        headers = {"Authorization": "Bearer ${IT}"}
        config = configured(
            tmp_path, {"IT": {"command": ["printf", VALUE]}}, a={"url": url, "headers": headers}
        )
        async with asyncio.timeout(PATIENCE), bench(config, variables(tmp_path)) as workbench:
            await unavailable(workbench, "a")

    assert set(seen) == {f"Bearer {VALUE}"}


async def test_the_secret_of_a_client_comes_from_its_source(tmp_path: Path) -> None:
    environ = Environment(variables(tmp_path))
    auth = {"grant": "client_credentials", "clientId": "me", "clientSecret": "${IT}"}
    server = {"url": "https://example.com/mcp", "auth": auth}
    config = configured(tmp_path, {"IT": {"command": ["printf", VALUE]}}, a=server)
    spec = load_config(config, environ).toolbox("dev").server("a")

    await environ.prepare(spec)
    target = expand_target(spec, environ)

    assert isinstance(target, HttpEndpoint)
    assert target.auth.client_secret == VALUE
    assert secrets_of(spec, environ)[VALUE]
    assert spec.address == ServerAddress("dev", "a")
