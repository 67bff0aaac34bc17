"""A secret is masked in the text as a whole, in every form that we promise, before it is cut into lines."""

from __future__ import annotations

import json
import logging
import sys
import textwrap
from base64 import b64encode, encodebytes
from collections.abc import Callable, Generator
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.redact import LineRedactor, redact, redact_cut
from mcp_workbench.transport.process import STDERR_BYTES
from mcp_workbench.upstream.dial import HELD_BYTES, LINES, WINDOW, StderrLog, exit_reason
from tests.kit.clock import eventually
from tests.kit.command import run_command
from tests.kit.config import spec, write_config
from tests.kit.pipe_host import PipeHost
from tests.kit.shared import shared

pytestmark = pytest.mark.usefixtures("forked_commands")

BODY = [
    b64encode(bytes((7 * row + column) % 251 for column in range(48))).decode() for row in range(26)
]
PEM = "\n".join(["-----BEGIN PRIVATE KEY-----", *BODY, "q/8+Zw==", "-----END PRIVATE KEY-----\n"])
SECRETS = {PEM: "SIGNING_KEY"}
SLASHED = "top/secret+value=="

FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "indented": lambda text: textwrap.indent(text, "    "),
    "quoted lines": lambda text: "\n".join(f"> {line}" for line in text.splitlines()),
    "shell": lambda text: " ".join(text.split("\n")),
    "repr": repr,
    "json": json.dumps,
    "json in json": lambda text: json.dumps(json.dumps(text)),
    "json of PHP": lambda text: json.dumps(text).replace("/", "\\/"),
    "url": lambda text: quote(text, safe=""),
    "url with slashes": quote,
    "url in lower case": lambda text: quote(text).replace("%0A", "%0a").replace("%2B", "%2b"),
    "form": quote_plus,
    "encodeURI": lambda text: quote(text, safe=";,/?:@&=+$!*'()#"),
    "base64": lambda text: b64encode(text.encode()).decode(),
    "base64 in lines": lambda text: encodebytes(text.encode()).decode(),
}


def leaks(text: str, secret: str = PEM) -> list[str]:
    """The parts of the secret, of eight characters, that can still be read in a text."""
    lines = [line for line in secret.split("\n") if not line.startswith("-----")]
    coded = b64encode(secret.encode()).decode()
    pieces = [part[at : at + 8] for part in (*lines, coded) for at in range(max(len(part) - 7, 0))]
    return [piece for piece in pieces if piece in text]


@pytest.mark.parametrize("form", FORMS)
def test_a_key_of_many_lines_is_masked_however_it_is_printed(form: str) -> None:
    text = f"failed to load {FORMS[form](PEM)}, giving up"

    shown = redact(text, SECRETS)

    assert leaks(shown) == []
    assert "[secret:SIGNING_KEY]" in shown
    assert shown.startswith("failed to load ")
    assert shown.endswith(", giving up")


@pytest.mark.parametrize("form", ["url", "url with slashes", "form", "encodeURI", "json", "base64"])
def test_a_secret_with_slashes_is_masked_in_a_url(form: str) -> None:
    printed = FORMS[form](SLASHED).strip('"')

    assert redact(f"GET /x?k={printed}&b", {SLASHED: "K"}) == "GET /x?k=[secret:K]&b"


# A text that was cut


@pytest.mark.parametrize("form", ["plain", "json", "url", "base64", "crlf"])
def test_the_part_of_a_secret_that_a_cut_has_left_is_masked(form: str) -> None:
    printed = FORMS[form](PEM)
    for cut in range(0, len(printed), 37):
        for text in (f"before {printed[:cut]}", f"{printed[cut:]} after"):
            assert leaks(redact_cut(text, SECRETS)) == [], (cut, text[:40])
    assert redact_cut(printed[100:900], SECRETS) == "[secret:SIGNING_KEY]"


def test_a_secret_is_masked_where_python_prints_its_bytes() -> None:
    secret = "caf\u00e9-gar\u00e7on"

    assert redact(f"sent {secret.encode()!r}", {secret: "KEY"}) == "sent b'[secret:KEY]'"


def test_only_the_end_of_a_long_complaint_is_kept_and_its_cut_secret_is_not_shown() -> None:
    secret = "".join(BODY) * (STDERR_BYTES // len("".join(BODY)) + 2)
    one = spec("a", env={"A_KEY": "${K}"})
    stderr = (secret + "\n").encode()[-STDERR_BYTES:].decode()

    shown = exit_reason("it ended", 1, stderr, one, {"K": secret})

    assert shown == "it ended (exit status 1). stderr: [secret:K]"


# A stream


class Heard(logging.Handler):
    """What stands in the log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def listening(heard: Heard) -> Generator[None]:
    log = logging.getLogger("mcp_workbench.upstream.dial")
    level = log.level
    log.addHandler(heard)
    log.setLevel("INFO")
    yield
    log.removeHandler(heard)
    log.setLevel(level)


def overheard(clock: Callable[[], float] = lambda: 0.0) -> StderrLog:
    return StderrLog(spec("a", env={"A_KEY": "${SIGNING_KEY}"}), {"SIGNING_KEY": PEM}, clock)


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("size", [1, 7, 64, 65, 1000])
@pytest.mark.parametrize("form", ["plain", "crlf", "indented", "json", "url", "base64 in lines"])
def test_pieces_of_any_size_give_nothing_away(heard: Heard, size: int, form: str) -> None:
    one = overheard()
    data = f"before\n{FORMS[form](PEM)}\nafter\n".encode()

    for at in range(0, len(data), size):
        one.feed(data[at : at + size])
    one.feed(b"")

    shown = "\n".join(heard.lines)
    assert leaks(shown) == []
    assert "q/8+" not in shown or form == "indented"  # a short line is known in its place alone
    assert (heard.lines[0], heard.lines[-1]) == ("before", "after")


@pytest.mark.usefixtures("listening")
def test_lines_that_are_no_secret_are_not_held_back(heard: Heard) -> None:
    one = overheard()
    one.feed(b"first\nsec")
    assert heard.lines == ["first"]
    one.feed(b"ond\n-----BEGIN PRIVATE KEY-----\n")
    assert heard.lines == ["first", "second"]
    one.feed(b"what was that?\n")
    assert heard.lines == ["first", "second", "-----BEGIN PRIVATE KEY-----", "what was that?"]


@pytest.mark.usefixtures("listening")
def test_the_end_of_a_stream_is_heard_as_well(heard: Heard) -> None:
    one = overheard()
    one.feed(f"last words\n{PEM[:300]}".encode())
    one.feed(b"")

    assert heard.lines == ["last words", "[secret:SIGNING_KEY]"]


@pytest.mark.usefixtures("listening")
def test_what_a_flood_has_left_of_a_secret_is_masked(heard: Heard) -> None:
    now = 0.0
    one = overheard(lambda: now)
    one.feed(b"flood\n" * LINES)
    printed = json.dumps(PEM).encode()
    one.feed(printed[:500])
    now = WINDOW + 1
    one.feed(printed[500:] + b"\nafter\n")

    assert leaks("\n".join(heard.lines)) == []
    assert heard.lines[-1] == "after"


@pytest.mark.usefixtures("listening")
def test_a_line_that_is_too_long_is_cut_without_showing_half_a_secret(heard: Heard) -> None:
    one = overheard()
    printed = json.dumps(PEM)
    one.feed((printed * (HELD_BYTES // len(printed) + 1) + "\n").encode())

    assert leaks("\n".join(heard.lines)) == []


@given(
    st.lists(st.text("ab\n", min_size=1, max_size=5), min_size=1, max_size=8),
    st.text("ab\n", min_size=8, max_size=20),
)
def test_lines_come_out_as_they_would_of_the_whole_text(pieces: list[str], secret: str) -> None:
    """Held back or not: nothing is lost, and nothing is shown that the whole text would not show."""
    text = "".join(pieces) + secret + "\n" + "".join(pieces) + "\n"
    lines, shown = LineRedactor({secret: "X"}), ""
    for line in text.splitlines(keepends=True):
        shown += lines.feed(line)
    shown += lines.cut()

    if len(secret.strip()) >= 8:
        assert secret.strip() not in shown
    assert shown.replace("[secret:X]", "").count("b") <= text.count("b")


# Everywhere

CRASH = """
import os, sys
from urllib.parse import quote
key = os.environ["SIGNING_KEY"]
sys.stderr.write("can't use " + key + "\\nnor " + quote(key) + "\\n")
sys.stderr.flush()
sys.exit(3)
"""


@pytest.fixture
def crashing(tmp_path: Path) -> Path:
    script = tmp_path / "crash.py"
    script.write_text(CRASH)
    entry = {
        "command": sys.executable,
        "args": ["-E", "-S", str(script)],
        "env": {"SIGNING_KEY": "${SIGNING_KEY}"},
    }
    return write_config(tmp_path, {"toolboxes": {"dev": {"mcpServers": {"bad": entry}}}})


@pytest.mark.parametrize(
    "words", [["check", "--connect"], ["check", "--connect", "-v"], ["tools", "-v"], ["doctor"]]
)
def test_no_command_shows_the_key_that_a_server_crashed_with(
    crashing: Path, words: list[str]
) -> None:
    done = run_command(*words, cwd=crashing.parent, SIGNING_KEY=PEM)

    assert "[secret:SIGNING_KEY]" in done.out + done.err
    assert leaks(done.out + done.err) == []


def test_nor_does_a_host_see_it_in_open_toolbox_or_on_stderr(crashing: Path) -> None:
    with PipeHost(crashing, "-v", env={"SIGNING_KEY": PEM}) as host:
        host.initialize()
        opened = json.dumps(host.call("open_toolbox", {"toolbox_name": "dev"}))
        eventually(lambda: "[secret:SIGNING_KEY]" in host.stderr, "it is in the log")

        assert "[secret:SIGNING_KEY]" in opened
        assert leaks(opened + host.stderr) == []


def test_nor_does_it_stand_in_the_log_of_the_background_process(crashing: Path) -> None:
    with shared(crashing, SIGNING_KEY=PEM) as bench, bench.host(SIGNING_KEY=PEM) as host:
        host.initialize()
        host.call("open_toolbox", {"toolbox_name": "dev"})
        eventually(lambda: "[secret:SIGNING_KEY]" in bench.log(), "it is in the log")

        assert leaks(bench.log()) == []
        assert leaks(bench.done("logs")) == []
