"""The command's front door. What hosts start, `serve`, goes through without loading the rest."""

from __future__ import annotations

import sys


def main() -> None:
    argv = sys.argv[1:]
    if argv in (["version"], ["--version"]):
        from mcp_workbench import __version__

        sys.stdout.write(f"mcp-workbench {__version__}\n")
        sys.exit(0)
    sys.exit(_serve(argv) or _command(argv))


class _Status(int):
    """An exit status that counts as an answer even when it is 0."""

    def __bool__(self) -> bool:
        return True


def _command(argv: list[str]) -> int:
    from mcp_workbench.cli.commands import run  # click and all: 9 ms that `serve` does not pay

    return run(argv)


def _serve(argv: list[str]) -> _Status | None:
    """Serve, where the command line plainly says so; anything doubtful is left to `_command`."""
    wish = plain_serve(argv)
    if wish is None:
        return None
    import os
    from pathlib import Path

    from mcp_workbench.app import serve
    from mcp_workbench.config.load import find_config, load_config
    from mcp_workbench.core.errors import WorkbenchError

    config, toolboxes = wish
    try:
        path = find_config(config, os.environ, Path.cwd())
        if path is None:
            from mcp_workbench.config.embedded import demo_snapshot

            snapshot = demo_snapshot()
        else:
            snapshot = load_config(path)
        narrowed = snapshot.narrowed(toolboxes)
    except WorkbenchError:
        return None  # told properly there
    return _Status(serve(narrowed, opened=toolboxes))


def plain_serve(argv: list[str]) -> tuple[str | None, tuple[str, ...]] | None:
    """The configuration and toolboxes of a command line that can only mean `serve`, else None."""
    if not argv:
        return None if sys.stdin is None or sys.stdin.isatty() else (None, ())  # pyright: ignore[reportUnnecessaryComparison]
    config: str | None = None
    toolboxes: list[str] = []
    rest = iter(argv if argv[0] != "serve" else argv[1:])
    named = argv[0] == "serve"
    for word in rest:
        value = next(rest, None)
        if value is None or value.startswith("-"):
            return None
        if word == "--config":
            config = value
            continue
        if word != "--toolbox":
            return None
        toolboxes.append(value)
    return (config, tuple(toolboxes)) if named else None
