"""`lock`: records what servers define, shows what differs, has it approved, and verifies it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from mcp_workbench.cli.completion import complete_server, complete_tool
from mcp_workbench.cli.settings import (
    DONE,
    FAILED,
    UNREACHABLE,
    Decorated,
    Settings,
    global_options,
    stdin_is_terminal,
    variable,
)
from mcp_workbench.cli.terminal import glyph, nearby, plain, say, say_json
from mcp_workbench.core.errors import InvalidCall, WorkbenchError
from mcp_workbench.core.lock_changes import (
    Difference,
    Hashes,
    ServerReview,
    approved,
    approved_one,
    recorded,
    rejected_all,
    review_server,
)
from mcp_workbench.core.lock_report import (
    escaped,
    is_meant,
    named,
    short_hash,
    text_diff,
    text_warnings,
)
from mcp_workbench.core.lock_states import LAUNCH
from mcp_workbench.core.spec import LockedServer, LockFile, ServerAddress, ServerSpec

if TYPE_CHECKING:
    from mcp_workbench.cli.lock_survey import ReadServer  # the event loop: not for completion

_PERSON = "only a person at a terminal can do that"
_OFFLINE = "its definitions are not cached, so only its launch line was compared"


class LockedDifference(msgspec.Struct, frozen=True):
    """One difference in the JSON of `lock`, `lock diff` and `lock verify`."""

    kind: str
    name: str
    state: str
    hash: str
    recorded: str
    diff: list[str] | None = None  # of `diff` only
    warnings: list[str] | None = None


class LockedServerReport(msgspec.Struct, frozen=True):
    """One server in the JSON of these commands."""

    server: str
    level: str
    hash: str
    reason: str  # why it could not be read; empty if it was
    definitions: int
    package: str
    recorded_package: str
    differences: list[LockedDifference]


class LockReport(msgspec.Struct, frozen=True):
    """The document that these commands print with --json."""

    file: str
    ok: bool
    servers: list[LockedServerReport]


class NotApproved(WorkbenchError):
    """An approval that is not possible."""

    code = "not_approved"


@click.group(invoke_without_command=True)
@global_options
@click.pass_context
def lock(context: click.Context) -> int | None:
    """Record what every server defines, in mcp-workbench.lock beside the configuration.

    Starts the servers and writes, for each, its launch line, its package and version where they can be
    known, and the hash of every tool, prompt, resource template and of its instructions. Commit the file:
    from then on a change is noticed. `lock` in the configuration decides what happens then: "record"
    (the default) warns, "pin" hides what has changed, "review" hides what was never approved.

    At the levels pin and review nothing that has changed is recorded anew: `lock diff` shows it, and
    `lock approve` approves it. Then the exit status is 1; 4 if a server can't be reached.

    \b
    Examples:
      mcp-workbench lock
      mcp-workbench lock diff
      mcp-workbench lock verify
    """
    if context.invoked_subcommand is not None:
        return None
    return _record(context.ensure_object(Settings))


def _record(settings: Settings) -> int:
    from mcp_workbench.cli.lock_survey import lock_of, locked_specs, read_servers
    from mcp_workbench.config.lock_file import change_lock

    snapshot = settings.snapshot()
    before = lock_of(snapshot)
    servers = read_servers(settings, snapshot, before, locked_specs(snapshot))
    readable = [server for server in servers if not server.received.reason]

    def change(entries: dict[str, LockedServer]) -> dict[str, LockedServer]:
        for server in readable:
            name = str(server.spec.address)
            review = _again(server.review, entries.get(name))
            if server.spec.lock != "review" or name in entries:
                entries[name] = recorded(review, server.fresh)
        return entries

    after = change_lock(before.path, change)
    reviews = [_again(s.review, after.servers.get(str(s.spec.address))) for s in servers]
    pending: list[ServerReview] = []
    for server, review in zip(servers, reviews, strict=True):
        if not server.received.reason:
            _keep_texts(after, server, review.entry)
            pending += [review] if review.pending else []
    failed = len(readable) < len(servers)
    if settings.json:
        reports = [_report(review, s) for review, s in zip(reviews, servers, strict=True)]
        say_json(LockReport(after.path, not pending and not failed, reports))
    else:
        _print_recorded(settings, before, after, servers, pending)
    return FAILED if pending else UNREACHABLE if failed else DONE


def _again(review: ServerReview, entry: LockedServer | None) -> ServerReview:
    """Compares the same definitions with another entry."""
    hashes: Hashes = {kind: one.hashes for kind, one in review.reviews.items()}
    return review_server(review.spec, entry, hashes, review.capabilities)


def _keep_texts(after: LockFile, server: ReadServer, entry: LockedServer | None) -> None:
    """Keeps the texts of what is recorded, for the next comparison."""
    from mcp_workbench.config.lock_texts import keep_texts, read_texts

    if entry is None:
        return
    wanted = {text for found in entry.lists.values() for text in found.values()}
    known = {**read_texts(after.path, server.spec, os.environ), **server.texts}
    texts = {text: raw for text, raw in known.items() if text in wanted}
    keep_texts(after.path, server.spec, texts, os.environ)


def _print_recorded(
    settings: Settings,
    before: LockFile,
    after: LockFile,
    servers: Sequence[ReadServer],
    pending: list[ServerReview],
) -> None:
    waiting = {review.spec.address: review for review in pending}
    for server in servers:
        address, entry = server.spec.address, after.servers.get(str(server.spec.address))
        if server.received.reason:
            say(f"{glyph('bad')} {address}: not read: {plain(server.received.reason)}")
        elif address in waiting:
            count = len(waiting[address].pending)
            say(f"{glyph('doubtful')} {address}: {_several(count, 'difference')} not approved")
            say(f"    mcp-workbench lock diff {address}")
        elif entry is not None:
            count = sum(map(len, entry.lists.values()))
            package = f", {plain(entry.package)}" if entry.package else ""
            say(f"{glyph('good')} {address}: {_several(count, 'definition')}{package}")
    word = "is unchanged" if before.servers == after.servers else "is written"
    if settings.talkative:
        say(f"{nearby(after.path)} {word}", err=True)


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


# Differences


@lock.command("diff")
@click.argument(
    "which", metavar="[TOOLBOX[/SERVER[/TOOL]]]", default="", shell_complete=complete_tool
)
@global_options
@click.pass_obj
def diff(settings: Settings, which: str) -> int:
    """Show how the servers differ from the lock file.

    Starts the servers, and shows every definition that is new or has changed: the old and the new text,
    field by field, with everything that can't be seen spelled out, and warnings about concealed text and
    suspicious phrases. The hash is what `lock approve` wants, so that nothing is approved that was not
    shown. Nothing is written. Exit status 1 if there is a difference, 4 if a server can't be reached.

    \b
    Examples:
      mcp-workbench lock diff
      mcp-workbench lock diff dev/github
      mcp-workbench lock diff dev/github/create_issue
    """
    from mcp_workbench.cli.lock_survey import lock_of, locked_specs, read_servers

    snapshot = settings.snapshot()
    locked = lock_of(snapshot)
    server_name, tool = _split(which)
    servers = read_servers(settings, snapshot, locked, locked_specs(snapshot, server_name))
    found: list[LockedServerReport] = []
    for server in servers:
        shown = [d for d in server.review.differences if not tool or d.name == tool]
        report = _report(server.review, server, shown, _texts_of(locked, server))
        found.append(report)
        if not settings.json:
            _print_difference(report, server, whole=not tool)
    differ = any(report.differences for report in found)
    failed = any(report.reason for report in found)
    if settings.json:
        say_json(LockReport(locked.path, not differ and not failed, found))
    elif not differ and not failed and settings.talkative:
        say(f"nothing differs from {nearby(locked.path)}", err=True)
    return FAILED if differ else UNREACHABLE if failed else DONE


def _split(which: str) -> tuple[str, str]:
    """Returns the toolbox or server, and the tool."""
    parts = which.split("/", 2)
    return "/".join(parts[:2]), parts[2] if len(parts) == 3 else ""


def _texts_of(locked: LockFile, server: ReadServer) -> dict[str, bytes]:
    from mcp_workbench.config.lock_texts import read_texts

    return read_texts(locked.path, server.spec, os.environ)


def _report(
    review: ServerReview,
    server: ReadServer,
    differences: list[Difference] | None = None,
    old: dict[str, bytes] | None = None,
) -> LockedServerReport:
    chosen = review.pending if differences is None else differences
    entry = review.entry or LockedServer()
    return LockedServerReport(
        str(review.spec.address),
        review.spec.lock,
        review.hash,
        server.received.reason,
        sum(len(one.hashes) for one in review.reviews.values()),
        server.fresh.package,
        entry.package,
        [_difference(one, server, old) for one in chosen],
    )


def _difference(
    one: Difference, server: ReadServer, old: dict[str, bytes] | None
) -> LockedDifference:
    lines: list[str] | None = None
    warnings: list[str] | None = None
    if old is not None and one.kind == LAUNCH:
        entry = server.review.entry
        before = [f"- {escaped(entry.line)}"] if entry is not None and entry.line else []
        lines, warnings = [*before, f"+ {escaped(server.fresh.line)}"], []
    elif old is not None and one.hash:
        raw = server.texts[one.hash]
        lines = text_diff(old.get(one.recorded) if one.recorded else None, raw)
        if one.recorded and one.recorded not in old:
            lines.insert(0, "  (the recorded text is not on this machine)")
        warnings = text_warnings(raw)
    return LockedDifference(one.kind, one.name, one.state, one.hash, one.recorded, lines, warnings)


def _print_difference(report: LockedServerReport, server: ReadServer, *, whole: bool) -> None:
    address = report.server
    if report.reason:
        say(f"{glyph('bad')} {address}: not read: {plain(report.reason)}")
        return
    for one in report.differences:
        about = Difference(one.kind, one.name, "new", one.hash)
        say(
            f"{glyph('doubtful')} {address}: {named(about)}: {one.state}   {short_hash(one.hash)}".rstrip()
        )
        for line in one.diff or []:
            say(click.style(f"    {line}", fg={"-": "red", "+": "green"}.get(line[0])))
        for warning in one.warnings or []:
            say(f"    {glyph('doubtful')} {warning}")
        if one.kind == "tools" and not whole:
            target = _quoted(f"{address}/{one.name}")
            say(f"  mcp-workbench lock approve {target} {short_hash(one.hash)}")
    if report.package != report.recorded_package and server.review.entry is not None:
        say(
            f"  package: {plain(report.recorded_package or 'unknown')} → {plain(report.package or 'unknown')}"
        )
    if report.differences and whole:
        say(
            f"  mcp-workbench lock approve {address} {short_hash(report.hash)}   (all of {address})"
        )


def _quoted(target: str) -> str:
    from shlex import quote

    return quote(escaped(target))


# Decisions of a person


def _decision_arguments(function: Decorated) -> Decorated:
    which = click.argument("which", metavar="TOOLBOX/SERVER[/TOOL]", shell_complete=complete_tool)
    return which(click.argument("hash_", metavar="HASH")(global_options(function)))


@lock.command("approve")
@_decision_arguments
@click.pass_obj
def approve(settings: Settings, which: str, hash_: str) -> int:
    """Approve what `lock diff` has shown: all of a server, or one tool.

    HASH is the one that was shown, at least its first 16 digits. If the server defines something else
    by now, nothing is approved. Needs a person at a terminal, who is asked once more: no tool, no
    request and no script can approve.

    \b
    Examples:
      mcp-workbench lock approve dev/github 9f3c51a2b04e7d66
      mcp-workbench lock approve dev/github/create_issue 1f2e3d4c5b6a7988
    """
    return _decide(settings, which, hash_, "approve")


@lock.command("reject")
@_decision_arguments
@click.pass_obj
def reject(settings: Settings, which: str, hash_: str) -> int:
    """Reject what `lock diff` has shown: at the levels pin and review it stays hidden, without a warning.

    HASH is the one that was shown. A further change of the definition is another one, and pending again.

    \b
    Examples:
      mcp-workbench lock reject dev/github/create_issue 1f2e3d4c5b6a7988
    """
    return _decide(settings, which, hash_, "reject")


def _decide(settings: Settings, which: str, text: str, verb: str) -> int:
    from mcp_workbench.cli.lock_survey import lock_of, locked_specs, read_servers
    from mcp_workbench.config.lock_file import change_lock

    _require_person(settings)
    snapshot = settings.snapshot()
    before = lock_of(snapshot)
    name, tool = _split(which)
    if "/" not in name:
        raise InvalidCall("name a server, such as dev/github", hint="mcp-workbench lock diff")
    [server] = read_servers(settings, snapshot, before, locked_specs(snapshot, name))
    if server.received.reason:
        raise NotApproved(f"{name} can't be read: {server.received.reason}")
    chosen = _chosen(server.review, name, tool, text)
    if not chosen:
        say(f"{glyph('good')} {plain(which)}: nothing differs from the lock file", err=True)
        return DONE
    _confirm(chosen, name, verb)

    def change(entries: dict[str, LockedServer]) -> dict[str, LockedServer]:
        review = _again(server.review, entries.get(name))
        if verb == "reject":
            entry = rejected_all(review, chosen, server.fresh)
        elif tool:
            entry = approved_one(review, chosen[0], server.fresh)
        else:
            entry = approved(review, server.fresh)
        return {**entries, name: entry}

    after = change_lock(before.path, change)
    _keep_texts(after, server, after.servers[name])
    word = {"approve": "approved", "reject": "rejected"}[verb]
    say(f"{glyph('good')} {_several(len(chosen), 'difference')} of {name} {word}", err=True)
    return DONE


def _require_person(settings: Settings) -> None:
    if settings.no_input or not stdin_is_terminal() or not sys.stdout.isatty():
        raise NotApproved(
            _PERSON, hint="run it in a terminal, without --no-input and without a pipe"
        )


def _chosen(review: ServerReview, name: str, tool: str, text: str) -> list[Difference]:
    """Returns what the person means. Raises if that is not what there is now."""
    if not tool:
        if not is_meant(text, review.hash):
            raise _moved(name)
        return review.differences
    known = review.reviews["tools"].hashes.get(tool)
    if known is None:
        raise InvalidCall(
            f"{name} has no tool '{escaped(tool)}'", hint=f"mcp-workbench lock diff {name}"
        )
    if not is_meant(text, known):
        raise _moved(f"{name}/{escaped(tool)}")
    one = review.find("tools", tool)
    return [] if one is None else [one]


def _moved(target: str) -> NotApproved:
    message = f"this is not the hash of what {target} defines now: nothing was decided"
    return NotApproved(message, hint=f"mcp-workbench lock diff {target} shows what it is now")


def _confirm(chosen: list[Difference], name: str, verb: str) -> None:
    for one in chosen:
        say(f"  {named(one)}: {one.state}   {short_hash(one.hash)}", err=True)
    click.confirm(f"{verb} {_several(len(chosen), 'difference')} of {name}?", abort=True, err=True)


# Verification


@lock.command("verify")
@click.argument("which", metavar="[TOOLBOX[/SERVER]]", default="", shell_complete=complete_server)
@click.option(
    "--offline",
    is_flag=True,
    help="Start no server: compare launch lines, and definitions as far as they are cached.",
    **variable("LOCK_VERIFY_OFFLINE"),
)
@global_options
@click.pass_obj
def verify(settings: Settings, which: str, *, offline: bool) -> int:
    """Check that everything is as the lock file says, for CI.

    Starts the servers whose launch line is in the lock file, and no other: a server that is new, or
    whose launch line has changed, is a difference. Writes nothing.

    Exit status 0 if nothing differs, 1 if something does, 4 if a server can't be reached.

    \b
    Examples:
      mcp-workbench lock verify
      mcp-workbench lock verify --offline --json
    """
    from mcp_workbench.cli.lock_survey import (
        cached_servers,
        lock_of,
        locked_specs,
        read_servers,
    )

    snapshot = settings.snapshot()
    locked = lock_of(snapshot)
    specs = locked_specs(snapshot, which)
    strange = [s for s in specs if _launch_differs(locked, s)]
    usual = [s for s in specs if s not in strange]
    read = (
        cached_servers(locked, usual)
        if offline
        else read_servers(settings, snapshot, locked, usual)
    )
    compared = {s.spec.address: s for s in (*cached_servers(locked, strange), *read)}
    return _print_verified(settings, locked, specs, compared, offline=offline)


def _launch_differs(locked: LockFile, spec: ServerSpec) -> bool:
    from mcp_workbench.core.lock_changes import launch_state

    return launch_state(spec, locked.servers.get(str(spec.address))) != "recorded"


def _print_verified(
    settings: Settings,
    locked: LockFile,
    specs: list[ServerSpec],
    compared: dict[ServerAddress, ReadServer],
    *,
    offline: bool,
) -> int:
    reports: list[LockedServerReport] = []
    for spec in specs:
        server = compared[spec.address]
        review = server.review
        strange = review.launch != "recorded"
        wrong = [
            d
            for d in review.differences
            if (d.kind == LAUNCH or not strange)
            and d.state != "rejected"  # known, and hidden where that matters
            and not review.is_conditional(d)
        ]
        reports.append(_report(review, server, wrong))
        if not settings.json:
            _print_server(reports[-1], unread=offline and not review.reviews)
    failed = any(report.reason for report in reports)
    differ = any(report.differences or _other_package(report) for report in reports)
    if settings.json:
        say_json(LockReport(locked.path, not failed and not differ, reports))
    return FAILED if differ else UNREACHABLE if failed else DONE


def _other_package(report: LockedServerReport) -> bool:
    """Is there another version than the recorded one? Where either is not known, nobody can tell."""
    return bool(report.package and report.recorded_package) and (
        report.package != report.recorded_package
    )


def _print_server(report: LockedServerReport, *, unread: bool) -> None:
    if report.reason:
        say(f"{glyph('bad')} {report.server}: not read: {plain(report.reason)}")
        return
    if not report.differences and not _other_package(report):
        remark = f" ({_OFFLINE})" if unread else f": {_several(report.definitions, 'definition')}"
        say(f"{glyph('good')} {report.server}{remark}")
    for one in report.differences:
        about = Difference(one.kind, one.name, "new", one.hash)
        state = "not in the lock file" if one.state in ("new", "unrecorded") else one.state
        say(f"{glyph('bad')} {report.server}: {named(about)}: {state}")
    if _other_package(report):
        say(
            f"{glyph('bad')} {report.server}: package: {plain(report.recorded_package)} → {plain(report.package)}"
        )
