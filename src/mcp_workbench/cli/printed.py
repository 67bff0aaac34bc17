"""`schema` and `version`: commands that only print."""

from __future__ import annotations

import click

from mcp_workbench import __version__
from mcp_workbench.cli.settings import Settings, global_options


@click.command()
@global_options
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors and programs.

    \b
    Example:
      mcp-workbench schema > workbench-config.schema.json
    """
    from mcp_workbench.cli.render import say_json
    from mcp_workbench.config.schema import json_schema  # `version` needs none of it

    say_json(json_schema(), pretty=True)


@click.command()
@global_options
@click.pass_obj
def version(settings: Settings) -> None:
    """Print the version.

    \b
    Examples:
      mcp-workbench version
      mcp-workbench version --json
    """
    click.echo(
        f'{{"version":"{__version__}"}}' if settings.json else f"mcp-workbench {__version__}"
    )
