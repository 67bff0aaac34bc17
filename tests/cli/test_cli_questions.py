"""What a server asks during a call is asked at the terminal."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import run_command
from tests.kit.config import program_entry, toolbox, write_config
from tests.kit.servers import ASKER

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals here", allow_module_level=True)

from tests.kit.terminal import Terminal, terminal

pytestmark = pytest.mark.usefixtures("forked_commands")

Json = dict[str, Any]

# A legacy server whose one tool asks what the first argument of it says, and tells the answer. It
# notes every message that is no request.
FORM = """
import json, sys
asked = json.loads(sys.argv[1])
def send(message): print(json.dumps({"jsonrpc": "2.0"} | message), flush=True)
call = None
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        about = {"name": "form", "version": "1"}
        send({"id": id, "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
              "serverInfo": about}})
    elif method == "tools/list":
        tool = {"name": "fill", "inputSchema": {"type": "object"}}
        send({"id": id, "result": {"tools": [tool]}})
    elif method == "tools/call":
        call = id
        send({"id": 900, "method": "elicitation/create", "params": asked})
    elif id == 900:
        text = json.dumps(message.get("result") or message.get("error"))
        send({"id": call, "result": {"content": [{"type": "text", "text": text}]}})
    elif method == "notifications/cancelled":
        open(sys.argv[2], "w").write(json.dumps([message["params"]["requestId"], call]))
    elif id is not None:
        send({"id": id, "error": {"code": -32601, "message": "no"}})
"""


def asking(folder: Path, asked: Json) -> None:
    script = folder / "form.py"
    script.write_text(FORM)
    args = [str(script), json.dumps(asked), str(folder / "cancelled")]
    entry = {"command": sys.executable, "args": args, "era": "legacy"}
    write_config(folder, toolbox(it=entry))


def form(**properties: Json) -> Json:
    required = [name for name, schema in properties.items() if schema.pop("need", False)]
    schema = {"type": "object", "properties": properties, "required": required}
    return {"message": "Who are you?", "requestedSchema": schema}


FIELDS = {
    "name": {"type": "string", "title": "Your name", "minLength": 2, "need": True},
    "age": {"type": "integer", "minimum": 0, "maximum": 150, "need": True},
    "mail": {"type": "string", "format": "email"},
    "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"], "need": True},
    "letters": {"type": "boolean", "default": True},
    "days": {"type": "array", "items": {"type": "string", "enum": ["mon", "tue"]}, "minItems": 1},
}


def fill(screen: Terminal, *lines: tuple[str, str]) -> None:
    for prompt, typed in lines:
        screen.expect(prompt)
        screen.type(typed)


def test_a_form_is_filled_in_line_by_line(tmp_path: Path) -> None:
    asking(tmp_path, form(**json.loads(json.dumps(FIELDS))))
    with terminal("call", "dev/it/fill", cwd=tmp_path) as screen:
        screen.expect("[dev/it] Who are you?")
        fill(
            screen,
            ("name: ", "A\n"),
            ("at least 2 characters, please\n", "Ada\n"),
            ("age: ", "old\n"),
            ("a whole number from 0 to 150, please\n", "36\n"),
            ("mail: ", "\n"),
            ("1. Small\n", "Lagre\n"),
            ("Did you mean 'Large'?\n", "2\n"),
            ("letters [yes]: ", "\n"),
            ("days: ", "mon, 2\n"),
            ("send this? [Y/n] ", "\n"),
        )
        assert screen.rest() == 0
    content = {"name": "Ada", "age": 36, "size": "l", "letters": True, "days": ["mon", "tue"]}
    answer = json.loads(screen.screen.splitlines()[-1])
    assert answer == {"action": "accept", "content": content}


@pytest.mark.parametrize(
    ("typed", "action"), [("!\n", "decline"), ("\x04", "cancel")], ids=["declined", "cancelled"]
)
def test_a_form_need_not_be_answered(typed: str, action: str, tmp_path: Path) -> None:
    asking(tmp_path, form(name={"type": "string", "need": True}))
    with terminal("call", "dev/it/fill", cwd=tmp_path) as screen:
        fill(screen, ("name: ", typed))
        assert screen.rest() == 0
    assert json.loads(screen.screen.splitlines()[-1]) == {"action": action}


def test_what_was_filled_in_need_not_be_sent(tmp_path: Path) -> None:
    asking(tmp_path, form(name={"type": "string"}))
    with terminal("call", "dev/it/fill", cwd=tmp_path) as screen:
        fill(screen, ("name: ", "Ada\n"), ("[Y/n] ", "n\n"))
        assert screen.rest() == 0
    assert json.loads(screen.screen.splitlines()[-1]) == {"action": "decline"}


@pytest.mark.parametrize(("typed", "action"), [("y\n", "accept"), ("\n", "decline")])
def test_an_address_is_shown_and_visited_only_by_a_yes(
    typed: str, action: str, tmp_path: Path
) -> None:
    url = "https://login.example/visit?state=\x1b[2J"
    asked = {"mode": "url", "url": url, "message": "Log in", "elicitationId": "1"}
    asking(tmp_path, asked)
    with terminal("call", "dev/it/fill", cwd=tmp_path) as screen:
        screen.expect("https://login.example/visit?state=\\x1b[2J\n")
        fill(screen, ("[y/N] ", typed))
        assert screen.rest() == 0
    assert json.loads(screen.screen.splitlines()[-1]) == {"action": action}


def test_ctrl_c_at_a_question_cancels_the_call_at_its_server(tmp_path: Path) -> None:
    asking(tmp_path, form(name={"type": "string"}))
    with terminal("call", "dev/it/fill", cwd=tmp_path) as screen:
        fill(screen, ("name: ", "\x03"))
        assert screen.rest() == 130
    number, call = json.loads((tmp_path / "cancelled").read_text())
    assert number == call
    assert "Traceback" not in screen.screen


def test_a_modern_server_is_answered_too(tmp_path: Path) -> None:
    args = [ASKER]
    entry = {"command": sys.executable, "args": args, "era": "modern"}
    write_config(tmp_path, toolbox(it=entry))
    with terminal("call", "dev/it/twice", cwd=tmp_path) as screen:
        for name in ("Ada", "Grace"):
            fill(screen, ("name: ", f"{name}\n"), ("[Y/n] ", "\n"))
        assert screen.rest() == 0
    told = json.loads(screen.screen.splitlines()[-1])
    assert [answer["a"]["content"]["name"] for answer in told] == ["Ada", "Grace"]


@pytest.mark.parametrize("off", [{"MCP_WORKBENCH_NO_INPUT": "1"}, {}])
def test_without_input_nobody_is_asked(off: dict[str, str], tmp_path: Path) -> None:
    entry = program_entry(ASKER, era="legacy")
    write_config(tmp_path, toolbox(it=entry))
    flags = () if off else ("--no-input",)
    with terminal("call", "dev/it/can", *flags, cwd=tmp_path, variables=off) as screen:
        assert screen.rest() == 0
    assert screen.screen == "{}\n"


def test_off_a_terminal_servers_know_that_nobody_can_be_asked(tmp_path: Path) -> None:
    asking(tmp_path, form(name={"type": "string"}))
    done = run_command("call", "dev/it/fill", cwd=tmp_path)
    assert json.loads(done.out)["code"] == -32601
