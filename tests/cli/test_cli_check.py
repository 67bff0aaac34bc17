"""`check` shows every problem at once, and on wish starts every server."""

from __future__ import annotations

from pathlib import Path

from tests.kit.command import run_command
from tests.kit.config import demo_server, entry, toolbox, write_config


def test_a_good_file_is_one_line(tmp_path: Path) -> None:
    write_config(tmp_path, toolbox(basics=demo_server()))
    done = run_command("check", cwd=tmp_path)
    assert done == (0, "✔ workbench-config.json: 1 toolbox, 1 server, proxy mode\n", "")


def test_without_a_file_the_demo_is_looked_at(tmp_path: Path) -> None:
    done = run_command("check", cwd=tmp_path)
    assert done.status == 0
    assert "no configuration file, so the demo: 1 toolbox, 2 servers" in done.out


def test_every_problem_has_its_place_and_its_fix(tmp_path: Path) -> None:
    config = """\
{
  "toolMode": "dynamix",
  "toolboxes": {
    "dev": {"mcpServers": {
      "figma": {"cmd": "npx"}
    }}
  }
}
"""
    write_config(tmp_path, config)
    done = run_command("check", cwd=tmp_path)
    assert done.status == 2
    assert "✘ workbench-config.json: 2 errors, 1 warning" in done.out
    assert (
        "  --> workbench-config.json:2:3   toolMode\n"
        '    2 | "toolMode": "dynamix",\n'
        "      | ^^^^^^^^^^\n"
    ) in done.err
    assert "error: neither 'command' nor 'url'" in done.err
    assert "workbench-config.json:5:7   toolboxes.dev.mcpServers.figma" in done.err
    assert "fix: " in done.err
    assert "WB-CONF-018" in done.err


def test_a_file_whose_lines_end_with_a_lone_cr_is_shown_where_its_place_is(tmp_path: Path) -> None:
    file = write_config(tmp_path, "")
    file.write_bytes(b'{\r  "mcpServers": {},\r  "toolMode": "dynamix"\r}\r')
    done = run_command("check", cwd=tmp_path)
    assert done.status == 2
    assert (
        "  --> workbench-config.json:1:25   toolMode\n"
        '    1 | {   "mcpServers": {},   "toolMode": "dynamix" }\n'
        "      |                         ^^^^^^^^^^\n"
    ) in done.err


def test_no_value_of_the_file_is_repeated(tmp_path: Path) -> None:
    config = """\
{"toolboxes": {"dev": {"mcpServers": {
  "a b": {"command": "x", "args": ["--key", "hidden1"], "env": {"TOKEN": "hidden2"}},
  "c": {"apiKey": "hidden3", "url": "https://u:hidden4@example.com/?key=hidden5", "timeout": -1}
}}}}
"""
    write_config(tmp_path, config)
    write_config(tmp_path, config.replace('"hidden2"', "hidden2"), "no-quotes.json")
    write_config(tmp_path, config.replace('hidden2"', "hidden2"), "not-closed.json")
    for file in ("workbench-config.json", "no-quotes.json", "not-closed.json"):
        for form in ((), ("--json",)):
            done = run_command("check", "--config", file, *form, cwd=tmp_path)
            assert done.status == 2
            assert "hidden" not in done.out + done.err


def test_json_is_one_document_with_all_problems(tmp_path: Path) -> None:
    file = write_config(tmp_path, {"toolMode": 1, "toolboxes": {"a b": {"mcpServers": {}}}})
    done = run_command("check", "--json", cwd=tmp_path)
    assert (done.status, done.err) == (2, "")
    assert done.data["ok"] is False
    assert done.data["config"] == str(file)
    first = done.data["problems"][0]
    assert (first["severity"], first["path"], first["line"]) == ("error", "toolMode", 2)


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    for done in (
        run_command("check", "--config", "gone.json", cwd=tmp_path),
        run_command("--config", "gone.json", "check", cwd=tmp_path),
        run_command("check", cwd=tmp_path, WORKBENCH_CONFIG="gone.json"),
    ):
        assert done.status == 2
        assert "no such file" in done.err
        assert "WB-CONF-001" in done.err


def test_connect_starts_every_server_and_says_what_is_wrong(tmp_path: Path) -> None:
    servers = {
        "good": demo_server("workshop", toolFilters=["*", "!slwo"]),
        "gone": {"command": "no-such-command-anywhere"},
    }
    write_config(tmp_path, toolbox("dev", **servers))
    done = run_command("check", "--connect", cwd=tmp_path)
    assert done.status == 4
    assert "✔ dev/good  2026-07-28     4 tools" in done.out
    assert "✘ dev/gone  not available" in done.out
    assert "no-such-command-anywhere" in done.out
    assert "toolFilters: '!slwo' matches none of the tools of dev/good" in done.err
    assert "dev/gone: not available (" in done.err  # progress, one line per server


def test_a_command_that_does_not_exist_is_found_without_starting_anything(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    servers = {
        "good": entry(env={"PIDFILE": str(pids)}),
        "gone": {"command": "no-such-command-anywhere"},
        "path": {"command": str(tmp_path / "no-such-file")},
        "lost": {**entry(), "cwd": str(tmp_path / "no-such-folder")},
        "unset": {"command": "${NO_SUCH_VARIABLE}"},
        "web": {"url": "https://example.com/mcp"},
    }
    write_config(tmp_path, toolbox("dev", **servers))

    done = run_command("check", cwd=tmp_path)
    data = run_command("check", "--json", cwd=tmp_path).data

    assert done.status == 0
    assert "1 toolbox, 6 servers, proxy mode, 4 warnings" in done.out
    gone = (
        "warning: server 'dev/gone' can't be started: command not found: no-such-command-anywhere"
    )
    assert gone in done.err
    assert "toolboxes.dev.mcpServers.gone.command" in done.err
    assert "fix: install no-such-command-anywhere, or write its absolute path" in done.err
    assert f"'dev/path' can't be started: command not found: {tmp_path}/no-such-file" in done.err
    assert "fix: correct 'command'" in done.err
    assert f"'dev/lost' can't be started: its working folder {tmp_path}/no-such-folder" in done.err
    assert "toolboxes.dev.mcpServers.lost.cwd" in done.err
    assert "WB-CONN-105" in done.err
    found = [one["path"].rpartition("mcpServers.")[2] for one in data["problems"]]
    assert sorted(found) == ["gone.command", "lost.cwd", "path.command", "unset.command"]
    assert {one["severity"] for one in data["problems"]} == {"warning"}
    assert not pids.exists()


def test_a_missing_command_is_told_before_servers_are_started_and_the_ready_ones_are_counted(
    tmp_path: Path,
) -> None:
    servers = {"a": demo_server(), "b": demo_server(), "gone": {"command": "no-such-command"}}
    write_config(tmp_path, toolbox("dev", **servers))

    done = run_command("check", "--connect", cwd=tmp_path)

    assert done.status == 4
    assert done.out.splitlines()[-1] == "2 of 3 ready"
    assert done.err.index("warning: server 'dev/gone'") < done.err.index("dev/a: ready")
    assert run_command("check", "--connect", cwd=tmp_path.parent).out.endswith("2 of 2 ready\n")


def test_what_a_server_said_lately_is_looked_at_without_starting_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    mine = entry(toolFilters=["*", "!slwo"], env={"PIDFILE": str(pids)})
    write_config(tmp_path, toolbox("dev", good=mine))
    assert "slwo" not in run_command("check", cwd=tmp_path).err  # nothing is known yet
    run_command("tools", cwd=tmp_path)
    started = pids.read_text()

    done = run_command("check", cwd=tmp_path)

    warning = "toolFilters: '!slwo' matches none of the tools of dev/good (known from the cache)"
    assert done.status == 0
    assert warning in done.err
    assert pids.read_text() == started


def test_connect_as_json(tmp_path: Path) -> None:
    done = run_command("check", "--connect", "--json", cwd=tmp_path)
    assert (done.status, done.err) == (0, "")
    assert done.data["ok"] is True
    assert [(s["server"], s["tools"]) for s in done.data["servers"]] == [
        ("basics", 4),
        ("workshop", 4),
    ]


def test_names_too_long_for_hosts_are_warned_about_in_dynamic_mode(tmp_path: Path) -> None:
    config = toolbox("a-long-name-for-a-toolbox", a_server_of_ours=demo_server("workshop"))
    write_config(tmp_path, config | {"toolMode": "dynamic"})
    done = run_command("check", "--connect", cwd=tmp_path)
    assert done.status == 0
    # 25 + 2 + 16 + 2 characters come before the tool's own name
    assert "a_server_of_ours__slow' has 49 characters: Claude Code may refuse it" in done.err
    assert "a_server_of_ours__convert_units' has 58 characters" in done.err
    assert "Cursor drops the tool" in done.err
    assert 'or set "toolMode": "proxy"' in done.err


def test_a_server_that_depends_on_the_folder_of_its_host_is_named(tmp_path: Path) -> None:
    here = entry()
    here["args"] = [*here["args"], "."]
    write_config(tmp_path, toolbox("dev", here=here, a=entry()))

    done = run_command("check", "--connect", cwd=tmp_path)

    assert "2 server processes; under `up` one for each host, in its folder: dev/here" in done.out


def test_the_number_of_processes_is_told(tmp_path: Path) -> None:
    mine = toolbox("dev", a=entry(), b=entry(), own=entry(scope="session"), gone={"command": "no"})
    write_config(tmp_path, mine)

    told = run_command("check", "--connect", cwd=tmp_path)
    data = run_command("check", "--connect", "--json", cwd=tmp_path).data

    assert "2 server processes; one for each host: dev/own (scope: session)" in told.out
    counted = {one["server"]: one["processes"] for one in data["servers"]}
    assert counted == {"a": 1, "b": 1, "own": 1, "gone": 0}
