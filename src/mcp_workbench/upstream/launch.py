"""Commands of servers: which program one means, in which environment, and what is wrong with it.

Nothing is started here, so this module does not load asyncio.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from mcp_workbench.core.spec import StdioCommand

# What programs need to start. The rest may hold secrets: it is passed on where `inheritEnv` says so.
PASSED_ON = frozenset(
    """
    HOME LOGNAME PATH SHELL TERM USER LANG LANGUAGE TZ TMPDIR TEMP TMP
    HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS
    APPDATA COMSPEC HOMEDRIVE HOMEPATH LOCALAPPDATA PATHEXT PROCESSOR_ARCHITECTURE PROGRAMDATA
    PROGRAMFILES SYSTEMDRIVE SYSTEMROOT USERNAME USERPROFILE WINDIR
    """.split()  # noqa: SIM905 - names, read as a list of words
)
PASSED_ON_PREFIXES = ("LC_", "XDG_")


# The environment


def child_environment(own: Mapping[str, str], target: StdioCommand) -> dict[str, str]:
    """The environment of a child: the usual part of ours, what it inherits, and that of its entry."""
    passed = {
        name: value
        for name, value in own.items()
        if is_passed_on(name, target) and not value.startswith("()")  # an exported shell function
    }
    return {**passed, **dict(target.env)}


def is_passed_on(name: str, target: StdioCommand) -> bool:
    """Does a child get this variable of ours?"""
    return name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES) or target.inherits(name)


# The program


def program_of(target: StdioCommand, env: Mapping[str, str]) -> str | None:
    """The program of an expanded command, in the environment of its process; None where there is none.

    What is found here is what is started, also by a process that starts in another folder: the path of a
    program counts from there, a relative folder of PATH from ours.
    """
    folder = folder_of(target)
    separators = os.sep + (os.altsep or "")
    is_path = any(separator in target.command for separator in separators)
    base = folder if is_path else ""
    found = resolve(
        target.command,
        _path(env),
        is_program=lambda path: _is_program(os.path.join(base, path)),  # noqa: PTH118
        path_separator=os.pathsep,
        separators=separators,
        endings=env.get("PATHEXT", "") if os.name == "nt" else "",
    )
    if found is None or not folder or os.path.isabs(found):  # noqa: PTH117
        return found
    return os.path.join(os.getcwd(), base, found)  # noqa: PTH109, PTH118


def _path(env: Mapping[str, str]) -> str:
    return env.get("PATH", os.defpath)


def resolve(  # noqa: PLR0913 - what differs between systems
    command: str,
    path: str,
    *,
    is_program: Callable[[str], bool],
    path_separator: str = ":",
    separators: str = "/",
    endings: str = "",
) -> str | None:
    """The program of a command, or None. `endings` is PATHEXT, on Windows."""
    known = tuple(ending.lower() for ending in endings.split(";") if ending) if endings else ()
    paths = candidates(command, path.split(path_separator), known, separators)
    return next((candidate for candidate in paths if is_program(candidate)), None)


def candidates(
    command: str, folders: Iterable[str], endings: tuple[str, ...], separators: str
) -> Iterable[str]:
    """Where a command may be, in the order in which the system searches.

    On Windows `npx` is `npx.cmd`: the endings of PATHEXT are tried, as the shell does.
    """
    has_ending = any(command.lower().endswith(ending) for ending in endings if ending)
    names = [command] if has_ending or not endings else [command + ending for ending in endings]
    if any(separator in command for separator in separators):
        return names  # a path: no search
    return [f"{folder}{separators[0]}{name}" for folder in folders if folder for name in names]


def _is_program(path: str) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)  # noqa: PTH112 - text in, text out


# What is wrong


def launch_problem(target: StdioCommand, env: Mapping[str, str]) -> str:
    """Why an expanded command can't be started in this environment; empty where it can."""
    problem = folder_problem(folder_of(target))
    if problem or program_of(target, env) is not None:
        return problem
    return command_problem(target, _path(env))


def folder_of(target: StdioCommand) -> str:
    """The working folder of the process; empty where that is ours."""
    return os.path.join(target.folder, target.cwd) if target.cwd else ""  # noqa: PTH118 - text in, text out


def folder_problem(cwd: str) -> str:
    """What is wrong with a working folder; empty where it is usable."""
    if not cwd:
        return ""
    if not os.path.exists(cwd):  # noqa: PTH110 - text in, text out
        return f"its working folder {cwd} does not exist; correct 'cwd'"
    if not os.path.isdir(cwd):  # noqa: PTH112
        return f"its working folder {cwd} is not a folder; correct 'cwd'"
    if not os.access(cwd, os.X_OK):
        return f"its working folder {cwd} can't be entered; correct 'cwd' or its permissions"
    return ""


def command_problem(target: StdioCommand, path: str) -> str:
    """Why no program was found for this command."""
    command = target.command
    there = os.path.join(folder_of(target), command)  # noqa: PTH118
    if os.path.isdir(there) and os.sep in command:  # noqa: PTH112
        return f"command is a folder: {command}; correct 'command'"
    if os.sep in command and os.path.exists(there):  # noqa: PTH110
        return f"command is not executable: {command}; chmod +x it or correct 'command'"
    if entry := _split_command(target):
        return f"command is a whole command line: {command}; write {entry}"
    if os.sep not in command:
        return f"command not found: {command} (searched PATH {path}); install it or write its absolute path"
    return f"command not found: {command}; correct 'command'"


def _split_command(target: StdioCommand) -> str:
    """The entry that a whole command line in 'command' stands for; empty where it is none."""
    # Loaded when something failed, to keep the start fast.
    import shlex

    from msgspec.json import encode

    try:
        program, *args = shlex.split(target.command)
        name, *listed = [encode(word).decode() for word in (program, *args, *target.args)]
    except ValueError:  # an open quote, or no word at all
        return ""
    # The path of a program may have spaces, too: then its first word is no program.
    if not args or (os.sep in program and not os.access(program, os.X_OK)):
        return ""
    return f'"command": {name}, "args": [{", ".join(listed)}]'
