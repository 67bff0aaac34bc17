"""The commands of `mcp-workbench`, each loaded when it is used."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from mcp_workbench import __version__
from mcp_workbench.cli.main import lenient_stderr, unwritten
from mcp_workbench.cli.settings import (
    DONE,
    INTERRUPTED,
    Settings,
    global_options,
    stdin_is_terminal,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mcp_workbench.core.errors import WorkbenchError


NEXT = """
Usage: mcp-workbench COMMAND …     (mcp-workbench --help for all of it)

  tour              see what an agent sees, in a few seconds
  import            copy the servers of your hosts into the configuration
  add NAME -- CMD   add one server to it; remove, disable and list go with it
  check             check the configuration; with --connect start its servers, too
  install HOST      add this program to a host; undo reverts it
  tools             what the toolboxes hold
  doctor            find problems and how to fix them
  call T/S/TOOL     call one tool, such as: mcp-workbench call demo/basics/add a=2 b=3
  serve             run as an MCP server over stdio: this is what a host starts"""
# Each command: its module, and its line in `--help`.
_COMMANDS = {
    "serve": ("serve", "Run as an MCP server over stdio: this is what a host starts."),
    "up": ("daemon_commands", "Start a workbench in the background, which hosts share."),
    "down": ("daemon_commands", "Stop it; its hosts continue on their own."),
    "status": ("daemon_commands", "Show it: its servers, hosts, calls and memory."),
    "top": ("top", "Show its calls, latencies and memory, live."),
    "logs": ("daemon_commands", "Show its log, and what its servers write to stderr."),
    "ui": ("open_page", "Open its web page: servers, tools, calls, figures."),
    "import": ("import_", "Copy the servers of other programs into the configuration."),
    "init": ("config_commands", "Write a new configuration file, with comments."),
    "add": ("add", "Add a server to the configuration."),
    "remove": ("config_commands", "Remove servers from it."),
    "enable": ("config_commands", "Enable servers that are disabled in it."),
    "disable": ("config_commands", "Disable servers without removing them."),
    "list": ("config_commands", "List the servers of the configuration."),
    "check": ("check", "Check the configuration and show every problem at once."),
    "install": ("install", "Add this program to a host."),
    "uninstall": ("install", "Remove it from a host."),
    "undo": ("undo", "Undo what import, add, install and the like have changed."),
    "tools": ("tools", "Show what the toolboxes hold."),
    "search": ("tools", "Find tools by what they do, ranked as an agent gets them."),
    "call": ("call", "Call one tool."),
    "run": ("run", "Run a script that calls tools."),
    "audit": ("audit_report", "Show the record of calls: who called what, and how it ended."),
    "login": ("login", "Sign in to servers that want it."),
    "logout": ("login", "Forget the sign-in at servers."),
    "secret": ("secret", "Keep secrets in the encrypted store."),
    "lock": ("lock", "Record what servers define, and show, approve and verify changes."),
    "cost": ("cost", "Show what the toolboxes cost a model, in tokens."),
    "doctor": ("doctor", "Find problems and how to fix them."),
    "tour": ("tour", "See in a few seconds what an agent sees, with the demo toolbox."),
    "explain": ("error_reports", "Explain an error code or a topic."),
    "completion": ("completion", "Print the completion script of a shell."),
    "schema": ("commands", "Print the JSON Schema of the configuration file."),
    "version": ("commands", "Print the version."),
}


class Commands(click.Group):
    """The commands by name; imports only the one that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _ = _COMMANDS[cmd_name]
        name = f"{cmd_name}_" if cmd_name in ("import", "list") else cmd_name  # words of Python
        return getattr(import_module(f"mcp_workbench.cli.{module}"), name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            raise _no_command(args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            name = ctx.invoked_subcommand
            # click does not name the command of an option without a value.
            if error.ctx is None and name:
                command = self.get_command(ctx, name)
                error.ctx = click.Context(command, ctx, name) if command else ctx
            raise

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offers our commands by name, without loading them, and click's options."""
        from click.shell_completion import CompletionItem

        fitting = [
            (n, summary) for n, (_, summary) in _COMMANDS.items() if n.startswith(incomplete)
        ]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*options, *(CompletionItem(name, help=summary) for name, summary in fitting)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


def _no_command(wrong: str) -> WorkbenchError:
    from mcp_workbench.core.errors import InvalidCall, did_you_mean  # only when something is wrong

    hint = did_you_mean(wrong, list(_COMMANDS)) or "mcp-workbench --help lists the commands"
    return InvalidCall(f"no such command '{wrong}'", hint=hint)


@click.group(
    cls=Commands,
    name="mcp-workbench",
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "--version", message="mcp-workbench %(version)s")
@global_options
@click.pass_context
def group(context: click.Context) -> int | None:
    """MCP Workbench: one MCP server in front of many.

    Without a command: `serve` where stdin is not a terminal, else a short overview.

    \b
    Examples:
      mcp-workbench tour
      mcp-workbench check --connect
      mcp-workbench COMMAND --help
    """
    if context.invoked_subcommand is not None:
        return None
    if stdin_is_terminal():
        return overview(context.ensure_object(Settings))
    serve: click.Command = import_module("mcp_workbench.cli.serve").serve
    with serve.make_context("serve", [], parent=context) as own:  # its variables apply here as well
        return serve.invoke(own)


def run(argv: list[str]) -> int:
    """Runs a command line; returns its exit status. Every error is reported."""
    for stream in (sys.stdout, sys.stderr):
        getattr(stream, "reconfigure", dict[str, str])(errors="backslashreplace")
    lenient_stderr()
    argv = _with_plain_json(argv)
    try:
        return _run(argv)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except OSError as error:
        return unwritten(error, argv)


def _run(argv: list[str]) -> int:
    try:
        _refuse_odd_bytes(argv)
        with group.make_context("mcp-workbench", list(argv)) as context:
            return group.invoke(context) or DONE
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        return import_module("mcp_workbench.cli.error_reports").report_usage(error, argv)
    except _workbench_error() as error:  # loaded only after an error
        return import_module("mcp_workbench.cli.error_reports").report(error, argv)


def _with_plain_json(argv: list[str]) -> list[str]:
    """Returns the words without `--json` before an entry, as in `add NAME --json '{…}'`.

    There it announces the entry; elsewhere it is the flag that asks for output as JSON.
    """
    if "add" not in argv:
        return argv
    end = argv.index("--") if "--" in argv else len(argv)  # behind it is the server's own command
    pairs = zip(argv[:end], argv[1 : end + 1] if end < len(argv) else [*argv[1:], ""], strict=True)
    ours = [word for word, after in pairs if not (word == "--json" and looks_like_json(after))]
    return [*ours, *argv[end:]]


def looks_like_json(word: str) -> bool:
    """Does this begin like JSON? An object is an entry; of another value `add` says what it wants."""
    return word.lstrip()[:1] in ("{", "[", '"')


def complete() -> int:
    """Answers a shell's completion query."""
    try:
        return import_module("mcp_workbench.cli.completion").answer(group)
    except OSError as error:
        return unwritten(error, [])


def _refuse_odd_bytes(argv: list[str]) -> None:
    try:
        "".join(argv).encode()
    except UnicodeEncodeError:
        raise click.UsageError("An argument is not UTF-8 text") from None


def _workbench_error() -> type[WorkbenchError]:
    from mcp_workbench.core.errors import WorkbenchError

    return WorkbenchError


def overview(settings: Settings) -> int:
    """Prints what a user sees who types the bare command on a terminal."""
    from mcp_workbench.cli.terminal import say  # the codec and more: not for `--help`

    say(f"MCP Workbench {__version__}   {_used_config(settings)}")
    say(NEXT)
    return DONE


def _used_config(settings: Settings) -> str:
    from mcp_workbench.cli.terminal import counted, nearby
    from mcp_workbench.core.errors import ConfigError

    try:
        snapshot = settings.snapshot(shows_demo=True)
    except ConfigError as error:
        count = len(error.problems)
        noun = "problem" if count == 1 else "problems"
        return f"config {nearby(error.file)}: {count} {noun}, see mcp-workbench check"
    if not snapshot.origin:
        return "no configuration file was found: the built-in demo is used"
    return f"config {nearby(snapshot.origin)}: {counted(snapshot)}"


@click.command()
@global_options
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors and programs.

    \b
    Example:
      mcp-workbench schema > workbench-config.schema.json
    """
    from mcp_workbench.cli.terminal import say_json
    from mcp_workbench.config.json_schema import json_schema  # `version` needs none of it

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
