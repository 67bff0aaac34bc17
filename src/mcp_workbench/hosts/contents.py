"""The bytes of a file of others: all of a plain one, or a refusal that says why."""

from pathlib import Path

from mcp_workbench.config.plain_file import PIPE_WAIT, NotPlain, TooLarge, TooSlow, read_plain
from mcp_workbench.hosts.refusals import is_folder, unreadable

MOST_BYTES = 64 << 20  # Claude Code keeps its history beside its servers


def read_file(path: Path, *, pipes: bool = False) -> bytes | None:
    """None where there is no file. A pipe is read only where somebody has named it."""
    try:
        return read_plain(path, MOST_BYTES, pipes=pipes)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except IsADirectoryError:
        raise is_folder(str(path)) from None
    except NotPlain:
        fix = "put a plain file there, or remove what is there; nothing was changed"
        raise unreadable(str(path), "this is no plain file", fix=fix) from None
    except TooSlow:
        fix = "start what writes to it, or name a plain file"
        message = f"nobody has written a whole file to this pipe for {PIPE_WAIT:g} s"
        raise unreadable(str(path), message, fix=fix) from None
    except TooLarge:
        message = f"the file is larger than {MOST_BYTES >> 20} MiB"
        raise unreadable(str(path), message) from None
