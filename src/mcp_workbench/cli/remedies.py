"""What helps where a server can't be reached, as far as the reason shows it."""

from __future__ import annotations

import re

from mcp_workbench.cli.doctor_programs import missing

_FIX = re.compile(r" \([^()]*; fix: ([^()]*)\)")  # of a variable: its place, and what to do
_ADVICE = re.compile(r"; ((?:correct|chmod|write) .*)", re.DOTALL)
_STDERR = ". stderr: "
_STDIO = (
    "it may serve over HTTP, or write its log to stdout: start it in its stdio mode (often an "
    "argument such as --stdio), with its log on stderr"
)


def cause(reason: str) -> str:
    """The reason without what stands below it anyway: its place and its remedy."""
    if _advice(reason):
        return reason[: -len(_advice(reason)) - len("; ")]
    return _FIX.sub("", reason).removesuffix("; install it or write its absolute path")


def remedy(reason: str, *, remote: bool = False) -> str:
    """What to do next."""
    if reason.startswith("command not found: ") and "(searched PATH" in reason:
        return missing(reason.removeprefix("command not found: ").split(" (searched")[0])
    if reason.startswith("it answered nothing within") and not remote:
        return _STDIO  # a longer wait would only bring more of the same
    if fixes := _FIX.findall(reason):
        return "; ".join(fixes)
    if advice := _advice(reason):
        return advice
    if "did not start within" in reason:
        return "a first start may download: try again, or raise 'connectTimeout' of this server"
    if remote:
        return "see that its 'url' and 'headers' are right, and that this machine reaches it"
    return "run its command by hand and see what it says"


def _advice(reason: str) -> str:
    """What our own reasons end with; a server's words are no remedy."""
    found = None if _STDERR in reason else _ADVICE.search(reason)
    return found[1] if found else ""
