"""The configuration that a user means: the file that was named or found, else the embedded demo."""

from __future__ import annotations

import os

from mcp_workbench.config.load import find_config, is_named, load_config
from mcp_workbench.config.ownership import CODES, Doubt, notice
from mcp_workbench.core.spec import Snapshot


def chosen_snapshot(option: str | None, *, careful: bool = False) -> Snapshot:
    """Load it. `option` is what `--config` says."""
    path = find_config(option, os.environ, _here())
    if path is not None:
        return load_config(path, careful=careful, named=is_named(option, os.environ))
    from mcp_workbench.config.embedded import demo_snapshot  # only where there is no file

    return demo_snapshot()


def owner_notice(snapshot: Snapshot) -> str:
    """One line for a user who has named a file that another user could have written; else nothing."""
    warnings = [Doubt(w.code, w.message) for w in snapshot.warnings if w.code in CODES]
    return notice(snapshot.origin, warnings)


def _here() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - four milliseconds
    except FileNotFoundError:
        return ""  # the folder has been removed: nothing is in it, but a full path still leads somewhere
