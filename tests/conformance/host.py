"""A host for the suite's client scenarios: it uses all that it is shown of the suite's server.

    python tests/conformance/host.py --era legacy|modern [--slots FOLDER] URL

Between them stands the workbench, on stdio towards this host. The standard library only. The suite starts all its
scenarios at the same time; with slots, each waits for its turn.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import IO, Any, cast

from slots import every_slot, slot

Json = dict[str, Any]
META = "io.modelcontextprotocol/"
INFO: Json = {"name": "conformance-host", "version": "1.0.0"}
CAPABILITIES: Json = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
LOCAL = ["http://localhost:*", "http://127.0.0.1:*"]  # where the suite's authorization servers are
BROWSER = Path(__file__).parent / "browser.py"
ROUNDS = 10
SKILLS = "sep-2640-"  # scenarios
MEASURED = ("sse-retry",)  # scenarios that measure time
METADATA_DOCUMENT = "https://conformance-test.local/client-metadata.json"  # which the suite knows


class Host:
    """One conversation with the workbench."""

    def __init__(self, pipe: subprocess.Popen[bytes], era: str) -> None:
        self._in = cast("IO[bytes]", pipe.stdin)
        self._out = cast("IO[bytes]", pipe.stdout)
        self._modern = era == "modern"
        self._ids = count()

    def open(self) -> Json:
        if self._modern:
            return self.request("server/discover")
        opening = {"protocolVersion": "2025-11-25", "clientInfo": INFO}
        opened = self.request("initialize", {**opening, "capabilities": CAPABILITIES})
        self._send({"method": "notifications/initialized"})
        return opened

    def request(self, method: str, params: Json | None = None) -> Json:
        """The result, or the error; a question on the way is answered."""
        given = params or {}
        result: Json = {}
        for _ in range(ROUNDS):
            result = self._once(method, given)
            if result.get("resultType") != "input_required":
                break
            asked: Json = result.get("inputRequests") or {}
            given = {**(params or {}), "inputResponses": {k: reply(q) for k, q in asked.items()}}
            if "requestState" in result:
                given["requestState"] = result["requestState"]
        return result

    def _once(self, method: str, params: Json) -> Json:
        if self._modern:
            meta = {"protocolVersion": "2026-07-28", "clientInfo": INFO}
            meta["clientCapabilities"] = CAPABILITIES
            params = {**params, "_meta": {META + key: value for key, value in meta.items()}}
        id = next(self._ids)
        self._send({"id": id, "method": method, "params": params})
        for message in self._messages():
            if "method" not in message and message.get("id") == id:
                return message["result"] if "result" in message else message["error"]
        raise SystemExit(f"The workbench left during {method}.")

    def _messages(self) -> Iterator[Json]:
        """What comes, apart from questions: those are answered at once."""
        for line in self._out:
            message: Json = json.loads(line)
            sys.stderr.write(f"< {line.decode()}")
            if "method" in message and "id" in message:
                self._send({"id": message["id"], "result": reply(message)})
            else:
                yield message

    def _send(self, message: Json) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message})
        sys.stderr.write(f"> {line}\n")
        self._in.write(line.encode() + b"\n")
        self._in.flush()


def reply(question: Json) -> Json:
    if question["method"] == "elicitation/create" and question["params"].get("mode") == "url":
        subprocess.Popen([sys.executable, str(BROWSER), question["params"]["url"]])
        return {"action": "accept"}
    if question["method"] == "elicitation/create":
        return {"action": "accept", "content": filled(question["params"]["requestedSchema"])}
    if question["method"] == "sampling/createMessage":
        said = {"type": "text", "text": "Yes"}
        return {"role": "assistant", "content": said, "model": "none"}
    if question["method"] == "roots/list":
        return {"roots": [{"uri": "file:///home/user/project"}]}
    return {}


def filled(schema: Json) -> Json:
    """A form as a user leaves it who changes nothing: defaults, else something that fits."""
    return {key: value_for(kind) for key, kind in schema.get("properties", {}).items()}


def value_for(kind: Json) -> Any:
    if "default" in kind:
        return kind["default"]
    if "enum" in kind:
        return kind["enum"][0]
    some: Json = {"string": "word", "boolean": True, "array": [], "object": {}}
    return some.get(kind.get("type", "string"), 1)


def use(host: Host) -> bool:
    """Everything that is shown, once: tools with the arguments of the scenario, if it has any.

    Were there any tools?
    """
    can: Json = host.open().get("capabilities", {})
    tools: list[Json] = host.request("tools/list").get("tools", [])
    for name, arguments in calls(tools):
        host.request("tools/call", {"name": name, "arguments": arguments})
    if "prompts" in can:
        for prompt in host.request("prompts/list").get("prompts", []):
            host.request("prompts/get", {"name": prompt["name"]})
    if "resources" in can:
        for resource in host.request("resources/list").get("resources", []):
            host.request("resources/read", {"uri": resource["uri"]})
    if os.environ.get("MCP_CONFORMANCE_SCENARIO", "").startswith(SKILLS):
        use_skills(host)
    return bool(tools)


def use_skills(host: Host) -> None:
    """List them, and load each, unless the scenario is about a host that loads none."""
    skills: list[Json] = host.request("skills/list").get("skills", [])
    if os.environ["MCP_CONFORMANCE_SCENARIO"].endswith("no-prefetch"):
        return
    for skill in skills:
        load(host, skill)


def load(host: Host, skill: Json) -> None:
    """Read its files; one that is not what its entry says ends it."""
    for file in sorted(skill["resources"], key=lambda file: file["uri"] != skill["uri"]):
        (content,) = host.request("resources/read", {"uri": file["uri"]})["contents"]
        body = content["text"].encode()
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        if (content["uri"], len(body), digest) != (file["uri"], file["size"], file["digest"]):
            return
        if file["uri"] == skill["uri"] and frontmatter(content["text"]) != skill["frontmatter"]:
            return


def frontmatter(text: str) -> Json:
    """Of the suite's skills, each value is a line."""
    lines = text.split("---\n")[1].splitlines()
    return {key: value for key, _, value in (line.partition(": ") for line in lines)}


def calls(tools: list[Json]) -> Iterator[tuple[str, Json]]:
    shown = {tool["name"]: tool["inputSchema"] for tool in tools}
    context: Json = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    wanted: dict[str, Json] = {
        call["name"]: call["arguments"] for call in context.get("toolCalls", [])
    }
    for name, schema in shown.items():
        if name == "json_schema_echo":  # it wants to see what came of the other tool's schema
            yield name, {"schema": shown["json_schema_2020_12_tool"]}
        else:
            yield name, wanted.get(name, filled(schema))


def credentials(scenario: str, folder: Path) -> Json:
    """What the operator would write for this scenario; files go into the folder of the configuration."""
    context: Json = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    auth: Json = {}
    if "client_id" in context:
        auth["clientId"] = context["client_id"]
    if "client_secret" in context:
        auth["clientSecret"] = context["client_secret"]
    if "private_key_pem" in context:
        key = folder / "client-key.pem"
        key.touch(0o600)
        key.write_text(context["private_key_pem"])
        auth["privateKey"] = key.name
    if scenario.startswith("auth/client-credentials"):
        auth["grant"] = "client_credentials"
    if scenario == "auth/basic-cimd":
        auth["clientMetadataUrl"] = METADATA_DOCUMENT
    return auth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--era", choices=("legacy", "modern"), required=True)
    parser.add_argument("--slots", type=Path)
    parser.add_argument("url")
    given = parser.parse_args()
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    turn = every_slot if scenario in MEASURED else slot
    with nullcontext() if given.slots is None else turn(given.slots):
        play(scenario, given.era, given.url)


def play(scenario: str, era: str, url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "workbench-config.json"
        auth = {"allowedOrigins": LOCAL, **credentials(scenario, file.parent)}
        servers: Json = {"suite": {"url": url, "auth": auth}}
        config = {
            "toolMode": "dynamic",
            "naming": "bare",
            "toolboxes": {"suite": {"mcpServers": servers}},
        }
        file.write_text(json.dumps(config))
        command = [sys.executable, "-m", "mcp_workbench"]
        # Each scenario is another server, on a port that an earlier one may have had: what the
        # workbench remembers of a URL must not reach the next.
        env = {**os.environ, "MCP_WORKBENCH_HOME": str(Path(folder) / "home")}
        env |= {
            "BROWSER": shlex.join([sys.executable, str(BROWSER)]),
            "WORKBENCH_CONFIG": str(file),
        }
        signs_in = scenario.startswith("auth/")
        # A server may want another sign-in later, for example when it changes its authorization server.
        for _ in range(2 if signs_in else 1):
            if signs_in and not login(command, env):
                break
            with subprocess.Popen(
                [*command, "serve", "--verbose"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=env,
            ) as pipe:
                used = use(Host(pipe, era))
                cast("IO[bytes]", pipe.stdin).close()
            if used:
                break


def login(command: list[str], env: dict[str, str]) -> bool:
    """Sign in as a person would who was told to; did that work?"""
    words = [*command, "login", "suite/suite", "--timeout", "10"]
    done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, timeout=30, check=False)
    return done.returncode == 0


if __name__ == "__main__":
    main()
