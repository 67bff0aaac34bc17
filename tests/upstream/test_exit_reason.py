"""Why a server is gone, in words that help and give nothing away."""

import pytest

from mcp_workbench.core.spec import ServerAddress, ServerSpec, StdioCommand
from mcp_workbench.upstream.conversation import Conversation
from mcp_workbench.upstream.dial import SAMPLE, TAIL_CHARACTERS, exit_reason, startup_timeout

SPEC = ServerSpec(ServerAddress("a", "b"), StdioCommand("x", env=(("API_KEY", "${KEY}"),)))
ENVIRON = {"KEY": "very-secret-value"}


def told(status: int | None = None, stderr: str = "") -> str:
    return exit_reason("it ended", status, stderr, SPEC, ENVIRON)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (None, "it ended"),
        (0, "it ended (exit status 0)"),
        (127, "it ended (exit status 127)"),
        (-9, "it ended (killed by SIGKILL)"),
        (-35, "it ended (killed by signal 35)"),
    ],
)
def test_the_exit_is_told_as_people_know_it(status: int | None, text: str) -> None:
    assert told(status) == text


def test_the_last_lines_are_joined_and_blank_ones_left_out() -> None:
    lines = "\n\n".join(f"  line {n}" for n in range(9))

    assert told(1, lines) == (
        "it ended (exit status 1). stderr: line 4 | line 5 | line 6 | line 7 | line 8"
    )


def test_only_so_much_is_told() -> None:
    text = told(None, "x" * 5000 + "the end")

    assert text.endswith("the end")
    assert len(text) <= TAIL_CHARACTERS + 40


def test_control_characters_are_made_visible() -> None:
    assert told(None, "\x1b[31mred\x07") == "it ended. stderr: \\x1b[31mred\\x07"


@pytest.mark.parametrize("shape", ["{}", "token={}", "Bearer {}!"])
def test_a_known_secret_is_masked_wherever_it_stands(shape: str) -> None:
    text = told(None, shape.format("very-secret-value"))

    assert "very-secret-value" not in text
    assert "[secret:" in text


def test_a_line_that_was_no_message_is_told_cleaned_short_and_without_secrets() -> None:
    talk = Conversation(1000, lambda message: None)
    talk.receive(b"\x1b[31mkey very-secret-value\x00 " + b"x" * SAMPLE + b"\n")

    text = startup_timeout(SPEC, talk, ENVIRON)

    assert "wrote 1 line that is no message, such as: \\x1b[31mkey [secret:KEY]\\x00 x" in text
    assert text.endswith("x…")
    assert text.isprintable()


def test_a_secret_that_is_longer_than_what_is_shown_is_not_shown_in_part() -> None:
    long = "s3cr3t-" + "0123456789abcdef" * 40
    talk = Conversation(1 << 20, lambda message: None)
    talk.receive(b"x" * (SAMPLE - 20) + b" " + long.encode() + b"\n")

    text = startup_timeout(SPEC, talk, {"KEY": long})

    assert "s3cr3t" not in text
    assert "such as: xxx" in text
