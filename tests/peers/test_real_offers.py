"""What the servers that everybody uses offer beside tools, through the workbench."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from crew import crew, make_world
from rawpeer import Peer, Refused, as_python, running, workbench

from tests.kit.results import Json

pytestmark = pytest.mark.peers

OLD_EVERYTHING = "older"  # 2024-11-05, whose resources and prompts collide with nobody's
GRAPH = "memory://knowledge-graph"
DOCUMENT = "demo://resource/static/document/features.md"
SERVERS = ("everything", "memory", OLD_EVERYTHING)


@pytest.fixture(scope="module", params=[False, True], ids=["legacy", "modern"])
async def host(
    request: pytest.FixtureRequest, workplace: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Peer]:
    folder = tmp_path_factory.mktemp("offers")
    everybody = crew(workplace, make_world(folder))
    servers = {name: everybody[name] for name in SERVERS}
    mark = uuid.uuid4().hex
    async with workbench(folder, servers, modern=request.param, tools="proxy", mark=mark) as host:
        await host.call("open_toolbox", {"toolbox_name": "peers"})
        yield host


@pytest.fixture(scope="module")
async def direct(
    workplace: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Json]]:
    """What server-everything itself lists."""
    folder = tmp_path_factory.mktemp("direct")
    entry = crew(workplace, make_world(folder))["everything"]
    async with running([entry["command"], *entry["args"]], folder, modern=False) as server:
        return {
            "prompts": (await server.ask("prompts/list"))["prompts"],
            "resources": (await server.ask("resources/list"))["resources"],
            "document": (await server.ask("resources/read", {"uri": DOCUMENT}))["contents"],
        }


async def test_prompts_come_with_their_arguments(host: Peer, direct: dict[str, list[Json]]) -> None:
    listed = (await host.ask("prompts/list"))["prompts"]
    got = await host.ask("prompts/get", {"name": "peers__everything__simple-prompt"})

    of_everything = [p for p in listed if p["_meta"]["source_server"] == "everything"]
    assert [p["_meta"]["original_name"] for p in of_everything] == [
        p["name"] for p in direct["prompts"]
    ]
    assert [p.get("arguments") for p in of_everything] == [
        p.get("arguments") for p in direct["prompts"]
    ]
    assert got["messages"][0]["content"]["type"] == "text"


async def test_resources_are_listed_and_read_as_they_are(
    host: Peer, direct: dict[str, list[Json]]
) -> None:
    listed = (await host.ask("resources/list"))["resources"]
    read = await host.ask("resources/read", {"uri": DOCUMENT})

    assert listed[: len(direct["resources"])] == direct["resources"]
    assert GRAPH in [resource["uri"] for resource in listed]
    assert read["contents"] == direct["document"]


async def test_a_uri_made_from_a_template_finds_its_server(host: Peer) -> None:
    templates = (await host.ask("resources/templates/list"))["resourceTemplates"]
    read = await host.ask("resources/read", {"uri": "demo://resource/dynamic/text/3"})

    assert "demo://resource/dynamic/text/{resourceId}" in [t["uriTemplate"] for t in templates]
    assert read["contents"][0]["text"].startswith("Resource 3:")


async def test_completion_knows_the_prompt(host: Peer) -> None:
    ref = {"type": "ref/prompt", "name": "peers__everything__completable-prompt"}
    argument = {"name": "department", "value": "S"}

    done = await host.ask("completion/complete", {"ref": ref, "argument": argument})

    assert done["completion"]["values"] == ["Sales", "Support"]


async def test_a_resource_that_nobody_has_is_not_found(host: Peer) -> None:
    with pytest.raises(Refused) as refused:
        await host.ask("resources/read", {"uri": "demo://nowhere"})

    assert refused.value.code == (-32602 if host.modern else -32002)


async def test_a_change_of_the_knowledge_graph_is_heard(host: Peer) -> None:
    if host.modern:
        wanted: Any = {"notifications": {"resourceSubscriptions": [GRAPH]}}
        await host.begin("subscriptions/listen", wanted)
        await host.notice("notifications/subscriptions/acknowledged")
    else:
        await host.ask("resources/subscribe", {"uri": GRAPH})
    entity = {"name": "Ada", "entityType": "person", "observations": ["counts"]}
    identifier = {"toolbox": "peers", "server": "memory", "tool": "create_entities"}
    await host.call("use_tool", {"tool": identifier, "arguments": {"entities": [entity]}})

    heard = as_python(await host.notice("notifications/resources/updated"))

    assert heard["params"]["uri"] == GRAPH
    graph = await host.ask("resources/read", {"uri": GRAPH})
    assert "Ada" in json.dumps(graph["contents"])
