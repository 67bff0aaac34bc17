"""`completion`: prints the script with which a shell completes our command, and answers its questions."""

from __future__ import annotations

import os
from pathlib import PurePath

import click

from mcp_workbench.cli.scripts import ASKED, SCRIPTS
from mcp_workbench.cli.settings import DONE, Settings, global_options


@click.command()
@click.argument("shell", type=click.Choice(list(SCRIPTS)), required=False)
@global_options
@click.pass_obj
def completion(settings: Settings, shell: str | None) -> int:
    """Print the completion script of a shell: bash, zsh or fish.

    It completes commands, options, and the names of toolboxes, servers and tools; no server is
    started for that. Without SHELL, the one that $SHELL names is meant.

    \b
    Examples:
      mcp-workbench completion bash > ~/.local/share/bash-completion/completions/mcp-workbench
      mcp-workbench completion zsh > ~/.zfunc/_mcp-workbench
      mcp-workbench completion fish > ~/.config/fish/completions/mcp-workbench.fish
    """
    chosen = shell or PurePath(os.environ.get("SHELL", "")).name
    if chosen not in SCRIPTS:
        raise click.UsageError(f"Name a shell: {', '.join(SCRIPTS)}")
    if settings.json:
        from mcp_workbench.cli.render import say_json

        say_json({"shell": chosen, "script": SCRIPTS[chosen]})
    else:
        click.echo(SCRIPTS[chosen], nl=False)
    return DONE


def answer(group: click.Command) -> int:
    """Tell the shell what may stand at the cursor: lines of KIND, tab, VALUE, tab, HELP."""
    from click.shell_completion import ShellComplete

    *args, incomplete = os.environ[ASKED].split("\n")
    try:
        found = ShellComplete(group, {}, "mcp-workbench", ASKED).get_completions(args, incomplete)
    except (_workbench_error(), click.ClickException):  # the line is wrong already: nothing fits
        return DONE
    for item in found:
        told = (item.help or "").split("\n")[0]
        click.echo(f"{item.type}\t{item.value}\t{told}")
    return DONE


def _workbench_error() -> type[Exception]:
    """Looked up only when something was raised: the tab key is to be quick."""
    from mcp_workbench.core.errors import WorkbenchError

    return WorkbenchError
