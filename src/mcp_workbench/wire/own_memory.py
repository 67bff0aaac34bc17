"""Our own memory and environment, which hold every token: closed to other programs of the same user."""

import sys
from contextlib import suppress

PR_SET_DUMPABLE = 4  # of linux/prctl.h


def close_to_others() -> None:
    """Let no process of this user read ours, our servers included. Where the system can't, nothing happens.

    Debuggers of the same user and core dumps are shut out too. What we start is open again as it was.
    """
    if sys.platform != "linux":
        return
    import ctypes  # a part of the interpreter that nothing else needs

    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
