"""The command's front door. What hosts start, `serve`, goes through without loading the rest."""

from __future__ import annotations

import os
import sys

# What --config says, every --toolbox, and what --attach says
ServeWish = tuple[str | None, tuple[str, ...], str]

# Variables that stand for options of `serve` (`settings` loads too much to ask it).
SERVE_VARIABLES = (
    "MCP_WORKBENCH_SERVE_HTTP",
    "MCP_WORKBENCH_SERVE_LOG_CALLS",
    "MCP_WORKBENCH_SERVE_TOOLBOX",
    "MCP_WORKBENCH_VERBOSE",
)

COMPLETE = "_MCP_WORKBENCH_COMPLETE"  # as `scripts` has it
ATTACH = ("auto", "always", "never")  # of --attach
INTERRUPTED = 130  # exit status; here because `settings` loads too much


def main() -> None:
    try:
        status = _run(sys.argv[1:])
    except KeyboardInterrupt:  # while something was still being loaded
        status = INTERRUPTED
    if status == INTERRUPTED:
        import signal  # whoever insists is obeyed already, and would only see a traceback

        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)


def _run(argv: list[str]) -> int:
    fill_closed_streams()
    if COMPLETE in os.environ:  # a shell asks, at the tab key
        from mcp_workbench.cli.commands import complete

        return complete()
    wish = plain_serve(argv)
    status = None if wish is None else _serve(*wish)
    return _command(argv) if status is None else status


def fill_closed_streams() -> None:
    """Where the shell closed one of the first three files, no pipe of ours may take its place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: PTH123, SIM115


def plain_serve(argv: list[str]) -> ServeWish | None:
    """What a command line asks for that can only mean `serve`; anything doubtful is None."""
    if any(name in os.environ for name in SERVE_VARIABLES):
        return None  # they say more than the line does
    if not argv:
        return None if os.isatty(0) else (None, (), "")
    return _options(argv[1:]) if argv[0] == "serve" else None


def _options(argv: list[str]) -> ServeWish | None:
    config: str | None = None
    toolboxes: list[str] = []
    attach = ""
    rest = iter(argv)
    for option in rest:
        value = next(rest, "-")
        if value.startswith("-"):
            return None
        if option == "--config":
            config = value
        elif option == "--toolbox":
            toolboxes.append(value)
        elif option == "--attach" and value in ATTACH:
            attach = value
        else:
            return None
    return config, tuple(toolboxes), attach


def _serve(config: str | None, toolboxes: tuple[str, ...], attach: str) -> int | None:
    """Serve; None where that can't be done, which `_command` tells properly."""
    from mcp_workbench.daemon.joining import join

    outcome = join(config, toolboxes, attach)
    if isinstance(outcome, int):
        return outcome
    from mcp_workbench.config.chosen import chosen_snapshot, owner_notice
    from mcp_workbench.core.errors import WorkbenchError

    try:
        snapshot = chosen_snapshot(config).narrowed(toolboxes)
    except WorkbenchError:
        return None
    if snapshot.warnings and (notice := owner_notice(snapshot)):
        sys.stderr.write(f"{notice}\n")
        sys.stderr.flush()
    from mcp_workbench.app import serve

    resumed = None
    if outcome is not None:
        from mcp_workbench.daemon.alone import Resumed  # only where a shared workbench has ended

        resumed = Resumed(outcome)
    return serve(snapshot, opened=toolboxes, resumed=resumed)


def _command(argv: list[str]) -> int:
    text = _constant(argv)
    if text:
        return _print(text, argv)
    from mcp_workbench.cli.commands import run  # click and all: 9 ms that `serve` does not pay

    return run(argv)


def _constant(argv: list[str]) -> str:
    """What is printed without a look at anything; else nothing."""
    if argv in (["version"], ["--version"]):
        from mcp_workbench import __version__

        return f"mcp-workbench {__version__}\n"
    if len(argv) == 2 and argv[0] == "completion":
        from mcp_workbench.cli.scripts import SCRIPTS

        return SCRIPTS.get(argv[1], "")
    return ""


def _print(text: str, argv: list[str]) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()  # a fault is told here, and not by Python at its exit
    except OSError as error:
        from mcp_workbench.cli.streams import unwritten  # only where something is wrong

        return unwritten(error, argv)
    return 0
