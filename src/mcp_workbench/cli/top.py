"""`top`: servers, calls and memory of a running workbench, live in a terminal."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType

import click
import msgspec

from mcp_workbench.cli.daemon_commands import ANSWER, DaemonFailed, paths_for
from mcp_workbench.cli.settings import DONE, Settings, global_options, variable
from mcp_workbench.cli.terminal import USUAL, nearby, plain, say, say_json
from mcp_workbench.cli.top_screen import are_whole, change_between, screen
from mcp_workbench.core.errors import InvalidCall, WorkbenchError
from mcp_workbench.core.figures import Figures
from mcp_workbench.daemon import control
from mcp_workbench.daemon.control import NoAnswer, connect, request
from mcp_workbench.daemon.paths import DaemonPaths
from mcp_workbench.timing import pause

TOKEN_VARIABLE = "MCP_WORKBENCH_METRICS_TOKEN"  # noqa: S105 - a name
MOST_BYTES = 16 << 20  # of an answer
LEAST = 0.1  # seconds between two readings
_TALL = 24  # lines of a terminal that does not say how many it has
_OPEN, _CLOSE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # the other screen, no cursor
_HOME, _REST_OF_LINE, _REST = "\x1b[H", "\x1b[K", "\x1b[J"

Read = Callable[[], Figures]


@click.command()
@click.argument("url", metavar="[URL]", default="")
@click.option("--once", is_flag=True, help="Print it once and exit.", **variable("TOP_ONCE"))
@click.option(
    "--interval",
    metavar="SECONDS",
    type=click.FloatRange(LEAST, 30),
    default=2.0,
    show_default=True,
    help="Between two readings.",
    **variable("TOP_INTERVAL"),
)
@global_options
@click.pass_obj
def top(settings: Settings, url: str, *, once: bool, interval: float) -> int:
    """Show servers, calls, latencies, memory and tokens of a running workbench, live.

    Without URL it is the workbench that `up` has started for this file; its calls are measured from
    the first reading on, and for a minute after the last one. With URL it is that of a
    `serve --http` whose configuration has http.metrics; MCP_WORKBENCH_METRICS_TOKEN holds the token,
    if there is one. Ctrl-C ends it.

    With --json it prints a line per reading. Without a terminal it prints two readings' difference
    once, as --once does.

    \b
    Examples:
      mcp-workbench top
      mcp-workbench top --once
      mcp-workbench top http://127.0.0.1:7411
      mcp-workbench top --json --interval 10
    """
    read = _reader(settings, url)
    interval = pause(interval)
    try:
        if settings.json:
            _print_lines(read, interval, once=once)
        elif once or not sys.stdout.isatty():
            _print_once(read, interval)
        else:
            _run_live(read, interval)
    except KeyboardInterrupt:
        pass  # the usual way to end it
    return DONE


# Where the figures come from


def _reader(settings: Settings, url: str) -> Read:
    if url:
        return lambda: _fetched(url)
    paths = paths_for(settings)
    return lambda: _asked(paths)


def _asked(paths: DaemonPaths) -> Figures:
    """Ask the workbench in the background."""
    answer: list[bytes] = []
    try:
        connection = connect(paths)
        if connection is not None:
            with connection:
                answer = request(connection, ANSWER, control.FIGURES)
    except NoAnswer as error:
        raise DaemonFailed(
            f"the workbench hangs: {error}", hint="mcp-workbench down ends it"
        ) from None
    if not answer:
        start = "mcp-workbench up starts one; with a URL, top shows one that serves a port"
        raise DaemonFailed(f"not running for {nearby(paths.config)}", hint=start)
    if answer[0] != control.REPORT:
        reason = plain(answer[-1].decode(errors="replace"))
        raise DaemonFailed(
            f"the workbench refuses: {reason}", hint="mcp-workbench down, then up, renews it"
        )
    return _decoded(answer[1])


def _fetched(url: str) -> Figures:
    """Read them from a port."""
    import urllib.error  # only with a URL
    import urllib.request
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidCall("the URL must begin with http:// or https://")
    target = f"{parts.scheme}://{parts.netloc}/metrics"
    asking = urllib.request.Request(target, headers={"Accept": "application/json"})  # noqa: S310
    if token := os.environ.get(TOKEN_VARIABLE):
        asking.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(asking, timeout=ANSWER) as answer:  # noqa: S310
            data = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise DaemonFailed(
                f"{target} answered {error.code}", hint=_HINTS.get(error.code, "")
            ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise DaemonFailed(f"{target} can't be reached: {reason}") from None
    return _decoded(data[:MOST_BYTES])


_HINTS = {
    401: f"set {TOKEN_VARIABLE} to its http.metricsToken",
    404: 'its configuration needs "http": {"metrics": true}',
}


def _decoded(data: bytes) -> Figures:
    with suppress(msgspec.DecodeError):
        figures = msgspec.json.decode(data, type=Figures)
        if are_whole(figures):
            return figures
    raise DaemonFailed("the figures can't be read: it is of another version, or not ours")


# How they are shown


def _print_lines(read: Read, interval: float, *, once: bool) -> None:
    while True:
        say_json(read())
        if once:
            return
        time.sleep(interval)


def _print_once(read: Read, interval: float) -> None:
    """Rates need two readings."""
    before = read()
    time.sleep(interval)
    now = read()
    width = _size()[0] if sys.stdout.isatty() else sys.maxsize
    say("\n".join(screen(now, change_between(before, now), width, 0)))


def _run_live(read: Read, interval: float) -> None:
    """Draw until Ctrl-C. A workbench that is gone may come back; only the first reading must succeed."""
    now, before, problem = read(), None, ""
    due = time.monotonic() + interval
    with _other_screen(), _resizing() as wait:
        while True:
            width, height = _size()
            lines = screen(now, change_between(before, now), width, height - 1)
            _draw([*lines, *([problem[:width]] if problem else [])], height)
            if wait(max(due - time.monotonic(), 0.0)):
                continue  # another size: the same figures again
            due = time.monotonic() + interval
            try:
                before, now, problem = now, read(), ""
            except WorkbenchError as error:
                problem = plain(error.message)


def _draw(lines: list[str], height: int) -> None:
    body = f"{_REST_OF_LINE}\r\n".join(lines[:height])
    sys.stdout.write(f"{_HOME}{_shown(body)}{_REST_OF_LINE}{_REST}")
    sys.stdout.flush()


def _shown(text: str) -> str:
    """Replace what this terminal can't encode."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def _size() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return USUAL, _TALL
    return size.columns or USUAL, size.lines or _TALL


@contextmanager
def _other_screen() -> Generator[None]:
    """Use the terminal's other screen, so that what was there before comes back, also after SIGTERM."""

    def ended(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, ended)
    sys.stdout.write(_OPEN)
    try:
        yield
    finally:
        sys.stdout.write(_CLOSE)
        sys.stdout.flush()
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _resizing() -> Generator[Callable[[float], bool]]:
    """Yield what waits so many seconds; true if the terminal has another size before that."""
    number = getattr(signal, "SIGWINCH", None)
    if number is None:  # Windows
        yield lambda seconds: bool(time.sleep(seconds))
        return
    out, inside = os.pipe()
    os.set_blocking(inside, False)
    before = signal.signal(number, lambda _, __: None)
    woken = signal.set_wakeup_fd(inside)

    def wait(seconds: float) -> bool:
        if not select.select([out], [], [], seconds)[0]:
            return False
        os.read(out, 1024)
        return True

    try:
        yield wait
    finally:
        signal.set_wakeup_fd(woken)
        signal.signal(number, before)
        os.close(out)
        os.close(inside)
