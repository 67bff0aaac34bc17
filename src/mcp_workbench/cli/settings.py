"""Options that several commands share, and the exit statuses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mcp_workbench.cli.main import ATTACH, LOG_CALLS, PREFIX
from mcp_workbench.cli.main import DONE as DONE
from mcp_workbench.cli.main import INTERRUPTED as INTERRUPTED

if TYPE_CHECKING:
    from mcp_workbench.core.spec import Snapshot

FAILED = 1
USAGE = 2  # the command line or the configuration
UNREACHABLE = 4  # a server
TOOL_ERROR = 5  # the tool itself answered `isError`

_ON = frozenset({"1", "true", "t", "yes", "y", "on"})  # as click reads a switch

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Settings:
    """The global options. Those after a command's name override those before it."""

    def __init__(self) -> None:
        self.config: str | None = None
        self.json = False
        self.quiet = False
        self.verbose = False
        self.no_input = False
        self.no_color = False
        self.attach = "auto"  # of commands that can use the running workbench

    @property
    def color(self) -> bool | None:
        """True, False, or None to decide by whether the stream is a terminal."""
        if self.no_color or os.environ.get("NO_COLOR"):
            return False
        return True if os.environ.get("FORCE_COLOR") else None

    @property
    def talkative(self) -> bool:
        """Whether to print progress and remarks on stderr."""
        return not (self.json or self.quiet)

    def open_log(self, *, reports_servers: bool = False) -> None:
        """Logs to stderr: warnings, or with `-v` everything.

        `reports_servers`: the command says itself why a server is missing, so that need not be logged.
        """
        import logging  # only for commands that start servers

        if self.verbose:
            from mcp_workbench.app import open_log  # shows the stderr of servers as well

            open_log(logging.WARNING)
        else:
            logging.basicConfig(stream=sys.stderr, format="mcp-workbench: %(message)s")
        logging.getLogger("mcp_workbench").setLevel("DEBUG" if self.verbose else "WARNING")
        if reports_servers and not self.verbose:
            logging.getLogger("mcp_workbench.upstream.connection").setLevel("ERROR")

    def snapshot(
        self, *, careful: bool = False, silent: bool = False, shows_demo: bool = False
    ) -> Snapshot:
        """Returns the configuration that these options name; the embedded demo if there is none.

        Warns on stderr of a file of another user, unless the caller shows all warnings itself
        (`silent`), and of the demo, unless the caller does (`shows_demo`).
        """
        # Loaded here: `--help` and `version` need none of it.
        from mcp_workbench.config.load import DEMO_NOTICE, chosen_snapshot, owner_notice

        snapshot = chosen_snapshot(self.config, careful=careful)
        if not silent and (notice := owner_notice(snapshot)):
            click.echo(notice, err=True)
        if not snapshot.origin and not shows_demo and self.talkative:
            click.echo(DEMO_NOTICE, err=True)
        return snapshot


def _remember(context: click.Context, param: click.Parameter, value: Any) -> None:
    if value not in (None, False) and param.name:
        setattr(context.ensure_object(Settings), param.name, value)
    context.color = context.ensure_object(Settings).color


def variable(name: str) -> dict[str, Any]:
    """Returns the settings of an option with an environment variable, shown in `--help`."""
    return {"envvar": f"{PREFIX}{name}", "show_envvar": True}


def switched_on(name: str) -> bool:
    """Is the variable of a flag set to yes?"""
    return os.environ.get(f"{PREFIX}{name}", "").lower() in _ON


def _flag(*names: str, help: str) -> Callable[[Decorated], Decorated]:
    own = variable(names[-1].removeprefix("--").replace("-", "_").upper())
    own["callback"] = _remember
    return click.option(*names, is_flag=True, help=help, expose_value=False, **own)


_OPTIONS = (
    click.option(
        "--config",
        metavar="PATH",
        type=click.Path(),
        help="The configuration file.  [env var: WORKBENCH_CONFIG; default: "
        "./workbench-config.json, else your own (see init)]",
        expose_value=False,
        callback=_remember,
    ),
    _flag("--json", help="Data and errors as JSON."),
    _flag("-q", "--quiet", help="No progress, no remarks."),
    _flag("-v", "--verbose", help="More output on stderr."),
    _flag("--no-input", help="Never ask a question."),
    _flag("--no-color", help="No colour; NO_COLOR and FORCE_COLOR are honoured as well."),
)


def global_options(function: Decorated) -> Decorated:
    """Lets a command accept the global options after its name as well."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def log_calls_option(command: str, more: str = "") -> Callable[[Decorated], Decorated]:
    """Returns `--log-calls`, for a command that makes or serves calls."""
    return click.option(
        LOG_CALLS.name,
        metavar="FILE",
        type=click.Path(dir_okay=False),
        default="",
        help=f"Append one JSON line per call to this file{more}.",
        **variable(f"{command}_LOG_CALLS"),
    )


def attach_option(command: str) -> Callable[[Decorated], Decorated]:
    """Returns `--attach`, for a command that can use the running workbench."""
    return click.option(
        ATTACH.name,
        metavar="WHEN",
        type=click.Choice(("auto", "never")),
        help="Use the servers of the workbench that `up` has started for this file: auto (if it runs; "
        "the default), never.",
        expose_value=False,
        callback=_remember,
        **variable(f"{command}_ATTACH"),
    )


def calling_options(command: str) -> Callable[[Decorated], Decorated]:
    """Returns the options of a command that makes calls: `--attach`, `--log-calls` and the global ones."""

    def decorate(function: Decorated) -> Decorated:
        logged = log_calls_option(command, "; the running workbench is not used then")
        return attach_option(command)(logged(global_options(function)))

    return decorate


def stdin_is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()  # pyright: ignore[reportUnnecessaryComparison]
