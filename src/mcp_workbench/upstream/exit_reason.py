"""Why a server is gone, in words that help: its exit, and the end of what it complained about."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mcp_workbench.core.spec import ServerSpec

if TYPE_CHECKING:
    from mcp_workbench.upstream.conversation import Conversation

LINES = 5
CHARACTERS = 400
ONE_LINE = 100  # characters of a line that stands for many; enough to know a banner by


def last_words(
    what: str, status: int | None, stderr: str, spec: ServerSpec, environ: Mapping[str, str]
) -> str:
    """`what` happened, with exit status and the last lines of stderr, secrets masked."""
    told = what if status is None else f"{what} ({_told(status)})"
    tail = _tail(stderr, spec, environ)
    return f"{told}; its last words: {tail}" if tail else told


def _told(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"ended by signal {-status}"


def too_slow(spec: ServerSpec, talk: Conversation, environ: Mapping[str, str]) -> str:
    """Why a start has taken too long: a server that writes something else will never answer."""
    limit = f"within {spec.connect_timeout:g} s (connectTimeout)"
    if talk.answered or not talk.skipped:
        return f"it did not start {limit}"
    none = (
        "1 line that is no message"
        if talk.skipped == 1
        else f"{talk.skipped} lines that are no messages"
    )
    line = masked(talk.last_skipped.strip(), spec, environ, cut=True)
    short = line if len(line) <= ONE_LINE else f"{line[:ONE_LINE]}…"
    return f"it answered nothing {limit}, but wrote {none}, such as: {short}"


def masked(reason: str, spec: ServerSpec, environ: Mapping[str, str], *, cut: bool = False) -> str:
    """A reason as anybody may read it: without secrets, and without control characters.

    `cut` says that it is a part of something longer, so that a secret may have been cut as well.
    """
    return printable(_without_secrets(reason, spec, environ, cut=cut))


def printable(text: str) -> str:
    """The text with its control characters, line ends among them, made visible."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def _without_secrets(text: str, spec: ServerSpec, environ: Mapping[str, str], *, cut: bool) -> str:
    # Only wanted when something has failed, so it is not loaded before.
    from mcp_workbench.config.expand import secrets_of
    from mcp_workbench.core.redact import redact, redact_cut

    return (redact_cut if cut else redact)(text, secrets_of(spec, environ))


def _tail(stderr: str, spec: ServerSpec, environ: Mapping[str, str]) -> str:
    """The last lines: of a text that was masked before it is cut into them."""
    clean = _without_secrets(stderr, spec, environ, cut=True)  # only its end was kept
    lines = [printable(line.strip()) for line in clean.splitlines()]
    text = " | ".join([line for line in lines if line][-LINES:])
    return text if len(text) <= CHARACTERS else "…" + text[-CHARACTERS:]
