"""Of what a crashed program writes to stderr, the line that says what went wrong is shown."""

import subprocess
import sys
from pathlib import Path

import pytest

from mcp_workbench.upstream.crash_output import MOST_AFTER, MOST_LINES, reason_lines
from tests.kit.config import config_file
from tests.kit.pipe_host import PipeHost
from tests.kit.results import text

CRASHES = Path(__file__).parent / "crashes"  # as Node 20, npx, uvx and rich 15 printed them

CRASHED = {
    "node-throw": ["Error: DB_URL is required"],
    "node-two-lines": ["Error: DB_URL is required", "set it in the environment"],
    "node-indented-message": ["ConfigError: missing key - apiKey - region"],
    "node-cause": [
        "Error: config is broken",
        "caused by: SyntaxError: Expected property name or '}' in JSON at position 1",
    ],
    "node-logged": ["Fatal error: TypeError: bad option"],
    "node-thrown-string": ["no token"],
    "node-emitted-error": ["Error: connect ECONNREFUSED 127.0.0.1:1"],
    "node-properties": ["Error: ENOENT: no such file or directory, open '/nonexistent'"],
    "node-missing-module": ["Error: Cannot find module 'left-pad-nope'"],
    "node-missing-package": [
        (
            "Error [ERR_MODULE_NOT_FOUND]: Cannot find package 'left-pad-nope' "
            "imported from /srv/app/missing.mjs"
        )
    ],
    "node-syntax": ["SyntaxError: Unexpected token ';'"],
    "node-zod": [
        (
            'ZodError: [ { "code": "invalid_type", "expected": "string", "received": "undefined", '
            '"path": [ "DB_URL" ], "message": "Required" } ]'
        )
    ],
    "uvx-traceback": ["KeyError: 'DB_URL'"],
    "rich-chained": ["RuntimeError: DB_URL is required", "caused by: KeyError: 'DB_URL'"],
}


@pytest.mark.parametrize("name", CRASHED)
def test_the_message_is_shown_without_frames_source_and_trailer(name: str) -> None:
    reason = reason_lines((CRASHES / f"{name}.txt").read_text("utf-8"))

    assert reason.lines == CRASHED[name]
    assert reason.is_exception


def test_a_box_that_is_no_traceback_is_shown() -> None:
    box = ["╭─ Error ──────────────────────╮", "│ Missing option '--token'.    │"]
    end = "╰──────────────────────────────╯"

    assert reason_lines("\n".join([*box, end])).lines == [*box, end]


def test_a_string_that_a_promise_was_rejected_with_is_shown() -> None:
    [line] = reason_lines((CRASHES / "node-rejected-string.txt").read_text("utf-8")).lines

    assert line.endswith('The promise rejected with the reason "no token".')


def test_of_npx_only_its_error_is_shown() -> None:
    reason = reason_lines((CRASHES / "npx-unknown-package.txt").read_text("utf-8"))

    assert [line.partition(" - ")[0] for line in reason.lines] == [
        "npm error code E404",
        "npm error 404 Not Found",
        (
            "npm error 404  The requested resource 'definitely-not-a-package-xyz-123@*' could not be "
            "found or you do not have permission to access it."
        ),
    ]


PYTHON = {
    "raised": (
        "def boot(): raise RuntimeError('DB_URL is required')\nboot()",
        ["RuntimeError: DB_URL is required"],
    ),
    "chained": (
        (
            "import os\n"
            "try: os.environ['DB_URL']\n"
            "except KeyError as error: raise RuntimeError('no database') from error"
        ),
        ["RuntimeError: no database", "caused by: KeyError: 'DB_URL'"],
    ),
    "while another was handled": (
        "try: {}['x']\nexcept KeyError: raise ValueError('bad port')",
        ["ValueError: bad port"],
    ),
    "several lines": (
        "raise ValueError('2 problems\\n  no host\\n  no port')",
        ["ValueError: 2 problems no host no port"],
    ),
    "a note": (
        "error = ValueError('bad port')\nerror.add_note('set PORT to a number')\nraise error",
        ["ValueError: bad port", "set PORT to a number"],
    ),
    "a group": (
        "raise ExceptionGroup('of tasks', [RuntimeError('DB_URL is required'), KeyError('x')])",
        ["RuntimeError: DB_URL is required", "KeyError: 'x'"],
    ),
    "a group in a group": (
        (
            "def inner():\n"
            "    try: raise PermissionError(13, 'Permission denied', '/x')\n"
            "    except OSError as error: raise ExceptionGroup('inner', [error])\n"
            "try: inner()\n"
            "except ExceptionGroup as error: raise ExceptionGroup('outer', [error]) from None"
        ),
        ["PermissionError: [Errno 13] Permission denied: '/x'"],
    ),
    "a name with dots": (
        "import json\njson.loads('{')",
        [
            (
                "json.decoder.JSONDecodeError: "
                "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
            )
        ],
    ),
    "no message": ("assert False", ["AssertionError"]),
    "a syntax error": ("def x(:", ["SyntaxError: invalid syntax"]),
    "logged": (
        (
            "import logging\n"
            "logging.basicConfig()\n"
            "print('server 1.0', file=__import__('sys').stderr)\n"
            "try: 1 / 0\n"
            "except ArithmeticError: logging.exception('could not start')"
        ),
        ["ERROR:root:could not start", "ZeroDivisionError: division by zero"],
    ),
    "lines after it": (
        (
            "import atexit, sys\n"
            "atexit.register(lambda: print('shutting down', file=sys.stderr))\n"
            "raise KeyError('DB_URL')"
        ),
        ["KeyError: 'DB_URL'", "shutting down"],
    ),
}


@pytest.mark.parametrize("crash", PYTHON)
def test_the_last_exception_of_a_traceback_is_shown(crash: str, tmp_path: Path) -> None:
    program, lines = PYTHON[crash]
    script = tmp_path / "server.py"
    script.write_text(program)

    assert reason_lines(stderr_of(str(script))).lines == lines


def test_the_last_lines_of_a_program_that_explains_itself_are_the_reason() -> None:
    program = (
        "import argparse\n"
        "parser = argparse.ArgumentParser(prog='files')\n"
        "parser.add_argument('--db', required=True)\n"
        "parser.parse_args([])"
    )

    reason = reason_lines(stderr_of("-c", program))

    assert reason.lines == [
        "usage: files [-h] --db DB",
        "files: error: the following arguments are required: --db",
    ]
    assert not reason.is_exception


def test_an_exception_that_the_program_survived_is_not_the_reason() -> None:
    traceback = stderr_of("-c", "raise ValueError('one bad request')")
    later = "\n".join(f"request {number}" for number in range(MOST_AFTER))

    assert reason_lines(f"{traceback}{later}\nout of memory").lines == [
        *(f"request {MOST_AFTER - number}" for number in range(MOST_LINES - 1, 0, -1)),
        "out of memory",
    ]


def test_of_a_long_message_its_beginning_and_end_are_shown() -> None:
    message = "\\n".join(["7 problems", *(f"problem {number}" for number in range(7))])

    lines = reason_lines(stderr_of("-c", f"raise ValueError('{message}')")).lines

    assert lines == ["ValueError: 7 problems", "problem 0", "…", "problem 5", "problem 6"]


def test_where_there_are_only_remarks_they_are_shown() -> None:
    assert reason_lines("npm warn old lockfile\n").lines == ["npm warn old lockfile"]


def test_nothing_is_the_reason_of_a_silent_program() -> None:
    assert reason_lines("\n \n").lines == []


def test_a_host_reads_why_a_server_did_not_start(tmp_path: Path) -> None:
    deep = (
        "def boot(n):\n    if n: boot(n - 1)\n    raise SystemError('DB_URL is required')\nboot(9)"
    )
    entry = {"command": sys.executable, "args": ["-c", deep]}
    with PipeHost(config_file(tmp_path, {"a": entry})) as host:
        host.handshake()
        answer = host.use("a", "echo")

    assert text(answer).endswith("(exit status 1). stderr: SystemError: DB_URL is required")


def stderr_of(*args: str) -> str:
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, check=False
    ).stderr
