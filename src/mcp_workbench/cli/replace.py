"""What `install --replace` removes, after a look at our servers themselves, and `uninstall` puts back."""

import os
from pathlib import Path

import msgspec

from mcp_workbench.cli.settings import Settings
from mcp_workbench.cli.sign_in_reports import is_over, login_command, sign_ins
from mcp_workbench.config.expand import Environment
from mcp_workbench.core.catalogue import ServerReport
from mcp_workbench.core.spec import ServerAddress, ServerSpec, Snapshot
from mcp_workbench.hosts.files import HostFile, Keys, Machine
from mcp_workbench.hosts.own_config import read_config_file, servers_of
from mcp_workbench.hosts.plan import Installation, entry_to_write
from mcp_workbench.hosts.read import decoded
from mcp_workbench.hosts.replacement import OwnServers, Verdict, given_variables, judge
from mcp_workbench.hosts.restore import Removal


class KeptEntry(msgspec.Struct, frozen=True):
    """An entry that stays in a host's file, and why."""

    server: str
    reason: str


class Replacement(msgspec.Struct, frozen=True):
    """What goes from one host's file, and what stays."""

    removed: tuple[Keys, ...] = ()
    kept: tuple[KeptEntry, ...] = ()

    @property
    def names(self) -> list[str]:
        return [keys[-1] for keys in self.removed]


class NotRestored(msgspec.Struct, frozen=True):
    """Servers that `install --replace` removed from a host, and the changes that did."""

    servers: list[str]
    undo: list[int]


def plan_replacement(
    settings: Settings,
    snapshot: Snapshot,
    contents: list[tuple[HostFile, bytes | None]],
    installation: Installation,
    machine: Machine,
) -> list[Replacement]:
    """Decides on every entry of these files. Connects to the servers that entries might go for."""
    environ = _environment(snapshot)
    own = _own_servers(snapshot, environ)
    verdicts: list[list[Verdict]] = []
    for file, before in contents:
        text = decoded(before or b"", str(file.path))
        given = given_variables(entry_to_write(file, before, installation))
        verdicts.append(judge(file, text, own, given, machine))
    servers = {verdict.server for some in verdicts for verdict in some if verdict.server}
    reports = _reports(settings, snapshot, sorted(servers), environ)
    signed_in = {one.server for one in sign_ins(snapshot) if not is_over(one)}
    return [_replacement(some, reports, signed_in) for some in verdicts]


def _environment(snapshot: Snapshot) -> Environment:
    """Returns our environment, with the values of the secrets that our servers would get."""
    needed = {name: s for spec in _specs(snapshot) for name, s in spec.secrets}
    if not needed:
        return Environment(os.environ)
    from mcp_workbench.config.secret_sources import read_secrets  # few have secrets

    outcomes = read_secrets(needed, os.environ)
    return Environment(os.environ, {n: v for n, v in outcomes.items() if isinstance(v, str)})


def _specs(snapshot: Snapshot) -> list[ServerSpec]:
    return [spec for box in snapshot.toolboxes.values() for spec in box.servers.values()]


def _own_servers(snapshot: Snapshot, environ: Environment) -> OwnServers:
    entries = servers_of(read_config_file(Path(snapshot.origin)))
    disabled = {server.address: server.entry for server in entries if server.disabled}
    return OwnServers(_specs(snapshot), disabled, environ)


def _reports(
    settings: Settings, snapshot: Snapshot, servers: list[ServerAddress], environ: Environment
) -> dict[ServerAddress, ServerReport]:
    if not servers:
        return {}
    from mcp_workbench.cli.servers import survey  # loads what starts servers

    return {report.address: report for report in survey(settings, snapshot, servers, environ)}


def _replacement(
    verdicts: list[Verdict], reports: dict[ServerAddress, ServerReport], signed_in: set[str]
) -> Replacement:
    removed: list[Keys] = []
    kept: list[KeptEntry] = []
    for verdict in verdicts:
        reason = verdict.reason
        if verdict.server is not None:
            signs_in = verdict.signs_in and str(verdict.server) not in signed_in
            reason = _why_not(reports[verdict.server], signs_in=signs_in)
        if reason:
            kept.append(KeptEntry(verdict.name, reason))
        else:
            removed.append(verdict.keys)
    return Replacement(tuple(removed), tuple(kept))


def _why_not(report: ServerReport, *, signs_in: bool) -> str:
    """Returns why this server of ours can't take the place of an entry; empty if it can."""
    command = login_command(report.reason)
    if command or (signs_in and not report.reason):
        command = command or f"mcp-workbench login {report.address}"
        return f"its host signs in to it, and nobody has signed in here   fix: {command}"
    return f"{report.address} is not available: {report.reason}" if report.reason else ""


# Putting back


def missing_names(removed: list[Removal]) -> list[str]:
    return [keys[-1] for removal in removed for keys in removal.missing]


def not_restored(removed: dict[str, list[Removal]]) -> dict[str, NotRestored]:
    missing = {host: [r for r in some if r.missing] for host, some in removed.items()}
    return {
        host: NotRestored(missing_names(some), [removal.record for removal in some])
        for host, some in missing.items()
        if some
    }


def kept_instead(removed: dict[str, list[Removal]]) -> dict[str, list[KeptEntry]]:
    reason = "it is not the one that was removed, so that one is not put back"
    kept = {
        host: [KeptEntry(keys[-1], reason) for removal in some for keys in removal.replaced]
        for host, some in removed.items()
    }
    return {host: entries for host, entries in kept.items() if entries}
