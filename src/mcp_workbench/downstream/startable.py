"""Why a command can't be started, with what to write instead."""

from __future__ import annotations

import errno
import os

from mcp_workbench.core.spec import StdioCommand

FIRST_LINE = 256  # bytes; as much as Linux reads of it


def unusable_folder(cwd: str) -> str:
    """What is wrong with a working folder; empty where nothing is."""
    if not os.path.exists(cwd):  # noqa: PTH110 - text in, text out
        return f"its working folder {cwd} does not exist; correct 'cwd'"
    if not os.path.isdir(cwd):  # noqa: PTH112
        return f"its working folder {cwd} is no folder; correct 'cwd'"
    if not os.access(cwd, os.X_OK):
        return f"its working folder {cwd} may not be entered; correct 'cwd', or its rights"
    return ""


def not_startable(target: StdioCommand, path: str) -> str:
    """Why no program was found for this command."""
    command = target.command
    if os.path.isdir(command) and os.sep in command:  # noqa: PTH112
        return f"command is a folder: {command}; correct 'command'"
    if os.sep in command and os.path.exists(command):  # noqa: PTH110
        return f"command is not executable: {command}; chmod +x it or correct 'command'"
    if entry := _taken_apart(target):
        return f"command is a whole command line: {command}; write {entry}"
    if os.sep not in command:
        return f"command not found: {command} (searched PATH {path}); install it or write its absolute path"
    return f"command not found: {command}; correct 'command'"


def _taken_apart(target: StdioCommand) -> str:
    """The entry that was meant by a command line; empty where it is none."""
    # Only wanted when something has failed, so they are not loaded before.
    import shlex

    from msgspec.json import encode

    try:
        program, *args = shlex.split(target.command)
        name, *listed = [encode(word).decode() for word in (program, *args, *target.args)]
    except ValueError:  # an open quote, no word at all, or no text
        return ""
    # The path of a program may have spaces, too: then its first word leads nowhere.
    if not args or (os.sep in program and not os.access(program, os.X_OK)):
        return ""
    return f'"command": {name}, "args": [{", ".join(listed)}]'


def refused_by_system(command: str, error: OSError) -> str:
    """Why a program could not be started, with the limit that was met."""
    told = f"{command} can't be started: {error.strerror or error}"
    match error.errno:
        case errno.EMFILE:
            most = os.sysconf("SC_OPEN_MAX")
            return f"{told}: no more than {most} at once (ulimit -n), of which a server takes four"
        case errno.ENFILE:
            return f"{told}, on the whole machine (fs.file-max)"
        case errno.EAGAIN:
            return (
                f"{told}: no more processes are allowed (ulimit -u, or pids.max of the container)"
            )
        case errno.ENOENT if wrong := _wrong_first_line(error.filename or command):
            return f"{command} can't be started: {wrong}"
        case _:
            return told


def _wrong_first_line(program: str) -> str:
    """Of a script whose interpreter is not there; empty where that is not it."""
    try:
        with open(program, "rb") as file:  # noqa: PTH123 - text in, text out
            line = file.readline(FIRST_LINE)
    except OSError:
        return ""
    words = line.removeprefix(b"#!").replace(b"\t", b" ").strip(b" \n").split(b" ")
    interpreter = os.fsdecode(words[0])
    if not line.startswith(b"#!") or os.path.exists(interpreter):  # noqa: PTH110
        return ""
    if interpreter.endswith("\r"):  # for the system a part of the name
        return "its lines end as on Windows (CR LF); correct them to LF alone"
    told = f"its first line names the interpreter {interpreter}, which does not exist"
    return f"{told}; correct that line, or install {interpreter}"
