"""Dynamic mode over the real command: the contract's section "Flat names", sentence by sentence."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.config import entry, write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import pids_in
from tests.kit.results import json_text, texts

pytestmark = pytest.mark.usefixtures("forked_commands")

TOOLS: list[dict[str, Any]] = [
    {
        "name": "read_file",
        "title": "Read",
        "description": "Read a file",
        "inputSchema": {"type": "object", "required": ["path"]},
        "annotations": {"readOnlyHint": True},
        "outputSchema": {"type": "object"},
        "_meta": {"vendor": 1},
        "x-new": [1.5, None],
    },
    {"name": "store_value", "inputSchema": {}},
    {"name": "my__special__tool", "description": "", "inputSchema": {"type": "object"}},
    {"name": "stats", "inputSchema": {"type": "object"}},
]


def config(folder: Path, **more: Any) -> Path:
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    given = f"tools={folder / 'tools.json'}"
    dev = {
        "filesystem": entry(given, toolFilters=["*", "!stats"]),
        "memory": entry(given),
        "dead": entry("exit_start"),
        **more,
    }
    boxes: dict[str, Any] = {
        "dev": {"description": "Development", "mcpServers": dev},
        "prod": {"mcpServers": {"memory": entry()}},
    }
    return write_config(folder, {"toolMode": "dynamic", "toolboxes": boxes})


@pytest.fixture
def host(tmp_path: Path) -> Iterator[PipeHost]:
    """A legacy host that may change what there is."""
    with PipeHost(config(tmp_path)) as host:
        host.initialize()
        yield host


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeHost]:
    """A legacy host for questions that leave no trace; nobody opens a toolbox there.

    Nor does it know what others have cached: its instructions would give an example of that.
    """
    folder = tmp_path_factory.mktemp("asking")
    with PipeHost(config(folder), env={"MCP_WORKBENCH_HOME": str(folder / "home")}) as host:
        host.initialize()
        yield host


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeHost]:
    """A legacy host that has opened `dev`."""
    with PipeHost(config(tmp_path_factory.mktemp("opened"))) as host:
        host.initialize()
        host.open()
        yield host


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeHost]:
    with PipeHost(config(tmp_path_factory.mktemp("modern")), modern=True) as host:
        yield host


def listed(host: PipeHost) -> list[str]:
    return [tool["name"] for tool in host.result("tools/list")["tools"]]


def test_before_anything_is_opened_a_legacy_host_sees_the_meta_tools(asking: PipeHost) -> None:
    assert listed(asking) == ["open_toolbox", "use_tool"]


def test_nothing_is_started_before_it_is_needed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with PipeHost(config(tmp_path, more=entry(env={"PIDFILE": str(pids)}))) as host:
        host.initialize()
        listed(host)

        assert pids_in(pids) == []


def test_opening_tells_a_legacy_host_once_that_its_list_has_changed(host: PipeHost) -> None:
    host.open()

    host.notice("notifications/tools/list_changed")
    shown = listed(host)
    assert "dev__filesystem__read_file" in shown

    host.open()
    assert listed(host) == shown
    assert host.others == []


def test_all_registered_names_have_two_separators_and_the_old_form_is_gone(
    opened: PipeHost,
) -> None:
    flat = [
        "dev__filesystem__read_file",
        "dev__filesystem__store_value",
        "dev__filesystem__my__special__tool",
        "dev__memory__read_file",
        "dev__memory__store_value",
        "dev__memory__my__special__tool",
        "dev__memory__stats",
    ]
    assert listed(opened) == ["open_toolbox", "use_tool", *flat]


def test_the_answer_to_opening_has_only_names_and_owners(opened: PipeHost) -> None:
    value = opened.open()

    assert list(value) == ["toolbox", "description", "servers_connected", "tools", "unavailable"]
    assert value["tools"][0] == {
        "name": "dev__filesystem__read_file",
        "toolbox_name": "dev",
        "source_server": "filesystem",
    }
    assert [tool["name"] for tool in value["tools"]] == listed(opened)[2:]
    assert [one["server"] for one in value["unavailable"]] == ["dead"]


def test_a_definition_is_the_server_s_own_but_for_name_description_and_meta(
    opened: PipeHost,
) -> None:
    tools = {tool["name"]: tool for tool in opened.result("tools/list")["tools"]}

    assert tools["dev__filesystem__read_file"] == {
        **TOOLS[0],
        "name": "dev__filesystem__read_file",
        "description": "[dev/filesystem] Read a file",
        "_meta": {
            "vendor": 1,
            "source_server": "filesystem",
            "toolbox_name": "dev",
            "original_name": "read_file",
            "anthropic/searchHint": "dev filesystem",
        },
    }
    assert list(tools["dev__filesystem__read_file"]) == list(TOOLS[0])


def test_a_missing_description_becomes_the_tool_s_name(opened: PipeHost) -> None:
    tools = {tool["name"]: tool for tool in opened.result("tools/list")["tools"]}

    assert tools["dev__memory__store_value"]["description"] == "[dev/memory] store_value"


def test_a_registered_tool_can_be_called_and_the_server_hears_its_own_name(
    opened: PipeHost,
) -> None:
    for name in ("read_file", "store_value", "my__special__tool"):
        heard = json_text(opened.call(f"dev__filesystem__{name}", {"path": "x", "n": 1}))
        assert heard == {"name": name, "arguments": {"path": "x", "n": 1}}


@pytest.mark.parametrize("arguments", [None, {}])
def test_a_call_without_arguments_has_empty_ones(asking: PipeHost, arguments: Any) -> None:
    assert json_text(asking.call("prod__memory__echo", arguments)) == {
        "name": "echo",
        "arguments": {},
    }


def test_null_arguments_are_none(asking: PipeHost) -> None:
    result = asking.result("tools/call", {"name": "prod__memory__echo", "arguments": None})

    assert json_text(result)["arguments"] == {}


def test_a_flat_name_works_without_opening_and_use_tool_works_too(asking: PipeHost) -> None:
    wish = {"tool": {"toolbox": "prod", "server": "memory", "tool": "echo"}, "arguments": {"a": 1}}

    assert json_text(asking.call("prod__memory__echo", {"a": 1})) == json_text(
        asking.call("use_tool", wish)
    )


def test_a_modern_host_is_not_offered_use_tool(modern: PipeHost) -> None:
    assert [name for name in listed(modern) if "__" not in name] == ["open_toolbox"]


def test_a_modern_host_sees_every_tool_from_the_start(modern: PipeHost) -> None:
    names = listed(modern)

    assert "open_toolbox" in names
    assert "dev__memory__my__special__tool" in names
    assert "prod__memory__echo" in names
    assert names.index("dev__filesystem__read_file") < names.index("dev__memory__read_file")
    assert names.index("dev__memory__stats") < names.index("prod__memory__echo")


def test_a_modern_list_does_not_change_by_opening(modern: PipeHost) -> None:
    before = modern.result("tools/list")
    modern.open("prod")

    assert modern.result("tools/list") == before
    assert modern.others == []
    assert before["resultType"] == "complete"
    assert isinstance(before["ttlMs"], int)
    assert before["cacheScope"] == "private"


def test_a_toolbox_without_a_single_server_is_left_out_of_the_list(tmp_path: Path) -> None:
    boxes: dict[str, Any] = {
        "bad": {"mcpServers": {"dead": entry("exit_start")}},
        "good": {"mcpServers": {"alive": entry()}},
    }
    with PipeHost(
        write_config(tmp_path, {"toolMode": "dynamic", "toolboxes": boxes}), modern=True
    ) as h:
        names = listed(h)

        assert "good__alive__echo" in names
        assert not [name for name in names if name.startswith("bad")]


def test_toolboxes_named_on_the_command_line_are_open_from_the_start(tmp_path: Path) -> None:
    with PipeHost(config(tmp_path), "--toolbox", "prod") as host:
        host.initialize()

        names = listed(host)

        assert "prod__memory__echo" in names
        assert not [name for name in names if name.startswith("dev__")]
        assert texts(host.call("dev__memory__echo", {}))[0] == "Error: Toolbox 'dev' not found"


# Wrong calls


def refused(result: dict[str, Any]) -> list[str]:
    assert result["isError"] is True
    return texts(result)


FORMAT = (
    "Error: Invalid tool name format '{name}'. Expected format: {{toolbox}}__{{server}}__{{tool}} "
    "(note: double underscores between all components)"
)


@pytest.mark.parametrize(
    "name",
    [
        "dev__filesystem_read_file",
        "dev_filesystem__read_file",
        "__filesystem__read_file",
        "dev____read_file",
        "dev__filesystem__",
        "invalid",
    ],
)
def test_a_name_of_another_form_is_told_the_form_and_where_to_read_on(
    asking: PipeHost, name: str
) -> None:
    text, hint = refused(asking.call(name, {}))

    assert text == FORMAT.format(name=name)
    assert "0.5.0" in hint
    assert "mcp-workbench explain migration" in hint


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bax__memory__echo", "Error: Toolbox 'bax' not found"),
        ("dev__disk__echo", "Error: Server 'disk' not found in toolbox 'dev'"),
        (
            "dev__memory__format",
            "[dev/memory/format] Error: Tool 'format' not found in server 'memory' (toolbox 'dev')",
        ),
        (
            "dev__filesystem__stats",
            "[dev/filesystem/stats] Error: Tool 'stats' not found in server 'filesystem' (toolbox 'dev')",
        ),
    ],
)
def test_wrong_calls_have_the_contract_s_texts(asking: PipeHost, name: str, text: str) -> None:
    assert refused(asking.call(name, {}))[0] == text


def test_hints_stand_in_a_second_block_here_too(asking: PipeHost) -> None:
    assert refused(asking.call("dve__memory__echo", {}))[1] == "Did you mean 'dev'?"
    assert len(refused(asking.call("dev__filesystem__stats", {}))) == 1


def test_a_failed_connection_is_told_with_the_tool_in_front(asking: PipeHost) -> None:
    [text] = refused(asking.call("dev__dead__echo", {}))

    assert text.startswith(
        "[dev/dead/echo] Error: Failed to connect to server 'dead' in toolbox 'dev': "
    )
    assert "exit status 3" in text


@pytest.mark.parametrize("era", ["asking", "modern"])
def test_a_server_s_json_rpc_error_becomes_a_result(
    request: pytest.FixtureRequest, era: str
) -> None:
    host: PipeHost = request.getfixturevalue(era)
    error = '{"code":-32000,"message":"out of paper","data":1}'

    [text] = refused(host.call("prod__memory__error", {"error": error}))

    assert text == "[prod/memory/error] Error: out of paper"


@pytest.mark.parametrize("code", [-32021, -32042])
def test_errors_for_the_host_s_machinery_stay_errors(asking: PipeHost, code: int) -> None:
    error = json.dumps({"code": code, "message": "needs the host", "data": {"a": 1}})

    assert asking.error(
        "tools/call", {"name": "prod__memory__error", "arguments": {"error": error}}
    ) == json.loads(error)


def test_a_server_that_dies_is_told_with_the_tool_in_front(host: PipeHost) -> None:
    [text] = refused(host.call("prod__memory__die", {"status": 9, "stderr": "disk on fire\n"}))

    assert text.startswith("[prod/memory/die] Error: the server exited")
    assert text.count("Error: ") == 1
    assert "exit status 9" in text
    assert "disk on fire" in text
    assert "may have run" in text


@pytest.mark.parametrize("modern", [False, True])
def test_a_call_out_of_time_is_told_with_the_tool_in_front(tmp_path: Path, modern: bool) -> None:
    with PipeHost(config(tmp_path, deaf=entry(timeout=0.2)), modern=modern) as host:
        if not modern:
            host.initialize()

        assert refused(host.call("dev__deaf__hang")) == [
            "[dev/deaf/hang] Error: timed out after 0.2 s"
        ]


def test_what_a_refused_call_should_have_been_stands_in_a_second_block(tmp_path: Path) -> None:
    with PipeHost(config(tmp_path, strict=entry(f"tools={strict_tools(tmp_path)}"))) as host:
        host.initialize()
        error = json.dumps({"code": -32602, "message": "bad path"})

        assert refused(host.call("dev__strict__error", {"error": error, "path": 5})) == [
            "[dev/strict/error] Error: bad path",
            "path: Expected string, received number\nerror(error?: any, path?: string)",
        ]


def strict_tools(folder: Path) -> Path:
    schema = {"type": "object", "properties": {"error": {}, "path": {"type": "string"}}}
    file = folder / "strict.json"
    file.write_text(json.dumps([{"name": "error", "inputSchema": schema}]))
    return file


# Our own tools here: their texts are those of proxy mode, and they say how it is done here


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("open_toolbox", {}, "Invalid parameters: toolbox_name: Required"),
        ("open_toolbox", {"toolbox_name": "no"}, "Toolbox 'no' not found"),
        ("open_toolbox", {"toolbox_name": ""}, "Invalid parameters: toolbox_name: Toolbox name cannot be empty"),
        ("use_tool", {}, "Invalid parameters: tool: Required"),
        ("use_tool", {"tool": {"toolbox": "no", "server": "a", "tool": "b"}}, "Toolbox 'no' not found"),
        (
            "use_tool",
            {"tool": {"toolbox": "dev", "server": "no", "tool": "b"}},
            "Server 'no' not found in toolbox 'dev'",
        ),
        (
            "use_tool",
            {"tool": {"toolbox": "dev", "server": "memory", "tool": "no"}},
            "Tool 'no' not found in server 'memory' (toolbox 'dev')",
        ),
    ],
)  # fmt: skip
def test_wrong_calls_of_our_own_tools_have_the_same_texts_as_in_proxy_mode(
    asking: PipeHost, name: str, arguments: Any, told: str
) -> None:
    assert refused(asking.call(name, arguments))[0] == told


@pytest.mark.parametrize("new", ["open_toolbox", "use_tool"])
def test_the_retired_names_name_the_new_ones_here_too(asking: PipeHost, new: str) -> None:
    text, hint = refused(asking.call(f"workbench_{new}", {"toolbox_name": "dev"}))
    _, form = refused(asking.call("use_tool", {"tool_name": "dev__memory__stats"}))

    assert text == f"Tool 'workbench_{new}' has been renamed: call '{new}'"
    assert hint == form


def test_opening_takes_no_detail_here_and_does_not_look_at_one(host: PipeHost) -> None:
    [opening, _] = host.result("tools/list")["tools"]
    assert list(opening["inputSchema"]["properties"]) == ["toolbox_name"]

    for odd in (5, "names", None):
        assert "isError" not in host.call("open_toolbox", {"toolbox_name": "prod", "detail": odd})


def test_a_host_that_looks_at_its_list_once_can_follow_what_our_tools_say(host: PipeHost) -> None:
    """It is told how names are made, and where their parts go."""
    opening, using = host.result("tools/list")["tools"]
    assert "schema" not in opening["description"] + using["description"]
    assert "{toolbox}__{server}__{tool}" in opening["description"]
    assert "{toolbox}__{server}__{tool}" in using["description"]

    name = host.open("prod")["tools"][0]["name"]
    parts = dict(zip(("toolbox", "server", "tool"), name.split("__", 2), strict=True))

    assert "isError" not in host.call("use_tool", {"tool": parts})


# Changes, and what is said about them


def test_a_server_s_new_tool_is_announced_once_and_listed(host: PipeHost) -> None:
    host.open("prod")
    host.notice("notifications/tools/list_changed")

    host.call("prod__memory__flip", {"name": "brand_new"})
    host.notice("notifications/tools/list_changed")

    assert "prod__memory__brand_new" in listed(host)
    assert json_text(host.call("prod__memory__brand_new", {}))["name"] == "brand_new"
    assert host.others == []  # three announcements of the server were one change


def test_an_announcement_without_a_change_is_not_passed_on(host: PipeHost) -> None:
    host.open("prod")
    host.notice("notifications/tools/list_changed")
    host.call("prod__memory__announce", {})

    # The list is read again after every announcement; a real change then comes after the empty one.
    host.call("prod__memory__flip", {"name": "real"})
    host.notice("notifications/tools/list_changed")

    assert "prod__memory__real" in listed(host)
    assert host.others == []


def test_a_toolbox_that_is_not_shown_announces_nothing(host: PipeHost) -> None:
    host.call("prod__memory__flip", {"name": "brand_new"})
    host.open("dev")
    host.notice("notifications/tools/list_changed")

    assert json_text(host.call("prod__memory__brand_new", {}))["name"] == "brand_new"
    assert host.others == []


def test_a_host_is_promised_list_changes_in_both_modes(asking: PipeHost, tmp_path: Path) -> None:
    with PipeHost(write_config(tmp_path, {"mcpServers": {}})) as proxy:
        assert proxy.initialize()["capabilities"]["tools"] == {"listChanged": True}
    assert asking.initialize()["capabilities"]["tools"] == {"listChanged": True}


def test_instructions_show_a_call_by_flat_name(asking: PipeHost) -> None:
    text: str = asking.initialize()["instructions"]

    example = json.loads(text[text.rindex("\n{") :])
    assert "Use `open_toolbox` to connect to a toolbox; its tools then appear as" in text
    assert "search_tools" not in text
    assert example["name"].startswith("dev__filesystem__")
    assert isinstance(example["arguments"], dict)
    assert "- dev (3 servers): Development" in text
    assert "- prod (1 server)" in text
    assert len(text) <= 2000


def test_a_host_s_own_server_is_the_one_that_is_listed(tmp_path: Path) -> None:
    """With a scope of its own there is one process for the host, which both lists and is called."""
    file = tmp_path / "pids"
    mine = entry(scope="session", env={"PIDFILE": str(file)})
    boxes = {"dev": {"mcpServers": {"mine": mine}}}
    with PipeHost(write_config(tmp_path, {"toolMode": "dynamic", "toolboxes": boxes})) as host:
        host.initialize()
        host.result("tools/call", {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}})
        assert "dev__mine__echo" in listed(host)
        host.result("tools/call", {"name": "dev__mine__echo", "arguments": {"text": "x"}})

    assert len(pids_in(file)) == 1
