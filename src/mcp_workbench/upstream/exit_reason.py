"""Why a server exited or did not start: exit status and the end of its stderr, secrets masked."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mcp_workbench.core.spec import ServerSpec

if TYPE_CHECKING:
    from mcp_workbench.upstream.conversation import Conversation

LINES = 5
CHARACTERS = 400
ONE_LINE = 100  # characters of a sample line; enough to recognize a banner


def exit_reason(
    what: str, status: int | None, stderr: str, spec: ServerSpec, environ: Mapping[str, str]
) -> str:
    """`what` happened, with the exit status and the last lines of stderr, secrets masked."""
    reason = what if status is None else f"{what} ({_describe(status)})"
    tail = _tail(stderr, spec, environ)
    return f"{reason}. stderr: {tail}" if tail else reason


def _describe(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def startup_timeout(
    spec: ServerSpec, conversation: Conversation, environ: Mapping[str, str]
) -> str:
    """Why a server was not ready in time: it is slow, or writes to stdout what is not a message."""
    limit = f"within {spec.connect_timeout:g} s (connectTimeout)"
    if conversation.answered or not conversation.skipped:
        return f"it did not start {limit}"
    lines = (
        "1 line that is no message"
        if conversation.skipped == 1
        else f"{conversation.skipped} lines that are no messages"
    )
    line = masked(conversation.last_skipped.strip(), spec, environ, cut=True)
    short = line if len(line) <= ONE_LINE else f"{line[:ONE_LINE]}…"
    return f"it answered nothing {limit}, but wrote {lines}, such as: {short}"


def masked(reason: str, spec: ServerSpec, environ: Mapping[str, str], *, cut: bool = False) -> str:
    """A reason without secrets and control characters, fit for everybody.

    `cut`: it is a part of a longer text, so a secret in it may be incomplete.
    """
    return printable(_without_secrets(reason, spec, environ, cut=cut))


def printable(text: str) -> str:
    """The text with control characters and line ends escaped."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def _without_secrets(text: str, spec: ServerSpec, environ: Mapping[str, str], *, cut: bool) -> str:
    # Loaded when something failed, to keep the start fast.
    from mcp_workbench.config.expand import secrets_of
    from mcp_workbench.core.redact import redact, redact_cut

    return (redact_cut if cut else redact)(text, secrets_of(spec, environ))


def _tail(stderr: str, spec: ServerSpec, environ: Mapping[str, str]) -> str:
    """The last lines. Masked before it is split: a secret may span lines."""
    clean = _without_secrets(stderr, spec, environ, cut=True)  # only the end was kept
    lines = [printable(line.strip()) for line in clean.splitlines()]
    text = " | ".join([line for line in lines if line][-LINES:])
    return text if len(text) <= CHARACTERS else "…" + text[-CHARACTERS:]
