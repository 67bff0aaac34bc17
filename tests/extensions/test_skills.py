"""Skills behind the workbench: each has its server's address, and its bytes are those of its server."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.core.primitive_names import PrimitiveRef, read_addressed
from mcp_workbench.core.skills import addressed_skill, read_skill, skill_address
from mcp_workbench.core.spec import ServerAddress
from tests.extensions.scenes import Host
from tests.kit.blocking_http_host import HttpHost
from tests.kit.command import serving
from tests.kit.config import program_entry, write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.results import Json, text, use_tool
from tests.kit.servers import EVERYTHING

pytestmark = pytest.mark.usefixtures("forked_commands")

SKILLS = "io.modelcontextprotocol/skills"
LOADS_SKILLS: Json = {"extensions": {SKILLS: {}}}
OWNER = ServerAddress("dev", "one")
DIRECTORY_READ = "resources/directory/read"


def entry(name: str, log: Path, era: str = "modern") -> Json:
    env = {"SKILLS_OF": name, "SKILLS_LOG": str(log)}
    return program_entry(EVERYTHING, era, env=env)


def bench(folder: Path, **more: Any) -> Path:
    """Two servers with equal skills in `dev`, a legacy one, and another one in `ops`."""
    log = folder / "reads"
    dev = {"one": entry("one", log), "two": entry("two", log), "old": entry("old", log, "legacy")}
    boxes = {"dev": {"mcpServers": dev}, "ops": {"mcpServers": {"three": entry("three", log)}}}
    return write_config(folder, {"toolboxes": boxes, **more})


def call_all(host: Host, *servers: str) -> None:
    """Every server is connected, and known from then on."""
    for server in servers or ("one", "two", "old"):
        host.result("tools/call", use_tool(server, "test_simple_text"))


def test_skills_are_listed_and_read_at_their_own_server(tmp_path: Path) -> None:
    with PipeHost(bench(tmp_path), modern=True) as pipe:
        host = Host(pipe, LOADS_SKILLS)
        listed = host.result("skills/list")
        before = (tmp_path / "reads").exists()
        got = [host.result("skills/get", {"uri": one["uri"]})["skill"] for one in listed["skills"]]
        files = [file for one in listed["skills"] for file in one["resources"]]
        contents = [host.read(file["uri"]) for file in files]

    assert [one["uri"] for one in listed["skills"]] == [
        f"skill://{server}/{path}/SKILL.md"
        for server in ("dev/one", "dev/two", "ops/three")
        for path in ("pdf-forms", "git/release")
    ]
    assert (listed["ttlMs"], listed["cacheScope"]) == (60_000, "public")
    assert "nextCursor" not in listed
    assert not before  # nothing was read ahead of need
    assert got == listed["skills"]
    assert len(files) == 12
    for file, content in zip(files, contents, strict=True):
        body = content["text"].encode()
        assert (content["uri"], len(body)) == (file["uri"], file["size"])
        assert file["digest"] == f"sha256:{sha256(body).hexdigest()}"
    words = [line.split()[0] for line in (tmp_path / "reads").read_text().splitlines()]
    assert words == ["one"] * 4 + ["two"] * 4 + ["three"] * 4


def test_folders_of_skills_are_read_at_their_own_server(tmp_path: Path) -> None:
    with PipeHost(bench(tmp_path), modern=True) as pipe:
        host = Host(pipe, LOADS_SKILLS)
        folder = "skill://dev/two/pdf-forms"
        parts = host.result(DIRECTORY_READ, {"uri": folder})["resources"]
        inside = host.result(DIRECTORY_READ, {"uri": parts[1]["uri"]})["resources"]
        refused = host.request(DIRECTORY_READ, {"uri": f"{folder}/SKILL.md"})

    assert [part["uri"] for part in parts] == [f"{folder}/SKILL.md", f"{folder}/references"]
    assert [part["uri"] for part in inside] == [f"{folder}/references/MORE.md"]
    assert refused["error"]["code"] == -32602


def test_skills_are_declared_once_a_server_is_known_to_have_them(tmp_path: Path) -> None:
    with PipeHost(bench(tmp_path), modern=True) as pipe:
        host = Host(pipe, LOADS_SKILLS)
        before = host.result("server/discover")["capabilities"]
        call_all(host, "old")
        without = host.result("server/discover")["capabilities"]
        call_all(host, "one")
        after = host.result("server/discover")["capabilities"]

    assert SKILLS not in before["extensions"]
    assert SKILLS not in without["extensions"]
    assert after["extensions"][SKILLS] == {"directoryRead": True}


@pytest.mark.parametrize("settings", ["{}", "true", '{"directoryRead": "true"}', "[{}]"])
def test_settings_of_another_form_promise_no_folders(tmp_path: Path, settings: str) -> None:
    one = entry("one", tmp_path / "reads")
    one["env"]["SKILLS_SETTINGS"] = settings
    config = write_config(tmp_path, {"toolboxes": {"dev": {"mcpServers": {"one": one}}}})
    with PipeHost(config, modern=True) as pipe:
        host = Host(pipe, LOADS_SKILLS)
        call_all(host, "one")
        declared = host.result("server/discover")["capabilities"]["extensions"]

    assert declared[SKILLS] == {}


@pytest.fixture(scope="module")
def knows_old(tmp_path_factory: pytest.TempPathFactory, forked_commands: None) -> Iterator[Host]:
    """A host whose legacy server is connected."""
    with PipeHost(bench(tmp_path_factory.mktemp("old")), modern=True) as pipe:
        host = Host(pipe, LOADS_SKILLS)
        call_all(host, "old")
        yield host


@pytest.mark.parametrize(
    "uri",
    [
        "skill://pdf-forms/SKILL.md",  # the server's own
        "skill://dev/one/unknown/SKILL.md",
        "skill://dev/old/pdf-forms/SKILL.md",  # legacy
        "skill://dev/none/pdf-forms/SKILL.md",
        "skill://none/one/pdf-forms/SKILL.md",
    ],
)
def test_an_address_that_names_no_skill_is_refused(knows_old: Host, uri: str) -> None:
    refused = knows_old.request("skills/get", {"uri": uri})

    assert refused["error"]["code"] == -32602


def test_a_legacy_host_has_no_skills(tmp_path: Path) -> None:
    with PipeHost(bench(tmp_path)) as pipe:
        host = Host(pipe, LOADS_SKILLS)
        refused = [host.request(method, {"uri": "x"}) for method in ("skills/list", "skills/get")]
        refused.append(host.request(DIRECTORY_READ, {"uri": "skill://dev/one/pdf-forms"}))
        found = text(host.result("tools/call", search("fill forms")))

    assert [answer["error"]["code"] for answer in refused] == [-32601] * 3
    assert "skill" not in found


def search(query: str, **more: str) -> Json:
    return {"name": "search_tools", "arguments": {"query": query, **more}}


def test_a_search_finds_skills_as_what_they_are(tmp_path: Path) -> None:
    with PipeHost(bench(tmp_path), modern=True) as pipe:
        host = Host(pipe, LOADS_SKILLS)
        call_all(host)
        found = text(host.result("tools/call", search("publish a release", server="one")))
        without = text(Host(pipe).result("tools/call", search("publish a release", server="one")))

    assert found.splitlines()[-1] == (
        "skill release, to be loaded from skill://dev/one/git/release/SKILL.md: "
        "Publish a release of a repository, with one"
    )
    assert "skill" not in without  # such a host could not load it


def test_a_search_finds_skills_of_servers_that_are_not_connected(tmp_path: Path) -> None:
    config = bench(tmp_path)
    with PipeHost(config, modern=True) as pipe:
        Host(pipe, LOADS_SKILLS).result("skills/list")
    with PipeHost(config, modern=True) as pipe:
        found = text(Host(pipe, LOADS_SKILLS).result("tools/call", search("fill forms")))

    assert "skill pdf-forms, to be loaded from skill://dev/one/pdf-forms/SKILL.md: Fill" in found


def test_an_endpoint_shows_the_skills_of_its_toolbox_alone(tmp_path: Path) -> None:
    with serving(bench(tmp_path)) as command:
        http = HttpHost(f"{command.url}/ops", modern=True)
        host = Host(http, LOADS_SKILLS)
        listed = [one["uri"] for one in host.result("skills/list")["skills"]]
        other = host.request("skills/get", {"uri": "skill://dev/one/pdf-forms/SKILL.md"})
        read = host.request("resources/read", {"uri": "skill://dev/one/pdf-forms/SKILL.md"})
        http.close()

    assert [uri.split("/")[3] for uri in listed] == ["three", "three"]
    assert (other["error"]["code"], read["error"]["code"]) == (-32602, -32602)


def test_a_token_shows_the_skills_of_its_toolboxes_alone(tmp_path: Path) -> None:
    tokens = {"ops": {"token": "x" * 32, "toolboxes": ["ops"]}}
    config = bench(tmp_path, http={"tokens": tokens})
    with serving(config, "0", {"MCP_WORKBENCH_HTTP_TOKEN": "y" * 32}) as command:
        http = HttpHost(command.url, modern=True, token="x" * 32)
        listed = [one["uri"] for one in Host(http, LOADS_SKILLS).result("skills/list")["skills"]]
        http.close()

    assert [uri.split("/")[3] for uri in listed] == ["three", "three"]


def test_a_person_is_asked_before_a_file_of_a_skill_is_read(tmp_path: Path) -> None:
    config = bench(tmp_path, approve=["resource:skill://pdf-forms/*"])
    with PipeHost(config, modern=True) as pipe:
        host = Host(pipe, {**LOADS_SKILLS, "elicitation": {"form": {}}})
        free = host.result("resources/read", {"uri": "skill://dev/one/git/release/SKILL.md"})
        asked = host.result("resources/read", {"uri": "skill://dev/one/pdf-forms/SKILL.md"})

    assert free["contents"]
    assert asked["resultType"] == "input_required"
    assert (tmp_path / "reads").read_text() == "one skill://git/release/SKILL.md\n"


# Addresses


@pytest.mark.parametrize("uri", ["skill://a/SKILL.md", "skill://a/b/c.md", "repo://x/SKILL.md"])
def test_an_address_leads_back_to_its_file(uri: str) -> None:
    assert read_addressed(skill_address(OWNER, uri)) == PrimitiveRef(OWNER, uri)


@pytest.mark.parametrize("uri", ["skill://", "skill://a/SKILL.md", "skill:///a/b", "skill://a//b"])
def test_an_incomplete_address_is_a_uri_like_any_other(uri: str) -> None:
    assert read_addressed(uri) is None


def test_an_entry_keeps_its_bytes_but_for_its_addresses() -> None:
    files = b'[ {"size":1.0, "uri":"skill://a/SKILL.md","digest":"sha256:0"},{"uri":5}]'
    raw = (
        b'{"frontmatter": {"name":"a","n":1e400},"uri":"skill://a/SKILL.md","resources":%b}' % files
    )

    changed = addressed_skill(raw, OWNER)

    assert changed == raw.replace(b"skill://a", b"skill://dev/one/a")


@pytest.mark.parametrize("resources", [b'"dynamic"', b"null", b"5"])
def test_an_entry_without_files_keeps_the_rest(resources: bytes) -> None:
    raw = b'{"uri":"skill://a/SKILL.md","resources":%b}' % resources

    assert addressed_skill(raw, OWNER) == raw.replace(b"skill://a", b"skill://dev/one/a")


@pytest.mark.parametrize(
    "raw",
    [b"{}", b"5", b'{"uri":"skill://a/SKILL.md"}', b'{"uri":5,"frontmatter":{"name":"a"}}'],
)
def test_an_entry_without_a_name_is_not_searched(raw: bytes) -> None:
    assert read_skill(raw) is None
