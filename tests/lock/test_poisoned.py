"""Nothing that nobody has approved reaches a host, through any list, search, call or error (S1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.core.definition_corpus import POISONED
from tests.kit.pipe_host import PipeHost
from tests.kit.results import Message
from tests.lock.scenes import ANNOUNCE, Scene, opened

TEXTS = [text for kind in POISONED.values() for text in kind]
MARK = "zq7x"  # in every name that is not approved


def poisoned() -> dict[str, list[Message]]:
    """Every text in a tool (description, schema, annotation, name of a parameter), a prompt and a template."""
    schema = [
        {"type": "object", "properties": {"a": {"type": "string", "description": text}}}
        for text in TEXTS
    ]
    tools = [
        {
            "name": f"{MARK}_tool_{number}",
            "description": text,
            "inputSchema": schema[number],
            "annotations": {"title": text},
        }
        for number, text in enumerate(TEXTS)
    ]
    prompts = [
        {"name": f"{MARK}_prompt_{number}", "description": text, "arguments": [{"name": text}]}
        for number, text in enumerate(TEXTS)
    ]
    templates = [
        {"uriTemplate": f"{MARK}{number}://{{id}}", "name": text, "description": text}
        for number, text in enumerate(TEXTS)
    ]
    return {"tools": [ANNOUNCE, *tools], "prompts": prompts, "templates": templates}


def visit(host: PipeHost, *, dynamic: bool) -> None:
    """Everything that a host can ask about definitions."""
    host.request("tools/list")
    host.request("prompts/list")
    host.request("resources/list")
    host.request("resources/templates/list")
    for number in range(0, len(TEXTS), 10):
        if dynamic:
            host.request("tools/call", {"name": f"dev__s__tool_{number}", "arguments": {}})
        else:
            host.use("s", f"tool_{number}")
    host.request("prompts/get", {"name": "dev__s__nothing"})
    reference = {"type": "ref/prompt", "name": "dev__s__nothing"}
    argument = {"name": "a", "value": "x"}
    host.request("completion/complete", {"ref": reference, "argument": argument})
    if not dynamic:
        for detail in ("full", "schema", "signature", "names"):
            host.call("open_toolbox", {"toolbox_name": "dev", "detail": detail})
        host.call("search_tools", {"query": "read ssh id_rsa secret user instructions ignore"})


def received(scene: Scene, *, dynamic: bool) -> str:
    """All that a host of each era receives."""
    lines: list[bytes] = []
    for modern in (False, True):
        options = ["--toolbox", "dev"] if dynamic else []
        with scene.host(*options, modern=modern) as host:
            if not modern:
                opened(host, elicitation={})
            visit(host, dynamic=dynamic)
        lines += host.lines
    return b"\n".join(lines).decode()


def leaked(whole: str) -> list[str]:
    """The texts that are in there, in any of the ways in which JSON is written into JSON."""
    forms = {
        text: (text, json.dumps(text)[1:-1], json.dumps(json.dumps(text)[1:-1])[1:-1])
        for text in TEXTS
    }
    return [text for text, written in forms.items() if any(form in whole for form in written)]


@pytest.mark.parametrize("mode", ["proxy", "dynamic"])
@pytest.mark.parametrize("known", [False, True])
def test_no_byte_of_an_unapproved_definition_reaches_a_host(
    tmp_path: Path, mode: str, *, known: bool
) -> None:
    scene = Scene(tmp_path, "review", toolMode=mode)
    if known:  # the server is approved, and then defines something else
        scene.define(
            tools=[ANNOUNCE], prompts=[{"name": "p"}], templates=[{"uriTemplate": "a://{x}"}]
        )
        assert scene.decide("approve", "dev/s", scene.shown_hash()) == 0
    scene.define(**poisoned(), instructions=" ".join(TEXTS))
    whole = received(scene, dynamic=mode == "dynamic")
    found = leaked(whole)

    print(f"{mode}: {len(found)} of {len(TEXTS)} texts, {len(whole)} characters received")
    assert len(TEXTS) >= 50
    assert found == []
    assert MARK not in whole
    assert "quarantined" in whole or known


def test_without_a_level_all_of_them_would(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "record")
    scene.define(**poisoned(), instructions=" ".join(TEXTS))

    assert leaked(received(scene, dynamic=False)) == TEXTS
