"""A shell completes commands, options and names, and starts no server for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_workbench.cli.completion_scripts import ASKED, SCRIPTS
from tests.kit.command import TIMEOUT, Done, environ, run_command
from tests.kit.config import demo_server, toolbox, write_config
from tests.kit.terminal import terminal

ROOT = Path(__file__).parents[2]


def offered(*words: str, cwd: Path) -> list[str]:
    """What may stand at the cursor, behind these words."""
    done: Done = run_command(cwd=cwd, **{ASKED: "\n".join(words)})
    assert (done.status, done.err) == (0, "")
    return [line.split("\t")[1] for line in done.out.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A configuration whose servers note that they were started."""
    note = {"command": "touch", "args": [str(tmp_path / "started")]}
    servers = {"git": note | {"toolFilters": ["git_log", "git_*", "!git_push"]}, "files": note}
    config = toolbox("dev", **servers)
    config["toolboxes"]["ops"] = {"mcpServers": {"db": note}}
    write_config(tmp_path, config)
    return tmp_path


def test_commands_options_and_values(folder: Path) -> None:
    assert offered("c", cwd=folder) == ["check", "call", "cost", "completion"]
    assert "doctor" in offered("", cwd=folder)
    assert offered("check", "--c", cwd=folder) == ["--connect", "--config"]
    assert offered("completion", "", cwd=folder) == ["bash", "zsh", "fish"]
    assert offered("explain", "wb-conf-02", cwd=folder)[0] == "WB-CONF-020"


def test_names_part_by_part(folder: Path) -> None:
    assert offered("tools", "", cwd=folder) == ["dev/", "ops/"]
    assert offered("call", "d", cwd=folder) == ["dev/"]
    assert offered("call", "dev/", cwd=folder) == ["dev/git/", "dev/files/"]
    assert offered("call", "dev/git/", cwd=folder) == ["dev/git/git_log"]
    assert offered("doctor", "dev/g", cwd=folder) == ["dev/git"]
    assert offered("cost", "", cwd=folder) == ["dev", "ops"]
    assert offered("serve", "--toolbox", "o", cwd=folder) == ["ops"]
    assert offered("call", "gone/", cwd=folder) == []
    assert not (folder / "started").exists()


def test_tools_are_those_that_the_server_had_last_time(tmp_path: Path, state_home: Path) -> None:
    filtered = demo_server(toolFilters=["!fail"])
    write_config(tmp_path, toolbox("dev", a=demo_server(), b=filtered))
    assert offered("call", "dev/a/", cwd=tmp_path) == []
    assert run_command("tools", cwd=tmp_path).status == 0
    names = [f"dev/a/{name}" for name in ("echo", "add", "now", "fail")]

    assert offered("call", "dev/a/", cwd=tmp_path) == names
    assert offered("tools", "dev/a/n", cwd=tmp_path) == ["dev/a/now"]
    assert "dev/b/fail" not in offered("call", "dev/b/", cwd=tmp_path)
    told = run_command(cwd=tmp_path, **{ASKED: "call\ndev/a/ad"}).out
    assert told == "plain\tdev/a/add\tAdds two numbers.\n"
    off = run_command(cwd=tmp_path, MCP_WORKBENCH_CACHE="off", **{ASKED: "call\ndev/a/"})
    assert (off.status, off.out) == (0, "")
    for file in (state_home / "catalogues").glob("*.catalogue"):
        file.write_bytes(b"damaged")
    assert offered("call", "dev/a/", cwd=tmp_path) == []


HOSTILE = r"""
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        about = {"name": "x", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
    elif message.get("method") == "tools/list":
        names = ["good", "bad;reboot", "$(reboot)", "a b", "tab\there"]
        schema = {"type": "object"}
        text = "says\x1b]0;more\x07\tthan\none line " + "x" * 200
        result = {"tools": [{"name": n, "description": text, "inputSchema": schema} for n in names]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def test_nothing_is_offered_that_a_shell_would_obey(tmp_path: Path) -> None:
    (tmp_path / "hostile.py").write_text(HOSTILE)
    server = {"command": sys.executable, "args": ["hostile.py"], "era": "legacy"}
    write_config(tmp_path, toolbox("dev", a=server))
    assert len(run_command("tools", "--json", cwd=tmp_path).data["tools"]) == 5

    [line] = run_command(cwd=tmp_path, **{ASKED: "call\ndev/a/"}).out.splitlines()

    kind, name, text = line.split("\t")
    assert (kind, name) == ("plain", "dev/a/good")
    assert text.startswith("says\\x1b]0;more\\x07 than one line x")
    assert len(text) == 80


def test_hosts_and_files(folder: Path) -> None:
    assert offered("install", "cl", cwd=folder) == ["claude-code", "claude-desktop", "cline"]
    assert offered("uninstall", "goo", cwd=folder) == []  # nothing of ours can be there
    assert offered("import", "goo", cwd=folder) == ["goose"]
    assert offered("install", "cursor", "--toolbox", "d", cwd=folder) == ["dev"]
    done = run_command(cwd=folder, **{ASKED: "import\nser"})
    assert done.out == "file\tser\t\n"


def test_the_configuration_is_the_one_that_the_line_names(folder: Path) -> None:
    write_config(folder, toolbox("other", a=demo_server()), "other.json")
    assert offered("--config", "other.json", "tools", "", cwd=folder) == ["other/"]
    assert offered("tools", "--config", "other.json", "", cwd=folder) == ["other/"]


def test_a_line_or_a_file_that_is_wrong_offers_nothing(folder: Path) -> None:
    assert offered("bogus", "", cwd=folder) == []
    assert offered("serve", "--http", "x", "--toolbox", "", cwd=folder) == ["dev", "ops"]
    write_config(folder, "{")
    assert offered("tools", "", cwd=folder) == []


@pytest.mark.parametrize("shell", list(SCRIPTS))
def test_the_script_is_printed_quickly_and_with_options(shell: str, tmp_path: Path) -> None:
    assert run_command("completion", shell, cwd=tmp_path).out == SCRIPTS[shell]
    assert run_command("--json", "completion", shell, cwd=tmp_path).data["script"] == SCRIPTS[shell]
    assert run_command("completion", cwd=tmp_path, SHELL=f"/bin/{shell}").out == SCRIPTS[shell]
    wrong = run_command("completion", cwd=tmp_path, SHELL="/bin/tcsh")
    assert (wrong.status, wrong.err.splitlines()[0]) == (2, "error: name a shell: bash, zsh, fish")


def as_command(folder: Path) -> Path:
    """A folder in which `mcp-workbench` is this program."""
    command = folder / "bin" / "mcp-workbench"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mcp_workbench "$@"\n')
    command.chmod(0o755)
    return command.parent


BASH = """
source <(mcp-workbench completion bash)
complete -p mcp-workbench
ask() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    compopt() { echo compopt "$@"; }
    _mcp_workbench mcp-workbench
    printf '%s\\n' "${COMPREPLY[@]}"
}
ask mcp-workbench doc
ask mcp-workbench call dev/
ask mcp-workbench check --config ''
"""
FISH = """
mcp-workbench completion fish | source
complete -C 'mcp-workbench doc'
complete -C 'mcp-workbench call dev/'
"""
ZSH = """
autoload -U compinit; compinit -u
source <(mcp-workbench completion zsh)
compadd() { print -r -- "compadd $*"; }
_describe() { print -r -- "described $described"; }
_files() { print -r -- files; }
words=(mcp-workbench doc); CURRENT=2; _mcp_workbench
words=(mcp-workbench call dev/); CURRENT=3; _mcp_workbench
"""


def run_in(shell: str, script: str, folder: Path) -> list[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    path = f"{as_command(folder)}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [shell, "-c", script],
        cwd=folder,
        env=environ(PATH=path, HOME=str(folder), TMPDIR=str(folder), XDG_RUNTIME_DIR=str(folder)),
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_bash_takes_it(folder: Path) -> None:
    assert run_in("bash", BASH, folder) == [
        "complete -F _mcp_workbench mcp-workbench",
        "doctor",
        *["compopt -o nospace"] * 2,
        "dev/git/",
        "dev/files/",
        "compopt -o default",
        "",
    ]


def test_fish_takes_it(folder: Path) -> None:
    told = [line.split("\t")[0] for line in run_in("fish", FISH, folder)]
    assert told == ["doctor", "dev/git/", "dev/files/"]


def test_zsh_takes_it(folder: Path) -> None:
    told = run_in("zsh", ZSH, folder)
    assert told[0].startswith("described doctor:")
    assert told[1] == "compadd -S  -a open"


# What a person types into each shell before the first tab, and the shell without its own settings.
SHELLS = {
    "bash": (["bash", "--norc", "-i"], "source <(mcp-workbench completion bash)"),
    "zsh": (
        ["zsh", "-d", "-i"],
        "autoload -U compinit; compinit -u -D; source <(mcp-workbench completion zsh)",
    ),
    "fish": (["fish", "--no-config", "-i"], "mcp-workbench completion fish | source"),
}


@pytest.mark.parametrize("shell", list(SHELLS))
def test_the_tab_key_of_a_real_shell(shell: str, tmp_path: Path) -> None:
    """A whole call, typed with as few keys as the shell lets a person use."""
    command, beginning = SHELLS[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    write_config(tmp_path, toolbox("develop", foundations=demo_server()))
    assert run_command("tools", cwd=tmp_path).status == 0  # from now on its tools are known
    (tmp_path / ".zshrc").write_text("")  # else zsh greets a newcomer
    path = f"{as_command(tmp_path)}{os.pathsep}{os.environ['PATH']}"
    # Shells keep files and folders in the last two.
    folders = dict.fromkeys(("HOME", "TMPDIR", "XDG_RUNTIME_DIR"), str(tmp_path))
    variables = {"PATH": path, "PS1": "% ", **folders}
    with terminal(cwd=tmp_path, columns=200, variables=variables, command=command) as person:
        person.type(f"{beginning}; echo rea''dy\n")
        person.expect("ready")
        person.type("mcp-workbench ca\tdev\t\tad\ta:=2000 b:=2222; echo aft''er\n")
        person.expect("after")
        person.type("exit\n")
    assert "4222" in person.screen.split("ready")[1]  # what it adds up to stands nowhere else
