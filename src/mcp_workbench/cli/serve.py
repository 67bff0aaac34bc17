"""`serve`: what a host starts. The quick way to it is in `main`; this is the way with `--help`."""

from __future__ import annotations

import click

from mcp_workbench.cli.completing import complete_toolbox
from mcp_workbench.cli.main import ATTACH
from mcp_workbench.cli.settings import Settings, global_options, variable

LOOPBACK = "127.0.0.1"
MOST_PORTS = 65535


def read_address(
    context: click.Context, param: click.Parameter, value: str | None
) -> tuple[str, int] | None:
    """`7411`, `localhost:7411`, `[::1]:7411`."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) <= MOST_PORTS):
        told = f"'{value}' is not [HOST:]PORT, such as 7411 or 127.0.0.1:7411"
        raise click.BadParameter(told, context, param)
    if ":" in host and not (host[0] == "[" and host[-1] == "]"):
        told = f"'{value}': write an IPv6 address as [::1]:7411"
        raise click.BadParameter(told, context, param)
    return host.strip("[]") or LOOPBACK, int(port)


@click.command(short_help="Be an MCP server on stdin and stdout.")
@click.option(
    "--toolbox",
    "toolboxes",
    metavar="NAME",
    multiple=True,
    help="Only this one; may be repeated.",
    shell_complete=complete_toolbox,
    **variable("SERVE_TOOLBOX"),
)
@click.option(
    "--http",
    "address",
    metavar="[HOST:]PORT",
    callback=read_address,
    help="Serve hosts on this port instead, at /mcp and /mcp/TOOLBOX.",
    **variable("SERVE_HTTP"),
)
@click.option(
    "--attach",
    type=click.Choice(ATTACH),
    default=None,
    metavar="WHEN",
    help="Join the workbench that `up` has started for this file: auto (if it runs; the default), "
    "always (or else start one), never.",
    **variable("SERVE_ATTACH"),
)
@click.option(
    "--log-calls",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    default="",
    help="Append one JSON line per call to this file; calls of the shared workbench are not in it, so"
    " this host does not join one (see `up --log-calls`).",
    **variable("SERVE_LOG_CALLS"),
)
@global_options
@click.pass_obj
def serve(
    settings: Settings,
    *,
    toolboxes: tuple[str, ...],
    address: tuple[str, int] | None,
    attach: str | None,
    log_calls: str,
) -> int:
    """Be an MCP server on stdin and stdout: this is what a host starts.

    It ends when its input ends. Without a configuration it serves the demo toolbox. A changed file
    is taken while it serves, without a lost call; SIGHUP has it read at once.

    With --http it serves any number of hosts on a port of this machine until Ctrl-C. Another
    address than this machine's own needs a token (MCP_WORKBENCH_HTTP_TOKEN, or http.token or
    http.tokens in the configuration) and the host names under which it is reached
    (http.allowedHosts).

    \b
    Examples:
      mcp-workbench serve
      mcp-workbench serve --config PATH --toolbox dev
      mcp-workbench serve --http 7411
      mcp-workbench serve --attach never
      mcp-workbench serve --log-calls calls.jsonl
    """
    snapshot = settings.snapshot(silent=settings.verbose).narrowed(toolboxes)
    if settings.verbose and snapshot.warnings:
        # Without -v not a word: hosts show whatever stands on stderr as an error.
        from mcp_workbench.cli.render import say
        from mcp_workbench.cli.report import tell_problems

        say(tell_problems(snapshot.warnings, snapshot.origin), err=True, color=settings.color)
    if address is not None:
        from mcp_workbench import http_app  # a parser of HTTP and more: not for stdio

        return http_app.serve_http(
            snapshot,
            address,
            toolboxes=toolboxes,
            verbose=settings.verbose,
            log_calls=log_calls,
        )
    from mcp_workbench.daemon.joining import join

    if log_calls and attach == "always":
        raise click.UsageError(
            "--log-calls: the shared workbench logs its calls with up --log-calls"
        )
    outcome = join(settings.config, toolboxes, "never" if log_calls else attach or "")
    if isinstance(outcome, int):
        return outcome
    from mcp_workbench import app  # the whole program: not for `--help`
    from mcp_workbench.daemon.alone import resumption

    return app.serve(
        snapshot,
        opened=toolboxes,
        verbose=settings.verbose,
        resumed=resumption(outcome),
        log_calls=log_calls,
    )
