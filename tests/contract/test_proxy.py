"""Proxy mode over the real command: the contract's section "Structured identifiers", sentence by sentence."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.kit.config import config_file, entry, write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import pids_in
from tests.kit.results import json_text, texts

pytestmark = pytest.mark.usefixtures("forked_commands")

HINT = "mcp-workbench explain migration"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeHost]:
    """One legacy host in front of two good servers and a bad one."""
    servers = {
        "filesystem": entry(toolFilters=["*", "!die"]),
        "memory": entry("paged"),
        "broken": entry("stderr_exit"),
    }
    dev = {"description": "Development toolbox", "mcpServers": servers}
    nothing = {"mcpServers": {"one": entry("exit_start"), "two": {"command": "no-such-command"}}}
    calm = {"mcpServers": {"a": entry()}}
    boxes = {"dev": dev, "nothing": nothing, "calm": calm}
    file = write_config(tmp_path_factory.mktemp("proxy"), {"toolboxes": boxes})
    with PipeHost(file) as host:
        host.initialize()
        yield host


def refused(result: dict[str, Any]) -> tuple[str, str]:
    """The two blocks of an error result; the second one is empty where there is no hint."""
    assert result["isError"] is True
    told = texts(result)
    assert len(told) in (1, 2)
    return told[0], told[1] if len(told) == 2 else ""


def test_the_list_is_the_meta_tools_and_nothing_else(host: PipeHost) -> None:
    tools = host.result("tools/list")["tools"]

    assert [tool["name"] for tool in tools] == ["open_toolbox", "use_tool", "search_tools"]


def test_both_meta_tools_have_schemas_that_mirror_the_checks(host: PipeHost) -> None:
    opening, using, _ = (tool["inputSchema"] for tool in host.result("tools/list")["tools"])
    identifier = using["properties"]["tool"]

    for schema in (opening, using):
        jsonschema.Draft202012Validator.check_schema(schema)
    assert opening["required"] == ["toolbox_name"]
    assert opening["properties"]["toolbox_name"]["minLength"] == 1
    assert opening.get("additionalProperties", True) is True
    assert using["required"] == ["tool"]
    assert using["additionalProperties"] is identifier["additionalProperties"] is False
    assert identifier["required"] == ["toolbox", "server", "tool"]
    assert all(identifier["properties"][name]["minLength"] == 1 for name in identifier["required"])
    assert using["properties"]["arguments"]["type"] == "object"


def test_opening_answers_with_one_text_block_of_json(host: PipeHost) -> None:
    result = host.call("open_toolbox", {"toolbox_name": "dev"})

    [block] = result["content"]
    value = json.loads(block["text"])
    assert block["type"] == "text"
    assert list(value) == ["toolbox", "description", "servers_connected", "tools", "unavailable"]
    assert value["toolbox"] == "dev"
    assert value["description"] == "Development toolbox"
    assert value["servers_connected"] == 2


def test_a_tool_info_is_the_server_s_definition_plus_its_owner(host: PipeHost) -> None:
    [text] = texts(host.call("open_toolbox", {"toolbox_name": "dev"}))

    # As the server wrote it: unknown members, their order, and how it spells its numbers.
    assert (
        '{"name":"echo","title":"Echo","description":"Say it again","inputSchema":{"type":"object",'
        '"properties":{"text":{"type":"string","maxLength":12345678901234567890}}},'
        '"x-unknown":[1.0,1E+2,null],"toolbox_name":"dev","source_server":"filesystem"}'
    ) in text


def test_names_are_the_original_ones_and_every_page_is_there(host: PipeHost) -> None:
    tools = host.open()["tools"]
    of = {
        server: [tool["name"] for tool in tools if tool["source_server"] == server]
        for server in ("filesystem", "memory")
    }

    assert all(tool["toolbox_name"] == "dev" for tool in tools)
    assert all("__" not in tool["name"] for tool in tools)
    assert [name for name in of["memory"] if name != "die"] == of["filesystem"]
    assert len(of["memory"]) > 10


def test_a_server_that_can_not_be_reached_does_not_fail_the_toolbox(host: PipeHost) -> None:
    [missing] = host.open()["unavailable"]

    assert missing["server"] == "broken"
    assert list(missing) == ["server", "reason"]
    assert "exit status 3" in missing["reason"]
    assert "no DATABASE_URL in the environment" in missing["reason"]


def test_unavailable_appears_only_where_something_is(host: PipeHost) -> None:
    assert list(host.open("calm")) == ["toolbox", "description", "servers_connected", "tools"]


def test_if_no_server_can_be_reached_each_reason_is_a_line(host: PipeHost) -> None:
    text, _ = refused(host.call("open_toolbox", {"toolbox_name": "nothing"}))

    one, two = text.split("\n")
    assert one.startswith("Failed to connect to server 'one' in toolbox 'nothing': ")
    assert "exit status 3" in one
    assert two.startswith("Failed to connect to server 'two' in toolbox 'nothing': ")
    assert "no-such-command" in two


def test_a_toolbox_without_a_description_has_an_empty_one(host: PipeHost, tmp_path: Path) -> None:
    assert host.open("calm")["description"] == ""
    with PipeHost(write_config(tmp_path, {"mcpServers": {}})) as plain:
        plain.initialize()
        assert plain.open("default")["description"] == ""


def test_opening_twice_is_idempotent_and_costs_no_second_connection(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with PipeHost(config_file(tmp_path, {"a": entry(env={"PIDFILE": str(pids)})})) as host:
        host.initialize()
        first, second = (host.ask("tools/call", OPEN_DEV) for _ in range(2))
        answers = [host.answer(first), host.answer(second), host.request("tools/call", OPEN_DEV)]

        assert len({json.dumps(answer["result"]) for answer in answers}) == 1
        assert len(pids_in(pids)) == 1


OPEN_DEV = {"name": "open_toolbox", "arguments": {"toolbox_name": "dev"}}


def test_an_unopened_toolbox_opens_on_use(tmp_path: Path) -> None:
    with PipeHost(config_file(tmp_path, {"a": entry()})) as host:
        host.initialize()

        assert json_text(host.use("a", "echo", {"x": 1}))["arguments"] == {"x": 1}


def test_arguments_are_optional_and_the_server_then_gets_empty_ones(host: PipeHost) -> None:
    assert json_text(host.use("memory", "echo")) == {"name": "echo", "arguments": {}}


# The odd ones: results as they are


ODD_RESULTS = [
    '{"content":[{"type":"hologram","x":[1.0,1E+2,-0.0]}],"n":12345678901234567890,"z":null}',
    '{"content":[],"structuredContent":[1,2,3],"a":1,"a":2}',
    '{ "content" : [ ] , "s":"\\u00e9\\/\\ud83d\\ude00" }',
    '{"content":"not a list","isError":"perhaps"}',
    '{"_meta":{"io.modelcontextprotocol/x":1,"b":null},"content":[]}',
    "[1,2]",
    "null",
    "7",
    '"text"',
    '{"resultType":"complete","ttlMs":1,"content":[]}',
    '{"deep":' + "[" * 300 + "]" * 300 + "}",
]


@pytest.mark.parametrize("result", ODD_RESULTS)
def test_a_result_passes_untouched(host: PipeHost, result: str) -> None:
    id = host.begin_use("memory", "result", {"result": result})
    host.answer(id)

    assert host.lines[-1] == b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (id, result.encode())


def test_a_tool_s_own_error_result_is_a_result(host: PipeHost) -> None:
    assert host.use("memory", "fail") == {
        "content": [{"type": "text", "text": "no such file"}],
        "isError": True,
    }


def test_a_server_s_json_rpc_error_passes_with_code_message_and_data(host: PipeHost) -> None:
    error = '{"code":-31999,"message":"odd","data":{"n":1.0,"x":[null]},"more":1E+2}'

    id = host.begin_use("memory", "error", {"error": error})
    host.answer(id)

    assert host.lines[-1] == b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (id, error.encode())


# Wrong calls


def wish(toolbox: str = "dev", server: str = "memory", tool: str = "echo") -> dict[str, Any]:
    return {"tool": {"toolbox": toolbox, "server": server, "tool": tool}}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (wish(toolbox="production"), "Toolbox 'production' not found"),
        (wish(server="database"), "Server 'database' not found in toolbox 'dev'"),
        (
            wish(server="filesystem", tool="delete_all"),
            "Tool 'delete_all' not found in server 'filesystem' (toolbox 'dev')",
        ),
        (
            wish(server="filesystem", tool="dev__filesystem__echo"),
            "Tool 'dev__filesystem__echo' not found in server 'filesystem' (toolbox 'dev')",
        ),
        (wish(toolbox="no", server="no", tool="no"), "Toolbox 'no' not found"),
        (wish(server="no", tool="no"), "Server 'no' not found in toolbox 'dev'"),
    ],
)
def test_what_does_not_exist_is_named(host: PipeHost, arguments: Any, text: str) -> None:
    assert refused(host.call("use_tool", arguments))[0] == text


def test_a_connection_is_asked_for_before_a_tool(host: PipeHost) -> None:
    text, _ = refused(host.call("use_tool", wish(server="broken", tool="no")))

    assert text.startswith("Failed to connect to server 'broken' in toolbox 'dev': ")
    assert "no DATABASE_URL" in text


def test_an_unknown_toolbox_can_not_be_opened(host: PipeHost) -> None:
    text, hint = refused(host.call("open_toolbox", {"toolbox_name": "devv"}))

    assert text == "Toolbox 'devv' not found"
    assert hint == "Did you mean 'dev'?"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (wish(toolbox="dve"), "Did you mean 'dev'?"),
        (wish(server="mmory"), "Did you mean 'memory'?"),
        (wish(tool="ecko"), "Did you mean 'echo'?"),
    ],
)
def test_the_nearest_name_stands_in_a_second_block(
    host: PipeHost, arguments: Any, hint: str
) -> None:
    assert refused(host.call("use_tool", arguments))[1] == hint


@pytest.mark.parametrize("name", ["die", "dye"])
def test_a_filtered_tool_is_not_found_and_no_hint_names_it(host: PipeHost, name: str) -> None:
    text, hint = refused(host.call("use_tool", wish(server="filesystem", tool=name)))

    assert text == f"Tool '{name}' not found in server 'filesystem' (toolbox 'dev')"
    assert "'die'" not in hint
    assert "die" not in [
        tool["name"] for tool in host.open()["tools"] if tool["source_server"] == "filesystem"
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "tool: Required"),
        ({"tool": {}}, "tool.toolbox: Required; tool.server: Required; tool.tool: Required"),
        ({"tool": {"toolbox": "dev", "server": "filesystem"}}, "tool.tool: Required"),
        (wish(server=""), "tool.server: Server name cannot be empty"),
        (
            wish("", "", ""),
            (
                "tool.toolbox: Toolbox name cannot be empty; "
                "tool.server: Server name cannot be empty; "
                "tool.tool: Tool name cannot be empty"
            ),
        ),
        ({**wish(), "extraField": "not allowed"}, 'Unrecognized key: "extraField"'),
        (
            {"tool": {"toolbox": "dev", "server": "fs", "tool": "read", "extra": "field"}},
            'tool: Unrecognized key: "extra"',
        ),
    ],
)
def test_wrong_parameters_are_told_with_their_paths(
    host: PipeHost, arguments: Any, text: str
) -> None:
    assert refused(host.call("use_tool", arguments)) == (f"Invalid parameters: {text}", "")


def test_parameters_come_before_the_toolbox(host: PipeHost) -> None:
    text, _ = refused(host.call("use_tool", {**wish(toolbox="nowhere"), "arguments": []}))

    assert text.startswith("Invalid parameters: arguments: ")


@pytest.mark.parametrize("name", ["open_toolbox", "use_tool"])
def test_a_call_without_any_arguments_misses_them(host: PipeHost, name: str) -> None:
    field = {"open_toolbox": "toolbox_name", "use_tool": "tool"}[name]

    absent: list[Any] = [None, {}]
    for arguments in absent:
        assert refused(host.call(name, arguments)) == (f"Invalid parameters: {field}: Required", "")


def test_opening_ignores_unknown_keys_and_wants_a_name(host: PipeHost) -> None:
    opened = host.call("open_toolbox", {"toolbox_name": "dev", "other": "x"})
    empty = host.call("open_toolbox", {"toolbox_name": ""})

    assert "isError" not in opened
    assert refused(empty)[0] == "Invalid parameters: toolbox_name: Toolbox name cannot be empty"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"toolbox_name": "dev", "tool_name": "dev__memory__echo", "arguments": {}},
            'tool: Required; Unrecognized key: "toolbox_name"; Unrecognized key: "tool_name"',
        ),
        ({"tool": "dev__memory__echo"}, "tool: Expected object, received string"),
    ],
)
def test_the_retired_inputs_get_the_new_form_as_a_hint(
    host: PipeHost, arguments: Any, text: str
) -> None:
    told, hint = refused(host.call("use_tool", arguments))

    assert told == f"Invalid parameters: {text}"
    assert '"tool": {"toolbox": ' in hint
    assert HINT in hint


@pytest.mark.parametrize("new", ["open_toolbox", "use_tool"])
def test_the_retired_names_name_the_new_ones(host: PipeHost, new: str) -> None:
    text, hint = refused(host.call(f"workbench_{new}", {"toolbox_name": "dev"}))
    _, form = refused(host.call("use_tool", {"tool_name": "dev__memory__echo"}))

    assert text == f"Tool 'workbench_{new}' has been renamed: call '{new}'"
    assert HINT in hint
    assert hint == form


def test_a_flat_name_is_no_tool_of_proxy_mode(host: PipeHost) -> None:
    error = host.error("tools/call", {"name": "dev__memory__echo", "arguments": {}})

    assert error["code"] == -32602
    assert "dev__memory__echo" in error["message"]


# Instructions


def test_instructions_say_what_there_is_and_what_to_call(tmp_path: Path) -> None:
    with PipeHost(config_file(tmp_path, {"filesystem": entry()})) as host:
        text: str = host.initialize()["instructions"]

    assert "Use `open_toolbox` to connect to a toolbox, then `use_tool` to invoke tools." in text
    assert "- dev (1 server): Development toolbox" in text
    example = json.loads(text[text.index("{") :])
    assert example["tool"] == {"toolbox": "dev", "server": "filesystem", "tool": "read_file"}
    assert len(text) <= 2000
