"""`serve`: what a host starts. The quick way to it is in `main`; this is the way with `--help`."""

from __future__ import annotations

import click

from mcp_workbench.cli.settings import Settings, global_options


@click.command(short_help="Be an MCP server on stdin and stdout.")
@click.option(
    "--toolbox", "toolboxes", metavar="NAME", multiple=True, help="Only this one; may be repeated."
)
@global_options
@click.pass_obj
def serve(settings: Settings, *, toolboxes: tuple[str, ...]) -> int:
    """Be an MCP server on stdin and stdout: this is what a host starts.

    It ends when its input ends. Without a configuration it serves the demo toolbox.
    """
    from mcp_workbench import app  # the whole program: not for `--help`

    snapshot = settings.snapshot().narrowed(toolboxes)
    return app.serve(snapshot, opened=toolboxes, verbose=settings.verbose)
