"""From a wish to a process: its environment, its folder, and why it could not be started."""

import errno
import os
import sys
from pathlib import Path

import pytest

from mcp_workbench.config.expand import Environment
from mcp_workbench.core.spec import HttpEndpoint, ServerAddress, ServerSpec, StdioCommand
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.dial import Processes, Unreachable, dial, launch_of, start_error
from mcp_workbench.upstream.launch import child_environment

OWN = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/home/x",
    "LANG": "C",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "TMPDIR": "/tmp",
    "XDG_CONFIG_HOME": "/home/x/.config",
    "HTTPS_PROXY": "http://proxy:3128",
    "no_proxy": "localhost",
    "SSL_CERT_FILE": "/etc/ca.pem",
    "NODE_EXTRA_CA_CERTS": "/etc/ca.pem",
    "AWS_SECRET_ACCESS_KEY": "s",
    "GITHUB_TOKEN": "s",
    "LD_PRELOAD": "x.so",
    "PYTHONPATH": "/x",
    "NODE_OPTIONS": "--require x",
    "WORKBENCH_CONFIG": "c",
    "BASH_FUNC_ls%%": "() { evil; }",
    "TERM": "() { :; }",
}


def test_only_what_programs_need_to_start_is_passed_on() -> None:
    names = (
        "PATH HOME LANG LC_ALL TZ TMPDIR XDG_CONFIG_HOME HTTPS_PROXY no_proxy SSL_CERT_FILE "
        "NODE_EXTRA_CA_CERTS"
    )
    assert child_environment(OWN, StdioCommand("x")) == {name: OWN[name] for name in names.split()}


def test_what_the_entry_says_comes_in_and_wins() -> None:
    env = child_environment(
        OWN, StdioCommand("x", env=(("GITHUB_TOKEN", "given"), ("PATH", "/only")))
    )

    assert (env["GITHUB_TOKEN"], env["PATH"], env["HOME"]) == ("given", "/only", "/home/x")


def test_a_command_is_found_on_the_path_of_the_child(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    target = StdioCommand("tool", ("-x",), (("PATH", str(tmp_path)),))

    launch = launch_of(target, OWN)

    assert launch.argv == (str(program), "-x")
    assert launch.cwd is None


def test_arguments_are_a_list_and_no_shell_reads_them() -> None:
    nasty = ("; rm -rf /", "$(id)", "a b", "")

    assert launch_of(StdioCommand(sys.executable, nasty), OWN).argv == (sys.executable, *nasty)


def test_a_command_that_is_not_found_names_the_path_searched_and_the_remedy() -> None:
    with pytest.raises(Unreachable) as caught:
        launch_of(StdioCommand("no-such-program"), OWN)

    assert "command not found: no-such-program" in str(caught.value)
    assert "/usr/bin:/bin" in str(caught.value)
    assert "install it" in str(caught.value)


def test_a_path_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=f"command not found: {tmp_path}/nothing"):
        launch_of(StdioCommand(f"{tmp_path}/nothing"), OWN)


def test_a_file_that_may_not_be_executed_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")

    with pytest.raises(Unreachable, match="not executable"):
        launch_of(StdioCommand(f"{tmp_path}/plain"), OWN)


def test_a_folder_is_no_command(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=f"command is a folder: {tmp_path}; correct 'command'"):
        launch_of(StdioCommand(str(tmp_path)), OWN)


@pytest.mark.parametrize(
    ("command", "args", "entry"),
    [
        ("npx -y @scope/server .", (), '"command": "npx", "args": ["-y", "@scope/server", "."]'),
        ("npx -y 'a b'", ("-x",), '"command": "npx", "args": ["-y", "a b", "-x"]'),
        ("/bin/sh -c true", (), '"command": "/bin/sh", "args": ["-c", "true"]'),
    ],
)
def test_a_whole_command_line_is_shown_taken_apart(
    command: str, args: tuple[str, ...], entry: str
) -> None:
    with pytest.raises(Unreachable) as caught:
        launch_of(StdioCommand(command, args), OWN)

    assert str(caught.value) == f"command is a whole command line: {command}; write {entry}"


@pytest.mark.parametrize("command", ["/no/such folder/tool", "it's", " "])
def test_a_name_with_a_space_or_a_quote_is_not_taken_for_a_command_line(command: str) -> None:
    with pytest.raises(Unreachable, match="command not found"):
        launch_of(StdioCommand(command), OWN)


def test_a_relative_cwd_counts_from_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()

    launch = launch_of(StdioCommand(sys.executable, cwd="inner", folder=str(tmp_path)), OWN)

    assert launch.cwd == str(tmp_path / "inner")


def test_an_absolute_cwd_stays(tmp_path: Path) -> None:
    launch = launch_of(StdioCommand(sys.executable, cwd=str(tmp_path), folder="/elsewhere"), OWN)

    assert launch.cwd == str(tmp_path)


def test_a_cwd_that_does_not_exist_names_it(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"missing.*cwd"):
        launch_of(StdioCommand(sys.executable, cwd="missing", folder=str(tmp_path)), OWN)


def test_a_cwd_that_is_a_file_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")

    with pytest.raises(Unreachable, match=r"plain is not a folder; correct 'cwd'"):
        launch_of(StdioCommand(sys.executable, cwd="plain", folder=str(tmp_path)), OWN)


def nobody() -> Conversation:
    return Conversation(1000, lambda message: None)


class Here:
    """What dialling needs to know of the place where it is done."""

    def __init__(self) -> None:
        self.environ = Environment(os.environ)
        self.processes = Processes()
        self.placements = None


async def reason(spec: ServerSpec) -> str:
    """Why this server can't be dialled."""
    with pytest.raises(Unreachable) as caught:
        async with dial(spec, Here(), nobody(), lambda: None):
            raise AssertionError("it was started")
    return str(caught.value)


async def test_an_unset_variable_names_itself_its_place_and_the_remedy() -> None:
    target = StdioCommand(sys.executable, ("${WB_NO_SUCH}",))
    spec = ServerSpec(ServerAddress("a", "b"), target, place="toolboxes.a.mcpServers.b")

    told = await reason(spec)

    assert told.startswith("variable WB_NO_SUCH is not set")
    assert "toolboxes.a.mcpServers.b.args[0]" in told
    assert "${WB_NO_SUCH:-}" in told


async def test_a_problem_found_in_the_file_is_the_reason() -> None:
    spec = ServerSpec(ServerAddress("a", "b"), StdioCommand("x"), problem="it has no command")

    assert await reason(spec) == "it has no command"


async def test_a_program_that_the_system_refuses_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    spec = ServerSpec(ServerAddress("a", "b"), StdioCommand(str(broken)))

    told = await reason(spec)

    assert str(broken) in told
    assert "can't be started" in told


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (
            "#! /no/such/python3 -u\n",
            "names the interpreter /no/such/python3, which does not exist",
        ),
        ("#!/bin/sh\r\n", "it has Windows line endings (CR LF)"),
    ],
)
async def test_a_script_without_its_interpreter_names_it(
    tmp_path: Path, first: str, told: str
) -> None:
    script = tmp_path / "script"
    script.write_text(first, newline="")
    script.chmod(0o755)

    text = await reason(ServerSpec(ServerAddress("a", "b"), StdioCommand(str(script))))

    assert f"{script} can't be started: " in text
    assert told in text
    assert "No such file" not in text


@pytest.mark.parametrize("url", ["ftp://example.com", "nonsense", "http://", "http://x:y/"])
async def test_a_url_that_can_not_be_used_is_told(url: str) -> None:
    spec = ServerSpec(ServerAddress("a", "b"), HttpEndpoint(url))

    assert "correct 'url'" in await reason(spec)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (
            errno.EMFILE,
            (
                f"Too many open files: no more than {os.sysconf('SC_OPEN_MAX')} at once "
                "(ulimit -n), of which a server takes four"
            ),
        ),
        (
            errno.ENFILE,
            "Too many open files in system, on the whole machine (fs.file-max)",
        ),
        (
            errno.EAGAIN,
            (
                "Resource temporarily unavailable: no more processes are allowed "
                "(ulimit -u, or pids.max of the container)"
            ),
        ),
        (errno.ENOMEM, "Cannot allocate memory"),
        (errno.ENOENT, "No such file or directory"),
    ],
)
def test_which_limit_keeps_a_program_from_starting_is_told(number: int, told: str) -> None:
    error = OSError(number, os.strerror(number), "/no/such/tool")

    assert start_error("tool", error) == f"tool can't be started: {told}"


@pytest.mark.parametrize("first", ["#!/bin/sh\n", "no script\n", ""])
def test_a_script_whose_interpreter_is_there_is_not_blamed(tmp_path: Path, first: str) -> None:
    (tmp_path / "tool").write_text(first)
    error = FileNotFoundError(errno.ENOENT, "No such file or directory", str(tmp_path / "tool"))

    assert start_error("tool", error) == "tool can't be started: No such file or directory"
