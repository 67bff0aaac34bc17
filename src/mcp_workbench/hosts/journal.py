"""What was changed, and how it was before: so that every change can be taken back."""

import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from mcp_workbench.config.state_folder import private_folder, read_own, require_private, state_home
from mcp_workbench.hosts.contents import MOST_BYTES
from mcp_workbench.hosts.plan import Change, Keys, Member
from mcp_workbench.hosts.refusals import HostFault
from mcp_workbench.hosts.writing import created_folders, write_private


class Step(msgspec.Struct, frozen=True):
    """One file that was changed. Hashes are empty where there was no file."""

    host: str
    file: str
    format: str
    before: str
    after: str
    backup: str = ""  # the name of the copy of what was there
    mode: int = 0o600
    folders: tuple[str, ...] = ()  # that were made for it
    added: tuple[Member, ...] = ()
    removed: tuple[Keys, ...] = ()


class Record(msgspec.Struct, frozen=True):
    """One command that changed files."""

    id: int
    command: str
    time: float
    steps: tuple[Step, ...]
    undone: bool = False


class Journal:
    """All records, in a folder that nobody else can read: the copies may hold secrets."""

    def __init__(self, home: str) -> None:
        self._home = home  # empty where there is none: then nothing was kept, and nothing can be
        self._folder = Path(home)

    def records(self) -> list[Record]:
        """Oldest first."""
        found: list[Record] = []
        if not self._home:
            return found
        require_private(self._home, "journal")  # it says which bytes go into which file
        for file in sorted((self._folder / "journal").glob("[0-9]*.json")):
            try:
                found.append(msgspec.json.decode(read_own(str(file), MOST_BYTES), type=Record))
            except (OSError, msgspec.MsgspecError):
                continue  # half written when somebody pulled the plug, before anything was changed
        return sorted(found, key=lambda record: record.id)

    def not_undone(self) -> list[Record]:
        """Those that can still be taken back, oldest first."""
        return [record for record in self.records() if not record.undone]

    def record(self, number: int | None) -> Record:
        """The one with this number, or the last that can still be taken back."""
        if number is None:
            records = self.not_undone()
        else:
            records = [record for record in self.records() if record.id == number]
        if not records:
            what = "there is nothing to undo" if number is None else f"there is no change {number}"
            raise HostFault("nothing_to_undo", what, hint="mcp-workbench undo --list shows them")
        if records[-1].undone:
            raise HostFault("nothing_to_undo", f"change {number} has been undone already")
        return records[-1]

    def begin(self, command: str, changes: list[Change]) -> Record:
        """Keep what is there now. Only then may anything be touched."""
        for name in ("journal", "backups"):
            private_folder(self._home, name)
        number = self._claim()
        steps = [self._step(number, index, change) for index, change in enumerate(changes)]
        record = Record(number, command, time.time(), tuple(steps))
        self.save(record)
        return record

    def save(self, record: Record) -> None:
        write_private(self._file(record.id), msgspec.json.encode(record))

    def discard(self, record: Record) -> None:
        """Nothing was changed after all."""
        for step in record.steps:
            if step.backup:
                (self._folder / "backups" / step.backup).unlink(missing_ok=True)
        self._file(record.id).unlink(missing_ok=True)

    def backup(self, step: Step) -> bytes | None:
        if not step.backup:
            return None
        require_private(self._home, "backups")
        return read_own(str(self._folder / "backups" / step.backup), MOST_BYTES)

    def _file(self, number: int) -> Path:
        return self._folder / "journal" / f"{number:04}.json"

    def _claim(self) -> int:
        """A number that no other process has."""
        taken = [int(f.stem) for f in (self._folder / "journal").glob("[0-9]*.json")]
        number = max(taken, default=0) + 1
        while True:
            try:
                os.close(os.open(self._file(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            except FileExistsError:
                number += 1
            else:
                return number

    def _step(self, number: int, index: int, change: Change) -> Step:
        backup = ""
        if change.before is not None:
            backup = f"{number:04}-{index}"
            write_private(self._folder / "backups" / backup, change.before)
        exists = change.path.exists()
        return Step(
            change.host,
            str(change.path),
            change.format,
            digest(change.before),
            digest(change.after),
            backup,
            change.path.stat().st_mode & 0o7777 if exists else 0o600,
            tuple(str(folder) for folder in created_folders(change.path)),
            change.added,
            change.removed,
        )


def own_journal(environ: Mapping[str, str]) -> Journal:
    """The journal in our state folder."""
    return Journal(state_home(environ))


def digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()
