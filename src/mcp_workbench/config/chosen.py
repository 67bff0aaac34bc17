"""The configuration that a user means: the file that was named or found, else the embedded demo."""

from __future__ import annotations

import os

from mcp_workbench.config.load import find_config, load_config
from mcp_workbench.core.spec import Snapshot


def chosen_snapshot(option: str | None, *, careful: bool = False) -> Snapshot:
    """Load it. `option` is what `--config` says."""
    path = find_config(option, os.environ, _here())
    if path is not None:
        return load_config(path, careful=careful)
    from mcp_workbench.config.embedded import demo_snapshot  # only where there is no file

    return demo_snapshot()


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - four milliseconds
    except FileNotFoundError:
        return ""  # the folder has been removed: nothing is in it, but a full path still leads somewhere
