"""Everything that can go wrong, row by row, and which files show what becomes of it.

A test shows a row by its mark, `@pytest.mark.fault("F12")`; `test_rows.py` compares both. Each injects
its fault for real and sees to it that a healthy neighbour is served all the while (`scene.py`, `web.py`).
"""

from typing import NamedTuple


class Row(NamedTuple):
    """One fault. Where no test shows it, `missing` says why."""

    id: str
    fault: str
    files: tuple[str, ...] = ()
    missing: str = ""


PROCESSES = "faults/test_processes.py"
STALE = "faults/test_stale.py"
BYTES = "faults/test_bytes.py"
HTTP = "faults/test_http.py"
HOSTS = "faults/test_hosts.py"
MANY = "faults/test_many_hosts.py"
PROMISES = "faults/test_promises.py"
CANCELLING = "faults/test_cancelling.py"
LEAKS = "faults/test_leaks.py"
CODES = "faults/test_codes.py"
ERAS = "faults/test_eras.py"
AROUND = "faults/test_surroundings.py"
TRIALS = "upstream/test_backoff.py"
OVER_HTTP = "http_servers/test_faults_over_http.py"

ROWS = (
    Row(
        "F1",
        "a server is killed in the middle of calls",
        (PROCESSES, "contract/test_lost_calls.py"),
    ),
    Row("F2", "a server is dead, and its grandchild holds the pipe", (PROCESSES,)),
    Row("F3", "a server never answers", (PROCESSES, CANCELLING)),
    Row("F4", "servers do not leave when they are asked to", ("contract/test_ending.py",)),
    Row(
        "F5", "we are killed ourselves", ("contract/test_killed.py", "contract/test_left_groups.py")
    ),
    Row("F6", "restarts leave zombies, descriptors, tasks", (LEAKS,)),
    Row("F7", "text on stdout that is no message", (BYTES,)),
    Row("F8", "text that is not UTF-8", (BYTES,)),
    Row("F9", "a flood of complaints on stderr", (BYTES,)),
    Row("F10", "a huge line, or one without an end", (BYTES, "transport/test_frames.py")),
    Row("F11", "half a message, then the end", (PROCESSES,)),
    Row(
        "F12",
        "answers with a foreign id, doubled, or in an array",
        (BYTES, "contract/test_calls.py"),
    ),
    Row("F13", "nesting without end", (BYTES, HTTP)),
    Row("F14", "results of the wrong shape", (BYTES, CODES)),
    Row("F15", "floods of notices and announcements", (BYTES, "test_workbench.py")),
    Row(
        "F16",
        "a server takes long to start",
        (PROCESSES, PROMISES, "contract/test_processes.py", "test_workbench.py"),
    ),
    Row("F17", "a server fails to start", (PROCESSES, PROMISES, "contract/test_processes.py")),
    Row(
        "F18",
        "a server does not list its tools",
        (PROCESSES, STALE, PROMISES, "contract/test_processes.py"),
    ),
    Row(
        "F19",
        "a server is back and has not listed its tools",
        (PROCESSES, STALE, "contract/test_resting.py"),
    ),
    Row("F20", "an outage of many minutes", (PROCESSES, AROUND, TRIALS, HTTP)),
    Row(
        "F21",
        "a crash loop",
        (PROCESSES, AROUND, TRIALS, MANY, HTTP, "contract/test_resting.py"),
    ),
    Row("F22", "streams that end at once, for ever", (HTTP, OVER_HTTP)),
    Row("F23", "a server has forgotten our session", (HTTP,)),
    Row("F24", "resets, cut bodies, broken compression", (HTTP, OVER_HTTP)),
    Row("F25", "no answer over HTTP, or a byte a second", (HTTP,)),
    Row("F26", "a server wants to be left alone for a while", (HTTP,)),
    Row("F27", "a page where a server should be", (HTTP, OVER_HTTP)),
    Row("F28", "a decompression bomb", (HTTP, OVER_HTTP)),
    Row("F29", "megabytes as events", (HTTP,)),
    Row("F30", "a redirect to somewhere else", (HTTP,)),
    Row(
        "F31", "cancels that are lost or hit another", (CANCELLING, HOSTS, "contract/test_calls.py")
    ),
    Row("F32", "changes that are not heard, or by the wrong ones", (HOSTS, PROMISES)),
    Row("F33", "hosts with equal ids and tokens", (HOSTS, "contract/test_calls.py")),
    Row("F34", "servers end in any order", (LEAKS,)),
    Row("F35", "asked to end twice, at any moment", ("contract/test_ending.py",)),
    Row("F36", "one cause told as another", (CODES,)),
    Row("F37", "a process for every host", (MANY, "test_workbench.py")),
    Row("F38", "a session for every refresh", (LEAKS,)),
    Row("F39", "sessions at our own door pile up", ("http/test_sessions.py",)),
    Row(
        "F40",
        "hosts and servers of different eras",
        (ERAS, "contract/test_eras.py", "http_servers/test_calls_over_http.py"),
    ),
    Row("F41", "memory grows with calls and sessions", (LEAKS,)),
    Row("F42", "hosts vanish in the middle of calls", (HOSTS, CANCELLING)),
    Row(
        "F43",
        "the folder for our state is full or read-only",
        ("memory/test_warm_start.py",),
    ),
    Row("F44", "the clock jumps", (AROUND,)),
    Row("F45", "no file descriptors are left", ("contract/test_descriptors.py",)),
    Row("F46", "commands and process trees on Windows", ("upstream/test_commands.py",)),
    Row("F47", "a server ends of the question for its era", (ERAS,)),
    Row("F48", "one odd tool among good ones", (BYTES,)),
    Row("F49", "half a character in a result", (BYTES,)),
    Row("F50", "a body of many lines for a host on a pipe", (HTTP,)),
    Row("F51", "a server does not read", (BYTES, CANCELLING, "contract/test_limits.py")),
    Row("F52", "a host does not read", (HOSTS, "contract/test_limits.py")),
    Row(
        "F53",
        "a host closes its end, or is killed",
        ("contract/test_ending.py", "daemon/test_joining.py"),
    ),
    Row("F54", "something in our process prints", (AROUND,)),
    Row(
        "F55",
        "a bad configuration is written while we run",
        (PROMISES, "reload/test_hosts.py", "reload/test_watch.py"),
    ),
    Row("F56", "the configuration changes under a call", ("reload/test_swap.py",)),
)
