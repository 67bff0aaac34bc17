"""What is kept of each change, and that it is undone exactly, in part, or not at all."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench.config.state_home import NotPrivate
from mcp_workbench.core.errors import ConfigError
from mcp_workbench.hosts.files import HostFault
from mcp_workbench.hosts.journal import (
    Journal,
    Record,
    Step,
    Undone,
    UndoPlan,
    apply_changes,
    available,
    digest,
    plan_undo,
    run_host_command,
    undo,
)
from mcp_workbench.hosts.plan import Change, Member, edited

if sys.platform == "win32":
    pytest.skip("there are no such programs here", allow_module_level=True)

OURS = Member(("mcpServers", "workbench"), {"command": "w"})
THEIRS = ("mcpServers", "old")
BEFORE = '{"mcpServers": {"old": {"command": "o"}}, "a": 1}'


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    home = tmp_path / "state"
    home.mkdir(mode=0o700)
    return Journal(str(home))


def change(path: Path, text: str | None = BEFORE, **more: Any) -> Change:
    """Our entry goes into this file, and theirs out of it."""
    if text is not None:
        path.write_text(text)
    removed = more.pop("removed", (THEIRS,) if text is not None else ())
    after = edited(text or "", "json", (OURS,), removed)
    before = None if text is None else text.encode()
    return Change("cursor", path, "json", before, after.encode(), (OURS,), removed, **more)


def program(folder: Path, script: str) -> str:
    path = folder / "host"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return str(path)


def test_a_change_is_kept_whole_with_all_that_undoes_it(journal: Journal, tmp_path: Path) -> None:
    old, new = tmp_path / "a.json", tmp_path / "x" / "y" / "b.json"
    first, second = change(old), change(new, None)
    old.chmod(0o640)

    record = apply_changes(journal, "install --yes", [first, second])

    assert (old.read_bytes(), new.read_bytes()) == (first.after, second.after)
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert [msgspec.to_builtins(step) for step in record.steps] == [
        {
            "host": "cursor",
            "file": str(old),
            "format": "json",
            "before": digest(BEFORE.encode()),
            "after": digest(first.after),
            "backup": "0001-0",
            "mode": 0o640,
            "folders": (),
            "added": ({"keys": OURS.keys, "value": OURS.value},),
            "removed": (THEIRS,),
        },
        {
            "host": "cursor",
            "file": str(new),
            "format": "json",
            "before": "",
            "after": digest(second.after),
            "backup": "",
            "mode": 0o600,
            "folders": (str(new.parent), str(new.parent.parent)),
            "added": ({"keys": OURS.keys, "value": OURS.value},),
            "removed": (),
        },
    ]
    assert journal.records() == journal.not_undone() == [record]
    assert (record.id, record.command, record.undone) == (1, "install --yes", False)

    assert undo(journal, record) == [
        Undone("cursor", str(new), "exactly"),
        Undone("cursor", str(old), "exactly"),
    ]
    assert old.read_text() == BEFORE
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert not (tmp_path / "x").exists()
    assert journal.not_undone() == []
    assert [one.undone for one in journal.records()] == [True]


def test_the_last_change_that_can_be_undone_is_meant_unless_one_is_named(
    journal: Journal, tmp_path: Path
) -> None:
    records = [
        apply_changes(journal, name, [change(tmp_path / f"{name}.json")]) for name in ("a", "b")
    ]
    undo(journal, records[1])

    assert journal.record(None) == records[0] == journal.record(1)
    for number, message, hint in (
        (2, "change 2 has been undone already", ""),
        (7, "there is no change 7", "mcp-workbench undo --list shows them"),
    ):
        with pytest.raises(HostFault) as fault:
            journal.record(number)
        assert (fault.value.code, fault.value.message, fault.value.hint) == (
            "nothing_to_undo", message, hint,
        )  # fmt: skip
    undo(journal, records[0])
    with pytest.raises(HostFault, match=r"^there is nothing to undo"):
        journal.record(None)


def test_a_number_that_another_process_has_is_not_taken_twice(
    journal: Journal, tmp_path: Path
) -> None:
    apply_changes(journal, "a", [change(tmp_path / "a.json")])
    folder = tmp_path / "state" / "journal"
    (folder / "0002.json").touch()  # of a process that was just killed
    (folder / "0009 copy.json").write_text("{}")

    record = apply_changes(journal, "b", [change(tmp_path / "b.json")])

    assert record.id == 3
    assert [one.id for one in journal.records()] == [1, 3]


def test_a_folder_that_others_can_write_undoes_nothing(journal: Journal, tmp_path: Path) -> None:
    record = apply_changes(journal, "a", [change(tmp_path / "a.json")])
    for name in ("journal", "backups"):
        (tmp_path / "state" / name).chmod(0o770)
        with pytest.raises(NotPrivate):
            journal.records() if name == "journal" else undo(journal, record)
        (tmp_path / "state" / name).chmod(0o700)

    assert OURS.keys[1] in (tmp_path / "a.json").read_text()


def test_without_a_state_folder_there_are_no_records() -> None:
    assert Journal("").records() == []


# What has changed since


@pytest.mark.parametrize(
    ("now", "how", "then", "left"),
    [
        (
            {"mcpServers": {"workbench": {"command": "w"}, "new": {}}, "a": 2},
            "editing",
            {"mcpServers": {"new": {}, "old": {"command": "o"}}, "a": 2},
            (),
        ),
        (
            {"mcpServers": {"workbench": {"command": "mine"}}},
            "editing",
            {"mcpServers": {"workbench": {"command": "mine"}, "old": {"command": "o"}}},
            ("mcpServers.workbench",),
        ),
        (
            {"mcpServers": {"old": {"command": "theirs"}}},
            "editing",
            {"mcpServers": {"old": {"command": "theirs"}}},
            (),
        ),
    ],
    ids=["another entry", "ours rewritten", "both back"],
)
def test_of_a_file_that_has_changed_only_our_part_is_undone(
    journal: Journal, tmp_path: Path, now: Any, how: str, then: Any, left: tuple[str, ...]
) -> None:
    path = tmp_path / "a.json"
    record = apply_changes(journal, "a", [change(path)])
    path.write_text(json.dumps(now))

    assert undo(journal, record) == [Undone("cursor", str(path), how, left)]
    assert json.loads(path.read_text()) == then


def test_what_our_entry_replaced_returns(journal: Journal, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    there = json.dumps({"mcpServers": {"workbench": {"command": "older"}}})
    record = apply_changes(journal, "a", [change(path, there, removed=())])
    path.write_text(path.read_text().replace("{", '{"b": 1, ', 1))

    assert undo(journal, record) == [Undone("cursor", str(path), "editing")]
    assert json.loads(path.read_text()) == {"b": 1, **json.loads(there)}


@pytest.mark.parametrize("now", [BEFORE, None])
def test_a_file_that_is_as_before_or_gone_is_left_alone(
    journal: Journal, tmp_path: Path, now: str | None
) -> None:
    path = tmp_path / "a.json"
    record = apply_changes(journal, "a", [change(path)])
    path.unlink()
    if now is not None:
        path.write_text(now)
    raw = None if now is None else now.encode()

    assert plan_undo(record.steps[0], BEFORE.encode()) == UndoPlan("not at all", raw, raw)
    assert undo(journal, record) == [Undone("cursor", str(path), "not at all")]
    assert path.exists() == (now is not None)


def test_a_file_that_its_host_could_not_read_is_not_edited(
    journal: Journal, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    record = apply_changes(journal, "a", [change(path)])
    path.write_text('{"mcpServers": {,}}')

    with pytest.raises(ConfigError, match=":1:17 expected a name"):
        undo(journal, record)

    assert path.read_text() == '{"mcpServers": {,}}'
    assert journal.not_undone() == [record]


# Failures


def test_a_file_that_has_changed_since_the_preview_is_left_alone(
    journal: Journal, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    planned = change(path)
    path.write_text("{}")

    for own in ((), ("true",)):
        with pytest.raises(HostFault) as fault:
            apply_changes(journal, "a", [msgspec.structs.replace(planned, own=own)])
        assert (fault.value.code, fault.value.message, fault.value.hint) == (
            "file_changed",
            f"{path} has changed since it was previewed; it was left alone",
            "run the command again and look at the new preview",
        )

    assert path.read_text() == "{}"
    assert journal.records() == []
    assert list((tmp_path / "state" / "backups").iterdir()) == []


def test_what_was_done_before_a_failure_is_kept_and_named(journal: Journal, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.json" for name in "abc"]
    changes = [change(path) for path in paths]
    paths[1].write_text("{}")
    started: list[str] = []

    with pytest.raises(HostFault) as fault:
        apply_changes(journal, "all", changes, lambda one: started.append(one.path.name))

    assert fault.value.hint == (
        "run the command again and look at the new preview; "
        "mcp-workbench undo 1 takes back what was done before it"
    )
    assert started == ["a.json", "b.json"]
    (record,) = journal.records()
    assert [Path(step.file).name for step in record.steps] == ["a.json"]
    undo(journal, record)
    assert [path.read_text() for path in paths] == [BEFORE, "{}", BEFORE]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 0", "it ended well, but its entry is not as expected in {file}"),
        ("echo '{}' > {file}", "it ended well, but its entry is not as expected in {file}"),
        (
            'echo \'{"mcpServers": {"workbench": 1, "old": 2}}\' > {file}',
            "it ended well, but its entry is not as expected in {file}",
        ),
        ("echo no > {file}; seq 9; echo full >&2; exit 3", "exit status 3\n5\n6\n7\n8\n9\nfull"),
    ],
    ids=["nothing", "not ours", "theirs is there", "fails"],
)
def test_a_host_s_command_that_has_not_done_it_leaves_the_file_as_it_was(
    journal: Journal, tmp_path: Path, script: str, reason: str
) -> None:
    path = tmp_path / "a.json"
    words = (program(tmp_path, script.replace("{file}", str(path))),)

    with pytest.raises(HostFault) as fault:
        apply_changes(journal, "a", [change(path, own=words)])

    assert fault.value.code == "own_command_failed"
    assert fault.value.message == (
        f"the host's own command '{words[0]}' failed: {reason.replace('{file}', str(path))}"
    )
    assert fault.value.hint == "--edit changes the host's file instead"
    assert path.read_text() == BEFORE
    assert journal.records() == []


def test_what_a_host_s_command_has_written_is_what_is_undone(
    journal: Journal, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    ours = {"type": "stdio", "command": "w"}
    written = {"mcpServers": {"workbench": ours}, "a": 1}
    words = (program(tmp_path, f"echo '{json.dumps(written)}' > {path}"),)

    record = apply_changes(journal, "a", [change(path, own=words)])

    (step,) = record.steps
    assert step.added == (Member(OURS.keys, ours),)
    assert step.after == digest(path.read_bytes())
    assert undo(journal, record) == [Undone("cursor", str(path), "exactly")]
    assert path.read_text() == BEFORE


def test_a_program_that_can_not_be_run_is_told_with_the_reason(tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.write_bytes(b"\x7fELF")
    odd.chmod(0o700)

    for word, reason in (
        (str(tmp_path / "gone"), "it is not there any more"),
        (str(odd), "Exec format error"),
    ):
        with pytest.raises(HostFault) as fault:
            run_host_command((word,))
        assert fault.value.message == f"the host's own command '{word}' failed: {reason}"


def test_a_command_is_available_if_it_is_there(tmp_path: Path) -> None:
    assert available((program(tmp_path, ""), "add"))
    assert not available((str(tmp_path / "gone"), "add"))
    assert not available(())


def test_a_record_that_was_half_written_is_none(journal: Journal, tmp_path: Path) -> None:
    folder = tmp_path / "state" / "journal"
    folder.mkdir(mode=0o700)
    (folder / "0001.json").write_bytes(msgspec.json.encode(Record(1, "a", 0.0, ()))[:-5])
    (folder / "0010.json").write_bytes(msgspec.json.encode(Record(10, "b", 0.0, ())))
    (folder / "0002.json").write_bytes(
        msgspec.json.encode(Record(2, "c", 0.0, (Step("h", "f", "json", "", ""),)))
    )

    assert [record.id for record in journal.records()] == [2, 10]
