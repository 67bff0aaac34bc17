"""`serve`: the command that a host starts. `main` has the fast path to it, without click."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mcp_workbench.cli.completion import complete_toolbox
from mcp_workbench.cli.main import ATTACH, HTTP, TOOLBOX, ServeOption, read_address
from mcp_workbench.cli.settings import (
    Decorated,
    Settings,
    global_options,
    log_calls_option,
    stdin_is_terminal,
    variable,
)

if TYPE_CHECKING:
    from mcp_workbench.core.spec import Snapshot

_ON_TERMINAL = (
    "waiting for messages of an MCP host on stdin; hosts start this command themselves.\n"
    "mcp-workbench install HOST adds it to a host, mcp-workbench tour shows what it does; "
    "Ctrl-C or Ctrl-D ends it."
)


def address_callback(
    context: click.Context, param: click.Parameter, value: str | None
) -> tuple[str, int] | None:
    if value is None:
        return None
    address, problem = read_address(value)
    if problem:
        raise click.BadParameter(problem, context, param)
    return address


def _option(option: ServeOption, parameter: str, **more: Any) -> Callable[[Decorated], Decorated]:
    """Makes the click option for a row of the table that the fast path reads as well."""
    if option.choices:
        more["type"] = click.Choice(option.choices)
    return click.option(
        option.name,
        parameter,
        multiple=option.repeats,
        envvar=option.variable,
        show_envvar=True,
        **more,
    )


@click.command(short_help="Run as an MCP server over stdio.")
@_option(
    TOOLBOX,
    "toolboxes",
    metavar="NAME",
    help="Only this one; may be repeated.",
    shell_complete=complete_toolbox,
)
@_option(
    HTTP,
    "address",
    metavar="[HOST:]PORT",
    callback=address_callback,
    help="Serve hosts on this port instead, at /mcp and /mcp/TOOLBOX.",
)
@_option(
    ATTACH,
    "attach",
    default=None,
    metavar="WHEN",
    help="Join the workbench that `up` has started for this file: auto (if it runs; the default), "
    "always (or else start one), never.",
)
@click.option(
    "--ui", is_flag=True, help="With --http: serve the web page, too.", **variable("SERVE_UI")
)
@log_calls_option(
    "SERVE",
    "; calls of the shared workbench are not in it, so this host does not join one"
    " (see `up --log-calls`)",
)
@global_options
@click.pass_obj
def serve(  # noqa: PLR0913 - one for each option
    settings: Settings,
    *,
    toolboxes: tuple[str, ...],
    address: tuple[str, int] | None,
    attach: str | None,
    log_calls: str,
    ui: bool,
) -> int:
    """Run as an MCP server over stdio: this is what a host starts.

    It ends when its input ends; on a terminal it says what it waits for. Without a configuration it serves the demo toolbox. Config changes
    are applied live, without losing a call; SIGHUP reloads the file at once.

    With --http it serves any number of hosts on a port of this machine until Ctrl-C. Any other
    address than loopback requires a token (MCP_WORKBENCH_HTTP_TOKEN, or http.token or
    http.tokens in the configuration) and the host names under which it is reached
    (http.allowedHosts).

    \b
    Examples:
      mcp-workbench serve
      mcp-workbench serve --config PATH --toolbox dev
      mcp-workbench serve --http 7411
      mcp-workbench serve --http 7411 --ui
      mcp-workbench serve --attach never
      mcp-workbench serve --log-calls calls.jsonl
    """
    snapshot = settings.snapshot(silent=settings.verbose, shows_demo=True).narrowed(toolboxes)
    if not snapshot.origin:
        _warn_of_demo(over_http=address is not None)
    if settings.verbose and snapshot.warnings:  # only with -v: hosts show all of stderr as errors
        _print_warnings(settings, snapshot)
    if address is None:
        if ui:
            raise click.UsageError("--ui needs --http; mcp-workbench ui opens the page without it")
        return _serve_stdio(settings, snapshot, toolboxes, attach or "", log_calls)
    from mcp_workbench import http_app  # a parser of HTTP and more: not for stdio

    verbose = settings.verbose
    return http_app.serve_http(
        snapshot, address, toolboxes=toolboxes, verbose=verbose, log_calls=log_calls, ui=ui
    )


def _warn_of_demo(*, over_http: bool) -> None:
    """Warns a person. A stdio host shows stderr as an error: it gets nothing there, and its agent is
    told in the instructions.
    """
    from mcp_workbench.config.load import DEMO_NOTICE

    if over_http or sys.stderr.isatty():
        click.echo(DEMO_NOTICE, err=True)


def _print_warnings(settings: Settings, snapshot: Snapshot) -> None:
    from mcp_workbench.cli.error_reports import format_problems
    from mcp_workbench.cli.terminal import say

    say(format_problems(snapshot.warnings, snapshot.origin), err=True, color=settings.color)


def _serve_stdio(
    settings: Settings, snapshot: Snapshot, toolboxes: tuple[str, ...], attach: str, log_calls: str
) -> int:
    """Joins the shared workbench, or serves the host in this process."""
    from mcp_workbench.daemon.attach import attach_host

    if log_calls and attach == "always":
        raise click.UsageError(
            "--log-calls: the shared workbench logs its calls with up --log-calls"
        )
    if stdin_is_terminal() and not settings.quiet:
        click.echo(_ON_TERMINAL, err=True)
    outcome = attach_host(settings.config, toolboxes, "never" if log_calls else attach)
    if isinstance(outcome, int):
        return outcome
    from mcp_workbench import app  # the whole program: not for `--help`
    from mcp_workbench.daemon.crash_journal import resumption

    return app.serve(
        snapshot,
        opened=toolboxes,
        verbose=settings.verbose,
        resumed=resumption(outcome),
        log_calls=log_calls,
    )
