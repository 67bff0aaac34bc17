"""`undo`: reverts what commands have changed in the files of hosts and in the configuration."""

import os
import time
from pathlib import Path

import click

from mcp_workbench.cli.settings import DONE, Settings, global_options, variable
from mcp_workbench.cli.terminal import glyph, plain, say, say_json, table
from mcp_workbench.hosts.files import shown, this_machine
from mcp_workbench.hosts.journal import Record, Undone, own_journal
from mcp_workbench.hosts.journal import undo as undo_record

_UNDONE = {
    "exactly": "restored, byte for byte",
    "editing": "file changed since; reverted only our edit",
    "not at all": "nothing to do",
}


@click.command()
@click.argument("number", metavar="[ID]", type=int, required=False)
@click.option(
    "--list", "listing", is_flag=True, help="Show what can be undone.", **variable("UNDO_LIST")
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Everything, the newest first.",
    **variable("UNDO_ALL"),
)
@global_options
@click.pass_obj
def undo(settings: Settings, number: int | None, *, listing: bool, everything: bool) -> int:
    """Undo what `install`, `uninstall` or `doctor --fix` has changed in the files of hosts, and what
    `import`, `add`, `remove`, `enable`, `disable` or `init` has changed in the configuration.

    A file that has not changed since is restored byte for byte. In one that has, only our edit is
    reverted: what we added is removed, and what we removed is added again.

    \b
    Examples:
      mcp-workbench undo --list
      mcp-workbench undo          the last one
      mcp-workbench undo 6        that one
    """
    journal = own_journal(os.environ)
    if listing:
        _list_records(settings, journal.records())
        return DONE
    if everything and number is not None:
        raise click.UsageError("An ID and --all can't stand together")
    last = journal.record(number)  # none is an error, of --all, too
    records = journal.not_undone()[::-1] if everything else [last]
    done = [(record, undo_record(journal, record)) for record in records]
    if settings.json:
        say_json([{"id": record.id, "files": files} for record, files in done])
    else:
        for record, files in done:
            _print_undone(settings, record, files)
    return DONE


def _print_undone(settings: Settings, record: Record, files: list[Undone]) -> None:
    machine = this_machine()
    say(f"{record.id} {record.command}")
    for file in files:
        mark = glyph("doubtful" if file.left else "good")
        place = plain(shown(Path(file.file), machine))
        say(f"{mark} {place}: {_UNDONE[file.how]}", color=settings.color)
        for name in file.left:
            say(f"    {plain(name)} has changed since and stays")


def _list_records(settings: Settings, records: list[Record]) -> None:
    if settings.json:
        say_json(
            [
                {
                    "id": record.id,
                    "command": record.command,
                    "time": record.time,
                    "undone": record.undone,
                    "files": [step.file for step in record.steps],
                }
                for record in records
            ]
        )
        return
    if not records and settings.talkative:
        say("nothing to undo: no file was changed yet", err=True)
    machine = this_machine()
    rows = [
        (
            str(record.id),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(record.time)),
            record.command,
            "undone" if record.undone else "",
            "  ".join(shown(Path(step.file), machine) for step in record.steps),
        )
        for record in records
    ]
    for line in table(rows):
        say(line)
