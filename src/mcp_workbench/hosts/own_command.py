"""A host's own command, run for its user."""

import shutil
import subprocess

from mcp_workbench.hosts.refusals import HostFault

PATIENCE = 60.0  # seconds; some of them look for updates first
LAST_WORDS = 6  # lines of what it said, for the one who has to find the reason


def available(words: tuple[str, ...]) -> bool:
    return bool(words) and shutil.which(words[0]) is not None


def run_own(words: tuple[str, ...]) -> None:
    """Run it to its end; a failure carries what it said."""
    program = shutil.which(words[0])
    if program is None:
        raise _failed(words[0], "it is not there any more")
    try:
        done = subprocess.run(  # noqa: S603 - the table's words and ours; no shell in between
            [program, *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failed(words[0], f"it did not end within {PATIENCE:g} seconds") from None
    except OSError as error:
        raise _failed(words[0], error.strerror or str(error)) from None
    if done.returncode:
        said = done.stdout.decode(errors="replace").strip().splitlines()[-LAST_WORDS:]
        raise _failed(words[0], "\n".join((f"exit status {done.returncode}", *said)))


def silent_failure(program: str, file: str) -> HostFault:
    return _failed(program, f"it ended well, but its entry is not as expected in {file}")


def _failed(program: str, reason: str) -> HostFault:
    return HostFault(
        "own_command_failed",
        f"the host's own command '{program}' failed: {reason}",
        hint="--edit changes the host's file instead",
    )
