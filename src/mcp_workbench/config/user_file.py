"""Where the user's own configuration is: the file that is used where a folder has none.

Every joined host loads this module, so it imports next to nothing.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # importing it from `typing` costs milliseconds
if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "mcp-workbench"
FILE = "config.json"


def user_config(environ: Mapping[str, str], platform: str = sys.platform) -> str:
    """Returns the path of the user's own configuration; empty if no variable gives a folder."""
    folder = _folder(environ, platform)
    return os.path.join(folder, FOLDER, FILE) if folder else ""  # noqa: PTH118 - `pathlib` is slow


def _folder(environ: Mapping[str, str], platform: str) -> str:
    """Returns the folder in which programs keep their configuration on this platform."""
    if platform == "win32":
        return environ.get("APPDATA") or ""
    given = environ.get("XDG_CONFIG_HOME") or ""
    if os.path.isabs(given):  # noqa: PTH117 - others are ignored, as that specification demands
        return given
    home = environ.get("HOME") or ""
    if not home:
        return ""
    usual = ("Library", "Application Support") if platform == "darwin" else (".config",)
    return os.path.join(home, *usual)  # noqa: PTH118
