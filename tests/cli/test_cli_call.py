"""`call` calls one tool, and says in time what is wrong with the arguments."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kit import forked
from tests.kit.command import TIMEOUT, environ, run_command
from tests.kit.config import demo_server, program_entry, toolbox, write_config
from tests.kit.results import Json

pytestmark = pytest.mark.usefixtures("forked_commands")


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_text_goes_to_stdout_and_nothing_else(tmp_path: Path) -> None:
    assert run_command("call", "demo/basics/echo", "text=Grüße", cwd=tmp_path) == (0, "Grüße\n", "")
    assert run_command("call", "demo/basics/add", "a:=2", "b:=3", cwd=tmp_path) == (0, "5\n", "")


def test_a_text_stays_a_text_and_may_hold_anything(tmp_path: Path) -> None:
    done = run_command("call", "demo/basics/echo", "text=a=b:=1", cwd=tmp_path)
    assert done.out == "a=b:=1\n"


def test_input_comes_from_the_line_a_file_or_stdin(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"a": 1, "b": 2}')
    add = ("call", "demo/basics/add", "--input")
    assert run_command(*add, '{"a": 1, "b": 1}', cwd=tmp_path).out == "2\n"
    assert run_command(*add, "@in.json", cwd=tmp_path).out == "3\n"
    assert run_command(*add, "-", "b:=4", cwd=tmp_path, stdin='{"a": 1, "b": 1}').out == "5\n"


def test_an_error_of_the_tool_is_status_5(tmp_path: Path) -> None:
    done = run_command("call", "demo/basics/fail", "reason=no paper", cwd=tmp_path)
    assert done == (5, "no paper\n", "")


def test_json_is_the_whole_result(tmp_path: Path) -> None:
    done = run_command("call", "demo/workshop/word_count", "text=a b", "--json", cwd=tmp_path)
    assert done.data["structuredContent"] == {"words": 2, "characters": 3, "lines": 1}


def test_progress_is_told_on_stderr(tmp_path: Path) -> None:
    slow = ("call", "demo/workshop/slow", "seconds:=1.5", "steps:=3")
    done = run_command(*slow, cwd=tmp_path)
    assert done.out == "finished 3 steps in 1.5 seconds\n"
    assert "3/3 step 3 of 3\n" in done.err
    assert run_command(*slow, "-q", cwd=tmp_path).err == ""


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (
            ["demo/basics/echo", "txt=x"],
            "missing argument 'text' for demo/basics/echo\n  got: txt (did you mean 'text'?)\n  echo(text: string)\n",
        ),
        (["demo/basics/add"], "missing arguments 'a', 'b' for demo/basics/add\n"),
        (["demo/basics/now", "zone=x"], "unknown argument 'zone' for demo/basics/now\n"),
        (
            ["demo/basics/add", "a=two", "b:=1"],
            "argument 'a' takes num, not the text 'two'\n  add(a: num, b: num)\n",
        ),
        (["demo//read_file", "path=x"], "Invalid tool identifier: server cannot be empty\n"),
        (["/b/c"], "Invalid tool identifier: toolbox cannot be empty\n"),
        (["demo/basics"], "Invalid tool identifier: tool cannot be empty\n"),
        (["dmeo/b/c"], "Toolbox 'dmeo' not found\n  Did you mean 'demo'?\n"),
        (["demo/basic/c"], "Server 'basic' not found in toolbox 'demo'\n"),
        (["demo/basics/eco"], "Tool 'eco' not found in server 'basics' (toolbox 'demo')\n"),
        (["demo/basics/echo", "text"], "'text' is not an argument\n"),
        (["demo/basics/add", "a:=x"], "the value of 'a' is not JSON: "),
        (["demo/basics/add", "--input", "[]"], "--input must be a JSON object\n"),
        (["demo/basics/add", "--input", "{"], "--input is not JSON: "),
        (["demo/basics/add", "--input", "@"], "--input @ names no file\n"),
        (["demo/basics/add", "--input", "@gone"], "can't read gone: No such file or directory\n"),
        (
            ["demo/basics/add", "--input", "@wrong.json"],
            "--input is not JSON: wrong.json:2:8: expected a value, not '}'\n",
        ),
        (
            ["demo/basics/add", "--input", f'{{"a": {nested(1000)}}}'],
            "--input is nested more than 1000 levels deep\n",
        ),
        (
            ["demo/basics/add", f"a:={nested(1001)}"],
            "the value of 'a' is nested more than 1000 levels deep\n",
        ),
        (
            ["demo/basics/add", f"a:={nested(300)}]"],
            "the value of 'a' is not JSON: JSON is malformed: trailing characters",
        ),
        (
            ["basics", "a:=1"],
            "'basics' is a server, not a tool\n  fix: a tool is named ",
        ),
    ],
)
def test_what_a_person_mistypes_is_told_with_the_remedy(
    argv: list[str], text: str, tmp_path: Path
) -> None:
    (tmp_path / "wrong.json").write_text('{\n  "a": }\n')
    done = run_command("call", *argv, cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"error: {text}")


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ("{", 'such as {"name": "value"}'),
        ("@gone", "write --input @PATH "),
        ("@", "write --input @PATH "),
    ],
)
def test_an_input_that_can_not_be_read_has_its_remedy(given: str, fix: str, tmp_path: Path) -> None:
    done = run_command("call", "demo/basics/add", "--input", given, "--json", cwd=tmp_path)
    assert done.status == 2
    assert done.failure["fix"].startswith(fix)


def test_no_check_leaves_the_judgement_to_the_server(tmp_path: Path) -> None:
    done = run_command("call", "--no-check", "demo/basics/add", "a=x", cwd=tmp_path)
    assert done == (5, "b is required; a must be a number\n", "")


def test_a_failure_as_json_is_one_line_on_stderr(tmp_path: Path) -> None:
    done = run_command("call", "demo/basics/eco", "--json", cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert done.failure == {
        "code": "WB-CLI-004",
        "message": "Tool 'eco' not found in server 'basics' (toolbox 'demo')",
        "file": "",
        "line": 0,
        "column": 0,
        "path": "",
        "cause": [],
        "fix": "Did you mean 'echo'?",
    }


def test_an_unreachable_server_is_status_4(tmp_path: Path) -> None:
    write_config(tmp_path, toolbox(gone={"command": "no-such-command-anywhere"}))
    for check in ((), ("--no-check",)):
        done = run_command("call", "dev/gone/x", *check, cwd=tmp_path)
        assert done.status == 4
        assert "error: Failed to connect to server 'gone' in toolbox 'dev': " in done.err
        assert "WB-CONN-101" in done.err


def test_what_is_not_text_is_summed_up(tmp_path: Path) -> None:
    content = [
        {"type": "text", "text": "hello"},
        {"type": "image", "mimeType": "image/png", "data": "AAAA" * 10},
        {"type": "resource", "resource": {"uri": "file:///x", "text": "abc"}},
        {"type": "hologram"},
        7,
    ]
    server = _scripted(tmp_path, {"content": content})
    write_config(tmp_path, toolbox(odd=server))
    done = run_command("call", "dev/odd/look", "--no-check", cwd=tmp_path)
    assert done.out.splitlines() == [
        "hello",
        "[image image/png 30 bytes]",
        "[resource file:///x 3 characters]",
        "[hologram]",
        "[]",
    ]


def _scripted(folder: Path, result: dict[str, object]) -> Json:
    """A legacy server with one tool, `look`, that gives this result."""
    script = folder / "server.py"
    script.write_text(
        f"""\
import json, sys
ANSWERS = {{
    "initialize": {{"protocolVersion": "2025-11-25", "capabilities": {{"tools": {{}}}},
                   "serverInfo": {{"name": "odd", "version": "1"}}}},
    "tools/list": {{"tools": [{{"name": "look", "inputSchema": {{"type": "object"}}}}]}},
    "tools/call": json.loads({json.dumps(json.dumps(result))}),
}}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        known = message["method"] in ANSWERS
        told = {{"result": ANSWERS[message["method"]]}} if known else {{"error": {{"code": -32601, "message": "no"}}}}
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"]}} | told), flush=True)
"""
    )
    return program_entry(str(script))


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT for one process")
def test_ctrl_c_ends_the_call_with_status_130(tmp_path: Path) -> None:
    write_config(tmp_path, toolbox(workshop=demo_server("workshop")))
    env = environ()
    with subprocess.Popen(
        [*forked.command(env), "call", "dev/workshop/slow", "seconds:=60", "steps:=100"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        assert "/100 step " in process.stderr.readline()  # it runs, and says so
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err


def test_ctrl_c_is_told_to_the_server(tmp_path: Path) -> None:
    """The server notes what it hears; a second later it would have been too late."""
    note = tmp_path / "heard"
    script = tmp_path / "patient.py"
    script.write_text(
        f"""\
import json, sys
def send(**message): print(json.dumps({{"jsonrpc": "2.0"}} | message), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        about = {{"name": "patient", "version": "1"}}
        send(id=id, result={{"protocolVersion": "2025-11-25", "capabilities": {{"tools": {{}}}}, "serverInfo": about}})
    elif method == "tools/list":
        send(id=id, result={{"tools": [{{"name": "wait", "inputSchema": {{"type": "object"}}}}]}})
    elif method == "tools/call":
        call = id
        sys.stderr.write("begun")
        token = message["params"]["_meta"]["progressToken"]
        open({str(tmp_path / "begun")!r}, "w").close()
    elif method == "notifications/cancelled":
        open({str(note)!r}, "w").write(json.dumps(message["params"]["requestId"] == call))
"""
    )
    write_config(tmp_path, toolbox(it=program_entry(str(script), era="legacy")))
    env = environ()
    with subprocess.Popen(
        [*forked.command(env), "call", "dev/it/wait"],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        until = time.monotonic() + TIMEOUT
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    assert json.loads(note.read_text()) is True


def test_sounds_and_pictures_get_the_endings_that_programs_know(tmp_path: Path) -> None:
    """On every system: Python's own table knows some of them on some systems only."""
    kinds = {
        "audio/wav": "wav",
        "image/webp": "webp",
        "IMAGE/JPEG; q=1": "jpg",
        "audio/mpeg": "mp3",
    }
    content = [{"type": "image", "mimeType": kind, "data": "AAAA"} for kind in kinds]
    server = _scripted(tmp_path, {"content": content})
    write_config(tmp_path, toolbox(odd=server))

    assert run_command("call", "dev/odd/look", "--save", "out", cwd=tmp_path).status == 0

    saved = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert saved == [f"look-{n}.{ending}" for n, ending in enumerate(kinds.values(), 1)]


def test_images_and_resources_are_saved_and_nothing_is_overwritten(tmp_path: Path) -> None:
    content: list[object] = [
        {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        {"type": "audio", "mimeType": "audio/x-unheard-of", "data": "AQI="},
        {"type": "resource", "resource": {"uri": "file:///a/../re port.txt?x=1", "text": "abc"}},
        {"type": "resource", "resource": {"uri": "x://y/..", "blob": "AAAA"}},
        {"type": "resource_link", "uri": "file:///elsewhere"},
        {"type": "image", "mimeType": "image/png", "data": "?"},
        {"type": "text", "text": "done"},
    ]
    server = _scripted(tmp_path, {"content": content})
    write_config(tmp_path, toolbox(odd=server))
    call = ("call", "dev/odd/look", "--save", "out/deep")
    done = run_command(*call, cwd=tmp_path)
    assert done.out.splitlines() == [
        "[image image/png 3 bytes] saved as out/deep/look-1.png",
        "[audio audio/x-unheard-of 2 bytes] saved as out/deep/look-2.bin",
        "[resource file:///a/../re port.txt?x=1 3 characters] saved as out/deep/re_port.txt",
        "[resource x://y/.. 3 bytes] saved as out/deep/look-4.bin",
        "[resource_link file:///elsewhere]",
        "[image image/png 0 bytes]",
        "done",
    ]
    saved = tmp_path / "out" / "deep"
    assert (saved / "look-1.png").read_bytes() == b"\0\0\0"
    assert (saved / "re_port.txt").read_text() == "abc"
    again = run_command(*call, "--json", cwd=tmp_path)
    assert again.data["content"] == content
    assert "saved out/deep/look-1-2.png\n" in again.err
    assert len(list(saved.iterdir())) == 8
    (tmp_path / "file").write_text("")
    assert run_command("call", "dev/odd/look", "--save", "file", cwd=tmp_path).status == 2
