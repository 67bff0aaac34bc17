"""A host on a pipe while the file changes: what it is told, and what it is not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.clock import PATIENCE, eventually
from tests.kit.command import COMMAND
from tests.kit.config import entry, offers_entry, program_entry, write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.processes import alive, pids_in
from tests.kit.results import INITIALIZE, META, Message, json_text, texts
from tests.kit.servers import ASKER
from tests.kit.terminal import terminal
from tests.primitives.scenes import names, use

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
TAKEN = "the configuration was reloaded"


def config(folder: Path, boxes: dict[str, dict[str, Any]], **more: Any) -> Path:
    """Written anew, as a whole."""
    toolboxes = {name: {"mcpServers": servers} for name, servers in boxes.items()}
    return write_config(folder, {"toolboxes": toolboxes, **more})


def hosting(path: Path, *options: str, modern: bool = False) -> PipeHost:
    """A host whose command says what it reloads."""
    return PipeHost(path, "--verbose", *options, modern=modern)


def reload(host: PipeHost) -> None:
    """Ask for the file to be read, and wait until it has been taken."""
    before = host.stderr.count(TAKEN)
    host.signal(signal.SIGHUP)
    eventually(lambda: host.stderr.count(TAKEN) > before, "the reload")


def tools(host: PipeHost) -> list[str]:
    return names(host.result("tools/list"), "tools")


def toolboxes_in(host: PipeHost) -> str:
    (one,) = [t for t in host.result("tools/list")["tools"] if t["name"] == "open_toolbox"]
    return one["description"].partition("Toolboxes: ")[2]


def notices(host: PipeHost) -> list[str]:
    """Everything that the host was told unasked so far."""
    host.result("ping") if not host.modern else host.result("server/discover")
    return [message["method"] for message in host.others if "method" in message]


def listen(host: PipeHost, **kinds: Any) -> Message:
    """Hear of changes as a modern host; the `_meta` that notices then have."""
    id = host.ask("subscriptions/listen", {"notifications": kinds})
    first = host.receive()
    assert first is not None
    assert first["method"] == "notifications/subscriptions/acknowledged", first
    assert first["params"]["notifications"] == kinds
    return {META + "subscriptionId": id}


# Proxy mode


@pytest.mark.parametrize("modern", [False, True])
def test_a_toolbox_that_is_written_into_the_file_is_there_and_the_host_is_told(
    tmp_path: Path, modern: bool
) -> None:
    path = config(tmp_path, {"dev": {"a": entry()}})
    with hosting(path, modern=modern) as host:
        tag = {} if modern else host.initialize() and {}
        assert toolboxes_in(host) == "dev"
        if modern:
            tag = listen(host, toolsListChanged=True)

        config(tmp_path, {"dev": {"a": entry()}, "ops": {"b": entry()}})  # the file is watched

        assert host.notice(TOOLS).get("params", {}).get("_meta", {}) == tag
        assert toolboxes_in(host) == "dev, ops"
        assert host.open("ops")["servers_connected"] == 1
        assert notices(host) == []


def test_a_host_that_sees_no_difference_is_not_told(tmp_path: Path) -> None:
    path = config(tmp_path, {"dev": {"a": entry()}})
    with hosting(path) as host:
        host.initialize()
        host.open()
        host.result("prompts/list")

        write_config(
            tmp_path,
            {"toolboxes": {"dev": {"description": "new", "mcpServers": {"b": entry("paged")}}}},
        )
        reload(host)

        assert notices(host) == []
        assert (host.open()["description"], host.open()["servers_connected"]) == ("new", 1)


def test_the_instructions_for_new_hosts_are_the_new_ones(tmp_path: Path) -> None:
    path = config(tmp_path, {"dev": {"a": entry()}})
    with hosting(path, modern=True) as host:
        assert "- dev (1 server)" in host.result("server/discover")["instructions"]
        config(tmp_path, {"ops": {"a": entry()}})
        reload(host)

        assert "- ops (1 server)" in host.result("server/discover")["instructions"]


# Files that can't be used


@pytest.mark.fault("F55")
def test_a_broken_file_changes_nothing_and_is_told_where_people_look(tmp_path: Path) -> None:
    path = config(tmp_path, {"dev": {"a": entry()}})
    with hosting(path) as host:
        host.initialize()
        before = json_text(host.use("a", "stats"))["pid"]

        path.write_text('{\n  "toolboxes": {"dev": {"mcpServers": {"a": {"cmd": "x"}}}}\n}')
        eventually(lambda: "warnings" in host.open(), "the broken file is told")

        (told,) = host.open()["warnings"]
        assert told.startswith("The configuration file has changed and can't be used;")
        assert "  :2:40 toolboxes.dev.mcpServers.a: neither 'command' nor 'url'" in told
        assert "(fix: " in told
        missing = texts(host.call("open_toolbox", {"toolbox_name": "new"}))
        assert (missing[0], missing[-1]) == ("Toolbox 'new' not found", told)
        assert json_text(host.use("a", "stats"))["pid"] == before
        for _ in range(3):  # nothing has changed in it
            os.utime(path)
            host.signal(signal.SIGHUP)
        assert "warnings" in host.open()
        eventually(lambda: ":2:40" in host.stderr, "it is in the log")
        assert host.stderr.count("neither 'command' nor 'url'") == 1
        assert "the previous configuration stays in effect" in host.stderr
        assert ":2:40" in host.stderr

        config(tmp_path, {"dev": {"a": entry()}})
        eventually(lambda: "warnings" not in host.open(), "the good file is taken")
        eventually(lambda: "is valid again" in host.stderr, "and that is told")
        assert json_text(host.use("a", "stats"))["pid"] == before


@pytest.mark.fault("F55")
def test_a_file_that_disappears_is_told_and_what_was_loaded_stays(tmp_path: Path) -> None:
    path = config(tmp_path, {"dev": {"a": entry()}})
    with hosting(path) as host:
        host.initialize()
        path.unlink()

        eventually(lambda: "warnings" in host.open(), "the loss is told")

        assert "there is no such file" in host.open()["warnings"][0]
        assert "isError" not in host.use("a", "echo")


def test_what_waits_for_the_next_start_is_said(tmp_path: Path) -> None:
    path = config(tmp_path, {"dev": {"a": entry()}})
    with hosting(path) as host:
        host.initialize()
        additions: list[dict[str, Any]] = [{"ops": {}}, {"ops": {}, "more": {}}]
        for boxes in additions:
            config(tmp_path, {"dev": {"a": entry()}, **boxes}, toolMode="dynamic")
            reload(host)
        assert "takes effect at the next start: toolMode" in host.stderr
        assert tools(host) == ["open_toolbox", "use_tool", "search_tools"]
        assert host.stderr.count("next start") == 1


# Which file


@pytest.mark.parametrize("own", [False, True])
def test_the_demo_gives_way_to_the_file_when_it_is_written(tmp_path: Path, own: bool) -> None:
    """The file of the folder, or the user's own."""
    folder = tmp_path / "work"
    folder.mkdir()
    env = {k: v for k, v in os.environ.items() if k != "WORKBENCH_CONFIG"}
    process = subprocess.Popen(
        [sys.executable, "-m", "mcp_workbench", "serve"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env | {"XDG_CONFIG_HOME": str(tmp_path)},
    )
    assert process.stdin
    assert process.stdout

    def ask(method: str, params: Message) -> Message:
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        process.stdin.write(line.encode() + b"\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        while True:
            message = json.loads(process.stdout.readline())  # type: ignore[union-attr]
            if "id" in message:
                return message["result"]

    try:
        opening = ask("initialize", INITIALIZE)
        assert "- demo (2 servers)" in opening["instructions"]

        written = config(folder, {"dev": {"a": entry()}}).read_text()
        if own:
            (folder / "workbench-config.json").rename(tmp_path / "elsewhere.json")
            (tmp_path / "mcp-workbench").mkdir()
            (tmp_path / "mcp-workbench" / "config.json").write_text(written)

        def listed() -> bool:
            return "Toolboxes: dev" in json.dumps(ask("tools/list", {}))

        eventually(listed, "the file is taken")
    finally:
        process.stdin.close()
        assert process.wait(PATIENCE) == 0
        process.stdout.close()


def test_of_a_changed_file_only_the_named_toolboxes_are_taken(tmp_path: Path) -> None:
    path = config(tmp_path, {"dev": {"a": entry()}, "ops": {"b": entry()}})
    with hosting(path, "--toolbox", "dev") as host:
        host.initialize()
        assert toolboxes_in(host) == "dev"

        config(tmp_path, {"ops": {"b": entry()}, "dev": {"a": entry(), "c": entry()}})
        reload(host)
        assert host.open()["servers_connected"] == 2
        assert toolboxes_in(host) == "dev"

        config(tmp_path, {"ops": {"b": entry()}})
        reload(host)
        host.notice(TOOLS)
        assert texts(host.call("open_toolbox", {"toolbox_name": "dev"})) == [
            "Toolbox 'dev' not found"
        ]
        eventually(lambda: "no longer in the file" in host.stderr, "that is told")

        config(tmp_path, {"dev": {"a": entry()}})
        reload(host)
        host.notice(TOOLS)
        assert host.open()["servers_connected"] == 1


# Dynamic mode


def noted(folder: Path, name: str, *flags: str, **env: str) -> Message:
    return entry(*flags, env={"PIDFILE": str(folder / f"{name}.pids"), **env})


def test_an_opened_toolbox_that_vanishes_leaves_the_list_and_comes_back(tmp_path: Path) -> None:
    both = {"dev": {"a": entry()}, "ops": {"b": entry()}}
    path = config(tmp_path, both, toolMode="dynamic")
    with hosting(path) as host:
        host.initialize()
        host.open("dev")
        host.open("ops")
        assert {"dev__a__echo", "ops__b__echo"} <= set(tools(host))
        host.others.clear()

        config(tmp_path, {"dev": {"a": entry()}}, toolMode="dynamic")
        reload(host)
        host.notice(TOOLS)
        assert "dev__a__echo" in tools(host)
        assert not [name for name in tools(host) if name.startswith("ops")]
        assert texts(host.call("ops__b__echo", {}))[0] == "Error: Toolbox 'ops' not found"

        config(tmp_path, both, toolMode="dynamic")
        reload(host)
        host.notice(TOOLS)
        assert "ops__b__echo" in tools(host)


def test_a_server_that_is_added_to_an_opened_toolbox_is_announced_when_its_tools_are_known(
    tmp_path: Path,
) -> None:
    path = config(tmp_path, {"dev": {"a": entry()}}, toolMode="dynamic")
    with hosting(path) as host:
        host.initialize()
        host.open()
        host.others.clear()

        config(tmp_path, {"dev": {"a": entry(), "b": noted(tmp_path, "b")}}, toolMode="dynamic")
        reload(host)

        host.notice(TOOLS)
        assert len(pids_in(tmp_path / "b.pids")) == 1
        assert "dev__b__echo" in tools(host)
        assert notices(host) == []


def test_a_changed_server_is_announced_only_where_its_tools_are_others(tmp_path: Path) -> None:
    def write(*flags: str, **env: str) -> Path:
        dev = {"a": noted(tmp_path, "a", *flags, **env), "b": entry()}
        return config(tmp_path, {"dev": dev}, toolMode="dynamic")

    with hosting(write()) as host:
        host.initialize()
        host.open()
        host.others.clear()

        write(SAME="tools")
        reload(host)
        eventually(lambda: len(pids_in(tmp_path / "a.pids")) == 2, "its successor is met")
        assert json_text(host.call("dev__a__env", {}))["env"]["SAME"] == "tools"
        assert notices(host) == []

        write("no_tools")
        reload(host)
        host.notice(TOOLS)
        assert not [name for name in tools(host) if name.startswith("dev__a__")]


def test_what_changes_twice_before_it_was_met_is_compared_with_what_the_host_saw(
    tmp_path: Path,
) -> None:
    def write(*flags: str) -> Path:
        dev = {"a": noted(tmp_path, "a", *flags), "b": entry()}
        return config(tmp_path, {"dev": dev}, toolMode="dynamic")

    with hosting(write()) as host:
        host.initialize()
        host.open()
        host.others.clear()

        write("hang")  # which never gets ready
        reload(host)
        eventually(lambda: len(pids_in(tmp_path / "a.pids")) == 2, "the second is begun")
        write("no_tools")
        reload(host)

        host.notice(TOOLS)
        assert not [name for name in tools(host) if name.startswith("dev__a__")]


def test_another_filter_is_announced_without_a_new_connection(tmp_path: Path) -> None:
    def write(*filters: str) -> Path:
        one = {**noted(tmp_path, "a"), "toolFilters": list(filters)}
        return config(tmp_path, {"dev": {"a": one}}, toolMode="dynamic")

    with hosting(write("*")) as host:
        host.initialize()
        host.open()
        host.others.clear()

        write("echo", "nothing_has_this_name")
        reload(host)
        host.notice(TOOLS)
        assert tools(host) == ["open_toolbox", "use_tool", "dev__a__echo"]

        write("echo")  # shows the same
        reload(host)
        assert notices(host) == []

    assert len(pids_in(tmp_path / "a.pids")) == 1


def test_a_bare_name_leads_to_whoever_has_it_now(tmp_path: Path) -> None:
    def write(server: str) -> Path:
        boxes = {"dev": {server: noted(tmp_path, server)}}
        return config(tmp_path, boxes, toolMode="dynamic", naming="bare")

    with hosting(write("a")) as host:
        host.initialize()
        assert json_text(host.call("stats", {}))["pid"] == pids_in(tmp_path / "a.pids")[0]

        write("b")
        reload(host)
        host.notice(TOOLS)

        assert json_text(host.call("stats", {}))["pid"] == pids_in(tmp_path / "b.pids")[0]


def test_a_toolbox_that_was_not_opened_is_nobody_s_business(tmp_path: Path) -> None:
    path = config(tmp_path, {"dev": {"a": entry()}, "ops": {"b": entry()}}, toolMode="dynamic")
    with hosting(path) as host:
        host.initialize()
        host.open("dev")
        host.others.clear()

        ops = {"b": entry("paged"), "c": noted(tmp_path, "c")}
        config(tmp_path, {"dev": {"a": entry()}, "ops": ops}, toolMode="dynamic")
        reload(host)

        assert json_text(host.use("a", "echo"))
        assert notices(host) == []
        assert pids_in(tmp_path / "c.pids") == []


def test_a_modern_host_that_listens_hears_of_a_server_that_was_removed(tmp_path: Path) -> None:
    path = config(tmp_path, {"dev": {"a": entry(), "b": entry()}}, toolMode="dynamic")
    with hosting(path, modern=True) as host:
        assert "dev__b__echo" in tools(host)
        tag = listen(host, toolsListChanged=True)

        config(tmp_path, {"dev": {"a": entry()}}, toolMode="dynamic")
        reload(host)

        assert host.notice(TOOLS)["params"]["_meta"] == tag
        assert "dev__b__echo" not in tools(host)


# Beside tools


@pytest.mark.parametrize("modern", [False, True])
def test_prompts_and_resources_that_come_and_go_are_told(tmp_path: Path, modern: bool) -> None:
    one, two = offers_entry("one", "legacy"), offers_entry("two", "legacy")
    with hosting(config(tmp_path, {"dev": {"one": one}}), modern=modern) as host:
        if not modern:
            host.initialize()
        host.open()
        assert "dev__one__greet" in names(host.result("prompts/list"), "prompts")
        host.result("resources/list")
        if modern:
            listen(host, promptsListChanged=True, resourcesListChanged=True)

        config(tmp_path, {"dev": {"one": one, "two": two}})
        reload(host)
        host.notice(PROMPTS)
        host.notice(RESOURCES)
        assert "dev__two__greet" in names(host.result("prompts/list"), "prompts")

        config(tmp_path, {"dev": {"one": one}})
        reload(host)
        host.notice(PROMPTS)
        host.notice(RESOURCES)
        assert "dev__two__greet" not in names(host.result("prompts/list"), "prompts")

        # The same prompts, resources with other URIs.
        config(tmp_path, {"dev": {"one": offers_entry("other", "legacy")}})
        reload(host)
        host.notice(RESOURCES)
        assert "note://other/own" in names(host.result("resources/list"), "resources", "uri")
        assert PROMPTS not in notices(host)


@pytest.mark.parametrize("modern", [False, True])
def test_subscriptions_and_levels_go_over_to_the_successor(tmp_path: Path, modern: bool) -> None:
    def write(**env: str) -> Path:
        return config(tmp_path, {"dev": {"one": {**offers_entry("one", "legacy"), "env": env}}})

    with hosting(write(), modern=modern) as host:
        if modern:
            listen(host, resourceSubscriptions=["note://shared"])
        else:
            host.initialize()
            host.open()
            host.result("resources/subscribe", {"uri": "note://shared"})
            host.result("logging/setLevel", {"level": "warning"})
        before = use(host, "dev", "one", "stats")

        write(OTHER="1")
        reload(host)

        def asked_again() -> bool:
            seen: list[Message] = use(host, "dev", "one", "stats")
            methods = [one["method"] for one in seen]
            return len(seen) < len(before) + 9 and "resources/subscribe" in methods

        eventually(asked_again, "the successor is asked for it")
        use(host, "dev", "one", "touch", uri="note://shared")
        assert host.notice("notifications/resources/updated")["params"]["uri"] == "note://shared"
        if not modern:
            methods = [one["method"] for one in use(host, "dev", "one", "stats")]
            assert "logging/setLevel" in methods


def test_a_question_that_is_open_is_answered_where_it_was_asked(tmp_path: Path) -> None:
    def write(**env: str) -> Path:
        asker = program_entry(ASKER, era="legacy", env=env)
        return config(tmp_path, {"dev": {"a": asker}})

    with hosting(write()) as host:
        info = {"name": "rawhost", "version": "1"}
        can: Message = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}}
        host.result("initialize", {**can, "clientInfo": info})
        call = host.begin_use("a", "name")
        question = host.until(lambda message: message.get("method") == "elicitation/create")

        write(OTHER="1")
        reload(host)
        assert "isError" not in host.use("a", "can")  # by the successor
        host.send(
            {"id": question["id"], "result": {"action": "accept", "content": {"name": "Ada"}}}
        )

        assert "Ada" in json.dumps(host.answer(call)["result"])


# Signals


def test_a_hang_up_of_the_terminal_ends_everything(tmp_path: Path) -> None:
    path = config(tmp_path, {"dev": {"a": entry()}})
    argv = ["--verbose", "serve", "--http", "0", "--config", str(path)]
    with terminal(*argv, cwd=tmp_path, command=COMMAND) as person:
        person.expect("listening on")
        config(tmp_path, {"dev": {"a": entry()}, "ops": {}})
        os.kill(person.pid, signal.SIGHUP)  # the terminal is there: this is a wish to reload
        person.expect(TAKEN)
        assert alive(person.pid)

        person.hang_up()
        assert person.ended() == 0
