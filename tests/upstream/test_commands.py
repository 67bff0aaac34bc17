"""Which program a command means, here and on systems that are not here."""

import pytest

from mcp_workbench.upstream.launch import resolve

WINDOWS = {
    "path_separator": ";",
    "separators": "\\/",
    "endings": ".COM;.EXE;.BAT;.CMD",
}


def on_windows(command: str, *there: str) -> str | None:
    path = r"C:\Windows;;C:\nodejs"
    return resolve(command, path, is_program=set(there).__contains__, **WINDOWS)


@pytest.mark.fault("F46")
def test_npx_is_found_with_the_ending_that_it_has_there() -> None:
    assert on_windows("npx", r"C:\nodejs\npx.cmd") == r"C:\nodejs\npx.cmd"


@pytest.mark.fault("F46")
def test_a_script_for_another_shell_beside_it_is_not_taken_for_it() -> None:
    assert on_windows("npx", r"C:\nodejs\npx", r"C:\nodejs\npx.cmd") == r"C:\nodejs\npx.cmd"


@pytest.mark.fault("F46")
@pytest.mark.parametrize("command", ["node.exe", "NODE.EXE"])
def test_an_ending_that_is_written_is_not_added_again(command: str) -> None:
    assert on_windows(command, rf"C:\Windows\{command}") == rf"C:\Windows\{command}"


@pytest.mark.fault("F46")
@pytest.mark.parametrize("command", [r"C:\tools\run", "C:/tools/run", r".\run"])
def test_a_path_is_completed_and_not_looked_for(command: str) -> None:
    assert on_windows(command, f"{command}.bat") == f"{command}.bat"
    assert on_windows(command, r"C:\nodejs\run.bat") is None


@pytest.mark.fault("F46")
def test_the_first_folder_and_the_first_ending_win() -> None:
    both = (r"C:\Windows\a.cmd", r"C:\Windows\a.exe", r"C:\nodejs\a.com")
    assert on_windows("a", *both) == r"C:\Windows\a.exe"
    assert on_windows("a") is None


def test_here_a_name_is_what_it_is() -> None:
    there = {"/usr/bin/npx", "/opt/x/npx"}
    assert resolve("npx", "/bin::/usr/bin:/opt/x", is_program=there.__contains__) == "/usr/bin/npx"
    assert resolve("/opt/x/npx", "/usr/bin", is_program=there.__contains__) == "/opt/x/npx"
    assert resolve("./npx", "/usr/bin", is_program=there.__contains__) is None
