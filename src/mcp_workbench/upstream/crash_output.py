"""Crash output: the lines of a server's stderr that say what went wrong.

A program that crashes prints its reason among stack frames, excerpts of its source and remarks of the
runner that started it (npx, uvx). `reason_lines` finds the last exception of Node or Python; without one,
the last lines that are not such remarks are the reason.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MOST_LINES = 5
MOST_AFTER = 20  # lines from an exception on; the program has survived one that more lines follow

# Remarks of runners and runtimes that never are the reason
_REMARK = re.compile(
    r"npm (?:warn|WARN|notice)\b"
    r"|npm (?:error|ERR!)(?: \d+)?(?:\s*$|\s+/\S+$| A complete log of this run)"
    r"|npm (?:error|ERR!) 404 (?:Note that you can also install|tarball, folder, http url)"
    r"|(?:Resolved|Prepared|Installed|Uninstalled|Audited) \d+ packages? in "
    r"|(?:Downloading|Downloaded|Building|Built|Updating|Updated) \S+(?: \(.*\)| @ \S+)?$"
    r"|\(node:\d+\) (?:\[DEP\d+\] |ExperimentalWarning|DeprecationWarning)"
    r"|\(Use `node --trace-"
    r"|(?:Node\.js|Bun) v\d[\d.]*(?: .*)?$"
    r"|Emitted '\w+' event on .* at:$"
    r"|Require stack:$|- (?:/|[A-Za-z]:\\|file://)\S.*$"
    r"|For further information visit https?://"  # pydantic's
)
# Node: `file:///srv/a.mjs:1`, the source, carets, and below them the message
_LOCATION = re.compile(r"(?:file://|node:|/|[A-Za-z]:\\).*:\d+$")
_CARETS = re.compile(r"\s*[\^~]+\s*$")
_NODE_FRAME = re.compile(r"\s+at \S|\s+\.\.\. \d+ (?:lines matching|more)")
_NODE_HEADER = re.compile(r"(?:.*[\s:])?[\w$.]*(?:Error|Exception|Rejection)\b.*")
_NODE_CAUSE = re.compile(r"\s*\[cause\]: (.+?)(?: \{)?$")
# Python
_TRACEBACK = "Traceback (most recent call last)"
_PYTHON_FRAME = re.compile(r'\s*File ".+", line \d+')
_REPEATED = re.compile(r"\s*\[Previous line repeated \d+ more times?\]")
_CAUSED = "The above exception was the direct cause of the following exception:"
_WHILE_HANDLED = "During handling of the above exception, another exception occurred:"
_GROUP_LINE = re.compile(r"\s*(?:(\+)-[+-]*.*|([|+]) ?)")
_GROUP_HEADER = re.compile(r"\w*ExceptionGroup: .* \(\d+ sub-exceptions?\)$")
_LOGGED = re.compile(r"error|critical|fatal|fail", re.IGNORECASE)


class Reason(NamedTuple):
    """What stderr says about the end of a program."""

    lines: list[str]
    is_exception: bool = False  # then the first line matters most; otherwise the last one


def reason_lines(stderr: str) -> Reason:
    """Return the lines that say why the program ended."""
    reader = _Reader()
    for line in stderr.splitlines():
        reader.take(line)
    exception = reader.exception()
    if not 0 < len(exception) <= MOST_AFTER:
        lines = _filled(reader.kept) or _filled(stderr.splitlines())  # remarks, if that is all
        return Reason(lines[-MOST_LINES:])
    if len(exception) > MOST_LINES:
        exception = [*exception[: MOST_LINES - 3], "…", *exception[-2:]]
    return Reason(exception, is_exception=True)


def _filled(lines: list[str]) -> list[str]:
    return [line.strip() for line in lines if line.strip()]


def _joined(lines: list[str]) -> list[str]:
    """Return the lines that are not empty; a continuation (indented, or a bracket) stays with its line."""
    joined: list[str] = []
    for line in lines:
        text = line.strip()
        if text and joined and (line[0].isspace() or text in ("]", "}", ")")):
            joined[-1] += f" {text}"
        elif text:
            joined.append(text)
    return joined


class _Reader:
    """Reads stderr line by line: keeps what may be the reason, and knows where the last exception begins."""

    def __init__(self) -> None:
        self.kept: list[str] = []  # with the empty ones, which end a message
        self.start: int | None = None  # of the last exception in `kept`
        self._cause = ""  # of that exception
        self._chained = False  # the next exception was raised from the last one
        self._in_traceback = False  # of Python
        self._in_group = False
        self._in_frames = False  # of Node
        self._in_properties = False  # of a Node error, printed below its frames
        self._in_box = False  # a traceback in a frame of lines, as `rich` prints it

    def exception(self) -> list[str]:
        """Return the last exception, its cause and everything after it; empty if there is none."""
        start = len(self.kept) if self.start is None else self.start
        lines = list(dict.fromkeys(_joined(self.kept[start:])))  # groups repeat an exception
        if lines and self._cause:
            lines.insert(1, f"caused by: {self._cause}")
        if lines and start and _LOGGED.search(before := self.kept[start - 1].strip()):
            lines.insert(0, before)  # `ERROR: could not start`, above the reason
        return lines

    def take(self, line: str) -> None:
        text = self._ungrouped(line)
        if self._is_boxed(text) or self._is_property(text):
            return
        if _TRACEBACK in text or (not self._in_frames and _PYTHON_FRAME.match(text)):
            self._in_traceback = True
        elif self._in_traceback:
            self._take_traceback(text)
        elif _NODE_FRAME.match(text):
            self._take_frame(text)
        elif _CARETS.match(text) and len(self.kept) > 1 and _LOCATION.match(self.kept[-2]):
            del self.kept[-2:]
            self._begin()
        elif not _REMARK.match(text.strip()):
            self._take_other(text)

    def _begin(self, at: int | None = None) -> None:
        """An exception begins with the next line, or with that of this number."""
        self.start = len(self.kept) if at is None else at
        self._cause = ""

    def _take_other(self, text: str) -> None:
        if text.strip():
            self._in_frames = False
        if text in (_CAUSED, _WHILE_HANDLED):
            self._chained = text == _CAUSED
        elif not (self._in_group and _GROUP_HEADER.match(text)):
            self.kept.append(text)

    # Python

    def _take_traceback(self, text: str) -> None:
        """Skip the frames; the first line that is not indented is the message."""
        if not text.strip() or text[0].isspace() or _REPEATED.match(text):
            return
        self._in_traceback = False
        if not self._in_group:
            start = self.start
            cause = self.kept[start] if self._chained and start is not None else ""
            self._begin()
            self._cause, self._chained = cause, False
        self._take_other(text)

    def _ungrouped(self, line: str) -> str:
        """Return a line of an exception group without the lines that are drawn at its left."""
        if line.startswith("  + Exception Group Traceback"):
            self._begin()
            self._in_group = True
        match = _GROUP_LINE.match(line) if self._in_group else None
        self._in_group = match is not None
        if match is None:
            return line
        return "" if match[1] else line[match.end() :]

    def _is_boxed(self, text: str) -> bool:
        if text.startswith("╭") and "Traceback" in text:
            self._in_box = self._in_traceback = True
        inside = self._in_box
        if text.startswith("╰"):
            self._in_box = False
        return inside

    # Node

    def _take_frame(self, text: str) -> None:
        if not self._in_frames:
            self._begin(self._message_start())
        self._in_frames = True
        self._in_properties = text.endswith(" {")

    def _message_start(self) -> int:
        """Return where the message above the first frame begins: it may have several lines."""
        floor = self.start or 0
        last = max(len(self.kept) - 1, 0)
        at = last
        while at > floor and not _NODE_HEADER.match(self.kept[at]) and self.kept[at - 1].strip():
            at -= 1
        return at if at == floor == self.start or self._is_header(at) else last

    def _is_header(self, at: int) -> bool:
        return at < len(self.kept) and _NODE_HEADER.match(self.kept[at]) is not None

    def _is_property(self, text: str) -> bool:
        if not self._in_properties:
            return False
        if match := _NODE_CAUSE.match(text):
            self._cause = self._cause or match[1]
        self._in_properties = not text.startswith("}")
        return True
