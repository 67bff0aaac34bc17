"""Scripts in dynamic mode, where a host knows tools by their flat names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.config import config_file, demo_server, entry
from tests.kit.pipe_host import PipeHost
from tests.kit.results import texts
from tests.kit.tokens import o200k_tokens
from tests.scripts.scenes import failure, recorded, script, scripted, value

MOST_TOKENS = 160  # of the definition, as in proxy mode


@pytest.fixture(scope="module", params=[False, True], ids=["legacy", "modern"])
def host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PipeHost]:
    folder = tmp_path_factory.mktemp("dynamic")
    servers = {"basics": demo_server(), "a": entry(resultBudget=1000)}
    config = scripted(folder, servers, toolMode="dynamic")
    with PipeHost(config, modern=request.param, cwd=folder) as host:
        yield host.handshake()


def test_run_script_is_listed_and_speaks_of_flat_names(host: PipeHost) -> None:
    tools = {tool["name"]: tool for tool in host.result("tools/list")["tools"]}
    shown = {key: tools["run_script"][key] for key in ("name", "description", "inputSchema")}

    assert list(tools)[:3] == ["open_toolbox", "run_script", "read_result"]
    assert 'call("toolbox__server__tool", arg=1)' in shown["description"]
    assert o200k_tokens(json.dumps(shown, ensure_ascii=False)) <= MOST_TOKENS


@pytest.mark.parametrize("name", ["dev__basics__add", "dev/basics/add"])
def test_a_script_calls_tools_by_either_name_without_opening_anything(
    host: PipeHost, name: str
) -> None:
    assert value(script(host, f"await call({name!r}, a=2, b=3)")) == 5


def test_an_unknown_flat_name_says_what_there_is(host: PipeHost) -> None:
    told = failure(script(host, "await call('dev__basics__ad', a=2, b=3)"))

    assert "Did you mean 'add'?" in told


def test_an_answer_that_is_cut_is_read_on(host: PipeHost) -> None:
    shown, notice = texts(script(host, "await call('dev__a__big', n=5000)"))
    rest = host.call("read_result", json.loads(notice.partition("read_result ")[2]))

    assert len(shown) == 1000
    assert set(texts(rest)[0]) == {"x"}


def test_calls_are_on_record_under_their_parts(tmp_path: Path) -> None:
    config = scripted(tmp_path, {"basics": demo_server()}, toolMode="dynamic")
    with PipeHost(config) as host:
        script(host.handshake(), "await call('dev__basics__add', a=2, b=3)")

    (line,) = recorded(tmp_path)
    assert (line["toolbox"], line["server"], line["tool"]) == ("dev", "basics", "add")
    assert line["parent"]


@pytest.mark.parametrize("more", [{}, {"scripts": True, "naming": "bare"}])
def test_without_scripts_or_with_bare_names_there_is_none(
    tmp_path: Path, more: dict[str, object]
) -> None:
    config = config_file(tmp_path, {"basics": demo_server()}, toolMode="dynamic", **more)
    with PipeHost(config) as host:
        names = [tool["name"] for tool in host.handshake().result("tools/list")["tools"]]
        message = host.answer(host.begin("run_script", {"code": "1"}))

    assert "run_script" not in names
    assert "read_result" not in names
    assert "error" in message or message["result"]["isError"]
