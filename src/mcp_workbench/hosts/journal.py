"""Applies planned changes and undoes them: a journal keeps what each file was before."""

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import msgspec

from mcp_workbench.config.state_home import (
    private_folder,
    read_own,
    require_private,
    state_home,
    write_whole,
)
from mcp_workbench.hosts.files import (
    MOST_BYTES,
    CannotEdit,
    HostFault,
    Keys,
    changed_since,
    created_folders,
    not_editable,
    read_file,
    remove_folders,
    replace_file,
)
from mcp_workbench.hosts.plan import Change, Member, editor
from mcp_workbench.hosts.put_back import put_back
from mcp_workbench.hosts.read import decoded, value_at, value_of

COMMAND_TIMEOUT = 60.0  # seconds; some hosts look for updates first
OUTPUT_TAIL = 6  # lines of a failed command's output in the error
_NUMBER = re.compile(r"[0-9]{1,9}")


class Step(msgspec.Struct, frozen=True):
    """One file that was changed. Hashes are empty if there was no file."""

    host: str
    file: str
    format: str
    before: str
    after: str
    backup: str = ""  # name of the copy of the old bytes
    mode: int = 0o600
    folders: tuple[str, ...] = ()  # created for it
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
    """All records, in a folder of mode 0700: the copies may hold secrets."""

    def __init__(self, home: str) -> None:
        self._home = home  # empty if there is no state folder: nothing was kept, and nothing can be
        self._folder = Path(home)

    def records(self) -> list[Record]:
        """Returns all records, oldest first."""
        records: list[Record] = []
        if not self._home:
            return records
        require_private(self._home, "journal")  # it decides which bytes go into which file
        for file in sorted((self._folder / "journal").glob("[0-9]*.json")):
            try:
                records.append(msgspec.json.decode(read_own(str(file), MOST_BYTES), type=Record))
            except (OSError, msgspec.MsgspecError):
                continue  # half written in a crash, before anything was changed
        return sorted(records, key=lambda record: record.id)

    def not_undone(self) -> list[Record]:
        """Returns the records that can still be undone, oldest first."""
        return [record for record in self.records() if not record.undone]

    def record(self, number: int | None) -> Record:
        """Returns the record with this number, or the last that can still be undone."""
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
        """Saves the present bytes of all files. Nothing may be changed before."""
        for name in ("journal", "backups"):
            private_folder(self._home, name)
        number = self._claim()
        steps = [self._step(number, index, change) for index, change in enumerate(changes)]
        record = Record(number, command, time.time(), tuple(steps))
        self.save(record)
        return record

    def save(self, record: Record) -> None:
        write_whole(str(self._file(record.id)), msgspec.json.encode(record), durable=True)

    def discard(self, record: Record) -> None:
        """Removes a record of which nothing was done."""
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
        """Returns a number that no other process has claimed."""
        files = (self._folder / "journal").glob("[0-9]*.json")
        taken = [int(file.stem) for file in files if _NUMBER.fullmatch(file.stem)]  # no copies
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
            write_whole(str(self._folder / "backups" / backup), change.before, durable=True)
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
    """Returns the journal in our state folder."""
    return Journal(state_home(environ))


def digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()


def apply_changes(
    journal: Journal,
    command: str,
    changes: list[Change],
    starting: Callable[[Change], None] = lambda change: None,
) -> Record:
    """Applies all changes. If one fails, those before it stay, and the error says how to undo them.

    Calls `starting` before each one: a host's own command may take seconds.
    """
    record = journal.begin(command, changes)
    for index, change in enumerate(changes):
        step = record.steps[index]
        starting(change)
        try:
            done = _by_host(change, step) if change.own else _by_us(change, step)
        except (HostFault, OSError) as error:
            _stop(journal, record, index)
            raise _with_undo_hint(error, record.id if index else 0) from error
        steps = (*record.steps[:index], done, *record.steps[index + 1 :])
        record = msgspec.structs.replace(record, steps=steps)
        journal.save(record)
    return record


def _by_us(change: Change, step: Step) -> Step:
    replace_file(change.path, change.before, change.after, step.mode)
    return step


def _by_host(change: Change, step: Step) -> Step:
    if read_file(change.path) != change.before:
        raise changed_since(str(change.path))
    try:
        run_host_command(change.own)
        now = read_file(change.path)
        text = decoded(now or b"", str(change.path))
        lookup = editor(change.format).lookup
        if any(lookup(text, keys) is not None for keys in change.removed):
            raise silent_failure(change.own[0], str(change.path))
        added = tuple(Member(m.keys, lookup(text, m.keys)) for m in change.added)
        if any(member.value is None for member in added):
            raise silent_failure(change.own[0], str(change.path))
    except HostFault:
        _restore(change, step)
        raise
    return msgspec.structs.replace(step, after=digest(now), added=added)


def _restore(change: Change, step: Step) -> None:
    """Restores the file: a host's command that failed may have changed it."""
    now = read_file(change.path)
    if now != change.before:
        replace_file(change.path, now, change.before, step.mode)


def _stop(journal: Journal, record: Record, done: int) -> None:
    if done:
        journal.save(msgspec.structs.replace(record, steps=record.steps[:done]))
    else:
        journal.discard(record)


def _with_undo_hint(error: Exception, undo: int) -> Exception:
    if not undo or not isinstance(error, HostFault):
        return error
    hint = f"{error.hint}; mcp-workbench undo {undo} takes back what was done before it"
    return HostFault(error.code, error.message, hint=hint)


class Undone(msgspec.Struct, frozen=True):
    """The result for one file."""

    host: str
    file: str
    how: str
    left: tuple[str, ...] = ()


def undo(journal: Journal, record: Record) -> list[Undone]:
    """Undoes a record, the last file first."""
    results: list[Undone] = []
    for step in reversed(record.steps):
        decision = plan_undo(step, journal.backup(step))
        if decision.now != decision.then:
            replace_file(Path(step.file), decision.now, decision.then, step.mode)
        if decision.then is None:
            remove_folders(step.folders)
        results.append(Undone(step.host, step.file, decision.how, decision.left))
    journal.save(msgspec.structs.replace(record, undone=True))
    return results


class UndoPlan(msgspec.Struct, frozen=True):
    """How to undo a step: `exactly`, by `editing` a file that has changed since, or `not at all`."""

    how: str
    now: bytes | None
    then: bytes | None
    left: tuple[str, ...] = ()  # members that were changed since, and stay


def plan_undo(step: Step, backup: bytes | None) -> UndoPlan:
    """Plans to undo one step; in a file that has changed since, only our members are reverted."""
    now = read_file(Path(step.file))
    if digest(now) == step.before or now is None:
        return UndoPlan("not at all", now, now)
    if digest(now) == step.after:
        return UndoPlan("exactly", now, backup)
    text = decoded(now, step.file)
    value_of(text, step.format, step.file)
    before = decoded(backup or b"", step.file)
    tool = editor(step.format)
    try:
        text, left = _without_ours(tool, step, text, before)
        text = _with_theirs(tool, step, text, before)
    except CannotEdit as error:
        raise not_editable(step.file, error) from None
    return UndoPlan("editing", now, text.encode(), left)


def _without_ours(
    tool: ModuleType, step: Step, text: str, before: str
) -> tuple[str, tuple[str, ...]]:
    left: list[str] = []
    for member in step.added:
        current, old = tool.lookup(text, member.keys), tool.lookup(before, member.keys)
        if current is None:
            continue
        if current != member.value:
            left.append(".".join(member.keys))
        elif old is None:
            text = tool.remove(text, member.keys)
        else:
            text = tool.put(text, member.keys, old)
    return text, tuple(left)


def _with_theirs(tool: ModuleType, step: Step, text: str, before: str) -> str:
    then, now = tool.lookup(before, ()), tool.lookup(text, ())
    missing = [
        keys
        for keys in step.removed
        if value_at(then, keys) is not None and value_at(now, keys) is None
    ]
    return put_back(text, before, missing, step.format) if missing else text


def available(words: tuple[str, ...]) -> bool:
    return bool(words) and shutil.which(words[0]) is not None


def run_host_command(words: tuple[str, ...]) -> None:
    """Runs a host's own command; an error has the end of its output."""
    program = shutil.which(words[0])
    if program is None:
        raise _failed(words[0], "it is not there any more")
    try:
        done = subprocess.run(  # noqa: S603 - words of the table and ours, without a shell
            [program, *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failed(words[0], f"it did not end within {COMMAND_TIMEOUT:g} seconds") from None
    except OSError as error:
        raise _failed(words[0], error.strerror or str(error)) from None
    if done.returncode:
        lines = done.stdout.decode(errors="replace").strip().splitlines()[-OUTPUT_TAIL:]
        raise _failed(words[0], "\n".join((f"exit status {done.returncode}", *lines)))


def silent_failure(program: str, file: str) -> HostFault:
    return _failed(program, f"it ended well, but its entry is not as expected in {file}")


def _failed(program: str, reason: str) -> HostFault:
    return HostFault(
        "own_command_failed",
        f"the host's own command '{program}' failed: {reason}",
        hint="--edit changes the host's file instead",
    )
