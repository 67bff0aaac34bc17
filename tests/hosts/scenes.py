"""The command in a home folder of its own: nothing of the real one is seen or touched."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from tests import quick_command

TIMEOUT = 60  # seconds, on a busy machine


class Done(NamedTuple):
    """What a run of the command came to."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


class Person(NamedTuple):
    """Somebody with a home, a folder to work in, and the programs of `path`."""

    home: Path
    folder: Path
    path: str = "/usr/bin:/bin"

    @property
    def config(self) -> Path:
        return self.folder / "workbench-config.json"

    def environ(self, **more: str) -> dict[str, str]:
        """Few variables, so that no host of this machine is found; those of coverage stay."""
        kept = {k: v for k, v in os.environ.items() if k.startswith(("COVERAGE", "PYTHON"))}
        return {**kept, "HOME": str(self.home), "PATH": self.path, "PYTHONUTF8": "1", **more}

    def types(self, *argv: str, stdin: str = "", **variables: str) -> Done:
        env = self.environ(**variables)
        streams = quick_command.Streams(stdin)
        done = quick_command.run(argv, cwd=self.folder, env=env, streams=streams, timeout=TIMEOUT)
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)


def newcomer(folder: Path) -> Person:
    person = Person(folder / "home", folder / "work")
    person.home.mkdir()
    person.folder.mkdir()
    return person
